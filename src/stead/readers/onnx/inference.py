"""What is known about the values of an ONNX graph, node by node, and what the bodies inside nodes cost."""

from __future__ import annotations

from collections import ChainMap, Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field, replace
from typing import cast

from stead.graph import MAX_BYTES
from stead.printing.wording import one_line, quoted
from stead.readers.common.checked_values import Wrong
from stead.readers.common.file_nodes import checked_size
from stead.readers.common.op_costs import Shape, elements
from stead.readers.common.open_sizes import MAX_SIZE, Sizes
from stead.readers.onnx.file import (
    BOOL,
    ELEMENT_TYPES,
    FLOAT,
    INT64,
    GraphData,
    ModelData,
    NodeData,
    ValueInfo,
)
from stead.readers.onnx.shapes import infer
from stead.readers.onnx.site import Known, Site, Unclear
from stead.readers.onnx.types_and_numbers import contents, element_types
from stead.readers.onnx.work import ASIDE, IMPURE, cost, is_view

MAX_EVALUATED = 2**21  # nodes, counting the bodies of functions once for every call
MAX_CALLS = 32  # functions inside functions


@dataclass(slots=True)
class Body:
    """What the nodes inside an operator cost together."""

    flops: float = 0.0
    moved_bytes: float = 0.0
    weights: list[tuple[str, int]] = field(default_factory=list)
    nodes: int = 0
    priced: bool = True
    outputs: list[Known] = field(default_factory=list)

    def times(self, count: int) -> Body:
        """The same, run several times; weights are there once."""
        return Body(
            self.flops * count, self.moved_bytes * count, self.weights, self.nodes, self.priced, self.outputs
        )


