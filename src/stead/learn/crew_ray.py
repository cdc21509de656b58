"""A crew of Ray actors: the processes of a cluster of machines. Nothing else in stead knows Ray."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from types import TracebackType
from typing import Any

from torch import Tensor, nn

from stead.errors import MissingExtra, SteadError
from stead.learn.crew import Answer, Call, Draw, Lesson, Replica, answers_of, hands, in_order, weights_of


class Actors:
    """Ray actors that each hold the network and the graphs; a context manager that ends them.

    They live in the cluster that RAY_ADDRESS names, else in one that is started on this machine and ended with them.
    """

    def __init__(self, replica: Replica, count: int) -> None:
        try:
            ray: Any = import_module("ray")
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
        return self._asked("draw", [(draw,) for draw in draws])

    def gradients(self, lessons: Sequence[Lesson]) -> list[Answer]:
        """Of each lesson."""
        return self._asked("gradient", [(lesson, len(lessons)) for lesson in lessons])

    def _asked(self, what: str, calls: list[Call]) -> list[Any]:
        weights = self._ray.put(weights_of(self._network))  # once for all of them
        busy = self._actors[: len(calls)]
        dealt = zip(busy, hands(calls, len(busy)), strict=True)
        try:
            return in_order(self._ray.get([actor.answers.remote(what, weights, own) for actor, own in dealt]))
        except self._ray.exceptions.RayActorError as error:
            raise SteadError(
                f"a Ray actor ended unexpectedly ({type(error).__name__}); go on with --resume"
            ) from None


class _Actor:
    """What runs at the other end."""

    def __init__(self, replica: Replica) -> None:
        self.replica = replica

    def answers(self, what: str, weights: list[Any], calls: list[Call]) -> list[Any]:
        return answers_of(self.replica, what, weights, calls)
