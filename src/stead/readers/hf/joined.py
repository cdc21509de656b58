"""Several models in one graph, so that they are placed together."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from stead.errors import BadInput, did_you_mean
from stead.graph import Graph, GraphBuilder, OperatorId, TensorId
from stead.readers.base import Model


def joined(
    models: Mapping[str, Model | Graph], links: Iterable[tuple[str, str]] = (), *, name: str = ""
) -> Model:
    """One graph of several models; what belongs to a model has its name in front, as in `vision.layers.0`.

    A link (source, reader) makes one operator read what another one returns: the outputs of the model that it holds,
    or its first result where it holds none. Operators are named as in the joint graph.

    >>> from stead.testing import chain3
    >>> both = joined({"eye": chain3().graph, "mouth": chain3().graph}, links=[("eye.c", "mouth.a")])
    >>> both.graph.operator_names, both.graph.edges[2].tolist()
    (('eye.a', 'eye.b', 'eye.c', 'mouth.a', 'mouth.b', 'mouth.c'), [2, 3])
    """
    graphs: dict[str, Graph] = {}
    notes: list[str] = []
    for prefix, model in models.items():
        if isinstance(model, Model):
            if model.given is not None:
                raise BadInput(
                    f"model {prefix!r} brings seconds of its own; only models without them can be joined"
                )
            notes += [f"{prefix}: {note}" for note in model.notes]
        graphs[prefix] = model if isinstance(model, Graph) else model.graph
    return Model(_Joint(graphs, name or "+".join(graphs)).graph(list(links)), notes=tuple(notes))


class _Joint:
    def __init__(self, graphs: Mapping[str, Graph], name: str) -> None:
        if not graphs:
            raise BadInput("there is nothing to join; give at least one model")
        if not all(graphs):
            raise BadInput("a model without a name; give every model one")
        self.graphs = graphs
        self.build = GraphBuilder(name)
        self.operators: dict[str, OperatorId] = {}
        self.results: dict[str, list[TensorId]] = {}  # what a link can take from an operator

    def graph(self, links: list[tuple[str, str]]) -> Graph:
        for prefix, graph in self.graphs.items():
            self._add(f"{prefix}.", graph)
        for source, reader in links:
            for operator in (source, reader):
                if operator not in self.operators:
                    known = list(self.operators)[:20_000]
                    raise BadInput(
                        f"a link names operator {operator!r}, which no model has{did_you_mean(operator, known)}"
                    )
            if not self.results[source]:
                raise BadInput(
                    f"a link starts at {source!r}, which has no result; start it at another operator"
                )
            for tensor in self.results[source]:
                self.build.read(self.operators[reader], tensor)
        return self.build.build()

    def _add(self, prefix: str, graph: Graph) -> None:
        tensors: list[TensorId] = []
        for operator in graph.operators():
            added = self.build.operator(
                f"{prefix}{operator.name}",
                kind=operator.kind,
                reads=[tensors[t] for t in operator.reads],
                flops=operator.flops,
                moved_bytes=operator.moved_bytes,
                module=f"{prefix}{operator.module}".removesuffix("."),
                dtype=operator.dtype,
                phase=operator.phase,
                twin=f"{prefix}{graph.operator_names[operator.twin]}" if operator.twin >= 0 else "",
                colocate=f"{prefix}{operator.colocation}" if operator.colocation else "",
                kernels=() if graph.kernels is None else graph.kernels_of(operator.index),
            )
            self.operators[f"{prefix}{operator.name}"] = added
            own = [graph.tensor(t) for t in operator.writes]
            ids = [
                self.build.tensor(
                    added, size_bytes=tensor.size_bytes, kept=tensor.kept, name=f"{prefix}{tensor.name}",
                    shape=tensor.shape, dtype=tensor.dtype,
                )
                for tensor in own
            ]  # fmt: skip
            tensors += ids
            kept = [one for one, tensor in zip(ids, own, strict=True) if tensor.kept]
            self.results[f"{prefix}{operator.name}"] = kept or ids[:1]
        for w, weight in enumerate(graph.weight_names):
            users = graph.weight_users[graph.weight_user_first[w] : graph.weight_user_first[w + 1]].tolist()
            self.build.weight(
                f"{prefix}{weight}",
                size_bytes=int(graph.weight_bytes[w]),
                users=[self.operators[f"{prefix}{graph.operator_names[v]}"] for v in users],
            )
        for source, into in graph.folded.items():
            self.build.fold(f"{prefix}{source}", self.operators[f"{prefix}{into}"])