class Inference:
    """Knows values by name, in one graph or in a body that sees the values around it."""

    def __init__(self, file: ModelData, sizes: Sizes) -> None:
        self.file = file
        self.sizes = sizes
        self.evaluated = 0
        self.calls = 0
        self.guessed: Counter[str] = Counter()
        self.contradicted = 0
        self.bodies: Counter[str] = Counter()
        self.body_nodes = 0
        self.endless = 0
        self.undecided = 0

    def site(self, node: NodeData, names: Mapping[str, Known]) -> Site:
        """A node with its operands."""
        inputs: list[Known | None] = []
        for name in node.inputs:
            if not name:
                inputs.append(None)
            elif name in names:
                inputs.append(names[name])
            else:
                raise Wrong(f"node {_shown(node)} reads {quoted(name)}, which nothing writes")
        return Site(node, inputs, self.file.opset)

    def run(self, site: Site, names: Mapping[str, Known], declared: Mapping[str, ValueInfo]) -> Body | None:
        """Fill in the results of a node; what is inside it, if it has a body."""
        self.evaluated += 1
        if self.evaluated > MAX_EVALUATED:
            raise Wrong(f"functions and bodies unfold to more than {MAX_EVALUATED} nodes")
        body = self._body(site, names)
        try:
            shapes = [known.shape for known in body.outputs] if body else infer(site)
            sure = all(one is None or one.sure for one in (*site.inputs, *(body.outputs if body else ())))
        except Unclear:
            shapes, sure = [], False
        types = [known.element_type for known in body.outputs] if body and body.outputs else self._types(site)
        site.outputs = [
            self._known(site, position, shapes, types, sure, declared.get(name))
            for position, name in enumerate(site.node.outputs)
        ]
        if not body and _is_fixed(site):
            for known in site.outputs:
                known.fixed = True
        if not body and sure:
            found = contents(
                site, [one.shape for one in site.outputs], [one.element_type for one in site.outputs]
            )
            for known, content in zip(site.outputs, found, strict=True):
                known.content = content
        return body

    def _types(self, site: Site) -> list[int]:
        try:
            return element_types(site)
        except Unclear:
            return []

    def _known(
        self,
        site: Site,
        position: int,
        shapes: Sequence[Shape],
        types: Sequence[int],
        sure: bool,
        info: ValueInfo | None,
    ) -> Known:
        """What rule and file say together; a rule with sound operands is right, else the file is."""
        declared = self.sizes.declared(info.dimensions) if info and info.dimensions is not None else None
        ruled = shapes[position] if position < len(shapes) else None
        code = (
            (info.element_type if info else 0) or (types[position] if position < len(types) else 0) or FLOAT
        )
        if ruled is not None and sure:
            self.contradicted += declared is not None and declared != ruled
            return Known(ruled, code)
        if declared is not None:
            return Known(declared, code)
        if ruled is not None:
            return Known(ruled, code, sure=False)
        if site.node.outputs[position]:
            self.guessed[site.node.kind] += 1
        first = next((one.shape for one in site.inputs if one is not None), ())
        return Known(first, code, sure=False)

    # Bodies

    def _body(self, site: Site, names: Mapping[str, Known]) -> Body | None:
        node = site.node
        function = self.file.functions.get((node.domain, node.kind))
        if function is not None:
            given = {
                info.name: known for info, known in zip(function.inputs, site.inputs, strict=False) if known
            }
            return self._evaluated(function, given)
        graphs = node.graphs()
        if not graphs:
            return None
        self.bodies[node.kind] += 1
        inside = _BODIES.get(node.kind, _other_body)
        return inside(self, site, graphs, names)

    def evaluate(self, graph: GraphData, around: Mapping[str, Known], given: Mapping[str, Known]) -> Body:
        """Costs and results of a body; it sees the values around it."""
        return self._evaluated(graph, ChainMap(dict(given), cast(MutableMapping[str, Known], around)))

    def _evaluated(self, graph: GraphData, names: MutableMapping[str, Known]) -> Body:
        self.calls += 1
        if self.calls > MAX_CALLS:
            raise Wrong(f"functions or bodies are nested more than {MAX_CALLS} deep")
        inner = ChainMap({}, names)
        body = Body(nodes=len(graph.nodes))
        stored: dict[str, int] = {}  # name: bytes, of what the body itself holds
        for tensor in graph.initializers:
            inner[tensor.name] = Known(tensor.shape, tensor.element_type, tensor.content, fixed=True)
            stored[tensor.name] = tensor.size_bytes
        for node in graph.nodes:
            self._run_inside(node, inner, graph.values, stored, body)
        body.outputs = [inner.get(info.name) or self._undefined(info.name) for info in graph.outputs]
        self._hold(body, (info.name for info in graph.outputs), inner, stored)
        self.calls -= 1
        self.body_nodes += len(graph.nodes)
        return body

    def _run_inside(
        self,
        node: NodeData,
        inner: MutableMapping[str, Known],
        declared: Mapping[str, ValueInfo],
        stored: dict[str, int],
        body: Body,
    ) -> None:
        """Add what a node costs; what is made of constants costs nothing and is held where it is read."""
        site = self.site(node, inner)
        nested = self.run(site, inner, declared)
        sizes = [size_of(name, known) for name, known in zip(node.outputs, site.outputs, strict=True)]
        inner.update({name: known for name, known in zip(node.outputs, site.outputs, strict=True) if name})
        reads = [name for name in node.inputs if name]
        if site.outputs and all(known.fixed for known in site.outputs):
            own = [stored[name] for name in dict.fromkeys(reads) if name in stored]
            if own or not reads:  # else it is made of constants around the body, which are held there
                most = sum(own) if own else MAX_BYTES  # what is unpacked from a smaller constant is held packed
                held = zip(node.outputs, sizes, strict=True)
                stored.update({name: min(size, most) for name, size in held if name})
            return
        aside = ASIDE.get(node.kind, frozenset())
        self._hold(body, (name for at, name in enumerate(node.inputs) if name and at not in aside), inner, stored)
        if nested:
            body.flops += nested.flops
            body.moved_bytes += nested.moved_bytes
            body.weights += nested.weights
            body.priced &= nested.priced
            self._hold(body, captured(node.graphs()), inner, stored)
        elif not is_view(site):
            price = cost(site)
            body.flops += price.flops
            body.priced &= price.known
            read = sum(size_of(name, inner[name]) for name in dict.fromkeys(reads))
            body.moved_bytes += sum(sizes) + (min(read, 2 * sum(sizes)) if price.picks else read)

    def _hold(
        self, body: Body, names: Iterable[str], inner: Mapping[str, Known], stored: Mapping[str, int]
    ) -> None:
        """Constants of a body that it reads as data are its weights, each once; single numbers are settings."""
        held = {name for name, _ in body.weights}
        for name in dict.fromkeys(names):
            if name in stored and name not in held and elements(inner[name].shape) > 1:
                body.weights.append((name, stored[name]))

    def _undefined(self, name: str) -> Known:
        raise Wrong(f"{quoted(name)} is a result of a body that nothing writes")

    def loop(self, site: Site, graphs: Sequence[GraphData], names: Mapping[str, Known]) -> Body:
        """Loop: trips if they are known, carried values, results of every trip one after another."""
        body, carried = graphs[0], list(site.inputs[2:])
        trips = site.inputs[0].content if site.inputs and site.inputs[0] else None
        count = max(0, min(int(trips.reshape(-1)[0]), MAX_SIZE)) if trips is not None and trips.size else 1
        self.endless += trips is None
        start: list[Known | None] = [Known((), INT64), Known((), BOOL), *carried]
        found = self.evaluate(body, names, _bound(body, start))
        kept = len(carried)
        results = found.outputs[1:]
        stacked = [_stacked(known, count, sure=trips is not None) for known in results[kept:]]
        found.outputs = [*results[:kept], *stacked]
        return found.times(count)

    def scan(self, site: Site, graphs: Sequence[GraphData], names: Mapping[str, Known]) -> Body:
        """Scan: one trip for every slice of its operands."""
        body, node = graphs[0], site.node
        slices = node.integer("num_scan_inputs", 1)
        inputs = [known for known in site.inputs if known is not None]
        if not 0 <= slices <= len(inputs):
            raise Wrong(f"node {_shown(node)} has {len(inputs)} operands, fewer than it scans")
        states = inputs[: len(inputs) - slices]
        axes = node.integers("scan_input_axes") or [0] * slices
        count, parts = 1, []
        for known, axis in zip(inputs[len(states) :], axes, strict=False):
            if not -len(known.shape) <= axis < len(known.shape):
                raise Wrong(f"node {_shown(node)} scans along dimension {axis} of a tensor without it")
            axis %= len(known.shape)
            count = known.shape[axis]
            parts.append(Known(known.shape[:axis] + known.shape[axis + 1 :], known.element_type))
        found = self.evaluate(body, names, _bound(body, [*states, *parts]))
        results = found.outputs
        found.outputs = [*results[: len(states)], *(_stacked(one, count) for one in results[len(states) :])]
        return found.times(count)

    def branch(self, site: Site, graphs: Sequence[GraphData], names: Mapping[str, Known]) -> Body:
        """If: the branch that is taken or, if nobody knows, the costlier one; with the weights of both."""
        branches = [self.evaluate(graph, names, {}) for graph in graphs]
        taken = self._taken(site)
        sure = [branch for branch, graph in zip(branches, graphs, strict=True) if graph is taken]
        self.undecided += not sure
        made = max(sure or branches, key=lambda one: (one.flops, one.moved_bytes)).times(1)
        made.weights = [weight for one in branches for weight in one.weights]
        return made

    def _taken(self, site: Site) -> GraphData | None:
        condition = site.inputs[0].content if site.inputs and site.inputs[0] else None
        if condition is None or not condition.size:
            return None
        found = site.node.attributes.get("then_branch" if condition.reshape(-1)[0] else "else_branch")
        return found if isinstance(found, GraphData) else None

    def other_body(self, site: Site, graphs: Sequence[GraphData], names: Mapping[str, Known]) -> Body:
        """An operator of unknown meaning: its bodies once each."""
        given = list(site.inputs)
        bodies = [self.evaluate(graph, names, _bound(graph, given)) for graph in graphs]
        first = bodies[0].times(1)
        for one in bodies[1:]:
            first.flops += one.flops
            first.moved_bytes += one.moved_bytes
        first.weights = [weight for one in bodies for weight in one.weights]
        return first

    def notes(self) -> Iterator[str]:
        """Sentences about what could not be told for sure."""
        if self.guessed:
            kinds = ", ".join(f"{one_line(kind, 60)} {count}" for kind, count in self.guessed.most_common(6))
            yield f"shapes of {sum(self.guessed.values())} results are guesses, those of: {kinds}"
        if self.contradicted:
            yield f"{self.contradicted} shapes in the file contradict its inputs; inferred ones are used"
        if self.bodies:
            kinds = ", ".join(f"{one_line(kind, 60)} {count}" for kind, count in self.bodies.most_common(6))
            text = f"{kinds}: each one operator that stands for its body ({self.body_nodes} nodes in all)"
            text += "; loops of unknown length count once" if self.endless else ""
            yield text + ("; of two branches the costlier one counts" if self.undecided else "")


