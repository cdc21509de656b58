"""A small exported program written by hand, as torch.export.save would write it."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any

FLOAT, LONG = 7, 5
SYMBOL = "Symbol('s7', positive=True, integer=True)"


def size(value: int | str, hint: int | None = None) -> dict[str, Any]:
    """A dimension: a number, or an expression with the number of the example."""
    if isinstance(value, int):
        return {"as_int": value}
    return {"as_expr": {"expr_str": value, "hint": None if hint is None else {"as_int": hint}}}


def meta(
    *sizes: Any, dtype: int = FLOAT, strides: list[int] | None = None, offset: int = 0
) -> dict[str, Any]:
    """What the file says about a tensor; dense without strides."""
    if strides is None:
        strides, step = [], 1
        for one in reversed(sizes):
            strides.insert(0, step)
            step *= one if isinstance(one, int) else 2
    return {
        "dtype": dtype,
        "sizes": [size(one, 2) if isinstance(one, str) else size(one) for one in sizes],
        "requires_grad": False,
        "device": {"type": "cpu", "index": None},
        "strides": [size(one) for one in strides],
        "storage_offset": size(offset),
        "layout": 7,
    }


def reading(name: str) -> dict[str, Any]:
    """A tensor as an argument."""
    return {"as_tensor": {"name": name}}


def node(target: str, inputs: list[Any], outputs: list[str], module: str = "") -> dict[str, Any]:
    """An operator; inputs are names of tensors or arguments with their tag."""
    arguments = [reading(one) if isinstance(one, str) else one for one in inputs]
    return {
        "target": f"torch.ops.{target}",
        "inputs": [{"name": "", "arg": one, "kind": 1} for one in arguments],
        "outputs": [reading(one) for one in outputs],
        "metadata": {"nn_module_stack": f"L__self__,,Net;L__self___{module},{module},torch.nn.Module"},
        "is_hop_single_tensor_return": None,
        "name": outputs[0] if outputs else "check",
    }


def graph(inputs: list[str], outputs: list[str], nodes: list[Any], values: dict[str, Any]) -> dict[str, Any]:
    """A graph, or a graph inside an operator."""
    return {
        "inputs": [reading(one) for one in inputs],
        "outputs": [reading(one) for one in outputs],
        "nodes": nodes,
        "tensor_values": values,
        "sym_int_values": {},
        "sym_bool_values": {},
        "is_single_tensor_return": False,
    }


def program(batch: Any = 2) -> dict[str, Any]:
    """x[batch, 4] -> linear to 6 -> two halves -> relu of one, times the other without gradients -> out."""
    inner = graph(
        ["left", "right"],
        ["product"],
        [node("aten.mul.Tensor", ["left", "right"], ["product"], "tail@1")],
        {name: meta(batch, 3) for name in ("left", "right", "product")},
    )
    nodes = [
        node("aten._assert_tensor_metadata.default", ["x"], []),
        node("aten.linear.default", ["x", "p_weight", "p_bias"], ["linear"], "net.0"),
        node("aten.slice.Tensor", ["linear", {"as_int": 1}, {"as_int": 0}, {"as_int": 3}], ["first"]),
        node("aten.slice.Tensor", ["linear", {"as_int": 1}, {"as_int": 3}, {"as_int": 6}], ["second"]),
        node("aten.relu.default", ["first"], ["relu"], "net.1"),
        node(
            "higher_order.wrap_with_set_grad_enabled",
            [{"as_bool": False}, {"as_graph": {"name": "inner", "graph": inner}}, "relu", "second"],
            ["getitem"],
        ),
    ]
    values = {
        "p_weight": meta(6, 4),
        "p_bias": meta(6),
        "x": meta(batch, 4),
        "linear": meta(batch, 6),
        "first": meta(batch, 3, strides=[6, 1]),
        "second": meta(batch, 3, strides=[6, 1], offset=3),
        "relu": meta(batch, 3),
        "getitem": meta(batch, 3),
    }
    specs = [
        {"parameter": {"arg": {"name": f"p_{name}"}, "parameter_name": f"net.0.{name}"}}
        for name in ("weight", "bias")
    ]
    return {
        "graph_module": {
            "graph": graph(["p_weight", "p_bias", "x"], ["getitem"], nodes, values),
            "signature": {
                "input_specs": [*specs, {"user_input": {"arg": reading("x")}}],
                "output_specs": [{"user_output": {"arg": reading("getitem")}}],
            },
        },
        "opset_version": {"aten": 10},
        "range_constraints": {"s7": {"min_val": 2, "max_val": 64}} if isinstance(batch, str) else {},
        "schema_version": {"major": 8, "minor": 20},
    }


def weights() -> dict[str, Any]:
    """How the archive stores the weights."""
    return {
        "config": {
            "net.0.weight": {
                "path_name": "weight_0",
                "is_param": True,
                "use_pickle": False,
                "tensor_meta": meta(6, 4),
            },
            "net.0.bias": {
                "path_name": "weight_1",
                "is_param": True,
                "use_pickle": False,
                "tensor_meta": meta(6),
            },
        }
    }


def write_archive(path: str | Path, model: Any, *, packed: bool = False, **others: Any) -> Path:
    """An archive around a document, with the weights it should have and a pickle that must stay closed."""
    method = zipfile.ZIP_DEFLATED if packed else zipfile.ZIP_STORED
    entries: dict[str, Any] = {
        "data/weights/weight_0": bytes(96),
        "data/weights/weight_1": bytes(24),
        "data/weights/model_weights_config.json": weights(),
        "data/sample_inputs/model.pt": b"cos\nsystem\n(S'touch pickled'\ntR.",
        "models/model.json": model,
        "archive_format": b"pt2",
    } | others
    with zipfile.ZipFile(path, "w", method) as archive:
        for name, content in entries.items():
            if content is not None:
                data = content if isinstance(content, bytes) else json.dumps(content).encode()
                archive.writestr(f"net/{name}", data)
    return Path(path)
