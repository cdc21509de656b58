"""How many files of stead a command loads, and how many of them run code: more than their definitions.

    python benchmarks/files_run.py                                      # places a small ONNX model (needs onnx)
    python benchmarks/files_run.py place net.onnx -d 3090,3060          # any other command

A file runs code if one of its functions is called while no module is being imported. Lines are those of the files that
run, read or not: what a reader would have to open to follow the command from its first word to its last.
"""

from __future__ import annotations

import inspect
import sys
import tempfile
import threading
from collections import Counter
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


def small_model(path: Path, layers: int = 4, width: int = 64) -> None:
    """Write a chain of matrix products and ReLUs as an ONNX file."""
    import numpy as np
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    nodes, weights = [], []
    for n in range(layers):
        weights.append(numpy_helper.from_array(np.ones((width, width), dtype=np.float32), f"w{n}"))
        nodes.append(helper.make_node("MatMul", [f"r{n}", f"w{n}"], [f"m{n}"]))
        nodes.append(helper.make_node("Relu", [f"m{n}"], [f"r{n + 1}"]))
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [8, width]) for name in ("r0", f"r{layers}")]
    graph = helper.make_graph(nodes, "net", ends[:1], ends[1:], weights)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), path)


def main() -> None:
    """Run the command that is given, or place a small model, and say what it took."""
    with tempfile.TemporaryDirectory() as folder:
        command = sys.argv[1:]
        if not command:
            small_model(Path(folder, "net.onnx"))
            command = ["place", f"{folder}/net.onnx", "-d", "3090,3060", "-o", f"{folder}/plan.json"]
        code, loaded, run = files_run(command)
    lines = sum(len((ROOT / file).read_text().splitlines()) for file in run)
    rooms = Counter(file.partition("/")[0] for file in run)
    print("\n".join(run), file=sys.stderr)
    print(", ".join(f"{room} {count}" for room, count in rooms.most_common()), file=sys.stderr)
    told = f"{len(run)} files run code, {lines} lines in all, {len(loaded)} are loaded"
    print(f"exit code {code}: {told}", file=sys.stderr)


if __name__ == "__main__":
    main()