_BODIES: dict[str, Callable[[Inference, Site, Sequence[GraphData], Mapping[str, Known]], Body]] = {
    "Loop": Inference.loop,
    "Scan": Inference.scan,
    "If": Inference.branch,
}
_other_body = Inference.other_body


def _is_fixed(site: Site) -> bool:
    """Whether the results of a node are the same in every run: stored in it, or made of what is."""
    given = [known for known in site.inputs if known is not None]
    if not given:
        return site.node.kind == "Constant"
    return site.node.kind not in IMPURE and all(known.fixed for known in given)


def _bound(graph: GraphData, given: Sequence[Known | None]) -> dict[str, Known]:
    """Inputs of a body by name; what is constant at first is not so in every trip."""
    return {
        info.name: replace(known, fixed=False) if known else Known(())
        for info, known in zip(graph.inputs, given, strict=False)
    }


def _stacked(known: Known, count: int, *, sure: bool = True) -> Known:
    return Known((count, *known.shape), known.element_type, sure=known.sure and sure)


def size_of(name: str, known: Known) -> int:
    """Bytes of a value; Wrong if its shape makes no sense."""
    bits = ELEMENT_TYPES[known.element_type].bits if known.element_type in ELEMENT_TYPES else 32
    return checked_size(f"tensor {quoted(name)}", known.shape, bits) if name else 0


def _shown(node: NodeData) -> str:
    return quoted(node.name or next(filter(None, node.outputs), node.kind))


def captured(graphs: Iterable[GraphData]) -> dict[str, None]:
    """Names that bodies read and do not define: values around them."""
    free: dict[str, None] = {}
    for graph in graphs:
        own = {info.name for info in graph.inputs} | {tensor.name for tensor in graph.initializers}
        own.update(name for node in graph.nodes for name in node.outputs)
        wanted: dict[str, None] = {}
        for node in graph.nodes:
            wanted.update(dict.fromkeys(name for name in node.inputs if name))
            wanted.update(captured(node.graphs()))
        wanted.update(dict.fromkeys(info.name for info in graph.outputs))
        free.update({name: None for name in wanted if name not in own})
    return free
