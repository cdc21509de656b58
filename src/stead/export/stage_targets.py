"""Plans of whole layers in a row: what loaders of pipelines can express, whichever way they write it down.

Every device takes one stretch of layers. Where `ends` is "free" embedding and head may have devices of their own, where
it is "fixed" they go with the first and the last layer.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from stead.cluster import Cluster
from stead.errors import BadInput
from stead.export.base import Granularity, Projection
from stead.export.cuts import Items, Stretches, stretches_of
from stead.export.layer_stack import BEFORE, LayerStack, stack_of, why_no_stack
from stead.export.projecting import part_of, projected, refuse_moves, refuse_replicas, share_of_time
from stead.graph import Graph
from stead.plan import Plan
from stead.problem import Constraints, Problem

Ends = Literal["free", "fixed"]
WHOLE = "a layer stays whole"
IN_A_ROW = "the layers of a device must follow each other"
WITH_LAYERS = "it goes with the layer beside it"


@dataclass(frozen=True, slots=True)
class Stage:
    """What one device holds."""

    device: str
    embeds: bool
    layers: range
    has_head: bool


class StageTarget:
    """What exporters for pipelines of layers share: everything but the words in which they write stages down.

    A subclass is a frozen dataclass in a file of its own, and has `name`, `tool` (its name in sentences) and `ends`.
    """

    __slots__ = ()
    name: ClassVar[str]
    tool: ClassVar[str]
    ends: ClassVar[Ends] = "free"
    granularity: ClassVar[Granularity] = "layer"

    def unsupported(self, problem: Problem) -> str | None:
        """Why no plan can be exported."""
        return why_no_stack(problem.graph)

    def constraints(self, graph: Graph, cluster: Cluster) -> Constraints:
        """Whole layers, ends as the tool has them, nothing on a CPU beside accelerators."""
        hosts = tuple(("*", cluster.names[d]) for d in self._banned(cluster))
        return Constraints(forbid=hosts, colocate=together(graph, self.ends).colocate)

    def charged(self, problem: Problem) -> Problem:
        """As it is: activations pass from stage to stage, as the simulator has it."""
        return problem

    def project(self, plan: Plan) -> Projection:
        """Whole layers in a row."""
        return project_stages(plan, self.ends, banned=self._banned(plan.problem.cluster))

    def stages(self, plan: Plan) -> tuple[LayerStack, list[Stage]]:
        """The layers of a plan, and its stages in order; BadInput by name where it has others."""
        reason = self.unsupported(plan.problem)
        if reason is not None:
            raise BadInput(f"{self.name} cannot take this plan: {reason}")
        refuse_moves(self, self.project(plan))
        return stages_of(plan, self.ends)

    def _banned(self, cluster: Cluster) -> dict[int, str]:
        """CPUs beside accelerators, which serving and training frameworks make no stages of."""
        hosts = [d for d, device in enumerate(cluster) if device.is_host]
        why = f"{self.tool} makes no pipeline stage of a CPU beside accelerators"
        return {} if len(hosts) == len(cluster) else dict.fromkeys(hosts, why)


def together(graph: Graph, ends: Ends) -> Constraints:
    """Constraints that keep layers whole, and embedding and head with the layers beside them if those are fixed."""
    stack = stack_of(graph)
    items, count = _items(stack, ends)
    return stack.together(items, count=count)


def project_stages(plan: Plan, ends: Ends, *, banned: Mapping[int, str] = MappingProxyType({})) -> Projection:
    """The nearest plan in which layers are whole and every device has one stretch of them.

    `banned` are devices that the target cannot use, with the reason.
    """
    refuse_replicas(plan)
    problem, stack = plan.problem, stack_of(plan.problem.graph)
    items, count = _items(stack, ends)
    before = plan.placement.devices
    homes = _filled(share_of_time(problem, before, items, count))
    stretches = stretches_of(homes.tolist())
    if stretches is None or set(stretches.devices) & set(banned):
        useful = [d for d in range(len(problem.cluster)) if d not in banned]
        used = [d for d in useful if d in homes] or useful
        stretches = Items(problem, items, count, before).nearest(used, useful, like=homes.tolist())
        if stretches is None:
            raise BadInput("no split of the layers into stretches can run on the devices of this plan")
    row = stretches.of_items()[items]
    positions = stack.position

    def why(v: int) -> str:
        if int(before[v]) in banned:
            return banned[int(before[v])]
        if homes[items[v]] != before[v]:
            return WHOLE if 0 <= positions[v] < len(stack) or ends == "free" else WITH_LAYERS
        return IN_A_ROW

    return projected(plan, problem, row, group=lambda v: "", name=partial(layers_named, problem, stack), why=why)


def layers_named(problem: Problem, stack: LayerStack, members: list[int]) -> str:
    """Layers by number, and operators by name where only a part of them is meant."""
    positions = np.unique(stack.position[members])
    count = int(np.isin(stack.position, positions).sum())
    return part_of(problem, members, stack.called(positions.tolist()), count)


def stages_of(plan: Plan, ends: Ends) -> tuple[LayerStack, list[Stage]]:
    """The layers of a plan whose layers are in a row, and its stages in order."""
    stack = stack_of(plan.problem.graph)
    items, count = _items(stack, ends)
    homes = _filled(share_of_time(plan.problem, plan.placement.devices, items, count))
    stretches = stretches_of(homes.tolist())
    assert stretches is not None
    return stack, _stages(stack, stretches, ends, plan.problem.cluster.names)


def _stages(stack: LayerStack, stretches: Stretches, ends: Ends, names: tuple[str, ...]) -> list[Stage]:
    found, begin, shift = [], 0, 1 if ends == "free" else 0
    total = sum(stretches.counts)
    for d, count in zip(stretches.devices, stretches.counts, strict=True):
        end = begin + count
        layers = range(max(0, begin - shift), min(len(stack), end - shift))
        found.append(Stage(names[d], begin == 0, layers, end == total))
        begin = end
    return found


def _items(stack: LayerStack, ends: Ends) -> tuple[NDArray[np.int32], int]:
    """The item of every operator and their number: layers, and ends beside them if they are free."""
    if ends == "free":
        return stack.position - np.int32(BEFORE), len(stack) + 2
    return np.clip(stack.position, 0, len(stack) - 1).astype(np.int32), len(stack)


def _filled(homes: NDArray[np.int64]) -> NDArray[np.int64]:
    """Devices of items, where an empty one is where its neighbour is."""
    known = np.flatnonzero(homes >= 0)
    nearest = known[np.abs(known[None, :] - np.arange(len(homes))[:, None]).argmin(axis=1)]
    filled: NDArray[np.int64] = homes[nearest]
    return filled
