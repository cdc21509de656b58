"""The executor that fits a model: chosen by what kind of model it is, or by name.

with open_executor("model.xml", workers) as executor:
    burst = executor.burst(placement, runs=5)
"""

from __future__ import annotations

import os
from importlib import import_module
from pathlib import Path
from typing import Any, Literal, get_args

from stead.errors import BadInput, did_you_mean
from stead.printing.wording import shown_path
from stead.readers.base import reader_for
from stead.run.executor import Executor, Worker

ExecutorName = Literal["auto", "torch", "openvino", "ort"]
EXECUTORS: tuple[ExecutorName, ...] = get_args(ExecutorName)

_AT = {
    "openvino": "stead.run.openvino.executor:OpenVinoExecutor",
    "ort": "stead.run.ort.executor:OrtExecutor",
}
_BY_FORMAT = {"openvino": "openvino", "onnx": "ort", "pt2": "torch"}  # of files; the first choice


def open_executor(
    model: Any, workers: tuple[Worker, ...], executor: str = "auto", **options: Any
) -> Executor:
    """What runs a model on workers: a file, a name of the zoo (`zoo:resnet50`) or a torch module.

    `auto` takes OpenVINO for its own files, ONNX Runtime for ONNX and torch for all else; `options` are those of the
    executor's class (`inputs` for a module). Leave it as a context manager, or close it, to give back what it holds.
    """
    taken = executor_for(model, executor)
    if taken == "torch":
        return _of_torch(model, tuple(workers), options)
    module, _, attribute = _AT[taken].partition(":")
    made: Executor = getattr(import_module(module), attribute)(model, tuple(workers), **options)
    return made


def _of_torch(model: Any, workers: tuple[Worker, ...], options: dict[str, Any]) -> Executor:
    from stead.run.torch_executor import TorchExecutor

    if not isinstance(model, str | os.PathLike):
        if "inputs" not in options:
            raise BadInput(
                f"to run {_told(model)}, say what it is given: open_executor(module, workers, inputs=...)"
            )
        return TorchExecutor.of_module(model, options.pop("inputs"), workers, **options)
    if str(model).startswith("zoo:"):
        return TorchExecutor.of_zoo(str(model), workers, **options)
    return TorchExecutor.of_file(Path(model), workers, **options)


def executor_for(model: Any, executor: str = "auto") -> str:
    """The name of the executor that `open_executor` takes.

    >>> executor_for("zoo:resnet50")
    'torch'
    """
    if executor not in EXECUTORS:
        raise BadInput(
            f"no executor '{executor}'{did_you_mean(executor, EXECUTORS)}; known: {', '.join(EXECUTORS)}"
        )
    is_file = isinstance(model, str | os.PathLike) and not str(model).startswith("zoo:")
    if not is_file:
        if executor in ("openvino", "ort"):
            raise BadInput(f"the executor '{executor}' runs files, not {_told(model)}; use --executor torch")
        return "torch"
    kind = reader_for(Path(model)).name
    if kind not in _BY_FORMAT:
        raise BadInput(
            f"{shown_path(model)}: a {kind} file has no operators that can be run; "
            "take an .xml, .onnx or .pt2 file or a model of the zoo"
        )
    if executor == "auto":
        return _BY_FORMAT[kind]
    if executor != _BY_FORMAT[kind] and (kind, executor) != ("onnx", "openvino"):
        raise BadInput(
            f"{shown_path(model)}: the executor '{executor}' cannot run files of {kind}; use {_BY_FORMAT[kind]}"
        )
    return executor


def _told(model: object) -> str:
    return model if isinstance(model, str) else f"a {type(model).__name__}"
