"""Tied weights in training: each use has its own gradient and update, and an all-reduce makes the gradients one.

A weight that several modules use may live on several devices: a *use* is an operator, its way back and its share of
the update, together on one device, which then holds the weight, its gradient and the state of the optimiser. The sum
of the gradients goes along the uses in both directions, in the order in which they run:

    use 1  -- g1 -->  use 2  -- g1 + g2 -->  use 3
    use 1  <-- g2 + g3 --  use 2  <-- g3 --  use 3

Uses that share a device send each other nothing, and h devices send 2 (h - 1) gradients in all: the traffic of a ring
all-reduce. It begins when the gradients of all uses are complete, and belongs to the update: once per step, however
many micro-batches the step has. Its operators take no time, what they send does. The work of the update is shared out
equally among the uses, as where an all-reduce is split around it (reduce-scatter, update, all-gather), so that all
uses on one device do the work of one update.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from stead.graph import GraphBuilder, OperatorId, TensorId

ALL_REDUCE = "AllReduce"  # kind of the operators that hand gradients on


@dataclass(frozen=True, slots=True)
class Use:
    """One use of a tied weight, on its way into a graph."""

    name: str  # of its forward operator
    module: str
    dtype: str
    colocate: str
    gradient: tuple[OperatorId, ...]  # its gradient is complete after these
    reads: tuple[TensorId, ...] = ()  # the gradient, where it is a tensor


def are_apart(modules: Sequence[str]) -> bool:
    """Whether users of a weight are different modules, not calls of one module such as the steps of a cell.

    >>> are_apart(["words#0", "head#0"]), are_apart(["cell#0", "cell#1"]), are_apart(["wte", "lm_head"])
    (True, False, True)
    """
    plain = {"/".join(call.partition("#")[0] for call in path.split("/")) for path in modules}
    return len(plain) > 1 and "" not in plain


def all_reduce(build: GraphBuilder, weight: str, size_bytes: int, uses: Sequence[Use]) -> list[list[OperatorId]]:
    """The operators that sum up the gradients of a weight, for each use; the last of a use has the sum."""
    complete = [earlier for use in uses for earlier in use.gradient]
    own: list[list[OperatorId]] = [[] for _ in uses]
    arriving: list[list[TensorId]] = [[] for _ in uses]
    for step, label in ((1, "next"), (-1, "previous")):
        order = list(range(len(uses)))[::step]
        for i in order[:-1]:
            use = uses[i]
            reads = [*arriving[i][-1:], *use.reads] if i != order[0] else list(use.reads)
            hands_on = build.operator(
                f"{weight}.to_{label}@{use.name}", kind=ALL_REDUCE, reads=reads,
                after=complete if i == order[0] else use.gradient, module=use.module, dtype=use.dtype, phase="update",
                twin=use.name, colocate=use.colocate,
            )  # fmt: skip
            sent = build.tensor(hands_on, size_bytes=size_bytes, name=f"{weight}.gradient@{use.name}:{label}")
            own[i].append(hands_on)
            arriving[i + step].append(sent)
    for i, use in enumerate(uses):
        has_sum = build.operator(
            f"{weight}.sum@{use.name}", kind=ALL_REDUCE, reads=arriving[i], after=[*use.gradient, *own[i]],
            module=use.module, dtype=use.dtype, phase="update", twin=use.name, colocate=use.colocate,
        )  # fmt: skip
        own[i].append(has_sum)
    return own
