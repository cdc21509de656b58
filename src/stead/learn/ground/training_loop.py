"""The training loop of all papers: updates that are counted, timed and watched, a state that resumes to the same bits.

A paper says what one update does (`Loop.learn`): one_shot.py samples whole placements, placeto/learner.py walks
episodes, hsdag/published.py is the published loop of HSDAG. Everything around it is here, once. Every update draws from
generators made of (seed, version, ...): nothing random has to be saved. collapse_alarm.py watches it.
"""

from __future__ import annotations

import math
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import asdict, astuple, dataclass
from typing import Generic, Literal, TypeAlias, TypedDict

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from stead.errors import BadInput
from stead.learn.ground.collapse_alarm import CollapseAlarm
from stead.learn.ground.task import Inputs, Task, TaskNumbers
from stead.learn.ground.tensor_file import Arrays
from stead.learn.ground.torch_state import load_network, load_optimiser, network_arrays, optimiser_arrays

Algorithm = Literal["reinforce", "ppo"]


@dataclass(frozen=True, slots=True)
class Metrics:
    """What one update says about itself; ratios are run times against the reference of each graph."""

    update: int
    evaluations: int  # all so far: simulations for constructions and features included
    hits: int  # rows that were known already
    best: float | None  # ratio of the best that the network drew; mean over all graphs, None until each has something
    start: float | None  # ratio of the best that it was given or began at; mean over the graphs that have such
    mean: float | None  # ratio of the samples of this update that run; None if none does
    greedy: float | None  # ratio of the last greedy placements; None where none was scored or none runs
    infeasible: float  # share of the samples
    entropy: float  # nats per choice
    gradient: float  # norm before clipping; 0 if no step was taken
    stepped: bool
    alarms: int  # of collapse onto one device, so far
    network_seconds: float
    simulator_seconds: float
    other_seconds: float

    def as_dict(self) -> dict[str, float | None]:
        """Plain data."""
        return asdict(self)


@dataclass(frozen=True, slots=True, eq=False)
class Step:
    """What one update did, graph by graph."""

    tasks: Sequence[Task[object]]  # that it learned from
    seconds: Sequence[NDArray[np.float64]]  # [sample] of each; inf where a sample does not run
    entropy: float
    gradient: float
    stepped: bool
    network_seconds: float


class State(TypedDict):
    """The numbers of a checkpoint."""

    version: int
    seed: int
    tasks: list[TaskNumbers]
    problems: list[str]
    training: dict[str, object]
    watch: list[float]


