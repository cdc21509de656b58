"""Updates of tied weights in recorded training graphs: torch makes one, here each use gets its share."""

from __future__ import annotations

from dataclasses import dataclass

from stead.graph import BACKWARD, FORWARD, UPDATE, Graph, GraphBuilder, OperatorId, TensorId
from stead.graph.kernels import Kernel
from stead.readers.common.tied_weights import Use, all_reduce, are_apart

SHARE = "Update"  # kind of an operator that stands for all recorded operators of an update


def part_updates(graph: Graph) -> Graph:
    """A recorded training graph in which every use of a tied weight has its own gradient and share of the update.

    Torch adds the gradients of all uses and updates once. The additions become part of the uses, whose gradients they
    add up over micro-batches, and the update of the first use keeps its operators; every other use gets one operator
    for its share. What an operator did is done once as before. Graphs without tied weights come back as they are.
    """
    bundles = _bundles(graph)
    found = [tied for users in bundles if (tied := _tied(graph, list(users), bundles)) is not None]
    return _Parting(graph, found).graph() if found else graph


@dataclass(frozen=True, slots=True)
class _Part:
    """What belongs to one use of a tied weight in a recorded graph."""

    forward: int
    gradients: list[int]  # tensors
    additions: list[int]  # operators, of all additions those that this use does
    readers: list[int]  # backward operators that read the weight
    colocate: str


@dataclass(frozen=True, slots=True)
class _Tied:
    """A tied weight of a recorded graph."""

    name: str
    weights: list[int]  # with its gradient and the state of the optimiser
    size_bytes: int  # of the gradient
    parts: list[_Part]
    updates: list[int]
    summed: int  # tensor


def _bundles(graph: Graph) -> dict[tuple[int, ...], list[int]]:
    """Weights by their users, such as the gradient of a parameter and the state of its optimiser."""
    by_users: dict[tuple[int, ...], list[int]] = {}
    first, users = graph.weight_user_first.tolist(), graph.weight_users.tolist()
    for w in range(len(graph.weight_bytes)):
        by_users.setdefault(tuple(users[first[w] : first[w + 1]]), []).append(w)
    return by_users


def _tied(graph: Graph, users: list[int], bundles: dict[tuple[int, ...], list[int]]) -> _Tied | None:
    """What is needed to part the update of a weight; None where it has one use, or is updated in a way of its own."""
    forward = [v for v in users if graph.phases[v] == FORWARD]
    updates = [v for v in users if graph.phases[v] == UPDATE]
    if not updates or len(forward) < 2 or not are_apart([graph.modules[v] for v in forward]):
        return None
    label = int(graph.colocation[updates[0]])
    members = [v for v in range(len(graph)) if graph.colocation[v] == label] if label >= 0 else []
    additions = [v for v in members if graph.phases[v] == BACKWARD]
    if not additions or sorted([*additions, *updates]) != members or not set(members) <= set(users):
        return None
    made = {t for v in additions for t in graph.operator(v).writes}
    gradients = sorted({t for v in additions for t in graph.operator(v).reads} - made)
    handed_on = [t for t in made if any(graph.phases[v] == UPDATE for v in graph.tensor(t).readers)]
    sizes = {int(graph.tensor_bytes[t]) for t in (*gradients, *made)}
    if not len(made) == len(additions) == len(gradients) - 1 or len(handed_on) != 1 or len(sizes) != 1:
        return None
    parts = _parts(graph, users, forward, gradients, additions)
    if len(parts) < 2:
        return None
    own = bundles[tuple(users)]
    name = min((graph.weight_names[w] for w in own), key=len)
    weights = [*own, *(bundles.get(tuple(members), []) if members != users else [])]
    return _Tied(name, weights, sizes.pop(), parts, updates, handed_on[0])


def _parts(
    graph: Graph, users: list[int], forward: list[int], gradients: list[int], additions: list[int]
) -> list[_Part]:
    """The uses that gradients come from, in the order in which they run; none where a gradient is of something else."""
    by_use: dict[int, list[int]] = {}
    for t in gradients:
        twin = int(graph.twins[graph.tensor_producer[t]])
        if twin not in forward:
            return []
        by_use.setdefault(twin, []).append(t)
    name = graph.colocation_names[graph.colocation[additions[0]]]
    left = list(additions)
    parts = []
    for v in sorted(by_use):
        # The last use goes backward first: it adds nothing, as the first gradient meets no other one.
        count = len(by_use[v]) - (v == max(by_use))
        own, left = left[:count], left[count:]
        readers = [u for u in users if graph.twins[u] == v and graph.phases[u] == BACKWARD]
        group = int(graph.colocation[v])
        label = graph.colocation_names[group] if group >= 0 else f"{name}@{graph.operator_names[v]}"
        parts.append(_Part(v, by_use[v], own, [u for u in readers if u not in additions], label))
    return parts


