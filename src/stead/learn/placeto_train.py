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
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from stead.errors import BadInput
from stead.learn.checkpoints import Arrays
from stead.learn.losses import Linear, ppo_loss, reinforce_loss
from stead.learn.placeto_net import PlacetoNet, log_probabilities
from stead.learn.placeto_walk import Episodes, Sight, Walk, returns_to_go
from stead.learn.state import NETWORK, load_network, load_optimiser, network_arrays, optimiser_arrays
from stead.learn.tasks import Task
from stead.learn.trainer import COLLAPSED_SHARE, COLLAPSED_UPDATES, Algorithm, Clock, Metrics

Baseline = Literal["batch", "history"]
HISTORY = 10  # updates of one graph that the published baseline remembers
SWEEPS = 3  # at most, of an evaluation
RANDOM_STARTS = 3  # of an evaluation, beside the single device
TRIED = 32  # moves of hill climbing that are simulated at a time
CHUNK = 600_000  # floats of one layer that are computed at a time: they stay in the cache of a core


@dataclass(frozen=True, slots=True)
class Schooling:
    """How a policy is trained; reasons for the values stand beside the presets."""

    algorithm: Algorithm = "ppo"
    returns: str = "log"
    baseline: Baseline = "batch"
    episodes: int = 8
    epochs: int = 4  # of PPO
    clip_ratio: float = 0.2
    clip_norm: float = 1.25
    kl: float = 0.0  # epochs end when the approximate divergence is above; 0: never
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


