"""A check in a process of its own: what a runtime does to its process (memory, threads, signals) stays there."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from stead.export.base import Bundle
from stead.printing.wording import one_line

LIMIT_SECONDS = 600.0


def told_by(
    module: str, job: Mapping[str, Any], work: str, environment: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """What `python -m module JOB.json` writes to answer.json in the folder `work`.

    `missing` says why there is no answer here, `error` what ended the process instead.
    """
    file = Path(work) / "job.json"
    file.write_text(json.dumps(job))
    command = [sys.executable, "-m", module, str(file)]
    given = {**os.environ, **(environment or {})}
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_SECONDS, env=given, check=False)
    except subprocess.TimeoutExpired:
        return {"missing": f"the model took more than {LIMIT_SECONDS:g} s"}
    answer = Path(work) / "answer.json"
    if not answer.is_file():
        last = one_line(done.stderr.strip().rpartition("\n")[2], 300)
        return {"error": f"the process that ran it {_ended(done.returncode)}: {last}"}
    told: dict[str, Any] = json.loads(answer.read_text())
    return told


def _ended(code: int) -> str:
    """How a process ended, and what to do where its machine cannot do what it claims to."""
    if code >= 0:
        return f"ended with code {code}"
    name = signal.Signals(-code).name
    if name != "SIGILL":
        return f"was killed ({name})"
    return f"met an instruction that this machine does not have ({name}; ONEDNN_MAX_CPU_ISA=AVX512_CORE limits torch's)"


def write_files(bundle: Bundle, folder: Path) -> None:
    """Write what a consumer loads into an empty folder."""
    for name, content in bundle.files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content.encode() if isinstance(content, str) else content)


def answer_job(path: str, answer: Mapping[str, Any]) -> None:
    """Write the answer to a job beside it."""
    Path(path).with_name("answer.json").write_text(json.dumps(answer))
