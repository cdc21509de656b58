"""Training of a policy that improves placements step by step: PPO or REINFORCE over the steps of episodes in lockstep.

Notation    B episodes, T steps, G [T, B] returns
    A       [T, B]  advantage: G less a baseline of the same step
        batch       mean over the episodes of this update from the same kind of start; A is divided by its deviation
        history     mean over the episodes of the last 10 updates of the same graph (as published)
    loss            corrected: mean over steps and episodes; published: sum
    imitation       the first updates lead some episodes, those from random placements first, to the best placement
                    known of the graph, which hill climbing may improve before; loss -log p of the steps, one epoch.
                    The other episodes learn from rewards

One update is about one graph, in turns. It draws from generators made of (seed, version): nothing random has to be
saved. Gradients are added up over chunks of steps, so that memory does not grow with the length of an episode.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from stead.learn.ground.losses import Linear, ppo_loss, reinforce_loss
from stead.learn.ground.task import Task
from stead.learn.ground.tensor_file import Arrays
from stead.learn.ground.torch_state import network_arrays
from stead.learn.ground.training_loop import Algorithm, Clock, Loop, Step
from stead.learn.placeto.episodes import Episodes, Observation, Returns, Walk, returns_to_go
from stead.learn.placeto.features import Inputs
from stead.learn.placeto.network import PlacetoNet, log_probabilities

Baseline = Literal["batch", "history"]
HISTORY = 10  # updates of one graph that the published baseline remembers
SWEEPS = 3  # at most, of an evaluation
RANDOM_STARTS = 3  # of an evaluation, beside the single device
CLIMB = "climb on groups"  # who placements are owed to that hill climbing found
TRIED = 32  # moves of hill climbing that are simulated at a time
CHUNK = 600_000  # floats of one layer that are computed at a time: they stay in the cache of a core


@dataclass(frozen=True, slots=True)
class EpisodeTraining:
    """How a policy is trained; reasons for the values stand beside the presets."""

    algorithm: Algorithm = "ppo"
    returns: Returns = "log"
    baseline: Baseline = "batch"
    episodes: int = 8
    epochs: int = 4  # of PPO
    clip_ratio: float = 0.2
    clip_norm: float = 1.25
    learning_rate: float = 1e-3
    last_rate: float = 1e-4
    rate_holds: float = 0.7  # share of the run, and of imitation, before the rate falls
    entropy: float = 0.02
    least_entropy: float = 0.05  # share of it that remains
    updates: int = 100  # that rate and entropy are planned for
    imitation: int = 0  # updates that copy the best placement known before rewards count
    imitation_rate: float = 3e-3
    led: int = 4  # of the episodes, that copy; they search on the way, the others from what was found
    teacher: int = 0  # placements of a graph that hill climbing tries before it is copied for the first time
    mixed_starts: bool = True  # half random, the rest known ones; otherwise one fixed random placement
    alarm: bool = True
    summed: bool = False  # losses over steps and episodes instead of their mean
    offset: float = 0.0  # of probabilities in the entropy: -sum p log(p + offset)

    def rate(self, version: int) -> float:
        """The learning rate of an update."""
        if self.learning_rate == 0:
            return 0.0
        first, begin, end = self.learning_rate, min(self.imitation, self.updates), self.updates
        if version < begin:
            first, begin, end = self.imitation_rate, 0, begin
        held = int(self.rate_holds * (end - begin))
        falling = Linear(first, min(self.last_rate, first), end - begin - held)
        return falling.at(max(0, version - begin - held))

    def entropy_weight(self, version: int) -> float:
        """The weight of the entropy at an update: it falls over 70 % of a run."""
        return self.entropy * max(self.least_entropy, 1 - version / max(1.0, 0.7 * self.updates))


@dataclass(frozen=True, slots=True, eq=False)
class KnownRows:
    """Placements of groups that are there before anything is learnt, and who made them."""

    rows: NDArray[np.uint8]  # [start, group]; the single device first
    names: tuple[str, ...]


class PlacetoLearner(Loop[Inputs]):
    """Learns from episodes that walk over the groups of one graph after the other."""

    def __init__(
        self,
        network: PlacetoNet,
        tasks: Sequence[Task[Inputs]],
        training: EpisodeTraining,
        observation: Observation,
        starts: Sequence[KnownRows],
        *,
        seed: int = 0,
    ) -> None:
        super().__init__(network, tasks, learning_rate=training.learning_rate, seed=seed)
        self.network, self.training, self.observation = network, training, observation
        self.walks = [Walk(task, observation) for task in self.tasks]
        self.known = [one.rows for one in starts]  # [start, group] each; the single device first
        self.known_by = [one.names for one in starts]
        self.history: list[list[NDArray[np.float64]]] = [[] for _ in self.tasks]  # mean returns of updates

    @property
    def evaluations_per_update(self) -> int:
        """At most so many placements are simulated by one update: all steps of all episodes, and the starts."""
        most = max(task.grouping.count for task in self.tasks)
        copied = max(map(len, self.known)) + self.training.teacher if self.training.imitation else 0
        return self.runs * (most + 1) * (self.training.episodes + 1) + copied

    @property
    def runs(self) -> int:
        """Simulations of a step at most."""
        return max(walk.scorer.runs_timed for walk in self.walks)

    @property
    def taught(self) -> bool:
        """After the first update in which not all episodes copy."""
        copies = self.training.imitation if self.training.led >= self.training.episodes else 0
        return self.carried_on or (self.version > copies and self.training.learning_rate > 0)

    def learn(self) -> Step:
        """Walk, score, learn."""
        index, training = self.version % len(self.tasks), self.training
        task, walk, own = self.tasks[index], self.walks[index], training.episodes
        rng = np.random.default_rng((self.seed, self.version, index))
        generator = torch.Generator().manual_seed(int(rng.integers(2**62)))
        starts = np.concatenate([self._starts(index, rng), self._fixed(index)])
        copies = self.version < training.imitation
        led = self._led(index, starts[:own][: training.led]) if copies else None
        greedy = np.arange(own + 1) == own  # the last row, which does not teach
        episodes = walk.run(self.network, starts, generator, greedy=greedy, led=led, taught=self.taught)
        task.greedy_seconds = float(episodes.seconds[own])
        task.greedy_devices = len(np.unique(episodes.rows[own]))
        self.keep_by_greedy()
        if training.alarm:
            self.watch([task])
        clock, norm, stepped = Clock(), 0.0, False
        if training.learning_rate > 0 and episodes.steps:
            with clock:
                copied = 0 if led is None else len(led)
                if copied < own:
                    gains = self._advantages(index, episodes.rho[:, :own])[:, copied:]
                    norm = self._learn(walk, episodes, slice(copied, own), gains)
                if copied:
                    norm = self._learn(walk, episodes, slice(0, copied))
            stepped = True
        return Step(
            tasks=[task],
            seconds=[episodes.seconds[:own]],
            entropy=episodes.entropy,
            gradient=norm,
            stepped=stepped,
            network_seconds=clock.seconds + episodes.network.seconds,
        )

    def greedy(self, task: Task[object]) -> NDArray[np.uint8]:  # [group]
        """The best placement of argmax sweeps, from constructions too."""
        found = [self.evaluated(task), self.evaluated(task, constructed=True)]
        return min(found, key=lambda one: one[1])[0]

    def evaluated(
        self, task: Task[object], *, constructed: bool = False, limit: int | None = None
    ) -> tuple[NDArray[np.uint8], float]:
        """(placement of groups, its seconds): best intermediate placement of argmax sweeps from several starts.

        They begin on the single device and at three random placements, or at the constructions, which may be good as
        they are; `limit` bounds the placements simulated.
        """
        index = self.number(task)
        rng = np.random.default_rng((self.seed, 2**31, index))
        starts = np.concatenate([self.known[index][:1], random_rows(self.tasks[index], rng, RANDOM_STARTS)])
        if constructed:
            starts = self.known[index][1:]
        sweeps, groups = SWEEPS, max(1, task.grouping.count)
        if limit is not None:
            limit //= self.runs
            starts = starts[: max(1, limit // (groups + 1))]
            sweeps = min(SWEEPS, (limit // max(1, len(starts)) - 1) // groups)
        if not len(starts):
            return self.known[index][0], math.inf
        found = self._swept(index, starts, sweeps)
        best = int(np.argmin(found.best_seconds))
        return found.best_rows[best], float(found.best_seconds[best])

    def swept_once(self, task: Task[object]) -> tuple[NDArray[np.uint8], float]:
        """(placement of groups, its seconds) where argmax sweeps from the single device end."""
        index = self.number(task)
        found = self._swept(index, self.known[index][:1], SWEEPS)
        return found.rows[0], float(found.seconds[0])

    def _swept(self, index: int, starts: NDArray[np.uint8], sweeps: int) -> Episodes:
        generator = torch.Generator().manual_seed(0)
        greedy = np.ones(len(starts), dtype=bool)
        return self.walks[index].run(
            self.network, starts, generator, greedy=greedy, sweeps=sweeps, keep=False, taught=self.taught
        )

    def policy_arrays(self) -> Arrays:
        """The network of the last update: the greedy sweep that is watched begins at one placement of many."""
        return network_arrays(self.network)

    def options(self) -> dict[str, object]:
        """Of the training and of what is seen."""
        return {**asdict(self.training), **asdict(self.observation)}

    def own_arrays(self) -> Arrays:
        """Mean returns of the last updates of every graph."""
        return {
            f"task.{n}.history": np.stack(history) if history else np.zeros((0, task.grouping.count))
            for n, (task, history) in enumerate(zip(self.tasks, self.history, strict=True))
        }

    def take_own(self, arrays: Arrays) -> None:
        """Take them over."""
        self.history = [list(arrays[f"task.{n}.history"].astype(np.float64)) for n in range(len(self.tasks))]

    def _starts(self, index: int, rng: np.random.Generator) -> NDArray[np.uint8]:  # [B, N]
        """Where the episodes of an update begin."""
        task, count = self.tasks[index], self.training.episodes
        if not self.training.mixed_starts:
            return np.repeat(self._fixed(index), count, axis=0)
        known = list(self.known[index])
        if task.scorer.incumbent is not None:
            best = [task.scorer.incumbent.row] * (2 if self.alarm.raised else 1)
            known = [*best, *known]
        drawn = random_rows(task, rng, count - count // 2)
        turn = (self.version // len(self.tasks)) * (count // 4)
        chosen = [known[(turn + n // 2) % len(known)] for n in range(count // 2)]  # in pairs, see `kinds`
        return np.stack([*drawn, *chosen])

    def _led(self, index: int, starts: NDArray[np.uint8]) -> NDArray[np.uint8] | None:  # [B, N]
        """Where imitation leads episodes; None where nothing is known that fits.

        Equal devices are renamed so that most of the work stays where it is: nothing is learnt by exchanging them.
        """
        task = self.tasks[index]
        task.scorer.score(self.known[index], by=self.known_by[index])
        if task.scorer.incumbent is None:
            return None
        if self.version < len(self.tasks):
            climb(task, self.training.teacher, np.random.default_rng((self.seed, 2**32, index)))
        best, weight = task.scorer.incumbent.row.astype(np.int64), task.inputs.fastest.astype(np.float64)
        rows = np.empty_like(starts)
        for row, start in zip(rows, starts, strict=True):
            count = len(task.classes)
            same = np.bincount(best * count + start, weights=weight, minlength=count * count)
            names = np.arange(count)
            free = same.reshape(count, count) + 1.0
            free[task.classes[:, None] != task.classes] = 0.0
            for _ in range(count):
                a, b = np.unravel_index(np.argmax(free), free.shape)
                names[a] = b
                free[a], free[:, b] = 0.0, 0.0
            row[:] = names[best]
        return rows

    @property
    def kinds(self) -> NDArray[np.int64]:  # [B]
        """Episodes of one kind are compared: those from random placements, and those from one known placement.

        Much is to be gained from a random placement and little from a good one, whatever is done.
        """
        count = self.training.episodes
        if not self.training.mixed_starts:
            return np.zeros(count, dtype=np.int64)
        known = np.arange(count // 2) // 2
        return np.concatenate([np.zeros(count - count // 2, dtype=np.int64), 1 + known])

    def _fixed(self, index: int) -> NDArray[np.uint8]:  # [1, N]
        """One random placement of a graph, the same in all updates.

        The watch sweeps from it: a policy that brings even that onto one device has collapsed, while one that leaves
        the single device as it is may only be careful.
        """
        return random_rows(self.tasks[index], np.random.default_rng((self.seed, index)), 1)

    def _advantages(self, index: int, rho: NDArray[np.float64]) -> NDArray[np.float64]:  # [T, B]
        gains = returns_to_go(rho, self.training.returns)
        if self.training.baseline == "batch":
            kinds = self.kinds
            same = (kinds[:, None] == kinds).astype(np.float64)
            centred = gains - gains @ (same / same.sum(axis=0))
            return np.asarray(centred / (centred.std() + 1e-8))
        history, mean = self.history[index], gains.mean(axis=1)
        base = np.mean(history, axis=0) if history else mean
        self.history[index] = [*history, mean][-HISTORY:]
        return np.asarray(gains - np.asarray(base)[:, None])

    def _learn(
        self, walk: Walk, episodes: Episodes, rows: slice, advantage: NDArray[np.float64] | None = None
    ) -> float:
        """All epochs on some episodes, one of imitation without advantages; the last norm before clipping."""
        training = self.training
        for group in self.optimiser.param_groups:
            group["lr"] = training.rate(self.version)
        entropy_weight = training.entropy_weight(0 if self.alarm.is_loud(self.version) else self.version)
        weights = None if advantage is None else torch.from_numpy(advantage).float()
        norm = 0.0
        for _ in range(training.epochs if training.algorithm == "ppo" and weights is not None else 1):
            self.optimiser.zero_grad(set_to_none=True)
            for loss in self._losses(walk, episodes, rows, weights, entropy_weight):
                loss.backward()  # type: ignore[no-untyped-call]
            norm = self.stepped(training.clip_norm)
            if not math.isfinite(norm):
                break
        return norm

    def _losses(
        self, walk: Walk, episodes: Episodes, rows: slice, advantage: Tensor | None, entropy_weight: float
    ) -> Iterator[Tensor]:
        """Losses of parts of the batch; their sum is the loss of the update."""
        training, own = self.training, rows.stop - rows.start
        d, _, groups = episodes.steps[0][0].shape
        at_once = max(1, CHUNK // (2 * groups * own * d))
        total = len(episodes.steps) * own
        for begin in range(0, len(episodes.steps), at_once):
            steps = episodes.steps[begin : begin + at_once]
            e = torch.cat([step[0][:, rows] for step in steps], dim=1)
            v, f, mask = (torch.cat([step[i][rows] for step in steps]) for i in (1, 2, 3))
            taken, old = (
                torch.cat([one[rows] for one in column[begin : begin + at_once]])[:, None]
                for column in (episodes.actions, episodes.log_p)
            )
            log_p, entropy = log_probabilities(self.network(walk.inputs, e, v, f, mask))
            if training.offset:
                p = log_p.exp().masked_fill(~mask, 0.0)
                entropy = -(p * torch.log(p + training.offset)).sum(dim=1)
            new = log_p.gather(1, taken)
            ones = torch.ones(len(new))
            each = ones if advantage is None else advantage[begin : begin + at_once].reshape(-1)
            if advantage is None:
                loss = -new.mean()
            elif training.algorithm == "ppo":
                loss = ppo_loss(new, old, each, ones, training.clip_ratio)
            else:
                loss = reinforce_loss(new, each, ones)
            loss = loss - entropy_weight * entropy.mean()
            share = len(new) if training.summed else len(new) / total
            yield loss * share


def climb(task: Task[Inputs], evaluations: int, rng: np.random.Generator) -> None:
    """Improve the best placement known by moves of a group and of runs of groups, so many placements at most."""
    order, allowed = task.inputs.order, task.inputs.allowed
    groups, devices = allowed.shape
    for _ in range(evaluations // TRIED if groups and devices > 1 else 0):
        assert task.scorer.incumbent is not None
        rows = np.tile(task.scorer.incumbent.row, (TRIED, 1))
        first = rng.integers(groups, size=TRIED)
        length = np.where(rng.random(TRIED) < 0.5, 1, rng.integers(1, max(2, groups // 4), size=TRIED))
        for row, a, n, d in zip(rows, first, length, rng.integers(devices, size=TRIED), strict=True):
            moved = order[a : a + n]
            row[moved[allowed[moved, d]]] = d
        task.scorer.score(rows, by=CLIMB)


def random_rows(task: Task[Inputs], rng: np.random.Generator, count: int) -> NDArray[np.uint8]:  # [row, group]
    """Placements drawn evenly from the devices that may run each group."""
    allowed = task.inputs.allowed
    noise = rng.random((count, *allowed.shape))
    return np.asarray(np.where(allowed, noise, -1.0).argmax(axis=2)).astype(np.uint8)
