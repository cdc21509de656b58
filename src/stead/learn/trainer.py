"""Making a one-shot policy better: sample placements of one or several graphs, score them, take a step.

Notation    S samples, A numbers of one action, C choices that make up one placement, G groups
    actions  [S, A]  what the network decided, whatever it decides
    rows     [S, G]  the device of every group that follows from it, and whatever else the scorer of the task reads
    losses           see losses.py; besides, - entropy weight * sum_c entropy - elite weight * log p of elites

Every update draws from generators made of (seed, version, graph): nothing random has to be saved, an update is the same
whether or not the run was stopped before it. What the network does for one graph, drawing and gradients, is the work of
a `Crew` (crew.py), in this process or in several; gradients are added in the order of the graphs, whoever made them.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from stead.errors import BadInput
from stead.learn.checkpoints import Arrays
from stead.learn.crew import Alone, Crew, Draw, Lesson, Network, Replica
from stead.learn.losses import Linear, advantages, moved_average
from stead.learn.rewards import Scored
from stead.learn.state import NETWORK, load_network, load_optimiser, network_arrays, optimiser_arrays
from stead.learn.symmetry import names_by_first_use
from stead.learn.tasks import Task

Algorithm = Literal["reinforce", "ppo"]
BaselineName = Literal["ema", "batch"]
SMALL_BATCH = 8  # samples below which the batch mean is too noisy a baseline
COLLAPSED_UPDATES = 20  # on one device, while something better by COLLAPSED_SHARE is known, before the alarm
COLLAPSED_SHARE = 0.05


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


@dataclass(frozen=True, slots=True)
class Metrics:
    """What one update says about itself; ratios are run times against the reference of each graph."""

    update: int
    evaluations: int  # all so far
    hits: int  # rows that were known already
    best: float  # ratio; mean over all graphs that anything was found for
    mean: float  # ratio of the feasible samples of this update; 0 if there were none
    greedy: float  # ratio of the last greedy placements; 0 if unknown
    infeasible: float  # share of the samples
    entropy: float  # nats per choice
    gradient: float  # norm before clipping; 0 if no step was taken
    stepped: bool
    alarms: int  # of collapse onto one device, so far
    network_seconds: float
    simulator_seconds: float
    other_seconds: float

    def as_dict(self) -> dict[str, Any]:
        """Plain data."""
        return asdict(self)


class Learner:
    """A network, an optimiser and graphs to learn from; `update` is one step, `state` all that the next one needs."""

    def __init__(self, network: Network, tasks: Sequence[Task], training: Training, *, seed: int = 0) -> None:
        if not tasks:
            raise BadInput("training needs at least one graph")
        assert isinstance(network, nn.Module)
        self.network: Any = network
        self.module: nn.Module = network
        self.tasks = list(tasks)
        self.training = training
        self.seed = seed
        self.version = 0
        self.alarms = 0
        self.collapsed = 0  # updates in a row
        self.loud_until = 0  # entropy is as at the beginning until this version
        self.kept: Arrays = {}  # the network whose greedy placements were best
        self.kept_ratio = math.inf
        self.optimiser = torch.optim.Adam(self.module.parameters(), lr=training.learning_rate)
        self.crew: Crew = Alone(self.replica())
        for task in self.tasks:
            if task.target is not None:
                rows = self.rows(task, torch.from_numpy(task.target[None, :]))
                task.elites.offer(task.target[None, :], task.scorer.score(rows).seconds)

    @property
    def evaluations(self) -> int:
        """Placements that were simulated."""
        return sum(task.scorer.evaluations for task in self.tasks)

    @property
    def evaluations_per_update(self) -> int:
        """At most so many placements are simulated by one update."""
        graphs = min(self.training.graphs_per_step, len(self.tasks))
        graphs *= max(task.scorer.runs for task in self.tasks)
        return graphs * (self.training.samples + int(self.training.greedy))

    def replica(self) -> Replica:
        """The network with what it reads, for a crew; it shares the weights of the learner."""
        clip = self.training.clip_ratio if self.training.algorithm == "ppo" else None
        return Replica(self.module, [task.inputs for task in self.tasks], clip)

    def update(self) -> Metrics:
        """Sample, score, learn."""
        begin = time.perf_counter()
        simulated = sum(task.scorer.simulated_seconds for task in self.tasks)
        clock = Clock()
        imitating = self.version < self.training.imitation
        self.optimiser.param_groups[0]["lr"] = self._rate(imitating)
        chosen = self._chosen()
        with clock:
            drawn = self.crew.draw([self._draw(index, imitating) for index in chosen])
        batches = [self._batch(index, actions, imitating) for index, actions in zip(chosen, drawn, strict=True)]
        self._look_at_greedy(imitating)
        stepped, norm = False, 0.0
        taught = [batch for batch in batches if batch.teaches]
        if self.training.learning_rate > 0 and taught:
            with clock:
                norm = self._learn(taught, imitating)
            stepped = True
        self.version += 1
        spent = time.perf_counter() - begin
        simulated = sum(task.scorer.simulated_seconds for task in self.tasks) - simulated
        return self._metrics(batches, stepped, norm, clock.seconds, simulated, spent)

    def rows(self, task: Task, actions: Tensor) -> NDArray[np.uint8]:  # [S, G]
        """What is scored of some actions."""
        rows: Tensor = self.network.placements(task.inputs, actions)
        return np.asarray(rows.numpy()).astype(np.uint8)

    def greedy(self, task: Task) -> NDArray[np.uint8]:  # a row
        """The placement that the policy prefers now."""
        generator = torch.Generator().manual_seed(0)
        actions, _ = self.network.sample(task.inputs, 1, generator, greedy=True)
        row: NDArray[np.uint8] = self.rows(task, actions)[0]
        return row

    def policy_arrays(self) -> Arrays:
        """The network to be used: the one kept, or else the last one."""
        return self.kept or network_arrays(self.module)

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

    def _batch(self, index: int, actions: Tensor, imitating: bool) -> _Batch:
        """Score what was drawn for one graph, and make a lesson of it."""
        task, training = self.tasks[index], self.training
        rng = self._rng(index)
        rng.integers(2**62)  # the seed of the draw
        extra = int(training.greedy)
        rows = self.rows(task, actions)
        scored = task.scorer.score(rows)
        weight = (scored.feasible | (self.version < training.explore)).astype(np.float64)
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

    def _look_at_greedy(self, imitating: bool) -> None:
        """Keep the best network; see whether the policy has fallen onto one device where more would be better."""
        training, tasks = self.training, self.tasks
        ratios = [task.greedy_seconds / task.reward.reference_seconds for task in tasks]
        if training.keep_greedy and all(map(math.isfinite, ratios)) and sum(ratios) < self.kept_ratio:
            self.kept, self.kept_ratio = network_arrays(self.module), sum(ratios)
        if not training.alarm or not training.greedy or imitating or self.version < self.loud_until:
            return
        fallen = any(
            task.greedy_devices == 1 and task.greedy_seconds > (1 + COLLAPSED_SHARE) * task.best_known_seconds
            for task in tasks
        )
        self.collapsed = self.collapsed + 1 if fallen else 0
        if self.collapsed >= COLLAPSED_UPDATES:
            self.alarms, self.collapsed = self.alarms + 1, 0
            self.loud_until = self.version + COLLAPSED_UPDATES
            if self.alarms > 1 and self.kept:
                load_network(self.module, self.kept)

    def _rate(self, imitating: bool) -> float:
        own = self.training.imitation_rate if imitating else 0.0
        return own if own > 0 and self.training.learning_rate > 0 else self.training.learning_rate

    def _entropy_weight(self) -> float:
        return self.training.entropy.at(0 if self.version < self.loud_until else self.version)

    def _elite_weight(self) -> float:
        return self.training.elite_weight * (2.0 if self.alarms else 1.0)

    def _learn(self, batches: list[_Batch], imitating: bool) -> float:
        """The steps of one update; the norm of the last gradient before clipping."""
        lessons = [self._lesson(batch) for batch in batches]
        norm, once = 0.0, imitating or self.training.algorithm == "reinforce"
        for _ in range(1 if once else self.training.epochs):
            answers = self.crew.gradients(lessons)
            norm = self._step([answer.gradient for answer in answers])
            lessons = [replace(lesson, old=answer.old) for lesson, answer in zip(lessons, answers, strict=True)]
            for batch, answer in zip(batches, answers, strict=True):
                batch.entropy = answer.entropy
        return norm

    def _lesson(self, batch: _Batch) -> Lesson:
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
        norm = float(nn.utils.clip_grad_norm_(self.module.parameters(), self.training.clip_norm))
        if math.isfinite(norm):
            self.optimiser.step()
        return norm

    def _metrics(
        self,
        batches: list[_Batch],
        stepped: bool,
        norm: float,
        network: float,
        simulated: float,
        spent: float,
    ) -> Metrics:
        scored = [task for task in self.tasks if math.isfinite(task.scorer.best_seconds)]
        best = [task.scorer.best_seconds / task.reward.reference_seconds for task in scored]
        mean, greedy, bad = [], [], []
        for batch in batches:
            task, own = batch.task, batch.scored.seconds[1 if self.training.greedy else 0 :]
            reference, works = task.reward.reference_seconds, np.isfinite(own)
            bad.append(1.0 - float(works.mean()) if len(works) else 0.0)
            if works.any():
                mean.append(float(own[works].mean()) / reference)
            if math.isfinite(task.greedy_seconds):
                greedy.append(task.greedy_seconds / reference)
        return Metrics(
            update=self.version,
            evaluations=self.evaluations,
            hits=sum(task.scorer.hits for task in self.tasks),
            best=mean_of(best),
            mean=mean_of(mean),
            greedy=mean_of(greedy),
            infeasible=mean_of(bad),
            entropy=mean_of([batch.entropy for batch in batches]),
            gradient=norm,
            stepped=stepped,
            alarms=self.alarms,
            network_seconds=network,
            simulator_seconds=simulated,
            other_seconds=max(0.0, spent - network - simulated),
        )

    def state(self) -> tuple[Arrays, dict[str, Any]]:
        """(arrays, numbers) that `restore` goes on from, to the same bits."""
        arrays = {**network_arrays(self.module), **optimiser_arrays(self.optimiser)}
        arrays.update({f"kept.{name}": array for name, array in self.kept.items()})
        numbers: list[dict[str, Any]] = []
        for n, task in enumerate(self.tasks):
            kept, counted = task.state()
            arrays.update({f"task.{n}.{name}": array for name, array in kept.items()})
            numbers.append(counted)
        return arrays, {
            "version": self.version,
            "seed": self.seed,
            "tasks": numbers,
            "problems": [task.problem.fingerprint for task in self.tasks],
            "training": asdict(self.training),
            "watch": [self.alarms, self.collapsed, self.loud_until, self.kept_ratio],
        }

    def restore(self, arrays: Arrays, numbers: dict[str, Any]) -> None:
        """Take over what `state` gave; another seed, other graphs or other options are an error."""
        own = self.state()[1]
        for key, what in (("seed", "seed"), ("problems", "graphs or devices"), ("training", "options")):
            if numbers.get(key) != own[key]:
                raise BadInput(f"the checkpoint was made with other {what}; train anew or give the same")
        load_network(self.module, arrays)
        load_optimiser(self.optimiser, arrays)
        for n, (task, saved) in enumerate(zip(self.tasks, numbers["tasks"], strict=True)):
            mark = f"task.{n}."
            own_arrays = {name.removeprefix(mark): a for name, a in arrays.items() if name.startswith(mark)}
            task.restore(own_arrays, saved)
        self.kept = {
            name.removeprefix("kept."): array
            for name, array in arrays.items()
            if name.startswith(f"kept.{NETWORK}")
        }
        self.version = int(numbers["version"])
        self.alarms, self.collapsed, self.loud_until = (int(n) for n in numbers["watch"][:3])
        self.kept_ratio = float(numbers["watch"][3])


@dataclass(slots=True, eq=False)
class _Batch:
    """What was drawn for one graph in one update."""

    index: int
    task: Task
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
