"""What was measured, whole: predictions can be made again from it when the model of a machine was repaired."""

from __future__ import annotations

import copyreg
import math
import pickle
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stead import Latency, Placement, Problem, Throughput
from stead.cluster import Cluster
from stead.costs import Costs, Source
from stead.graph import Graph
from stead.problem import Policy
from stead.run.crossing_times import InPlace, fitted
from stead.run.executor import Executor
from stead.run.predict import predict
from stead.run.profile import Timings, take_timings

FASTEST = 0.08  # of the runs of profiles: their middle is where the fastest of 25 runs of a placement is expected
RUNS = 5  # of every burst between the rounds, as of placements


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
    crossings: list[tuple[NDArray[np.int64], float]]  # random placements, and their fastest runs
    profiles: list[tuple[Timings, ...]]
    placements: dict[str, tuple[NDArray[np.int64], Policy | None]]

    @staticmethod
    def of(
        problem: Problem, messages: Cluster, timings: tuple[Timings, ...], crossings: Sequence[Placement],
        placements: Mapping[str, Placement],
    ) -> Kept:  # fmt: skip
        """Without what belongs to this process alone."""
        return Kept(
            problem.graph, messages, problem.cluster, problem.costs.seconds,
            [(one.devices.astype(np.int64), math.inf) for one in crossings], [timings],
            {name: (one.devices.astype(np.int64), one.order) for name, one in placements.items()},
        )  # fmt: skip

    def time_again(self, executor: Executor) -> None:
        """Another short profile, and a burst of every random placement."""
        self.profiles.append(take_timings(executor, repeats=RUNS, bursts=1))
        before = _problem(self.graph, self.messages, self.seconds)
        for i, (devices, seconds) in enumerate(self.crossings):
            burst = executor.burst(Placement(before, devices), runs=RUNS)
            if not burst.lost:
                self.crossings[i] = devices, min(seconds, *burst.seconds)

    def now(self) -> tuple[Problem, InPlace]:
        """The question with the fastest of all that was timed beside the placements, and what links have become."""
        before = _problem(self.graph, self.messages, self.seconds)
        random = [Placement(before, devices) for devices, _ in self.crossings]
        seconds = fastest(self.profiles)
        links = fitted(_problem(self.graph, self.messages, seconds), random, [one for _, one in self.crossings])
        return _problem(self.graph, links.cluster, seconds), links

    def save(self, path: Path) -> None:
        """Write it; half a file is never seen."""
        path.parent.mkdir(exist_ok=True)
        half = path.with_suffix(".part")
        half.write_bytes(pickle.dumps(self, protocol=5))
        half.replace(path)

    def predicted_again(self, cell: Mapping[str, Any]) -> dict[str, Any]:
        """A result with what the present model predicts from the same timings; clocks stay as they are."""
        planned = _problem(self.graph, self.planned, self.seconds)
        now, links = self.now()
        records = []
        for record in cell["records"]:
            objective = Throughput() if record["objective"] == "throughput" else Latency()
            placement = Placement(planned, *self.placements[record["name"]])
            seconds = predict(now.with_objective(objective), placement, ordered_by=planned).seconds
            known = record["measured"]
            records.append({
                **record, "predicted": {**record["predicted"], "seconds": seconds},
                "ratio": known["min"] and known["min"] / seconds,
                "ratio_of_median": known["median"] and known["median"] / seconds,
            })  # fmt: skip
        return {**cell, "records": records, "crossings": links.figures}

    @staticmethod
    def read(path: Path) -> Kept:
        """What was saved on this machine."""
        found = pickle.loads(path.read_bytes())
        assert isinstance(found, Kept)
        return found


def fastest(profiles: Sequence[Sequence[Timings]]) -> NDArray[np.float64]:  # [operator, device]
    """Seconds of the fastest runs of all profiles, as measurements count by their fastest."""
    return np.stack([one.of_fastest(FASTEST) for one in joined(profiles)], axis=1)


def joined(profiles: Sequence[Sequence[Timings]]) -> list[Timings]:
    """All runs of every device."""
    return [
        Timings(parts[0].device, np.concatenate([one.seconds for one in parts]))
        for parts in zip(*profiles, strict=True)
    ]


def _problem(graph: Graph, cluster: Cluster, seconds: NDArray[np.float64]) -> Problem:
    costs = Costs(graph, cluster, seconds, sources=np.full(seconds.shape, Source.MEASURED))
    return Problem(graph, cluster, costs, objective=Latency())