class _Parting:
    """A graph on its way to one with parted updates; operators keep their numbers until it is built."""

    def __init__(self, graph: Graph, tied: list[_Tied]) -> None:
        self.old = graph
        self.tied = tied
        self.build = GraphBuilder(graph.name)
        self.tensors: dict[int, TensorId] = {}  # by their old numbers
        self.reads = [list(operator.reads) for operator in graph.operators()]
        self.colocate: dict[int, str] = {}  # what is no longer as it was
        self.use_of: dict[int, int] = {}  # addition: forward operator
        self.shares: dict[int, int] = {}  # update: among how many its work is shared out
        first, users = graph.weight_user_first.tolist(), graph.weight_users.tolist()
        self.users = [users[first[w] : first[w + 1]] for w in range(len(graph.weight_bytes))]

    def graph(self) -> Graph:
        """The new graph."""
        for one in self.tied:
            self._rearrange(one)
        self._copy()
        for one in self.tied:
            self._reduce(one)
        for w, users in enumerate(self.users):
            size = int(self.old.weight_bytes[w])
            self.build.weight(self.old.weight_names[w], size_bytes=size, users=[OperatorId(v) for v in users])
        for source, name in self.old.folded.items():
            self.build.fold(source, OperatorId(self.old.index(name)))
        return self.build.build()

    def _rearrange(self, one: _Tied) -> None:
        """Put together what belongs to each use; additions add up what its use alone contributes."""
        for part in one.parts:
            tensors = part.gradients
            for v in part.additions:
                self.reads[v], tensors = tensors, [int(self.old.tensor_first[v])]
                self.use_of[v] = part.forward
            for v in (part.forward, *part.additions, *part.readers):
                self.colocate[v] = part.colocate
        for v in one.updates:
            final = self._gradient(one.parts[0])
            self.reads[v] = [final if t == one.summed else t for t in self.reads[v]]
            self.colocate[v] = one.parts[0].colocate
            self.shares[v] = len(one.parts)

    def _gradient(self, part: _Part) -> int:
        """The tensor that is the gradient of a use."""
        return int(self.old.tensor_first[part.additions[-1]]) if part.additions else part.gradients[0]

    def _copy(self) -> None:
        """The operators and tensors of the old graph, as far as they stay what they were."""
        old, build = self.old, self.build
        for operator in old.operators():
            v = operator.index
            use = self.use_of.get(v, operator.twin)
            added = build.operator(
                operator.name,
                kind=operator.kind,
                flops=operator.flops / self.shares.get(v, 1),
                moved_bytes=operator.moved_bytes / self.shares.get(v, 1),
                module=old.modules[use] if v in self.use_of else operator.module,
                dtype=operator.dtype,
                phase=operator.phase,
                twin=old.operator_names[use] if use >= 0 else "",
                colocate=self.colocate.get(v, operator.colocation),
                kernels=self._kernels(v, self.shares.get(v, 1)),
            )
            for t in operator.writes:
                tensor = old.tensor(t)
                if tensor.size_bytes or not tensor.name.startswith("^"):
                    self.tensors[t] = build.tensor(
                        added, size_bytes=tensor.size_bytes, kept=tensor.kept, name=tensor.name, shape=tensor.shape,
                        dtype=tensor.dtype,
                    )  # fmt: skip
        for v, tensors in enumerate(self.reads):
            for t in tensors:
                if t in self.tensors:
                    build.read(OperatorId(v), self.tensors[t])
                else:  # a control dependency
                    build.follow(OperatorId(v), OperatorId(int(old.tensor_producer[t])))

    def _reduce(self, one: _Tied) -> None:
        """The all-reduce of a weight, and the share of the update of every use but the first, which has the old one."""
        old, build = self.old, self.build
        uses = [self._use(part) for part in one.parts]
        reduced = all_reduce(build, one.name, one.size_bytes, uses)
        final = self._gradient(one.parts[0])
        for v in one.updates:
            if final in self.reads[v]:
                build.follow(OperatorId(v), reduced[0][-1])
        added = [v for own in reduced for v in own]
        for part, use, own in zip(one.parts[1:], uses[1:], reduced[1:], strict=True):
            share = build.operator(
                f"{one.name}.update@{use.name}", kind=SHARE, reads=use.reads,
                after=[own[-1], *(OperatorId(v) for v in part.readers)],
                flops=float(old.flops[one.updates].sum()) / len(uses),
                moved_bytes=float(old.moved_bytes[one.updates].sum()) / len(uses),
                module=use.module, dtype=old.dtypes[one.updates[0]], phase="update", twin=use.name,
                colocate=use.colocate, kernels=[own for v in one.updates for own in self._kernels(v, len(uses))],
            )  # fmt: skip
            added.append(share)
        for w in one.weights:
            self.users[w] += added

    def _kernels(self, v: int, shares: int) -> list[Kernel]:
        """What an old operator runs, or a share of it; empty where no operator says."""
        if self.old.kernels is None:
            return []
        return [Kernel(work / shares, moved / shares, launches) for work, moved, launches in self.old.kernels.of(v)]

    def _use(self, part: _Part) -> Use:
        old, v, gradient = self.old, part.forward, self._gradient(part)
        made_by = OperatorId(int(old.tensor_producer[gradient]))
        reads = (self.tensors[gradient],)
        return Use(old.operator_names[v], old.modules[v], old.dtypes[v], part.colocate, (made_by,), reads)
