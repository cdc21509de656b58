"""Units: operators that every runtime runs as one, found in any format alike.

    product or convolution, then a bias or scale by constants     one operator
    softmax(q k + mask) v                                         one operator, called Attention
    elementwise operators and reductions of a single tensor       one operator: GELU, Swish, a layer
                                                                  normalisation written out

All of them have one result; what is between their parts is read by no one else. So a unit never waits for
something that waits for it, and a graph of units has no cycle.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set

from stead.readers.common.file_nodes import Node, Value
from stead.readers.common.op_costs import elements

_MOST_READERS = 64  # of one value by one unit; more are not looked through
_MOST_STEPS = 4  # from the scores to the softmax: scales and masks


class Flow:
    """Nodes that are left after folding constants and views, and the units they form."""

    def __init__(
        self,
        nodes: Sequence[Node],
        values: Sequence[Value],
        order: Sequence[int],
        reads: Mapping[int, Sequence[int]],
        producer: Sequence[int],
        kept: Set[int],
    ) -> None:
        self.nodes = nodes
        self.values = values
        self.order = order  # of nodes that are left
        self.reads = reads  # node: values that are not constant, without views
        self.producer = producer  # [value]
        self.kept = kept  # values that the model returns
        self.readers: dict[int, list[int]] = {}  # value: nodes
        for n in order:
            for v in reads[n]:
                self.readers.setdefault(v, []).append(n)
        self.free: set[int] = set()  # nodes whose FLOPs the formula of their unit includes
        self._lead = list(range(len(nodes)))
        self._members: dict[int, list[int]] = {}  # lead: nodes that joined it

    def lead(self, n: int) -> int:
        """The node that gives its name to the unit of a node."""
        while self._lead[n] != n:
            self._lead[n] = self._lead[self._lead[n]]
            n = self._lead[n]
        return n

    def join(self, n: int, lead: int) -> None:
        """Make a node, and whatever it leads, part of a unit."""
        n, lead = self.lead(n), self.lead(lead)
        if n != lead:
            self._lead[n] = lead
            self._members.setdefault(lead, []).extend((n, *self._members.pop(n, ())))

    def joined(self, lead: int) -> list[int]:
        """The nodes of a unit but its lead."""
        return self._members.get(lead, [])

    def units(self) -> dict[int, list[int]]:
        """Nodes of each unit by its lead."""
        units: dict[int, list[int]] = {}
        for n in self.order:
            units.setdefault(self.lead(n), []).append(n)
        return units

    def only_unit(self, v: int) -> int:
        """The lead of the unit that alone reads a value which the model does not return; -1 otherwise."""
        readers = self.readers.get(v, ())
        if len(readers) > _MOST_READERS:
            return -1
        leads = {self.lead(reader) for reader in readers}
        return leads.pop() if len(leads) == 1 and v not in self.kept else -1

    def outer_reads(self, lead: int) -> list[int]:
        """Values that a unit reads and does not write itself."""
        members = (lead, *self.joined(lead))
        own = {v for n in members for v in self.nodes[n].writes}
        return [v for v in dict.fromkeys(v for n in members for v in self.reads[n]) if v not in own]


def join_units(flow: Flow) -> None:
    """Find all units."""
    _join_affine(flow)
    _join_elementwise(flow)
    _join_attention(flow)


def _join_affine(flow: Flow) -> None:
    """Scaling and shifting by constants goes with the product, convolution or normalisation before it."""
    for n in flow.order:
        node, reads = flow.nodes[n], flow.reads[n]
        if node.joins != "affine" or len(reads) != 1 or len(node.writes) != 1:
            continue
        before = reads[0]
        lead = flow.lead(flow.producer[before])
        anchored = flow.nodes[lead].joins in ("anchor", "product")
        if anchored and flow.only_unit(before) == n and _same_size(flow, before, node.writes[0]):
            flow.join(n, lead)


def _join_attention(flow: Flow) -> None:
    """From every softmax forward to the product with the values, and back to that of queries and keys."""
    for n in flow.order:
        if flow.nodes[n].joins != "softmax" or len(flow.reads[n]) != 1 or len(flow.nodes[n].writes) != 1:
            continue
        after: list[int] = []
        mixed = flow.only_unit(flow.nodes[n].writes[0])
        if mixed >= 0 and _is_step(flow, mixed) and len(flow.outer_reads(mixed)) == 1:  # a guard against NaN
            after.append(mixed)
            mixed = flow.only_unit(flow.nodes[mixed].writes[0])
        if (
            mixed < 0
            or not _is_product(flow, mixed)
            or flow.producer[flow.reads[mixed][0]] not in (n, *after)
        ):
            continue
        scores, before = _scores(flow, n)
        if scores >= 0 and scores != mixed:
            for step in (*before, *after):
                flow.free.update((step, *flow.joined(step)))
            flow.free.update(flow.joined(scores))
            for part in (scores, *before, n, *after):
                flow.join(part, mixed)
            flow.nodes[mixed].kind = "Attention"


def _scores(flow: Flow, softmax: int) -> tuple[int, list[int]]:
    """The product of queries and keys before a softmax (-1 if there is none), and scales and masks between."""
    steps: list[int] = []
    v, reader = flow.reads[softmax][0], softmax
    while flow.only_unit(v) == reader and len(steps) <= _MOST_STEPS:
        lead = flow.lead(flow.producer[v])
        if _is_product(flow, lead):
            return lead, steps
        if not _is_step(flow, lead):
            break
        steps.append(lead)
        wide = [r for r in flow.outer_reads(lead) if _same_size(flow, r, v) and flow.only_unit(r) == lead]
        if not wide:
            break
        v = next((r for r in wide if _is_product(flow, flow.lead(flow.producer[r]))), wide[0])
        reader = lead
    return -1, steps


def _is_step(flow: Flow, lead: int) -> bool:
    """Whether a unit is elementwise: a scale, a mask, a guard."""
    return flow.nodes[lead].joins in ("affine", "elementwise") and len(flow.nodes[lead].writes) == 1


def _is_product(flow: Flow, n: int) -> bool:
    """Whether a node multiplies two matrices neither of which is constant."""
    return flow.nodes[n].joins == "product" and len(flow.reads[n]) == 2


def _same_size(flow: Flow, a: int, b: int) -> bool:
    return elements(flow.values[a].shape) == elements(flow.values[b].shape)


def _is_pointwise(flow: Flow, n: int) -> bool:
    node = flow.nodes[n]
    return node.joins in ("affine", "elementwise") and flow.lead(n) == n and len(node.writes) == 1


def _is_inner_reduction(flow: Flow, n: int) -> bool:
    """Whether a node is like the mean in a normalisation, and not like the pooling at the end of a net."""
    node = flow.nodes[n]
    if node.joins != "reduction" or len(node.writes) != 1 or node.writes[0] in flow.kept:
        return False
    return all(_is_pointwise(flow, reader) for reader in flow.readers.get(node.writes[0], ()))


def _join_elementwise(flow: Flow) -> None:
    """What is computed from one tensor by elementwise operators and reductions, and has one result."""
    origin: dict[int, int] = {}  # node: the tensor that everything it reads is computed from
    group: dict[int, int] = {}  # node: some node of its chain

    def chain(n: int) -> int:
        while group[n] != n:
            group[n] = group[group[n]]
            n = group[n]
        return n

    for n in flow.order:
        if not _is_pointwise(flow, n) and not _is_inner_reduction(flow, n):
            continue
        before = [flow.producer[v] for v in flow.reads[n]]
        roots = {origin.get(p, v) for p, v in zip(before, flow.reads[n], strict=True)}
        if len(roots) != 1:
            continue
        origin[n] = roots.pop()
        group[n] = n
        for p in before:
            if p in origin:
                group[chain(p)] = chain(n)
    exits: dict[int, list[int]] = {}  # chain: nodes whose results leave it
    for n in origin:
        v = flow.nodes[n].writes[0]
        leaves = v in flow.kept or any(
            reader not in group or chain(reader) != chain(n) for reader in flow.readers.get(v, ())
        )
        if leaves:
            exits.setdefault(chain(n), []).append(n)
    for n in origin:
        last = exits.get(chain(n), [])
        if len(last) == 1 and n != last[0]:
            flow.join(n, last[0])
