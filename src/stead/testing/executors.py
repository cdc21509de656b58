"""An executor without a machine: the truth is a problem of its own, and noise is drawn from a seed."""

from __future__ import annotations

from typing import Self

import numpy as np
from numpy.typing import NDArray

from stead.graph import Graph
from stead.problem import Placement, Problem, Throughput
from stead.run.executor import Burst, Numerics, Worker
from stead.sim import simulate


class SimulatedExecutor:
    """Takes as long as the simulator says of `truth`, times log-normal noise; `bursts` counts what was run.

    Every `lose_every`-th burst is lost, as bursts on busy machines are.
    """

    name = "simulated"

    def __init__(self, truth: Problem, *, noise: float = 0.0, seed: int = 0, lose_every: int = 0) -> None:
        self.truth, self.noise, self.lose_every = truth, noise, lose_every
        self.random = np.random.default_rng(seed)
        self.bursts = 0
        self.workers = tuple(Worker(name, (d,)) for d, name in enumerate(truth.cluster.names))
        self.is_open = True

    @property
    def graph(self) -> Graph:
        """What is placed."""
        return self.truth.graph

    def profile(self, worker: int, *, repeats: int) -> NDArray[np.float64]:  # [repeat, operator]
        """The true seconds on a device, with noise."""
        self.bursts += 1
        if self.lose_every and self.bursts % self.lose_every == 0:
            repeats = 0
        return self.truth.costs.seconds[:, worker] * self._factors((repeats, len(self.graph)))

    def burst(self, placement: Placement, *, runs: int) -> Burst:
        """As often the true latency, with noise."""
        self.bursts += 1
        if self.lose_every and self.bursts % self.lose_every == 0:
            return Burst((), "simulated", lost="lost on purpose")
        seconds = simulate(self.truth, Placement(self.truth, placement.devices, placement.order)).objective_seconds
        return Burst(tuple((seconds * self._factors((runs,))).tolist()), "simulated")

    def pipeline(self, placement: Placement, *, samples: int) -> Burst:
        """As often the true time per sample, with noise."""
        truth = self.truth.with_objective(Throughput())
        seconds = simulate(truth, Placement(truth, placement.devices)).objective_seconds
        return Burst(tuple((seconds * self._factors((samples,))).tolist()), "simulated")

    def check(self, placement: Placement) -> Numerics:
        """Simulated results are always right."""
        return Numerics(0.0, 0.0, 0.0)

    def close(self) -> None:
        """Nothing is held."""
        self.is_open = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _factors(self, shape: tuple[int, ...]) -> NDArray[np.float64]:
        """Noise only ever slows down: the fastest run is the truth."""
        return np.exp(np.abs(self.random.normal(0.0, self.noise, shape)))
