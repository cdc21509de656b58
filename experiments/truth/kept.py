"""What was measured, whole: predictions can be made again from it when the model of a machine was repaired."""

from __future__ import annotations

import copyreg
import pickle
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stead import Placement, Problem
from stead.cluster import Cluster
from stead.graph import Graph
from stead.problem import Policy
from stead.run.profile import Timings


def _read_only(found: dict[Any, Any]) -> MappingProxyType[Any, Any]:
    return MappingProxyType(found)


copyreg.pickle(MappingProxyType, lambda one: (_read_only, (dict(one),)))  # graphs have some


@dataclass(frozen=True, slots=True, eq=False)
class Kept:
    """One cell of the truth table: what was timed of a model before and between the rounds."""

    graph: Graph
    messages: Cluster  # with links as messages found them
    planned: Cluster  # with links that placements were made for
    seconds: NDArray[np.float64]  # [operator, device]; the same
    crossings: tuple[tuple[NDArray[np.int64], float], ...]  # random placements, timed
    profiles: list[tuple[Timings, ...]] = field(default_factory=list)
    placements: dict[str, tuple[NDArray[np.int64], Policy | None]] = field(default_factory=dict)

    @staticmethod
    def of(
        problem: Problem, messages: Cluster, crossings: Sequence[tuple[Placement, float]],
        placements: Mapping[str, Placement],
    ) -> Kept:  # fmt: skip
        """Without what belongs to this process alone."""
        return Kept(
            problem.graph, messages, problem.cluster, problem.costs.seconds,
            tuple((one.devices, seconds) for one, seconds in crossings),
            placements={name: (one.devices, one.order) for name, one in placements.items()},
        )  # fmt: skip

    def save(self, path: Path) -> None:
        """Write it; half a file is never seen."""
        path.parent.mkdir(exist_ok=True)
        half = path.with_suffix(".part")
        half.write_bytes(pickle.dumps(self, protocol=5))
        half.replace(path)

    @staticmethod
    def read(path: Path) -> Kept:
        """What was saved on this machine."""
        found = pickle.loads(path.read_bytes())
        assert isinstance(found, Kept)
        return found
