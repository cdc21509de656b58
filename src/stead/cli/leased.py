"""A command that measures, on a machine that a worker of an engine leases for it.

The command runs in a process of its own and holds the lease itself: two measurements never share a machine, also where
a worker was killed and its command has a moment to live. It ends when the worker does.
"""

from __future__ import annotations

import base64
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from stead.engine import Engine, Task
from stead.errors import BadInput

PLACEHOLDER = "{folder}"  # in arguments: where the files are


def elsewhere(
    engine: str, arguments: list[str], profile: Path | None, output: Path | None, json: bool,
    plans: Sequence[Path] = (),
) -> int:  # fmt: skip
    """Run a command on a machine of an engine, print what it printed and keep the file that it wrote."""
    from stead.cli.options import engine_from
    from stead.files import read_bytes

    files = {path.name: read_bytes(path) for path in (*plans, *([profile] if profile is not None else []))}
    if len(files) < len(plans) + (profile is not None):
        raise BadInput("files for another machine need different names, whatever their folders")
    given = [*arguments, *(["--profile", f"{PLACEHOLDER}/{profile.name}"] if profile is not None else [])]
    with engine_from(engine) as spread:
        assert spread is not None
        return show_leased(run_leased(spread, [*given, *(["--json"] if json else [])], files), output)


def run_leased(engine: Engine, arguments: Sequence[str], files: Mapping[str, bytes]) -> dict[str, Any]:
    """Run `stead ARGUMENTS` on a machine of an engine: its exit code, what it printed, and files that it wrote."""
    packed = {name: base64.b64encode(content).decode() for name, content in files.items()}
    task = Task.of(f"stead {arguments[0]}", command, list(arguments), packed, leases_machine=True)
    found: dict[str, Any] = engine.map([task])[0].value
    return {**found, "files": {name: base64.b64decode(text) for name, text in found["files"].items()}}


def show_leased(found: dict[str, Any], output: Path | None) -> int:
    """Print what a command printed elsewhere, keep the file that it wrote; its exit code."""
    from stead.cli.streams import print_lines
    from stead.files import write_bytes

    if output is not None and output.name in found["files"]:
        write_bytes(output, found["files"][output.name])
    sys.stderr.write(found["err"])
    if found["out"]:
        print_lines(found["out"].rstrip("\n").split("\n"))
    return int(found["code"])


def command(arguments: list[str], files: dict[str, str]) -> dict[str, Any]:
    """The task: the command in a folder that holds the files."""
    with tempfile.TemporaryDirectory(prefix="stead-leased-") as folder:
        for name, text in files.items():
            Path(folder, Path(name).name).write_bytes(base64.b64decode(text))
        given = [one.replace(PLACEHOLDER, folder) for one in arguments]
        process = subprocess.Popen(
            [sys.executable, "-m", "stead.cli.leased", *given], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, text=True, start_new_session=True,
            close_fds=False,  # it inherits the lease
        )  # fmt: skip
        try:
            out, complaint = _both(process)
        except BaseException:
            process.kill()
            process.wait()
            raise
        written = {
            one.name: base64.b64encode(one.read_bytes()).decode() for one in Path(folder).iterdir() if one.is_file()
        }
        return {"code": process.returncode, "out": out, "err": complaint, "files": written}


def _both(process: subprocess.Popen[str]) -> tuple[str, str]:
    """What a command prints; its stdin stays open meanwhile."""
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stderr is not None
    told: list[str] = []
    beside = threading.Thread(target=lambda: told.append(process.stderr.read()), daemon=True)  # type: ignore[union-attr]
    beside.start()
    out = process.stdout.read()
    process.wait()
    beside.join()
    process.stdin.close()
    process.stdout.close()
    process.stderr.close()
    return out, told[0]


def main() -> None:
    """The command itself; when the worker has gone, the process and all that it started end."""
    from stead.cli.main import exit_code

    watched = os.dup(0)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    threading.Thread(target=_end_with, args=(watched,), daemon=True).start()
    sys.exit(exit_code(sys.argv[1:]))


def _end_with(watched: int) -> None:
    os.read(watched, 1)
    os.killpg(0, 9)


if __name__ == "__main__":
    main()
