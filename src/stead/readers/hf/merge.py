"""Coarser graphs: neighbours of one module, or of one repeated block, become one operator.

Only operators that follow each other without a gap are joined. Whatever module paths say, such runs never wait for
each other's results, so the graph stays without cycles. What a run keeps to itself is no tensor any more: a coarse
graph does not see the activations that live inside a block. Its operators remain the kernels of the run, so that a run
takes as long as its members.
"""

from __future__ import annotations

from collections.abc import Sequence

from stead.graph import PHASES, Graph, GraphBuilder, OperatorId, TensorId
from stead.graph.kernels import Kernel

SEVERAL = "Block"  # kind of operators that stand for several kinds


def by_module(graph: Graph) -> Graph:
    """One operator for every run of operators of one module."""
    return _merged(graph, list(graph.modules))


def by_block(graph: Graph) -> Graph:
    """One operator for every repeated block, such as `model.layers.7`; the rest by module."""
    return _merged(graph, blocks_of(graph.modules))


def blocks_of(modules: Sequence[str]) -> list[str]:
    """The outermost numbered module of several that each path lies in; the path itself where there is none.

    >>> blocks_of(["embed", "layers.0.mlp.experts.3", "layers.1.mlp", "norm"])
    ['embed', 'layers.0', 'layers.1', 'norm']
    """
    numbers: dict[str, set[str]] = {}
    for path in dict.fromkeys(modules):
        for container, block in _numbered(path):
            numbers.setdefault(container, set()).add(block)
    found = {
        path: next((block for container, block in _numbered(path) if len(numbers[container]) > 1), path)
        for path in dict.fromkeys(modules)
    }
    return [found[path] for path in modules]


def _numbered(path: str) -> list[tuple[str, str]]:
    """(container, block) of every numbered component, outermost first."""
    parts = path.split(".")
    return [
        (".".join(parts[:i]), ".".join(parts[: i + 1]))
        for i, part in enumerate(parts)
        if part.isascii() and part.isdigit()
    ]


def _merged(graph: Graph, paths: Sequence[str]) -> Graph:
    """The graph of runs of operators with the same path and phase; operators without a path stay alone."""
    return _Merge(graph, paths).graph()


class _Merge:
    def __init__(self, graph: Graph, paths: Sequence[str]) -> None:
        self.fine = graph
        self.group: list[int] = []  # [operator]
        self.runs: list[list[int]] = []
        self.paths: list[str] = []  # [run]
        for v, path in enumerate(paths):
            same = bool(path) and v > 0 and path == paths[v - 1] and graph.phases[v] == graph.phases[v - 1]
            if not same:
                self.runs.append([])
                self.paths.append(path)
            self.runs[-1].append(v)
            self.group.append(len(self.runs) - 1)
        self.names = self._names()

    def graph(self) -> Graph:
        build = GraphBuilder(self.fine.name)
        tensors: dict[int, TensorId] = {}
        together = self._colocated()
        for g, run in enumerate(self.runs):
            added = self._add(build, g, run, tensors, together[g])
            for v in run:
                for t in self.fine.operator(v).writes:
                    self._tensor(build, added, g, t, tensors)
                if self.names[g] != self.fine.operator_names[v]:
                    build.fold(self.fine.operator_names[v], added)
        for source, name in self.fine.folded.items():
            build.fold(source, OperatorId(self.group[self.fine.index(name)]))
        for w, name in enumerate(self.fine.weight_names):
            users = self.fine.weight_users[
                self.fine.weight_user_first[w] : self.fine.weight_user_first[w + 1]
            ]
            groups = [OperatorId(self.group[v]) for v in users.tolist()]
            build.weight(name, size_bytes=int(self.fine.weight_bytes[w]), users=groups)
        return build.build()

    def _add(
        self, build: GraphBuilder, g: int, run: list[int], tensors: dict[int, TensorId], colocate: str
    ) -> OperatorId:
        fine = self.fine
        outside = [
            t for v in run for t in fine.operator(v).reads if self.group[int(fine.tensor_producer[t])] != g
        ]
        leader = max(run, key=lambda v: (fine.flops[v], fine.moved_bytes[v]))
        kinds = {fine.kinds[v] for v in run}
        twin = fine.twins[run[0]]
        return build.operator(
            self.names[g],
            kind=fine.kinds[leader] if len(kinds) == 1 else SEVERAL,
            reads=[tensors[t] for t in dict.fromkeys(outside)],
            flops=float(fine.flops[run].sum()),
            moved_bytes=float(fine.moved_bytes[run].sum()),
            module=self.paths[g],
            dtype=fine.dtypes[leader],
            phase=PHASES[fine.phases[run[0]]],
            twin=self.names[self.group[twin]] if twin >= 0 else "",
            colocate=colocate,
            kernels=[kernel for v in run for kernel in fine.kernels_of(v)]
            if len(run) > 1
            else self._kernels(run[0]),
        )

    def _kernels(self, v: int) -> tuple[Kernel, ...]:
        """Of an operator that stays as it is."""
        return () if self.fine.kernels is None else self.fine.kernels_of(v)

    def _tensor(
        self, build: GraphBuilder, producer: OperatorId, g: int, t: int, tensors: dict[int, TensorId]
    ) -> None:
        """Add a tensor of a run unless only the run itself reads it."""
        tensor = self.fine.tensor(t)
        if tensor.kept or not tensor.readers or any(self.group[reader] != g for reader in tensor.readers):
            tensors[t] = build.tensor(
                producer, size_bytes=tensor.size_bytes, kept=tensor.kept, name=tensor.name, shape=tensor.shape,
                dtype=tensor.dtype,
            )  # fmt: skip

    def _names(self) -> list[str]:
        """The path of a run, with a number where it is not the first of its kind."""
        taken: set[str] = set()
        names = []
        for path, run in zip(self.paths, self.runs, strict=True):
            first = self.fine.operator_names[run[0]]
            phase = PHASES[self.fine.phases[run[0]]]
            plain = first if len(run) == 1 or not path else path
            if len(run) > 1 and phase != "forward":
                plain = f"{plain}.{phase}"
            name, count = plain, 1
            while name in taken:
                count += 1
                name = f"{plain}#{count}"
            taken.add(name)
            names.append(name)
        return names

    def _colocated(self) -> list[str]:
        """A name for every set of runs with members that must share a device; empty for the others."""
        parent = list(range(len(self.runs)))

        def root(g: int) -> int:
            while parent[g] != g:
                parent[g] = parent[parent[g]]
                g = parent[g]
            return g

        first: dict[int, int] = {}
        for v, label in enumerate(self.fine.colocation.tolist()):
            if label >= 0:
                one, other = root(first.setdefault(label, self.group[v])), root(self.group[v])
                parent[max(one, other)] = min(one, other)
        bound = {root(self.group[v]) for v in range(len(self.fine)) if self.fine.colocation[v] >= 0}
        return [self.names[root(g)] if root(g) in bound else "" for g in range(len(self.runs))]
