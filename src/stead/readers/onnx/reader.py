"""ONNX files to graphs, without the package `onnx`.

Shapes are inferred here and not by `onnx.shape_inference`: that stops at operators of other domains, loads all
weights and takes half a second to import. Weights are never read; files of them beside the model are not opened.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from stead.files import collector_paused
from stead.graph.unique_names import Names
from stead.printing.wording import quoted, shown_path
from stead.readers.base import Model
from stead.readers.common.checked_values import Wrong, about
from stead.readers.common.file_nodes import Node, Source, in_order, module_of
from stead.readers.common.folding import Fold, fold
from stead.readers.common.open_sizes import Given, OpenInput, Sizes, check_options
from stead.readers.common.protobuf import mapped
from stead.readers.known_formats import OfTable
from stead.readers.onnx.file import (
    ELEMENT_TYPES,
    FLOAT,
    INT32,
    INT64,
    ModelData,
    NodeData,
    TensorData,
    read_model,
)
from stead.readers.onnx.inference import Inference, captured, size_of
from stead.readers.onnx.site import Known, Unclear, constant_data
from stead.readers.onnx.work import ASIDE, IMPURE, cost, is_view, joins, operator_dtype

__all__ = ["Onnx"]


@dataclass(frozen=True, slots=True)
class Onnx(OfTable):
    """Reader of ONNX models: one operator per node, constants, views and bias additions folded."""

    name: ClassVar[str] = "onnx"

    # Open dimensions by name or as "input[0]", shapes by input; usual sizes if absent.
    shapes: Mapping[str, Given] = field(default_factory=dict)
    fold: Fold = "units"
    batch: int | None = None  # of open batch dimensions

    def __post_init__(self) -> None:
        check_options(self.shapes, self.fold, self.batch)

    def read(self, path: str | os.PathLike[str]) -> Model:
        """The graph in a file; nothing in it is executed and no weight is loaded."""
        with about(shown_path(path)), collector_paused(), mapped(path) as data:
            if not len(data):
                raise Wrong("the file is empty; export the model again")
            stem = os.path.basename(os.fspath(path)).removesuffix(".onnx")
            return _Assembly(read_model(data), self, stem).model()


def known_values(file: ModelData, reader: Onnx) -> dict[str, Known]:
    """Type and shape of every tensor of a file, at the sizes that a reader takes for open dimensions."""
    return _Assembly(file, reader, "").evaluated()


class _Assembly:
    """One file on its way to a Model."""

    def __init__(self, file: ModelData, reader: Onnx, stem: str) -> None:
        self.file = file
        self.graph = file.graph
        self.reader = reader
        self.source = Source(file.graph.name or stem)
        self.sizes = Sizes(reader.shapes, reader.batch)
        self.inference = Inference(file, self.sizes)
        self.names = Names()
        self.values: dict[str, int] = {}  # name: value
        self.known: dict[str, Known] = {}
        self.declared = {**self.graph.values, **{info.name: info for info in self.graph.outputs}}

    def model(self) -> Model:
        """The graph and what there is to say about it."""
        self.evaluated()
        for info in self.graph.outputs:
            if info.name not in self.values:
                raise Wrong(f"the output {quoted(info.name)} is written by no node")
            self.source.kept.add(self.values[info.name])
        if not self.graph.outputs:
            self._keep_unread()
        folded = fold(self.source, self.reader.fold)
        counted = f"{len(self.graph.nodes)} nodes and {len(self.graph.initializers)} initialisers in the file"
        notes = [f"{counted}, {len(folded.graph)} operators after folding (fold={self.reader.fold})"]
        notes += [*self.inference.notes(), *folded.notes()]
        return Model(folded.graph, notes=tuple(notes), assumed=self.sizes.assumed)

    def evaluated(self) -> dict[str, Known]:
        """What is known about every value: what is stored, what is given, what each node makes of it."""
        self._add_stored()
        self._add_inputs()
        links = self._linked()
        for n in in_order([node for node, _ in links], len(self.source.values)):
            self._evaluate(*links[n])
        self.source.nodes += [node for node, _ in links]
        return self.known

    def _keep_unread(self) -> None:
        """Without declared outputs, whatever nobody reads is one."""
        read = {v for node in self.source.nodes for v in node.reads}
        self.source.kept = {v for node in self.source.nodes for v in node.writes if v not in read}

    def _add_value(self, name: str, known: Known | None) -> int:
        if name in self.values:
            raise Wrong(f"{quoted(name)} is written twice; names of tensors must differ")
        shape, code = (known.shape, known.element_type) if known else ((), FLOAT)
        dtype = ELEMENT_TYPES[code].dtype if code in ELEMENT_TYPES else ""
        size = size_of(name, known) if known else 0
        self.values[name] = self.source.value(name, shape, dtype, size)
        if known:
            self.known[name] = known
        return self.values[name]

    def _add_stored(self) -> None:
        for tensor in self.graph.initializers:
            if not tensor.name:
                raise Wrong("an initialiser has no name; the file is damaged")
            self._store(tensor.name, tensor, "")

    def _store(self, name: str, tensor: TensorData, node_name: str) -> None:
        known = Known(tensor.shape, tensor.element_type, tensor.content, fixed=True)
        v = self._add_value(name, known)
        self.source.values[v].size_bytes = tensor.size_bytes
        if not node_name:
            node_name = self.names.unique(name) if self.reader.fold == "nothing" else ""
        self.source.nodes.append(Node(node_name, "Constant", writes=[v], role="stored"))

    def _add_inputs(self) -> None:
        node_names = {node.name for node in self.graph.nodes}
        # In old files every initialiser is an input too.
        inputs = [info for info in self.graph.inputs if info.name not in self.values]
        whole = [OpenInput(one.name, one.dimensions or (), one.element_type in (INT32, INT64)) for one in inputs]
        for info, shape in zip(inputs, self.sizes.shapes(whole), strict=True):
            v = self._add_value(info.name, Known(shape, info.element_type or FLOAT))
            name = f"{info.name}:input" if info.name in node_names else info.name
            node = Node(self.names.unique(name or "input"), "Input", writes=[v], role="input")
            node.dtype = self.source.values[v].dtype or "fp32"
            self.source.nodes.append(node)

    def _linked(self) -> list[tuple[Node, NodeData]]:
        """Nodes with the values they read and write, shapes still unknown."""
        links = []
        for data in self.graph.nodes:
            name = self.names.unique(data.name or next(filter(None, data.outputs), "") or data.kind)
            made = Node(name, data.kind, module=data.module or module_of(data.name))
            made.writes = [self._add_value(output, None) for output in data.outputs if output]
            links.append((made, data))
        for made, data in links:
            around = captured(data.graphs()) if data.graphs() else {}
            present = [(i, one) for i, one in enumerate(data.inputs) if one]
            aside = ASIDE.get(data.kind, frozenset())
            made.aside = frozenset(k for k, (i, _) in enumerate(present) if i in aside)
            wanted = [*(one for _, one in present), *around]
            for one in wanted:
                if one not in self.values:
                    raise Wrong(f"node {quoted(made.name)} reads {quoted(one)}, which nothing writes")
            made.reads = [self.values[one] for one in wanted]
        return links

    def _evaluate(self, node: Node, data: NodeData) -> None:
        """Shapes, role and costs of one node."""
        site = self.inference.site(data, self.known)
        body = self.inference.run(site, self.known, self.declared)
        for name, known in zip(data.outputs, site.outputs, strict=True):
            if name:
                self.known[name] = known
                value = self.source.values[self.values[name]]
                value.shape, value.size_bytes = known.shape, size_of(name, known)
                value.dtype = ELEMENT_TYPES[known.element_type].dtype
        node.dtype = operator_dtype(site)
        if data.attribute_bytes:
            node.inner_weights = [(f"{node.name}.attributes", data.attribute_bytes)]
        if body is not None:
            node.flops, node.inner_bytes, node.priced = body.flops, body.moved_bytes, body.priced
            node.inner_weights = [(f"{node.name}/{name}", size) for name, size in body.weights]
            node.pure = False
        elif data.kind == "Constant" and not data.inputs:
            self._settle_constant(node, data)
        elif data.kind in ("Shape", "Size"):
            node.role = "known"
        else:
            price = cost(site)
            node.role = "view" if is_view(site) and node.writes else "operator"
            node.flops, node.picks, node.priced = price.flops, price.picks, price.known
            node.pure = data.kind not in IMPURE
            node.joins = joins(data.kind)

    def _settle_constant(self, node: Node, data: NodeData) -> None:
        node.role = "stored"
        try:
            stored = constant_data(data)
        except Unclear:
            return
        if node.writes:
            self.source.values[node.writes[0]].size_bytes = stored.size_bytes
