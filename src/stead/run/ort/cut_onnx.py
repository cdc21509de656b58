"""An ONNX file in memory: its nodes by the names that the reader gives them, and sub-models of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from stead.errors import BadInput, MissingExtra
from stead.graph import Graph
from stead.graph.unique_names import Names
from stead.printing.wording import one_line, shown_path
from stead.readers.common.protobuf import mapped
from stead.readers.onnx.file import ELEMENT_TYPES, read_model
from stead.readers.onnx.reader import Onnx, known_values
from stead.readers.onnx.work import IMPURE
from stead.run.segment_program import TensorLayout
from stead.run.segments import CutFile, FileNode, Segment, cut_file


def package(name: str) -> Any:
    """`onnx` or `onnxruntime`, or a MissingExtra that says how to get it."""
    try:
        return import_module(name)
    except ImportError:
        raise MissingExtra(name, "onnx", "running ONNX models") from None


@dataclass(frozen=True)
class OnnxFile:
    """A file with everything that sub-models need to know; cheap to send, since weights stay in the file."""

    path: Path
    layouts: Mapping[str, TensorLayout]  # of every tensor
    codes: Mapping[str, int]  # ONNX's element type of every tensor
    names: tuple[str, ...]  # [node] as the reader calls it

    def model(self) -> Any:
        """The model with its weights; shapes that are asked for inside of it are stored instead."""
        onnx = package("onnx")
        try:
            model = onnx.load(self.path)
        except Exception as error:
            raise BadInput(
                f"{shown_path(self.path)}: onnx cannot load it: {one_line(str(error), 300)}"
            ) from None
        kept = []
        for node, name in zip(model.graph.node, self.names, strict=True):
            node.name = name
            if node.op_type in ("Shape", "Size") and node.output[0] in self.layouts:
                model.graph.initializer.append(
                    onnx.numpy_helper.from_array(self._asked(node), node.output[0])
                )
            else:
                kept.append(node)
        del model.graph.node[:]
        model.graph.node.extend(kept)
        for info in model.graph.input:
            if info.name in self.layouts:
                info.type.tensor_type.shape.Clear()
                for size in self.layouts[info.name].shape:
                    info.type.tensor_type.shape.dim.add().dim_value = size
        return model

    def _asked(self, node: Any) -> Any:
        shape = self.layouts[node.input[0]].shape
        if node.op_type == "Size":
            return np.array(int(np.prod(shape, dtype=np.int64)), dtype=np.int64)
        given = {one.name: one.i for one in node.attribute}
        return np.array(shape[slice(given.get("start", 0), given.get("end"))], dtype=np.int64)


def read_onnx(path: Path, options: Mapping[str, Any]) -> tuple[Graph, OnnxFile]:
    """The graph that stead's reader gives, and the file ready to be cut."""
    reader = Onnx(**options)
    graph = reader.read(path).graph
    with mapped(path) as data:
        file = read_model(data)
        known = known_values(file, reader)
        numbers = {name: (one.element_type, one.shape) for name, one in known.items()}
        names = Names()
        for info in file.graph.inputs:
            if info.name not in {one.name for one in file.graph.initializers}:
                taken = {node.name for node in file.graph.nodes}
                names.unique((f"{info.name}:input" if info.name in taken else info.name) or "input")
        called = tuple(
            names.unique(node.name or next(filter(None, node.outputs), "") or node.kind)
            for node in file.graph.nodes
        )
    layouts = {
        name: TensorLayout(np.dtype(ELEMENT_TYPES[code].numpy).str, tuple(shape))
        for name, (code, shape) in numbers.items()
        if code in ELEMENT_TYPES and ELEMENT_TYPES[code].numpy
    }
    return graph, OnnxFile(path, layouts, {name: code for name, (code, _) in numbers.items()}, called)


def cut_onnx(model: Any, graph: Graph) -> CutFile:
    """The nodes of a model with the operators they belong to."""
    stored = {one.name for one in (*model.graph.initializer, *model.graph.sparse_initializer)}
    constant = set(stored)
    nodes = []
    for node in _in_order(model.graph.node, stored | {info.name for info in model.graph.input}):
        reads = (*filter(None, node.input), *_captured(node))
        fixed = all(name in constant for name in reads) and node.op_type not in IMPURE
        if fixed:
            constant.update(node.output)
        nodes.append(FileNode(node.name, reads, tuple(filter(None, node.output)), fixed))
    inputs = [info.name for info in model.graph.input if info.name not in stored]
    return cut_file(graph, nodes, inputs, [info.name for info in model.graph.output])


def _in_order(nodes: Sequence[Any], given: set[str]) -> list[Any]:
    """Nodes each after those it reads from; files may list them otherwise."""
    left, known = list(nodes), set(given)
    found: list[Any] = []
    while left:
        ready = [
            node
            for node in left
            if all(name in known for name in (*filter(None, node.input), *_captured(node)))
        ]
        if not ready:
            return found + left
        found += ready
        known.update(name for node in ready for name in node.output)
        done = set(map(id, ready))
        left = [node for node in left if id(node) not in done]
    return found


def _captured(node: Any) -> list[str]:
    """Tensors from around it that the bodies of a loop or a branch read."""
    found: dict[str, None] = {}
    for attribute in node.attribute:
        for body in (attribute.g, *attribute.graphs):
            own = {info.name for info in body.input} | {one.name for one in body.initializer}
            own |= {name for inner in body.node for name in inner.output}
            for inner in body.node:
                found.update(
                    dict.fromkeys(n for n in (*inner.input, *_captured(inner)) if n and n not in own)
                )
            found.update(dict.fromkeys(info.name for info in body.output if info.name not in own))
    return list(found)


def submodel(
    model: Any, segment: Segment, codes: Mapping[str, int], layouts: Mapping[str, TensorLayout]
) -> Any:
    """The model of a segment: its nodes, constants that they read, what it takes and gives."""
    onnx = package("onnx")
    by_name = {node.name: node for node in model.graph.node}
    maker = {name: node for node in model.graph.node for name in node.output if name}
    stored = {one.name: one for one in model.graph.initializer}
    sparse = {one.values.name: one for one in model.graph.sparse_initializer}
    inside = set(segment.nodes)
    weights: dict[str, Any] = {}
    fixed: dict[str, Any] = {}  # nodes that compute constants
    todo = [name for one in segment.nodes for name in (*by_name[one].input, *_captured(by_name[one]))]
    takes = set(segment.takes)
    while todo:
        name = todo.pop()
        if name in stored or name in sparse:
            weights[name] = stored.get(name, sparse.get(name))
        elif name in maker and name not in takes and maker[name].name not in inside | fixed.keys():
            node = maker[name]
            fixed[node.name] = node
            todo += [*node.input, *_captured(node)]
    nodes = [node for node in model.graph.node if node.name in fixed or node.name in inside]
    describe = onnx.helper.make_tensor_value_info
    graph = onnx.helper.make_graph(
        _in_order(nodes, takes | weights.keys()),
        f"{model.graph.name or 'model'}_part",
        [describe(name, codes[name], layouts[name].shape) for name in segment.takes],
        [describe(name, codes[name], layouts[name].shape) for name in segment.gives],
        [one for name, one in weights.items() if name in stored],
        sparse_initializer=[one for name, one in weights.items() if name in sparse],
    )
    made = onnx.helper.make_model(graph, ir_version=model.ir_version, opset_imports=model.opset_import)
    made.functions.extend(model.functions)
    return made
