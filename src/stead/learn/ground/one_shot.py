"""Updates of a policy that decides whole placements: sample some of one or several graphs, score them, take a step.

Notation    S samples, A numbers of one action, C choices that make up one placement, G groups
    actions  [S, A]  what the network decided, whatever it decides
    rows     [S, G]  the device of every group that follows from it, and whatever else the scorer of the task reads
    losses           see losses.py; besides, - entropy weight * sum_c entropy - elite weight * log p of elites

What the network does for one graph, drawing and gradients, is the work of `Workers` (workers.py), in this process or in
several; gradients are added in the order of the graphs, whoever made them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Generic, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from stead.errors import BadInput
from stead.learn.ground.equal_devices import names_by_first_use
from stead.learn.ground.losses import Linear, advantages, moved_average
from stead.learn.ground.network import Inputs, Network
from stead.learn.ground.reward import Scored
from stead.learn.ground.task import Task
from stead.learn.ground.tensor_file import Arrays
from stead.learn.ground.torch_state import network_arrays
from stead.learn.ground.training_loop import Algorithm, Clock, Loop, Step, mean_of
from stead.learn.ground.workers import Alone, Draw, Lesson, Replica, Workers

BaselineName = Literal["ema", "batch"]
SMALL_BATCH = 8  # samples below which the batch mean is too noisy a baseline


@dataclass(frozen=True, slots=True)
class Training:
    """How a policy is trained; reasons for the values stand beside the presets of each paper."""

    algorithm: Algorithm = "reinforce"
    samples: int = 8
    learning_rate: float = 1e-3
    clip_norm: float = 1.0
    baseline: BaselineName = "batch"
    ema_decay: float = 0.9
    policy_weight: float = 1.0
    entropy: Linear = field(default_factory=lambda: Linear(5e-4, 0.0, 300))
    explore: int = 50  # updates in which infeasible samples teach, too
    elite_weight: float = 1.0
    elite_band: Linear = field(default_factory=lambda: Linear(1.0, 0.03, 100))  # share above the best
    elite_samples: int = 4  # elites in the loss of one update
    greedy: bool = True  # score the greedy placement at every update
    keep_greedy: bool = False  # the policy that is kept is the one whose greedy placement was best
    alarm: bool = False  # act when the greedy placement stays on one device while something better is known
    imitation: int = 0  # updates at the beginning that copy a target
    imitation_rate: float = 0.0  # learning rate of these updates; 0: the same as afterwards
    imitation_entropy: float = 0.0  # weight of the entropy in these updates: something must be left to explore
    epochs: int = 2  # of PPO
    clip_ratio: float = 0.2  # of PPO
    graphs_per_step: int = 1

    def __post_init__(self) -> None:
        for name in ("samples", "epochs", "graphs_per_step"):
            if getattr(self, name) < 1:
                raise BadInput(f"{name} must be at least 1, got {getattr(self, name)}")
        if not 0 <= self.learning_rate < math.inf:
            raise BadInput(f"a learning rate is not negative, got {self.learning_rate}")


class OneShot(Loop[Inputs]):
    """Learns from whole placements that its network samples."""

    def __init__(
        self, network: Network[Inputs], tasks: Sequence[Task[Inputs]], training: Training, *, seed: int = 0
    ) -> None:
        super().__init__(network, tasks, learning_rate=training.learning_rate, seed=seed)
        self.network = network
        self.training = training
        self.workers: Workers = Alone(self.replica())
        for task in self.tasks:
            left = task.scorer.left
            if task.target is not None and (left is None or left >= task.scorer.runs):
                rows = self.rows(task, torch.from_numpy(task.target[None, :]))
                task.elites.offer(task.target[None, :], task.scorer.score(rows, by=task.copied).seconds)

    @property
    def evaluations_per_update(self) -> int:
        """At most so many placements are simulated by one update."""
        graphs = min(self.training.graphs_per_step, len(self.tasks))
        graphs *= max(task.scorer.runs for task in self.tasks)
        return graphs * (self.training.samples + int(self.training.greedy))

    def replica(self) -> Replica[Inputs]:
        """The network with what it reads, for workers; it shares the weights of the learner."""
        clip = self.training.clip_ratio if self.training.algorithm == "ppo" else None
        return Replica(self.network, [task.inputs for task in self.tasks], clip)

    def learn(self) -> Step:
        """Sample, score, learn."""
        clock, training = Clock(), self.training
        imitating = self.version < training.imitation
        self.optimiser.param_groups[0]["lr"] = self._rate(imitating)
        chosen = self._chosen()
        with clock:
            drawn = self.workers.draw([self._draw(index, imitating) for index in chosen])
        batches = [self._batch(index, actions, imitating) for index, actions in zip(chosen, drawn, strict=True)]
        if training.keep_greedy:
            self.keep_by_greedy()
        if training.alarm and training.greedy and not imitating:
            self.watch(self.tasks)
        stepped, norm = False, 0.0
        taught = [batch for batch in batches if batch.teaches]
        if training.learning_rate > 0 and taught:
            with clock:
                norm = self._learn(taught, imitating)
            stepped = True
        return Step(
            tasks=[batch.task for batch in batches],
            seconds=[batch.scored.seconds[int(training.greedy) :] for batch in batches],
            entropy=mean_of([batch.entropy for batch in batches]),
            gradient=norm,
            stepped=stepped,
            network_seconds=clock.seconds,
        )

    def rows(self, task: Task[Inputs], actions: Tensor) -> NDArray[np.uint8]:  # [S, G]
        """What is scored of some actions."""
        return np.asarray(self.network.placements(task.inputs, actions).numpy()).astype(np.uint8)

    def greedy(self, task: Task[object]) -> NDArray[np.uint8]:  # a row
        """The placement that the policy prefers now."""
        own = self.tasks[self.number(task)]
        actions, _ = self.network.sample(own.inputs, 1, torch.Generator().manual_seed(0), greedy=True)
        row: NDArray[np.uint8] = self.rows(own, actions)[0]
        return row

    def policy_arrays(self) -> Arrays:
        """The network whose greedy placements were best, if training keeps it, or else that of the last update."""
        return self.kept or network_arrays(self.module)

    @property
    def taught(self) -> bool:
        """After the first update that does not copy, unless it learns nothing at all."""
        return self.carried_on or (self.version > self.training.imitation and self.training.learning_rate > 0)

    def options(self) -> dict[str, object]:
        """Of the training."""
        return asdict(self.training)

    def _chosen(self) -> list[int]:
        """Graphs of this update, all equally often in the long run."""
        count = min(self.training.graphs_per_step, len(self.tasks))
        if count == len(self.tasks):
            return list(range(count))
        rng = np.random.default_rng((self.seed, self.version))
        return sorted(rng.choice(len(self.tasks), size=count, replace=False).tolist())

    def _draw(self, index: int, imitating: bool) -> Draw:
        """What is asked of the network for one graph."""
        extra = int(self.training.greedy)
        drawn = 0 if imitating and extra else self.training.samples  # samples teach nothing while a target is copied
        seed = int(self._rng(index).integers(2**62))
        return Draw(index, drawn + extra, seed, greedy=bool(extra))

    def _rng(self, index: int) -> np.random.Generator:
        return np.random.default_rng((self.seed, self.version, index))

    def _batch(self, index: int, actions: Tensor, imitating: bool) -> _Batch[Inputs]:
        """Score what was drawn for one graph, and make a lesson of it."""
        task, training = self.tasks[index], self.training
        rng = self._rng(index)
        rng.integers(2**62)  # the seed of the draw
        extra = int(training.greedy)
        rows = self.rows(task, actions)
        drawn = [self.credit("sample")] * len(rows)
        drawn[:extra] = [self.credit("greedy")] * extra
        scored = task.scorer.score(rows, by=drawn)
        teaches = (scored.feasible | (self.version < training.explore)) & ~scored.lost
        weight = teaches.astype(np.float64)
        weight[:extra] = 0.0
        reward = task.reward.of(scored, task.scorer.worst_seconds)
        by_average = training.baseline == "ema" or training.samples < SMALL_BATCH
        base = task.average if by_average else None
        if by_average and base is None:
            base = float(reward[weight > 0].mean()) if weight.any() else 0.0
        advantage = advantages(reward, weight, base)
        task.average = moved_average(task.average, reward[weight > 0], training.ema_decay)
        devices = rows[:, : task.grouping.count]
        names = torch.from_numpy(names_by_first_use(devices, task.classes))
        task.elites.offer(self.network.renamed(task.inputs, actions, names).numpy(), scored.seconds)
        if extra:
            task.greedy_seconds = float(scored.seconds[0])
            task.greedy_devices = len(np.unique(devices[0]))
        elites = task.elites.within(training.elite_band.at(self.version))
        if len(elites) > training.elite_samples:
            elites = elites[np.sort(rng.choice(len(elites), training.elite_samples, replace=False))]
        if imitating:
            elites = np.zeros((0, 0), dtype=np.int64) if task.target is None else task.target[None, :]
        return _Batch(index, task, actions, scored, weight, advantage, elites, imitating)

    def _rate(self, imitating: bool) -> float:
        own = self.training.imitation_rate if imitating else 0.0
        return own if own > 0 and self.training.learning_rate > 0 else self.training.learning_rate

    def _entropy_weight(self) -> float:
        return self.training.entropy.at(0 if self.alarm.is_loud(self.version) else self.version)

    def _elite_weight(self) -> float:
        return self.training.elite_weight * (2.0 if self.alarm.raised else 1.0)

    def _learn(self, batches: list[_Batch[Inputs]], imitating: bool) -> float:
        """The steps of one update; the norm of the last gradient before clipping."""
        lessons = [self._lesson(batch) for batch in batches]
        norm, once = 0.0, imitating or self.training.algorithm == "reinforce"
        for _ in range(1 if once else self.training.epochs):
            answers = self.workers.gradients(lessons)
            norm = self._step([answer.gradient for answer in answers])
            lessons = [replace(lesson, old=answer.old) for lesson, answer in zip(lessons, answers, strict=True)]
            for batch, answer in zip(batches, answers, strict=True):
                batch.entropy = answer.entropy
        return norm

    def _lesson(self, batch: _Batch[Inputs]) -> Lesson:
        copies, training = batch.imitating, self.training
        return Lesson(
            graph=batch.index,
            actions=batch.actions,
            weight=batch.weight,
            advantage=batch.advantage,
            elites=batch.elites,
            imitating=copies,
            policy_weight=training.policy_weight,
            entropy_weight=training.imitation_entropy if copies else self._entropy_weight(),
            elite_weight=self._elite_weight(),
        )

    def _step(self, gradients: Sequence[Sequence[Tensor | None]]) -> float:
        """One optimiser step on the sum of the gradients of some graphs; its norm before clipping."""
        self.optimiser.zero_grad(set_to_none=True)
        for parameter, *parts in zip(self.module.parameters(), *gradients, strict=True):
            for part in parts:
                if part is not None:
                    parameter.grad = part if parameter.grad is None else parameter.grad + part
        return self.stepped(self.training.clip_norm)


@dataclass(slots=True, eq=False)
class _Batch(Generic[Inputs]):
    """What was drawn for one graph in one update."""

    index: int
    task: Task[Inputs]
    actions: Tensor  # [S, A]
    scored: Scored
    weight: NDArray[np.float64]  # [S]
    advantage: NDArray[np.float64]  # [S]
    elites: NDArray[np.int64]  # [elite, A]
    imitating: bool
    entropy: float = 0.0

    @property
    def teaches(self) -> bool:
        """Whether there is anything to learn: a batch of infeasible samples changes no parameter."""
        return len(self.elites) > 0 if self.imitating else bool(self.weight.any())
