"""Who does the work of a network: this process alone, or the workers of an engine, which each take some of the graphs.

    OneShot  one      parameters, optimiser, baselines, elites, scores: all that is ever saved (one_shot.py)
    Replica  of each  the network and what it reads of every graph; given parameters, it draws or makes gradients

A replica remembers nothing. Gradients come back graph by graph and the learner adds them in the order of the graphs, so
that one process and many give the same bits. A graph that is given several times is what the paper of ColocRL calls
several controllers: each draws samples of its own, their gradients are averaged.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from stead.engine import Blob, Engine, Task
from stead.learn.ground.losses import ppo_loss, reinforce_loss
from stead.learn.ground.network import Inputs, Network
from stead.learn.ground.torch_state import one_thread

Weights = list[NDArray[np.generic]]  # of all parameters, in their order


@dataclass(frozen=True, slots=True)
class Draw:
    """Samples that are asked for."""

    graph: int
    samples: int  # the greedy one included
    seed: int
    greedy: bool  # the first row takes the likeliest choice everywhere


@dataclass(frozen=True, slots=True, eq=False)
class Lesson:
    """What is to be learnt from one graph."""

    graph: int
    actions: Tensor  # [S, A]
    weight: NDArray[np.float64]  # [S]
    advantage: NDArray[np.float64]  # [S]
    elites: NDArray[np.int64]  # [elite, A]; when imitating, what is copied
    imitating: bool
    policy_weight: float
    entropy_weight: float
    elite_weight: float
    old: Tensor | None = None  # [S, C]; log p at the first epoch


@dataclass(frozen=True, slots=True, eq=False)
class Answer:
    """What a lesson asks of the parameters."""

    gradient: tuple[Tensor | None, ...]  # per parameter; None where it is not used or held fixed
    old: Tensor | None  # [S, C]
    entropy: float  # nats per choice


@dataclass(frozen=True, slots=True, eq=False)
class Replica(Generic[Inputs]):
    """A network and what it reads of every graph."""

    network: Network[Inputs]
    inputs: Sequence[Inputs]
    clip_ratio: float | None  # of PPO; None: REINFORCE

    def draw(self, draw: Draw) -> Tensor:  # [S, A]
        """Actions."""
        generator = torch.Generator().manual_seed(draw.seed)
        actions: Tensor
        actions, _ = self.network.sample(self.inputs[draw.graph], draw.samples, generator, greedy=draw.greedy)
        return actions

    def gradient(self, lesson: Lesson, among: int) -> Answer:
        """Of the loss, divided by the number of lessons."""
        loss, old, entropy = self._copying(lesson) if lesson.imitating else self._loss(lesson)
        parameters = list(self.network.parameters())
        learns = [parameter for parameter in parameters if parameter.requires_grad]
        found = iter(torch.autograd.grad(loss / among, learns, allow_unused=True))
        gradient = tuple(next(found) if parameter.requires_grad else None for parameter in parameters)
        return Answer(gradient, old, entropy)

    def _loss(self, lesson: Lesson) -> tuple[Tensor, Tensor | None, float]:
        """Samples and elites in one pass through the network."""
        rows, own = lesson.actions, len(lesson.actions)
        if lesson.elite_weight > 0 and len(lesson.elites):
            rows = torch.cat([rows, torch.from_numpy(lesson.elites)])
        log_p, entropy = self.network.likelihood(self.inputs[lesson.graph], rows)
        advantage = torch.from_numpy(lesson.advantage).to(log_p.dtype)
        weight = torch.from_numpy(lesson.weight).to(log_p.dtype)
        old = lesson.old
        if self.clip_ratio is None:
            loss = reinforce_loss(log_p[:own], advantage, weight)
        else:
            old = log_p[:own].detach() if old is None else old
            loss = ppo_loss(log_p[:own], old, advantage, weight, self.clip_ratio)
        loss = lesson.policy_weight * loss
        loss = loss - lesson.entropy_weight * entropy[:own].sum(dim=1).mean()
        if len(rows) > own:
            loss = loss - lesson.elite_weight * log_p[own:].sum(dim=1).mean()
        return loss, old, float(entropy[:own].detach().mean())

    def _copying(self, lesson: Lesson) -> tuple[Tensor, Tensor | None, float]:
        log_p, entropy = self.network.likelihood(self.inputs[lesson.graph], torch.from_numpy(lesson.elites))
        loss = -(log_p + lesson.entropy_weight * entropy).sum(dim=1).mean()
        return loss, None, float(entropy.detach().mean())


class Workers(Protocol):
    """Does what the network has to do for some graphs, in their order."""

    def draw(self, draws: Sequence[Draw]) -> list[Tensor]:
        """Actions [S, A] of each."""

    def gradients(self, lessons: Sequence[Lesson]) -> list[Answer]:
        """Of each lesson, divided by their number."""


@dataclass(frozen=True, slots=True)
class Alone(Generic[Inputs]):
    """This process."""

    replica: Replica[Inputs]

    def draw(self, draws: Sequence[Draw]) -> list[Tensor]:
        """Actions of each."""
        return [self.replica.draw(draw) for draw in draws]

    def gradients(self, lessons: Sequence[Lesson]) -> list[Answer]:
        """Of each lesson."""
        return [self.replica.gradient(lesson, len(lessons)) for lesson in lessons]


class Spread:
    """Workers of an engine, a task for every graph."""

    def __init__(self, replica: Replica[Inputs], engine: Engine) -> None:
        self._network: nn.Module = replica.network
        self._replica = Blob.of(replica)
        self._engine = engine

    def draw(self, draws: Sequence[Draw]) -> list[Tensor]:
        """Actions of each."""
        return cast(list[Tensor], self._asked(draws))

    def gradients(self, lessons: Sequence[Lesson]) -> list[Answer]:
        """Of each lesson."""
        return cast(list[Answer], self._asked(lessons))

    def _asked(self, work: Sequence[Draw | Lesson]) -> Sequence[Tensor | Answer]:
        """Answers in the order of the work."""
        blobs = self._replica, Blob.of(weights_of(self._network))
        tasks = [Task.of(f"graph {one.graph}", answer_of, one, len(work), blobs=blobs) for one in work]
        return [outcome.value for outcome in self._engine.map(tasks)]


def answer_of(replica: Blob, weights: Blob, work: Draw | Lesson, among: int) -> Tensor | Answer:
    """What a replica elsewhere does with one graph, as a task."""
    own: Replica[object] = replica.value
    with one_thread():
        with torch.no_grad():
            for parameter, values in zip(own.network.parameters(), weights.value, strict=True):
                parameter.copy_(torch.from_numpy(values))
        return own.draw(work) if isinstance(work, Draw) else own.gradient(work, among)


def weights_of(network: nn.Module) -> Weights:
    """The numbers of all parameters, in their order."""
    return [parameter.detach().numpy() for parameter in network.parameters()]
