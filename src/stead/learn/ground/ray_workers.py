"""Workers that are Ray actors: the processes of a cluster of machines. Nothing else in stead knows Ray."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from types import TracebackType
from typing import cast

from torch import Tensor, nn

from stead.errors import MissingExtra, SteadError
from stead.learn.ground.network import Inputs
from stead.learn.ground.workers import (
    Answer,
    Draw,
    Lesson,
    Replica,
    Weights,
    answers_of,
    hands,
    in_order,
    weights_of,
)


class Actors:
    """Ray actors that each hold the network and the graphs; a context manager that ends them.

    They live in the cluster that RAY_ADDRESS names, else in one that is started on this machine and ended with them.
    """

    def __init__(self, replica: Replica[Inputs], count: int) -> None:
        try:
            ray = import_module("ray")
        except ImportError:
            raise MissingExtra("ray", "ray", "training over several machines") from None
        self._network: nn.Module = replica.network
        self._ray = ray
        self._started = not ray.is_initialized()
        if self._started:
            ray.init(log_to_driver=False, include_dashboard=False)
        content = ray.put(replica)
        actor = ray.remote(num_cpus=1)(_Actor)
        self._actors = [actor.remote(content) for _ in range(count)]

    def __enter__(self) -> Actors:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for actor in self._actors:
            self._ray.kill(actor)
        if self._started:
            self._ray.shutdown()

    def draw(self, draws: Sequence[Draw]) -> list[Tensor]:
        """Actions of each."""
        return cast(list[Tensor], self._asked(draws, len(draws)))

    def gradients(self, lessons: Sequence[Lesson]) -> list[Answer]:
        """Of each lesson."""
        return cast(list[Answer], self._asked(lessons, len(lessons)))

    def _asked(self, work: Sequence[Draw | Lesson], among: int) -> list[Tensor | Answer]:
        weights = self._ray.put(weights_of(self._network))  # once for all of them
        busy = self._actors[: len(work)]
        dealt = zip(busy, hands(work, len(busy)), strict=True)
        try:
            return in_order(self._ray.get([actor.answers.remote(weights, own, among) for actor, own in dealt]))
        except self._ray.exceptions.RayActorError as error:
            raise SteadError(
                f"a Ray actor ended unexpectedly ({type(error).__name__}); go on with --resume"
            ) from None


class _Actor:
    """What runs at the other end."""

    def __init__(self, replica: Replica[object]) -> None:
        self.replica = replica

    def answers(
        self, weights: Weights, work: Sequence[Draw | Lesson], among: int
    ) -> list[Tensor | Answer]:
        return answers_of(self.replica, weights, work, among)
