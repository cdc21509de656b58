"""Placeto's decision process: episodes that visit every group of a placement once and may move it; many in lockstep.

Notation    N groups, K devices, B episodes, T steps (one visit of every group is N steps)
    rows  [B, N]      current placements        v  the group that all episodes visit at a step
    rho   [T + 1, B]  what a placement costs: seconds, more where memory lacks; always finite
    G     [T, B]      returns: what all steps from t on gain together

Modes of returns, for rho = 10, 9, 7, 8
    intermediate   rho_t - rho_T         +2, +1, -1      the sum of rho_i - rho_{i+1} from t on (paper)
    log            ln rho_t - ln rho_T   0.223, 0.118, -0.134

A step that keeps the device is not simulated, nor is a placement that these episodes came upon before.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from stead.learn.ground.reward import Scored
from stead.learn.ground.task import Task
from stead.learn.ground.training_loop import Clock
from stead.learn.placeto.features import Inputs
from stead.learn.placeto.network import PlacetoNet, log_probabilities
from stead.learn.placeto.timed import TimedScorer

Returns = Literal["intermediate", "log"]
Look = tuple[Tensor, Tensor, Tensor, Tensor]  # e, v, f, mask: what the network is given, see network.py
GROUP_FEATURES, DEVICE_FEATURES = 7, 8
OVERFULL_WEIGHT = 10.0  # rho = seconds * (1 + 10 * share of memory that lacks)
PENALTY = 2.0  # as published: seconds per gigabyte that lacks
LED, RANDOM = "led step", "random start"  # who placements are owed to that no policy chose
MOST_SECONDS = 10.0  # as published: whatever is slower counts as this


@dataclass(frozen=True, slots=True)
class Observation:
    """Which features a network sees, and how a placement is priced."""

    published: bool = False  # features, prices and masks of the published code
    one_hot: bool = False  # the device of every group as K columns
    start_times: bool = True
    device_features: int = DEVICE_FEATURES

    def width(self, devices: int) -> int:
        """Features of a group."""
        return 5 + devices if self.published else GROUP_FEATURES + (devices if self.one_hot else 0)


def returns_to_go(rho: NDArray[np.float64], mode: Returns) -> NDArray[np.float64]:  # [T + 1, B] -> [T, B]
    """G of every step.

    >>> returns_to_go(np.array([[10.0], [9.0], [7.0], [8.0]]), "intermediate")[:, 0].tolist()
    [2.0, 1.0, -1.0]
    """
    cost = rho if mode == "intermediate" else np.log(rho)
    return np.asarray(cost[:-1] - cost[-1])


def penalised(
    rho: NDArray[np.float64], missing_gigabytes: NDArray[np.float64], *, weight: float, most: float
) -> NDArray[np.float64]:
    """The published penalty; the cap applies to every placement, also to one that fits."""
    return np.minimum(rho + weight * np.maximum(missing_gigabytes, 0.0), most)


class Walk:
    """The decision process of one task."""

    def __init__(self, task: Task[Inputs], observation: Observation) -> None:
        assert isinstance(task.scorer, TimedScorer)
        self.task, self.observation, self.scorer = task, observation, task.scorer
        self.inputs = task.inputs
        self.capacity = max((device.usable_bytes for device in task.problem.cluster), default=0)

    def price(self, scored: Scored) -> NDArray[np.float64]:  # [B]
        """rho of scored placements."""
        task = self.task
        slowest = max(task.scorer.worst_seconds, task.reward.reference_seconds)
        seconds = np.maximum(np.where(np.isfinite(scored.run_seconds), scored.run_seconds, slowest), 1e-15)
        if self.observation.published:
            missing = scored.overfull * self.capacity / 1e9
            return penalised(seconds, missing, weight=PENALTY, most=MOST_SECONDS)
        return np.asarray(seconds * (1 + OVERFULL_WEIGHT * scored.overfull))

    def run(
        self,
        network: PlacetoNet,
        starts: NDArray[np.uint8],
        generator: torch.Generator,
        *,
        greedy: NDArray[np.bool_],
        led: NDArray[np.uint8] | None = None,
        sweeps: int = 1,
        keep: bool = True,
        taught: bool = True,
    ) -> Episodes:
        """Episodes from given placements; greedy rows take the likeliest device. `keep` what learning needs.

        The first episodes do not choose: each is led to its row of `led` [episode, group]. What episodes come upon is
        owed to the network if it is `taught`, unless they are led there.
        """
        drawn = ["greedy" if one else "sample" for one in greedy.tolist()] if taught else ["prior"] * len(starts)
        drawn[: 0 if led is None else len(led)] = [LED] * (0 if led is None else len(led))
        self.scorer.begin()
        state = State(self, starts, drawn)
        episodes = Episodes(starts, state.rho, state.seconds)
        argmax = torch.from_numpy(greedy)[:, None]
        for _ in range(sweeps):
            before = state.rows.copy()
            state.visits[:] = 0
            for v in self.inputs.order.tolist():
                step = state.look(v)
                with episodes.network, torch.no_grad():
                    logits = network(self.inputs, *step)
                    noise = torch.rand(logits.shape, generator=generator).clamp(min=1e-20)
                    gumbel = (-torch.log((-torch.log(noise)).clamp(min=1e-20))).masked_fill(argmax, 0.0)
                    chosen = (logits + gumbel).argmax(dim=1)
                    log_p, entropy = log_probabilities(logits)
                if led is not None:
                    chosen[: len(led)] = torch.from_numpy(led[:, v].astype(np.int64))
                state.move(v, chosen.numpy())
                episodes.add(step if keep else None, chosen, log_p, entropy, state)
            if np.array_equal(before, state.rows):
                break
        return episodes


class State:
    """Placements of B episodes, and what the simulator says about them."""

    def __init__(self, walk: Walk, rows: NDArray[np.uint8], drawn: Sequence[str] | None = None) -> None:
        inputs = walk.inputs
        self.walk, self.rows = walk, rows.copy()
        self.drawn = ["sample"] * len(rows) if drawn is None else list(drawn)  # [B]; who steps are owed to
        self.visits = np.zeros(inputs.groups)
        self.on = np.zeros((*rows.shape, inputs.devices), dtype=np.float32)  # [B, N, K]
        np.put_along_axis(self.on, rows[:, :, None].astype(np.int64), 1.0, axis=2)
        self.load = self.on * inputs.seconds
        count = len(rows)
        self.rho, self.seconds = np.full(count, walk.task.reward.reference_seconds), np.full(count, math.inf)
        self.start, self.finish = np.zeros(rows.shape), np.zeros(rows.shape)
        self._judge(np.arange(count), [RANDOM] * count)

    def move(self, v: int, devices: NDArray[np.int64]) -> None:
        """Put group v of every episode on a device; only what changes is simulated."""
        changed = np.flatnonzero(self.rows[:, v] != devices)
        self.visits[v] += 1
        if not len(changed):
            return
        self.rows[:, v] = devices
        self.on[:, v] = 0.0
        self.on[np.arange(len(devices)), v, devices] = 1.0
        self.load[:, v] = self.on[:, v] * self.walk.inputs.seconds[v]
        self._judge(changed, [self.drawn[n] for n in changed.tolist()])

    def _judge(self, changed: NDArray[np.int64], by: Sequence[str]) -> None:
        walk = self.walk
        if not len(changed):
            return
        if walk.observation.start_times:
            scored, (self.start[changed], self.finish[changed]) = walk.scorer.timed(self.rows[changed], by)
        else:
            scored = walk.scorer.score(self.rows[changed], by)
        known = ~scored.lost  # what could not be timed leaves an episode where it was: no gain, no loss
        self.rho[changed[known]], self.seconds[changed[known]] = walk.price(scored)[known], scored.seconds[known]

    def look(self, v: int) -> Look:
        """(e, v, f, mask): what the network is told before group v is placed."""
        rows, observation = len(self.rows), self.walk.observation
        e = self._published_features(v) if observation.published else self._features(v)
        f, mask = self._device_features(v)
        return torch.from_numpy(e), torch.full((rows,), v), torch.from_numpy(f), torch.from_numpy(mask)

    def overview(self) -> tuple[NDArray[np.float32], NDArray[np.float32]]:  # [d, B, N], [N, K, F]
        """Features of groups while none is current, and of every group on every device in the first episode."""
        e = self._features(0)
        e[3] = e[5] = 0.0
        for column, times in ((4, self.start), (6, self.finish)):
            e[column] = times / np.maximum(times.max(axis=1, keepdims=True), 1e-30)
        f = np.stack([self._device_features(v)[0][0] for v in range(self.walk.inputs.groups)])
        return e, f

    def _features(self, v: int) -> NDArray[np.float32]:  # [d, B, N]; all within -1 .. 1
        inputs, observation = self.walk.inputs, self.walk.observation
        rows, groups = self.rows.shape
        e = np.zeros((observation.width(inputs.devices), rows, groups), dtype=np.float32)
        e[0] = _over_largest(inputs.fastest)
        e[1] = _over_largest(inputs.out_bytes)
        e[2] = self.visits > 0
        e[3, :, v] = 1.0
        for column, times in ((4, self.start), (6, self.finish)):
            late = times - self.start[:, v : v + 1]
            e[column] = late / np.maximum(np.abs(late).max(axis=1, keepdims=True), 1e-30)
        e[5] = self.rows == self.rows[:, v : v + 1]
        if observation.one_hot:
            e[GROUP_FEATURES:] = self.on.transpose(2, 0, 1)
        return e

    def _published_features(self, v: int) -> NDArray[np.float32]:  # [5 + K, B, N]
        """Columns divided by their maximum, not by their largest size: so it is published."""
        inputs = self.walk.inputs
        rows, groups = self.rows.shape
        e = np.zeros((5 + inputs.devices, rows, groups), dtype=np.float32)
        e[0] = _over_largest(inputs.fastest)
        e[1] = _over_largest(inputs.out_bytes)
        e[2] = self.visits
        e[3, :, v] = 1.0
        late = 1e6 * (self.start - self.start[:, v : v + 1])
        most = late.max(axis=1, keepdims=True)
        e[4] = np.where(most > 0, late / np.where(most > 0, most, 1.0), late)
        e[5:] = self.on.transpose(2, 0, 1)
        return e

    def _device_features(self, v: int) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
        """(f [B, K, F], mask [B, K]) of group v."""
        inputs, count = self.walk.inputs, len(self.rows)
        mask = np.tile(inputs.allowed[v], (count, 1))
        if self.walk.observation.published:
            return np.zeros((count, inputs.devices, 0), dtype=np.float32), mask
        beside = np.stack([inputs.from_shares[v], inputs.to_shares[v]]) @ self.on  # [B, 2, K]
        others = np.ones(inputs.groups, dtype=np.float32)
        others[v] = 0.0
        peers = inputs.peers[v].astype(np.float32)
        visited = peers * (self.visits > 0)
        loads = np.stack([others, peers, visited]).astype(np.float32) @ self.load  # [B, 3, K]
        total = loads.sum(axis=2, keepdims=True)
        shares = np.divide(loads, total, out=np.zeros_like(loads), where=total > 0)
        speed = np.zeros(inputs.devices, dtype=np.float32)
        own = inputs.seconds[v]
        np.divide(inputs.fastest[v], own, out=speed, where=own > 0)
        speed[inputs.allowed[v] & (own <= 0)] = 1.0
        free = self._free(v)
        fits = mask & (free >= 0)
        mask = np.where(fits.any(axis=1, keepdims=True), fits, mask)
        columns = [beside[:, 0], beside[:, 1], shares[:, 0], shares[:, 1], self.on[:, v], shares[:, 2]]
        columns += [np.tile(speed, (count, 1)), free.clip(-1.0, 1.0)]
        f = np.stack(columns[: self.walk.observation.device_features], axis=2).astype(np.float32)
        return f, mask

    def _free(self, v: int) -> NDArray[np.float64]:  # [B, K]
        """Share of every device that is free once v is there; 1 where memory is ample."""
        room = self.walk.inputs.room
        if room is None:
            return np.ones((len(self.rows), self.walk.inputs.devices))
        with_v = self.on.copy()
        with_v[:, v] = 1.0
        there = with_v.transpose(0, 2, 1)  # [B, K, N]
        resident = there @ room.uses.numpy().astype(np.float32) > 0
        used = resident @ room.weight_bytes.numpy() + there @ room.held_bytes.numpy()
        capacity = room.capacity.numpy()
        return np.asarray((capacity - used) / np.maximum(capacity, 1.0))


class Episodes:
    """What happened in B episodes."""

    def __init__(
        self, starts: NDArray[np.uint8], rho: NDArray[np.float64], seconds: NDArray[np.float64]
    ) -> None:
        self.steps: list[Look] = []
        self.actions: list[Tensor] = []  # [B] each
        self.log_p: list[Tensor] = []  # [B] each; of the action
        self.entropies: list[Tensor] = []  # [B] each
        self.rho_trail = [rho.copy()]
        self.rows = starts.copy()  # [B, N]; at the end
        self.seconds = seconds.copy()  # [B]; of rows; inf where infeasible
        self.best_rows, self.best_seconds = starts.copy(), seconds.copy()  # of all steps of an episode
        self.network = Clock()

    def add(self, step: Look | None, chosen: Tensor, log_p: Tensor, entropy: Tensor, state: State) -> None:
        """One step of all episodes."""
        if step is not None:
            self.steps.append(step)
        self.actions.append(chosen)
        self.log_p.append(log_p.gather(1, chosen[:, None])[:, 0])
        self.entropies.append(entropy)
        self.rho_trail.append(state.rho.copy())
        self.rows, self.seconds = state.rows.copy(), state.seconds.copy()
        better = state.seconds < self.best_seconds
        self.best_rows[better], self.best_seconds[better] = state.rows[better], state.seconds[better]

    @property
    def rho(self) -> NDArray[np.float64]:  # [T + 1, B]
        """Prices along the way."""
        return np.stack(self.rho_trail)

    @property
    def entropy(self) -> float:
        """Mean of all choices."""
        return float(torch.stack(self.entropies).mean()) if self.entropies else 0.0


def _over_largest(values: NDArray[np.float32]) -> NDArray[np.float32]:
    return values / max(float(values.max(initial=0.0)), 1e-30)
