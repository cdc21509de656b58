"""An OpenVINO model in memory: its layers by name, and sub-models of it.

Layers are known by friendly name, as in the graph that the reader of these files gives; positions mean nothing, since
`get_ops` lists them in another order than the file does. A tensor is called "layer:port".
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from stead.errors import BadInput, MissingExtra
from stead.graph import Graph
from stead.printing.wording import one_line, quoted, shown_path
from stead.readers.common.op_costs import Shape
from stead.readers.openvino.work import IMPURE
from stead.run.segments import CutFile, FileNode, Segment, cut_file


def openvino() -> Any:
    """The package, or a MissingExtra that says how to get it."""
    try:
        return import_module("openvino")
    except ImportError:
        raise MissingExtra("openvino", "openvino", "running OpenVINO models") from None


def read_ir(path: Path, shapes: Mapping[str, Shape]) -> Any:
    """The model in a file with inputs of the given shapes, and shapes that follow from them stored as constants."""
    ov = openvino()
    try:
        model = ov.Core().read_model(path)
        named = {op.get_friendly_name(): op for op in model.get_parameters()}
        wanted = {named[name].output(0): list(shape) for name, shape in shapes.items() if name in named}
        if any(output.get_partial_shape().is_dynamic for output in wanted):
            model.reshape(wanted)
    except RuntimeError as error:
        raise BadInput(f"{shown_path(path)}: openvino cannot read it: {one_line(str(error), 300)}") from None
    twice = [
        name for name, count in Counter(op.get_friendly_name() for op in model.get_ops()).items() if count > 1
    ]
    if twice:
        raise BadInput(f"{shown_path(path)}: two layers are called {quoted(twice[0])}; save the model again")
    _store_shapes(model)
    return model


def _store_shapes(model: Any) -> None:
    """Replace what only asks for a shape by the answer: a tensor need not cross for that."""
    constant = import_module("openvino.opset13").constant
    for op in model.get_ordered_ops():
        if op.get_type_name() != "ShapeOf" or op.input(0).get_partial_shape().is_dynamic:
            continue
        dtype = op.output(0).get_element_type().to_dtype()
        stored = constant(np.array(list(op.input(0).get_shape()), dtype=dtype), name=op.get_friendly_name())
        for reader in op.output(0).get_target_inputs():
            reader.replace_source_output(stored.output(0))


def input_shapes(graph: Graph) -> dict[str, Shape]:
    """Shapes of the inputs, as the graph was read."""
    return {
        graph.operator_names[v]: graph.tensor_shapes[graph.tensor_first[v]]
        for v, kind in enumerate(graph.kinds)
        if kind == "Parameter" and graph.tensor_first[v] < graph.tensor_first[v + 1]
    }


def cut_ir(model: Any, graph: Graph) -> CutFile:
    """The layers of a model with the operators they belong to."""
    constant = constant_layers(model)
    nodes = [
        FileNode(
            op.get_friendly_name(), tuple(map(tensor_name, _sources(op))), written(op), name_in(constant, op)
        )
        for op in model.get_ordered_ops()
        if op.get_type_name() not in ("Parameter", "Result")
    ]
    inputs = [f"{op.get_friendly_name()}:0" for op in model.get_parameters()]
    results = [tensor_name(op.input(0).get_source_output()) for op in model.get_results()]
    return cut_file(graph, nodes, inputs, results)


def constant_layers(model: Any) -> set[str]:
    """Names of layers that give the same in every run: constants, and what is computed from them alone."""
    found: set[str] = set()
    for op in model.get_ordered_ops():
        kind, sources = op.get_type_name(), _sources(op)
        if kind == "Constant" or (
            sources
            and kind not in ("Result", *IMPURE)
            and all(name_in(found, one.get_node()) for one in sources)
        ):
            found.add(op.get_friendly_name())
    return found


def name_in(names: set[str], op: Any) -> bool:
    """Whether a layer is among those named."""
    return op.get_friendly_name() in names


def tensor_name(output: Any) -> str:
    """How a tensor is called here."""
    return f"{output.get_node().get_friendly_name()}:{output.get_index()}"


def written(op: Any) -> tuple[str, ...]:
    """The tensors that a layer writes."""
    return tuple(f"{op.get_friendly_name()}:{i}" for i in range(op.get_output_size()))


def _sources(op: Any) -> list[Any]:
    return [one.get_source_output() for one in op.inputs()]


def submodels(model: Any, segments: Sequence[Segment]) -> list[Any]:
    """Models of the segments, inputs in the order of `takes`, results in that of `gives`; `model` is used up."""
    ov, parameter = openvino(), import_module("openvino.opset13").parameter
    ops = {op.get_friendly_name(): op for op in model.get_ordered_ops()}

    def output(tensor: str) -> Any:
        name, _, port = tensor.rpartition(":")
        return ops[name].output(int(port))

    gives = [[output(tensor) for tensor in segment.gives] for segment in segments]
    made = []
    for number, (segment, results) in enumerate(zip(segments, gives, strict=True)):
        inputs = {}
        for tensor in segment.takes:
            source = output(tensor)
            inputs[tensor] = parameter(source.get_partial_shape(), source.get_element_type(), name=tensor)
        for name in segment.nodes:
            for one in ops[name].inputs():
                tensor = tensor_name(one.get_source_output())
                if tensor in inputs:
                    one.replace_source_output(inputs[tensor].output(0))
        made.append(ov.Model(results, list(inputs.values()), f"{model.get_friendly_name()}_{number}"))
    return made
