"""Networks whose opinions walks follow, and how they learn: shaken in pairs, as rules are, with a gradient inside.

On one large problem alone they may learn otherwise (opinion_climb.py).

Notation    M groups, K devices, H width of what a network makes of a group, B of what it sees of one on a device,
            P pairs of a graph and update
    u  [M, H]     what the network makes of groups         b  [M, K, B]  what it sees of groups on devices
    w  [M, B]     W u + c, zero at the beginning           z  [M, K]     opinions: C tanh(w . b / C)
    X  [P, B, H]  normal numbers of one pair for all groups: groups that look alike are shaken alike, since noise that
                  is independent for every group says next to nothing about any of them
    f  [2P]       logarithms of lengths of walks with w + s X u and with w - s X u (antithetic pairs)

The slope of f is estimated in the space of X, and taken for that of w: g_m = sum_p clip(f+ - f-) X_p u_m / (2 P s). The
gradient of sum_m g_m . w_m moves W and c as evolution strategies would, and the rest of the network along.

Where equal devices have names (ColocRL), opinions of zero are a saddle: two devices that change names are the same
schedule, so that both sides of every pair are equally long and nothing would ever be learnt. Of such a pair one side is
held against the walk without a shake: which device is which is decided by the first draw, and then pairs differ.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Protocol, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from stead.errors import BadInput
from stead.learn.ground.reward import Scored
from stead.learn.ground.task import Inputs, Task
from stead.learn.ground.tensor_file import Arrays
from stead.learn.ground.torch_state import network_arrays
from stead.learn.ground.training_loop import Clock, Loop, Step, mean_of
from stead.learn.walk.opinion_scorer import OpinionScorer
from stead.learn.walk.walking import PER_WALK

Read = TypeVar("Read", contravariant=True)  # what a network reads of a problem
SCALE = 5.0  # C
AVERAGE = 0.98  # of the moving average that is written: about the last 50 updates
MOST_DIFFERENCE = 0.1  # of two logarithms, as in evolution.py
LACK = 0.5  # that a walk counts longer which does not fit, before what it lacks


class Opined(Protocol[Read]):
    """A network that says what it makes of groups, and of groups on devices."""

    @property
    def say(self) -> nn.Linear:
        """From H to B; zero at the beginning."""

    def codes(self, inputs: Read) -> tuple[Tensor, Tensor]:
        """(u, b) of the notation."""


def opinions_of(network: Opined[Read], inputs: Read) -> NDArray[np.float32]:  # [group, device]
    """What a network thinks, as it is."""
    with torch.no_grad():
        u, b = network.codes(inputs)
        found: NDArray[np.float32] = opined(network.say(u), b).numpy()
    return found


def opined(w: Tensor, b: Tensor) -> Tensor:  # [..., M, B], [M, K, B] -> [..., M, K]
    """z of the notation."""
    return SCALE * torch.tanh(torch.einsum("...mb,mkb->...mk", w, b) / SCALE)


@dataclass(frozen=True, slots=True)
class OpinionTraining:
    """How opinions are learned."""

    pairs: int = 8
    sigma: float = 0.06
    learning_rate: float = 1e-3
    graphs_per_step: int = 16
    clip_norm: float = 1.0

    def __post_init__(self) -> None:
        for name in ("pairs", "graphs_per_step"):
            if getattr(self, name) < 1:
                raise BadInput(f"{name} must be at least 1, got {getattr(self, name)}")
        if not 0 <= self.learning_rate < math.inf:
            raise BadInput(f"a learning rate is not negative, got {self.learning_rate}")


class OpinionLoop(Loop[Inputs]):
    """Learns from how long walks are that follow the opinions of its network."""

    def __init__(
        self,
        network: nn.Module,
        thinks: Opined[Inputs],
        tasks: Sequence[Task[Inputs]],
        training: OpinionTraining,
        *,
        seed: int = 0,
    ) -> None:
        super().__init__(network, tasks, learning_rate=training.learning_rate, seed=seed)
        self.thinks, self.training = thinks, training  # `thinks` is the network by another name

    @property
    def evaluations_per_update(self) -> int:
        """Three for every walk: as it was walked, and in two orders by ranks."""
        graphs = min(self.training.graphs_per_step, len(self.tasks))
        return PER_WALK * graphs * (2 * self.training.pairs + 1)

    def learn(self) -> Step:
        """Shake, walk, learn; the first walk of every graph is that of the opinions as they are."""
        clock, training = Clock(), self.training
        tasks, seconds, losses = [], [], []
        for index in self._chosen():
            task = self.tasks[index]
            with clock:
                u, b = self.thinks.codes(task.inputs)
                w = self.thinks.say(u)
                shakes = self._shakes(index, u.shape[1], b.shape[2])
                with torch.no_grad():
                    moved = training.sigma * torch.einsum("pbh,mh->pmb", shakes, u)
                    opinions = opined(torch.cat([w[None], w + moved, w - moved]), b).numpy()
            scored = self._walked(task, opinions)
            slope = self._slope(scored, shakes)
            with clock:
                losses.append((w * (u.detach() @ slope.T)).sum() / max(1, len(u)))
            tasks.append(task)
            seconds.append(scored.seconds[1:])
        norm, stepped = 0.0, training.learning_rate > 0
        if stepped:
            with clock:
                self.optimiser.zero_grad(set_to_none=True)
                torch.stack(losses).sum().backward()  # type: ignore[no-untyped-call]
                norm = self.stepped(training.clip_norm)
                self._average()
        return Step(
            tasks=tasks, seconds=seconds, entropy=mean_of([]), gradient=norm, stepped=stepped,
            network_seconds=clock.seconds,
        )  # fmt: skip

    def greedy(self, task: Task[object]) -> NDArray[np.uint8]:  # a row
        """What a walk by the opinions as they are finds."""
        own = self.tasks[self.number(task)]
        _, rows = scorer_of(own).walked(opinions_of(self.thinks, own.inputs)[None], [self.credit("greedy")])
        row: NDArray[np.uint8] = rows[0]
        return row

    def policy_arrays(self) -> Arrays:
        """The moving average of the network, which has less of the noise of the last updates."""
        return self.kept or network_arrays(self.module)

    def _average(self) -> None:
        now = network_arrays(self.module)
        for name, array in now.items() if self.kept else ():
            before, own = (one.astype(np.float64) for one in (self.kept[name], array))
            now[name] = (AVERAGE * before + (1 - AVERAGE) * own).astype(array.dtype)
        self.kept = now

    @property
    def taught(self) -> bool:
        """After the first update that learns."""
        return self.carried_on or (self.version > 0 and self.training.learning_rate > 0)

    def options(self) -> dict[str, object]:
        """Of the training."""
        return asdict(self.training)

    def _chosen(self) -> list[int]:
        count = min(self.training.graphs_per_step, len(self.tasks))
        rng = np.random.default_rng((self.seed, self.version))
        return sorted(rng.choice(len(self.tasks), size=count, replace=False).tolist())

    def _shakes(self, index: int, width: int, seen: int) -> Tensor:  # [P, B, H]
        rng = np.random.default_rng((self.seed, self.version, index))
        drawn = rng.standard_normal((self.training.pairs, seen, width)) / math.sqrt(width)
        return torch.from_numpy(drawn.astype(np.float32))

    def _walked(self, task: Task[Inputs], opinions: NDArray[np.float32]) -> Scored:
        drawn = [self.credit("greedy"), *[self.credit("sample")] * (len(opinions) - 1)]
        scored, rows = scorer_of(task).walked(opinions, drawn)
        task.greedy_seconds = float(scored.seconds[0])
        task.greedy_devices = len(np.unique(task.scorer.lifted(rows[:1])))
        return scored

    def _slope(self, scored: Scored, shakes: Tensor) -> Tensor:  # [B, H]
        """Of the logarithm of lengths along shakes; 0 where nothing is known of both sides of a pair."""
        length = lengths(scored)
        one, other = length[1 : 1 + len(shakes)], length[1 + len(shakes) :]
        with np.errstate(invalid="ignore"):
            better = np.where(one == other, 2 * (one - length[0]), one - other)  # two sides, or twice the one
        better = np.nan_to_num(better, posinf=MOST_DIFFERENCE)
        clipped = torch.from_numpy(np.clip(better, -MOST_DIFFERENCE, MOST_DIFFERENCE).astype(np.float32))
        return torch.einsum("p,pbh->bh", clipped, shakes) / (2 * len(shakes) * self.training.sigma)


def lengths(scored: Scored) -> NDArray[np.float64]:  # [walk]
    """Logarithms of how long walks take, and more where memory lacks; infinite where one does not run at all."""
    with np.errstate(divide="ignore"):
        length: NDArray[np.float64] = np.log(scored.run_seconds)
    return length + np.where(scored.overfull > 0, LACK + scored.overfull, 0.0)


def scorer_of(task: Task[object]) -> OpinionScorer:
    """The scorer that walks."""
    assert isinstance(task.scorer, OpinionScorer)
    return task.scorer
