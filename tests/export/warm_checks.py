"""Checks of exports as children of one process that has imported transformers, which takes longer than most checks.

    python warm_checks.py       # a job per line of JSON: module, its argument, environment, where its errors go

Answers every line with the exit code of the child. Everything else is as in `stead.export.check_process`.
"""

from __future__ import annotations

import json
import os
import runpy
import subprocess
import sys
import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import Any

OFFLINE = {"HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}


class WarmChecks:
    """The process, as long as `with` lasts."""

    def __enter__(self) -> WarmChecks:
        self.process = subprocess.Popen(
            [sys.executable, __file__], env={**os.environ, **OFFLINE}, text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        )  # fmt: skip
        return self

    def __exit__(self, *_: object) -> None:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.close()
        self.process.stdout.close()
        self.process.wait()

    def run(self, program: str, *arguments: str, environment: Mapping[str, str], errors: Path) -> int:
        """The exit code of a module, or of a file that ends in .py, with these arguments."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        job = {"program": program, "arguments": arguments, "environment": dict(environment), "errors": str(errors)}
        self.process.stdin.write(json.dumps(job) + "\n")
        self.process.stdin.flush()
        return int(self.process.stdout.readline())

    def told_by(
        self, module: str, job: Mapping[str, Any], work: str, environment: Mapping[str, str] | None = None
    ) -> dict[str, Any]:
        """As `check_process.told_by`, which it stands in for."""
        file, answer = Path(work) / "job.json", Path(work) / "answer.json"
        file.write_text(json.dumps(job))
        errors = Path(work) / "errors.txt"
        code = self.run(module, str(file), environment=environment or {}, errors=errors)
        assert answer.is_file(), f"exit code {code}: {errors.read_text()}"
        told: dict[str, Any] = json.loads(answer.read_text())
        return told


def child(job: Mapping[str, Any]) -> None:
    """Run one job and end; never return into the loop of its parent."""
    code = 1
    try:
        with open(job["errors"], "w") as errors:
            os.dup2(errors.fileno(), 2)
        os.dup2(2, 1)  # the answers to lines are of the parent alone
        os.environ.update(job["environment"])
        program = job["program"]
        sys.argv = [program, *job["arguments"]]
        run = runpy.run_path if program.endswith(".py") else runpy.run_module
        run(program, run_name="__main__")
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


def main() -> None:
    from transformers import AutoModelForCausalLM, LlamaForCausalLM  # noqa: F401  (what all checks import)

    for line in sys.stdin:
        pid = os.fork()
        if pid == 0:
            child(json.loads(line))
        _, status = os.waitpid(pid, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)


if __name__ == "__main__":
    main()