class Loop(ABC, Generic[Inputs]):
    """A network, an optimiser and graphs to learn from; `update` is one step, `state` all that the next one needs."""

    def __init__(
        self, network: nn.Module, tasks: Sequence[Task[Inputs]], *, learning_rate: float, seed: int
    ) -> None:
        if not tasks:
            raise BadInput("training needs at least one graph")
        self.module = network
        self.tasks = list(tasks)
        self.seed = seed
        self.version = 0
        self.alarm = CollapseAlarm()
        self.kept: Arrays = {}  # the best network so far, if it is looked for
        self.kept_ratio = math.inf
        self.carried_on = False  # whether the network had learnt before, and came from a file
        self.optimiser = torch.optim.Adam(network.parameters(), lr=learning_rate)

    # What a paper says

    @abstractmethod
    def learn(self) -> Step:
        """Draw, score, learn: all of one update but its count."""

    @property
    @abstractmethod
    def evaluations_per_update(self) -> int:
        """At most so many placements are simulated by one update."""

    @abstractmethod
    def greedy(self, task: Task[object]) -> NDArray[np.uint8]:  # a row
        """The placement that the policy prefers now."""

    @abstractmethod
    def policy_arrays(self) -> Arrays:
        """The network that is written when a run ends."""

    @property
    @abstractmethod
    def taught(self) -> bool:
        """Whether the network has learnt from rewards; what it draws before is owed to its prior, or is copied."""

    @abstractmethod
    def options(self) -> dict[str, object]:
        """All that must be the same when a checkpoint is taken up again."""

    def own_arrays(self) -> Arrays:
        """What the next update needs beside network, optimiser and tasks."""
        return {}

    def take_own(self, arrays: Arrays) -> None:
        """Take over what `own_arrays` gave, among others."""

    # What is the same for all of them

    @property
    def evaluations(self) -> int:
        """Placements that were simulated."""
        return sum(task.scorer.evaluations for task in self.tasks)

    def credit(self, kind: str) -> str:
        """Who a draw of this moment is owed to: the network as it learnt, or what it was before."""
        return kind if self.taught else "prior"

    def update(self) -> Metrics:
        """One update, with what it says about itself."""
        begin, simulated = time.perf_counter(), self._simulated_seconds()
        step = self.learn()
        self.version += 1
        spent, simulated = time.perf_counter() - begin, self._simulated_seconds() - simulated
        mean, greedy, bad = [], [], []
        for task, seconds in zip(step.tasks, step.seconds, strict=True):
            works = np.isfinite(seconds)
            bad.append(1.0 - float(works.mean()) if len(works) else 0.0)
            if works.any():
                mean.append(float(seconds[works].mean()) / task.reward.reference_seconds)
            if math.isfinite(task.greedy_seconds):
                greedy.append(task.greedy_seconds / task.reward.reference_seconds)
        own = [task.scorer.best_seconds / task.reward.reference_seconds for task in self.tasks]
        given = [(task.scorer.start, task.reward.reference_seconds) for task in self.tasks]
        return Metrics(
            update=self.version,
            evaluations=self.evaluations,
            hits=sum(task.scorer.hits for task in self.tasks),
            best=mean_or_none(own) if all(map(math.isfinite, own)) else None,
            start=mean_or_none([start.seconds / reference for start, reference in given if start is not None]),
            mean=mean_or_none(mean),
            greedy=mean_or_none(greedy),
            infeasible=mean_of(bad),
            entropy=step.entropy,
            gradient=step.gradient,
            stepped=step.stepped,
            alarms=self.alarm.raised,
            network_seconds=step.network_seconds,
            simulator_seconds=simulated,
            other_seconds=max(0.0, spent - step.network_seconds - simulated),
        )

    def number(self, task: Task[object]) -> int:
        """Which of the tasks it is."""
        return next(n for n, one in enumerate(self.tasks) if one is task)

    def keep(self, ratio: float) -> None:
        """Keep the network if what it is judged by is the least so far."""
        if ratio < self.kept_ratio:
            self.kept, self.kept_ratio = network_arrays(self.module), ratio

    def keep_by_greedy(self) -> None:
        """Keep the network if its greedy placements, one of each graph, are the best so far."""
        ratios = [task.greedy_seconds / task.reward.reference_seconds for task in self.tasks]
        if all(map(math.isfinite, ratios)):
            self.keep(sum(ratios))

    def watch(self, tasks: Sequence[Task[object]]) -> None:
        """Raise an alarm where the policy has fallen onto one device for long."""
        if self.alarm.is_raised_by(tasks, self.version) and self.alarm.raised > 1 and self.kept:
            load_network(self.module, self.kept)

    def stepped(self, clip_norm: float) -> float:
        """Take a step unless the gradient is not finite; its norm before clipping."""
        norm = float(nn.utils.clip_grad_norm_(self.module.parameters(), clip_norm))
        if math.isfinite(norm):
            self.optimiser.step()
        return norm

    def state(self) -> tuple[Arrays, State]:
        """(arrays, numbers) that `restore` goes on from, to the same bits."""
        arrays = {**network_arrays(self.module), **optimiser_arrays(self.optimiser), **self.own_arrays()}
        arrays.update({f"kept.{name}": array for name, array in self.kept.items()})
        numbers = []
        for n, task in enumerate(self.tasks):
            kept, counted = task.state()
            arrays.update({f"task.{n}.{name}": array for name, array in kept.items()})
            numbers.append(counted)
        return arrays, {
            "version": self.version,
            "seed": self.seed,
            "tasks": numbers,
            "problems": [task.problem.fingerprint for task in self.tasks],
            "training": self.options(),
            "watch": [*astuple(self.alarm), self.kept_ratio],
        }

    def restore(self, arrays: Arrays, numbers: State) -> None:
        """Take over what `state` gave; another seed, other graphs or other options are an error."""
        problems, options = [task.problem.fingerprint for task in self.tasks], self.options()
        saved_options = {name: value for name, value in numbers["training"].items() if name in options}
        for what, same in (
            ("seed", numbers["seed"] == self.seed),
            ("graphs or devices", numbers["problems"] == problems),
            ("options", saved_options == options),  # those that have left since do not matter
        ):
            if not same:
                raise BadInput(f"the checkpoint was made with other {what}; train anew or give the same")
        load_network(self.module, arrays)
        load_optimiser(self.optimiser, arrays)
        self.take_own(arrays)
        for n, (task, saved) in enumerate(zip(self.tasks, numbers["tasks"], strict=True)):
            task.restore(under(f"task.{n}.", arrays), saved)
        self.kept = under("kept.", arrays)
        self.version = int(numbers["version"])
        self.alarm = CollapseAlarm(*(int(n) for n in numbers["watch"][:3]))
        self.kept_ratio = float(numbers["watch"][3])

    def _simulated_seconds(self) -> float:
        return sum(task.scorer.simulated_seconds for task in self.tasks)


Trainee: TypeAlias = Loop[object]  # what can be trained, whatever its network reads


class Clock:
    """Wall time inside `with` blocks."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self._begin = 0.0

    def __enter__(self) -> None:
        self._begin = time.perf_counter()

    def __exit__(self, *_: object) -> None:
        self.seconds += time.perf_counter() - self._begin


def mean_of(values: Sequence[float]) -> float:
    """Their mean; 0 of none."""
    return float(sum(values) / len(values)) if values else 0.0


def mean_or_none(values: Sequence[float]) -> float | None:
    """Their mean; None of none."""
    return mean_of(values) if values else None


def under(mark: str, arrays: Arrays) -> Arrays:
    """Arrays whose names begin with a mark, without it."""
    return {name.removeprefix(mark): array for name, array in arrays.items() if name.startswith(mark)}