class PlacetoLearner:
    """A network, an optimiser and graphs to learn from; `update` is one step, `state` all that the next one needs."""

    def __init__(
        self,
        network: PlacetoNet,
        tasks: Sequence[Task],
        schooling: Schooling,
        sight: Sight,
        starts: Sequence[NDArray[np.uint8]],
        *,
        seed: int = 0,
    ) -> None:
        if not tasks:
            raise BadInput("training needs at least one graph")
        self.network, self.tasks, self.schooling, self.sight = network, list(tasks), schooling, sight
        self.walks = [Walk(task, sight) for task in self.tasks]
        self.known = list(starts)  # [start, group] each; the single device first
        self.seed = seed
        self.version = 0
        self.alarms = 0
        self.collapsed = 0  # updates in a row
        self.loud_until = 0  # entropy is as at the beginning until this version
        self.kept: Arrays = {}  # the network whose greedy placements were best
        self.kept_ratio = math.inf
        self.history: list[list[NDArray[np.float64]]] = [[] for _ in self.tasks]  # mean returns of updates
        self.optimiser = torch.optim.Adam(network.parameters(), lr=schooling.learning_rate)

    @property
    def evaluations(self) -> int:
        """Placements that were simulated."""
        return sum(task.scorer.evaluations for task in self.tasks)

    @property
    def evaluations_per_update(self) -> int:
        """At most so many placements are simulated by one update: all steps of all episodes, and the starts."""
        most = max(task.grouping.count for task in self.tasks)
        copied = max(map(len, self.known)) + self.schooling.teacher if self.schooling.imitation else 0
        return (most + 1) * (self.schooling.episodes + 1) + copied

    def update(self) -> Metrics:
        """Walk, score, learn."""
        begin = time.perf_counter()
        index = self.version % len(self.tasks)
        task, walk, own = self.tasks[index], self.walks[index], self.schooling.episodes
        simulated = task.scorer.simulated_seconds + walk.clock.seconds
        rng = np.random.default_rng((self.seed, self.version, index))
        generator = torch.Generator().manual_seed(int(rng.integers(2**62)))
        starts = np.concatenate([self._starts(index, rng), self._fixed(index)])
        copies = self.version < self.schooling.imitation
        led = self._led(index, starts[:own][: self.schooling.led]) if copies else None
        greedy = np.arange(own + 1) == own  # the last row, which does not teach
        episodes = walk.run(self.network, starts, generator, greedy=greedy, led=led)
        task.greedy_seconds = float(episodes.seconds[own])
        task.greedy_devices = len(np.unique(episodes.rows[own]))
        self._watch(task)
        clock, norm, stepped = Clock(), 0.0, False
        if self.schooling.learning_rate > 0 and episodes.steps:
            with clock:
                copied = 0 if led is None else len(led)
                if copied < own:
                    gains = self._advantages(index, episodes.rho[:, :own])[:, copied:]
                    norm = self._learn(walk, episodes, slice(copied, own), gains)
                if copied:
                    norm = self._learn(walk, episodes, slice(0, copied))
            stepped = True
        self.version += 1
        simulated = task.scorer.simulated_seconds + walk.clock.seconds - simulated
        network = clock.seconds + episodes.network.seconds
        spent = time.perf_counter() - begin
        return self._metrics(task, episodes, stepped, norm, network, simulated, spent)

    def greedy(self, task: Task) -> NDArray[np.uint8]:  # [group]
        """The best placement of argmax sweeps, from constructions too."""
        found = [self.evaluated(task), self.evaluated(task, constructed=True)]
        return min(found, key=lambda one: one[1])[0]

    def evaluated(
        self, task: Task, *, constructed: bool = False, limit: int | None = None
    ) -> tuple[NDArray[np.uint8], float]:
        """(placement of groups, its seconds): best intermediate placement of argmax sweeps from several starts.

        They begin on the single device and at three random placements, or at the constructions, which may be good as
        they are; `limit` bounds the placements simulated.
        """
        index = next(n for n, one in enumerate(self.tasks) if one is task)
        rng = np.random.default_rng((self.seed, 2**31, index))
        starts = np.concatenate([self.known[index][:1], random_rows(task, rng, RANDOM_STARTS)])
        if constructed:
            starts = self.known[index][1:]
        sweeps, groups = SWEEPS, max(1, task.grouping.count)
        if limit is not None:
            starts = starts[: max(1, limit // (groups + 1))]
            sweeps = min(SWEEPS, (limit // max(1, len(starts)) - 1) // groups)
        if not len(starts):
            return self.known[index][0], math.inf
        found = self._swept(index, starts, sweeps)
        best = int(np.argmin(found.best_seconds))
        return found.best_rows[best], float(found.best_seconds[best])

    def swept_once(self, task: Task) -> tuple[NDArray[np.uint8], float]:
        """(placement of groups, its seconds) where argmax sweeps from the single device end."""
        index = next(n for n, one in enumerate(self.tasks) if one is task)
        found = self._swept(index, self.known[index][:1], SWEEPS)
        return found.rows[0], float(found.seconds[0])

    def _swept(self, index: int, starts: NDArray[np.uint8], sweeps: int) -> Episodes:
        generator = torch.Generator().manual_seed(0)
        greedy = np.ones(len(starts), dtype=bool)
        return self.walks[index].run(
            self.network, starts, generator, greedy=greedy, sweeps=sweeps, keep=False
        )

    def policy_arrays(self) -> Arrays:
        """The network of the last update."""
        return network_arrays(self.network)

    def _starts(self, index: int, rng: np.random.Generator) -> NDArray[np.uint8]:  # [B, N]
        """Where the episodes of an update begin."""
        task, count = self.tasks[index], self.schooling.episodes
        if not self.schooling.mixed_starts:
            return np.repeat(self._fixed(index), count, axis=0)
        known = list(self.known[index])
        if task.scorer.best is not None:
            best = [task.scorer.best] * (2 if self.alarms else 1)
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
        task.scorer.score(self.known[index])
        if task.scorer.best is None:
            return None
        if self.version < len(self.tasks):
            climb(task, self.schooling.teacher, np.random.default_rng((self.seed, 2**32, index)))
        best, weight = task.scorer.best.astype(np.int64), task.inputs.fastest.astype(np.float64)
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
        count = self.schooling.episodes
        if not self.schooling.mixed_starts:
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
        gains = returns_to_go(rho, self.schooling.returns)
        if self.schooling.baseline == "batch":
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
        schooling = self.schooling
        for group in self.optimiser.param_groups:
            group["lr"] = schooling.rate(self.version)
        entropy_weight = schooling.entropy_weight(0 if self.version < self.loud_until else self.version)
        weights = None if advantage is None else torch.from_numpy(advantage).float()
        norm = 0.0
        for _ in range(schooling.epochs if schooling.algorithm == "ppo" and weights is not None else 1):
            self.optimiser.zero_grad(set_to_none=True)
            moved = 0.0
            for loss, away in self._chunks(walk, episodes, rows, weights, entropy_weight):
                loss.backward()
                moved += away
            norm = float(nn.utils.clip_grad_norm_(self.network.parameters(), schooling.clip_norm))
            if not math.isfinite(norm):
                break
            if schooling.kl and moved / (len(episodes.steps) * (rows.stop - rows.start)) > schooling.kl:
                break
            self.optimiser.step()
        return norm

    def _chunks(
        self, walk: Walk, episodes: Episodes, rows: slice, advantage: Tensor | None, entropy_weight: float
    ) -> Any:  # iterator of (loss, sum of old - new log p)
        """Losses of parts of the batch; their sum is the loss of the update."""
        schooling, own = self.schooling, rows.stop - rows.start
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
            if schooling.offset:
                p = log_p.exp().masked_fill(~mask, 0.0)
                entropy = -(p * torch.log(p + schooling.offset)).sum(dim=1)
            new = log_p.gather(1, taken)
            ones = torch.ones(len(new))
            each = ones if advantage is None else advantage[begin : begin + at_once].reshape(-1)
            if advantage is None:
                loss = -new.mean()
            elif schooling.algorithm == "ppo":
                loss = ppo_loss(new, old, each, ones, schooling.clip_ratio)
            else:
                loss = reinforce_loss(new, each, ones)
            loss = loss - entropy_weight * entropy.mean()
            share = len(new) if schooling.summed else len(new) / total
            yield loss * share, float((old - new.detach()).sum())

    def _watch(self, task: Task) -> None:
        """Keep the best network; see whether the policy has fallen onto one device where more would be better."""
        ratios = [one.greedy_seconds / one.reward.reference_seconds for one in self.tasks]
        if all(map(math.isfinite, ratios)) and sum(ratios) < self.kept_ratio:
            self.kept, self.kept_ratio = network_arrays(self.network), sum(ratios)
        if not self.schooling.alarm or self.version < self.loud_until:
            return
        self.collapsed = self.collapsed + 1 if collapsed(task) else 0
        if self.collapsed >= COLLAPSED_UPDATES:
            self.alarms, self.collapsed = self.alarms + 1, 0
            self.loud_until = self.version + COLLAPSED_UPDATES
            if self.alarms > 1 and self.kept:
                load_network(self.network, self.kept)

    def _metrics(
        self,
        task: Task,
        episodes: Episodes,
        stepped: bool,
        norm: float,
        network: float,
        simulated: float,
        spent: float,
    ) -> Metrics:
        own, reference = self.schooling.episodes, task.reward.reference_seconds
        ends = episodes.seconds[:own]
        works = np.isfinite(ends)
        return Metrics(
            update=self.version,
            evaluations=self.evaluations,
            hits=sum(one.scorer.hits for one in self.tasks),
            best=task.scorer.best_seconds / reference if math.isfinite(task.scorer.best_seconds) else 0.0,
            mean=float(ends[works].mean()) / reference if works.any() else 0.0,
            greedy=task.greedy_seconds / reference if math.isfinite(task.greedy_seconds) else 0.0,
            infeasible=1.0 - float(works.mean()),
            entropy=episodes.entropy,
            gradient=norm,
            stepped=stepped,
            alarms=self.alarms,
            network_seconds=network,
            simulator_seconds=simulated,
            other_seconds=max(0.0, spent - network - simulated),
        )

    def state(self) -> tuple[Arrays, dict[str, Any]]:
        """(arrays, numbers) that `restore` goes on from, to the same bits."""
        arrays = {**network_arrays(self.network), **optimiser_arrays(self.optimiser)}
        arrays.update({f"kept.{name}": array for name, array in self.kept.items()})
        numbers: list[dict[str, Any]] = []
        for n, (task, history) in enumerate(zip(self.tasks, self.history, strict=True)):
            kept, counted = task.state()
            kept["history"] = np.stack(history) if history else np.zeros((0, task.grouping.count))
            arrays.update({f"task.{n}.{name}": array for name, array in kept.items()})
            numbers.append(counted)
        return arrays, {
            "version": self.version,
            "seed": self.seed,
            "tasks": numbers,
            "problems": [task.problem.fingerprint for task in self.tasks],
            "training": {**asdict(self.schooling), **asdict(self.sight)},
            "watch": [self.alarms, self.collapsed, self.loud_until, self.kept_ratio],
        }

    def restore(self, arrays: Arrays, numbers: dict[str, Any]) -> None:
        """Take over what `state` gave; another seed, other graphs or other options are an error."""
        own = self.state()[1]
        for key, what in (("seed", "seed"), ("problems", "graphs or devices"), ("training", "options")):
            if numbers.get(key) != own[key]:
                raise BadInput(f"the checkpoint was made with other {what}; train anew or give the same")
        load_network(self.network, arrays)
        load_optimiser(self.optimiser, arrays)
        for n, (task, saved) in enumerate(zip(self.tasks, numbers["tasks"], strict=True)):
            mark = f"task.{n}."
            found = {name.removeprefix(mark): a for name, a in arrays.items() if name.startswith(mark)}
            self.history[n] = list(found.pop("history").astype(np.float64))
            task.restore(found, saved)
        self.kept = {
            name.removeprefix("kept."): array
            for name, array in arrays.items()
            if name.startswith(f"kept.{NETWORK}")
        }
        self.version = int(numbers["version"])
        self.alarms, self.collapsed, self.loud_until = (int(n) for n in numbers["watch"][:3])
        self.kept_ratio = float(numbers["watch"][3])


def collapsed(task: Task) -> bool:
    """Whether the greedy placement is on one device although a clearly better one is known."""
    limit = (1 + COLLAPSED_SHARE) * task.best_known_seconds
    return task.greedy_devices == 1 and task.greedy_seconds > limit


def climb(task: Task, evaluations: int, rng: np.random.Generator) -> None:
    """Improve the best placement known by moves of a group and of runs of groups, so many placements at most."""
    order, allowed = task.inputs.order, task.inputs.allowed
    groups, devices = allowed.shape
    for _ in range(evaluations // TRIED if groups and devices > 1 else 0):
        assert task.scorer.best is not None
        rows = np.tile(task.scorer.best, (TRIED, 1))
        first = rng.integers(groups, size=TRIED)
        length = np.where(rng.random(TRIED) < 0.5, 1, rng.integers(1, max(2, groups // 4), size=TRIED))
        for row, a, n, d in zip(rows, first, length, rng.integers(devices, size=TRIED), strict=True):
            moved = order[a : a + n]
            row[moved[allowed[moved, d]]] = d
        task.scorer.score(rows)


def random_rows(task: Task, rng: np.random.Generator, count: int) -> NDArray[np.uint8]:  # [row, group]
    """Placements drawn evenly from the devices that may run each group."""
    allowed: NDArray[np.bool_] = task.inputs.allowed
    noise = rng.random((count, *allowed.shape))
    return np.asarray(np.where(allowed, noise, -1.0).argmax(axis=2)).astype(np.uint8)
