"""How many files of stead a command loads, and how many of them run code: more than their definitions.

    python benchmarks/files_run.py place net.onnx -d 3090,3060

A file runs code if one of its functions is called while no module is being imported.
"""

from __future__ import annotations

import inspect
import sys
import threading
from pathlib import Path
from types import FrameType
from typing import Any

import stead
from stead.cli.main import exit_code

ROOT = Path(stead.__file__).parent


class Watch:
    """The files of stead whose functions are called, as a profile function sees them; one for each thread."""

    def __init__(self, files: set[str]) -> None:
        self.files = files
        self.importing = 0

    def __call__(self, frame: FrameType, event: str, argument: Any) -> None:
        if event not in ("call", "return"):
            return
        code = frame.f_code
        if code.co_name == "<module>":
            self.importing += 1 if event == "call" else -1
        elif event == "call" and not self.importing and code.co_flags & inspect.CO_OPTIMIZED:
            self.files.add(code.co_filename)


def files_run(arguments: list[str]) -> tuple[int, list[str], list[str]]:
    """The exit code of a command, and the files of stead that it loads and that it runs code of."""
    seen: set[str] = set()
    threading.setprofile(lambda *event: sys.setprofile(Watch(seen)))
    sys.setprofile(Watch(seen))
    try:
        code = exit_code(arguments)
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    loaded = [Path(file) for name in list(sys.modules) if (file := getattr(sys.modules[name], "__file__", None))]
    return code, _own(loaded), _own(map(Path, seen))


def _own(files: Any) -> list[str]:
    return sorted(str(one.relative_to(ROOT)) for one in files if one.is_relative_to(ROOT) and one.suffix == ".py")


def main() -> None:
    """Run the command that is given and say what it took."""
    code, loaded, run = files_run(sys.argv[1:])
    print(f"exit code {code}: {len(run)} files run code, {len(loaded)} are loaded", file=sys.stderr)
    print("\n".join(run), file=sys.stderr)


if __name__ == "__main__":
    main()
