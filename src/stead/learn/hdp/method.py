"""HDP: a feed-forward grouper deals operators to groups, a sequence-to-sequence placer gives each group a device.

Mirhoseini et al., "A Hierarchical Model for Device Placement", ICLR 2018.

Notation    N operators (or sets of them that must stay together), G groups, K devices, m groupings of k placements
    g      [N]  group of every operator, drawn independently     p(g)   = prod_v softmax(grouper(x_v))
    d      [G]  device of every group that is used               p(d|g) = the placer of seq2seq.py on the groups of g
    R_ij        reward of placement j of grouping i              B      baseline

    grad theta_g ~ 1/m  sum_i  (1/k sum_j R_ij - B) grad log p(g_i)
    grad theta_d ~ 1/mk sum_ij (R_ij - B)           grad log p(d_ij | g_i)

Both are what the loss of losses.py gives for log p = log p(g) + log p(d|g) when k samples share one grouping.

Presets, and why
                  faithful                                corrected
    reward        -sqrt(t), in seconds; -10 where it      -sqrt(t / best of expert and singles); infeasible ones 1 below
                  does not run                            the worst, for 50 updates, afterwards they do not count
    baseline      moving average 0.9                      mean of the batch, standardised
    C, T          5, 10                                   5, 1: see colocrl/method.py
    optimiser     Adam 0.1, gradient norm 1               Adam 1e-3, gradient norm 1
    m, k          1, 4                                    2, 4: the mean of a batch needs 8 samples
    exploration   normal noise on the grouper's logits    entropy 0.0005 per choice to 0, cross-entropy on the best
                  for 500 updates, then valid samples     placements seen
                  only
    grouper       from random weights                     copies the co-location rules first (`init="random"` leaves
                                                          that out), for a random grouping of thousands of operators
                                                          cuts nearly every tensor
    placer        from random weights                     begins by following placed neighbours (`follow=0` leaves that
                                                          out): a prior, not learning; see colocrl/method.py
    memory        not looked at while decoding            devices without room for a group's weights are masked
    operators     kind, shapes, positions of up to 6      + FLOPs, bytes, seconds per device, degrees, levels,
                  inputs and 6 outputs                    positions

Deviations from the paper, both presets: the simulator stands for measured steps; shapes are log1p and standardised,
positions are divided by N; the grouper has a non-linearity (published code has none); kinds come from a fixed
vocabulary; 64 groups and hidden width 128, so that minutes on 2 cores suffice; the placer has a residual around its
encoder (what a group is must not drown in what is around it) and is told which group it places; groups that are not
used are not decoded; an operator that its group's device cannot run goes to its own fastest device.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import ClassVar, Literal, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from stead.coarsen import Grouping, unit_groups
from stead.learn.ground.ablation import former, from_options
from stead.learn.ground.features import (
    DIMENSIONS,
    VOCABULARY,
    OperatorTable,
    group_features,
    operator_table,
    width,
)
from stead.learn.ground.losses import Linear
from stead.learn.ground.one_shot import OneShot, Training
from stead.learn.ground.option_checks import check_even, check_least, check_words, one_number_of_devices
from stead.learn.ground.placed_groups import placed_groups
from stead.learn.ground.policy import NetworkPolicy, Seen, other_width
from stead.learn.ground.reward import FAILING_SECONDS, Evaluator, Reward, Scorer
from stead.learn.ground.seq2seq import FOLLOW, Seq2Seq
from stead.learn.ground.solver import ask_or_learn
from stead.learn.ground.task import Start, Task
from stead.learn.hdp.network import SHAPES_BEGIN, Hierarchical, Operators
from stead.problem import Problem
from stead.solvers.few_devices import few_devices
from stead.solvers.solution import Budget, Solution

Variant = Literal["corrected", "faithful"]
Init = Literal["rules", "random"]
NEIGHBOURS = 6  # inputs, and as many outputs, whose positions a faithful grouper sees
OCTAVES = 7  # of waves that tell positions apart


@dataclass(frozen=True, slots=True)
class Preset:
    """What tells the variants apart."""

    bidirectional: bool
    temperature: float
    per_grouping: int  # k
    noisy_updates: int
    training: Training
    relative: bool  # rewards against the best of expert and singles
    masks_memory: bool
    all_features: bool
    copies_rules: bool


PRESETS: dict[str, Preset] = {
    "corrected": Preset(
        True, 1.0, 4, 0, Training(keep_greedy=True),
        relative=True, masks_memory=True, all_features=True, copies_rules=True,
    ),
    "faithful": Preset(
        True,
        10.0,
        4,
        500,
        Training(
            samples=4, learning_rate=0.1, baseline="ema", entropy=Linear(0.0), explore=500, elite_weight=0.0,
            greedy=False,
        ),
        relative=False,
        masks_memory=False,
        all_features=False,
        copies_rules=False,
    ),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Parts:
    """What experiments vary and nobody else."""

    name: ClassVar[str] = "hdp"  # for error lines

    init: str = "rules"  # of the grouper; random: nothing is copied. Corrected only
    temperature: float = 0.0  # of the logits; 0: that of the variant
    follow: float = FOLLOW  # how strongly a group goes with placed neighbours before training; corrected only

    def __post_init__(self) -> None:
        check_words(self, {"init": get_args(Init)})


@few_devices
@dataclass(frozen=True, slots=True)
class HDP:
    """Train a grouper and a placer on the problem itself, or use a policy from a file.

    It returns the best of all samples, the greedy placement and cheap baselines, and says which of them won.
    """

    name: ClassVar[str] = "hdp"
    FORMER: ClassVar[Mapping[str, str]] = former(Parts)

    variant: str = "corrected"
    policy: str = ""  # a file of `stead train hdp`; empty: train on the problem
    updates: int = 500
    samples: int = 8  # m k, with k = 4
    hidden: int = 128
    groups: int = 64
    learning_rate: float = -1.0  # below 0: that of the variant
    graphs_per_step: int = 1  # of several that are trained on
    polish: bool = False
    threads: int = 0  # of the simulator; 0: all cores

    def __post_init__(self) -> None:
        check_words(self, {"variant": get_args(Variant)})
        check_least(self, {"updates": 0, "samples": 1, "hidden": 2, "groups": 1, "graphs_per_step": 1})
        check_even(self, "hidden")

    @property
    def parts(self) -> Parts:
        """The parts as they are, unless an experiment says otherwise."""
        return Parts()

    def unsupported(self, problem: Problem) -> str | None:
        """Training takes every problem; a trained policy those with its number of devices."""
        return NetworkPolicy.load(Path(self.policy), HDP).unsupported(problem) if self.policy else None

    def misfit(self, devices: int, problem: Problem) -> str | None:
        """The number of devices is part of the network."""
        return other_width(devices, problem)

    def solve(self, problem: Problem, budget: Budget, seed: int = 0) -> Solution:
        """Train on the problem, or ask the policy in the file."""
        return ask_or_learn(self, problem, budget, seed)

    def learner(
        self,
        problems: Sequence[Problem],
        seed: int,
        starts: Sequence[Start],
        *,
        evaluate: Evaluator | None = None,
    ) -> OneShot[Operators]:
        """Both networks with their graphs, ready for the first update; `evaluate` measures instead of simulating."""
        preset = PRESETS[self.variant]
        devices = one_number_of_devices("hdp", problems)
        network = self.network(devices, seed)
        tasks = [self._task(problem, preset, start, evaluate) for problem, start in zip(problems, starts, strict=True)]
        if preset.copies_rules and self.parts.init == "rules":
            network.copy([(task.inputs, self._rule_groups(task)) for task in tasks])
        training = replace(
            preset.training,
            samples=preset.training.samples if self.variant == "faithful" else self.samples,
            graphs_per_step=self.graphs_per_step,
            learning_rate=preset.training.learning_rate if self.learning_rate < 0 else self.learning_rate,
        )
        return OneShot(network, tasks, training, seed=seed)

    def network(self, devices: int, seed: int) -> Hierarchical:
        """Networks with random weights."""
        preset = PRESETS[self.variant]
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            temperature = self.parts.temperature or preset.temperature
            placer = Seq2Seq(
                words=VOCABULARY,
                features=width(devices) if preset.all_features else DIMENSIONS,
                near=2 * self.groups,
                devices=devices,
                hidden=self.hidden,
                bidirectional=preset.bidirectional,
                temperature=temperature,
                mean_words=preset.all_features,
                follows=preset.all_features,
                follow=self.parts.follow,
            )
            return Hierarchical(
                features=width(devices) + 2 * OCTAVES if preset.all_features else DIMENSIONS + 2 * NEIGHBOURS,
                placer=placer,
                groups=self.groups,
                scale=5.0,
                temperature=temperature,
                per_grouping=preset.per_grouping,
                noisy_updates=preset.noisy_updates,
            )

    def inputs(self, problem: Problem) -> tuple[Grouping, Operators]:
        """What the networks see of a problem."""
        preset = PRESETS[self.variant]
        grouping, table = unit_groups(problem), operator_table(problem)
        items = grouping.group.astype(np.int64)
        found = group_features(problem, table, items, columns=0)
        x = np.concatenate([found.stacked, waves(grouping.count)], axis=1)
        if not preset.all_features:
            x = np.concatenate([found.numbers[:, SHAPES_BEGIN:], neighbour_positions(table, items)], axis=1)
        allowed = found.allowed
        seconds = np.zeros((grouping.count, len(problem.cluster)))
        np.add.at(seconds, items, table.seconds)
        fastest = np.where(allowed, seconds, np.inf).argmin(axis=1).astype(np.int64)
        return grouping, Operators(
            problem,
            table,
            items,
            torch.from_numpy(found.counts),
            torch.from_numpy(x),
            allowed,
            fastest,
            preset.masks_memory,
            preset.all_features,
        )

    def looks(self, problem: Problem) -> int:
        """Nothing is simulated before learning."""
        return 0

    def seen(self, inputs: Operators) -> Seen:
        """Nothing."""
        return Seen()

    def planned(self, updates: int) -> HDP:
        """With so many updates."""
        return replace(self, updates=updates)

    def network_options(self) -> dict[str, object]:
        """What a reader of the file needs to build the same networks; how the grouper began is no part of them."""
        kept = {name: value for name, value in asdict(self.parts).items() if name != "init"}
        return {"variant": self.variant, "hidden": self.hidden, "groups": self.groups, **kept}

    @classmethod
    def stored(cls, options: Mapping[str, object]) -> AblatedHDP:
        """The method with the network options that a file names."""
        return from_options(AblatedHDP, Parts, options)

    def _rule_groups(self, task: Task[Operators]) -> Tensor:  # [N]
        labels = placed_groups(task.problem, most=self.groups).group.astype(np.int64)
        found = np.zeros(task.grouping.count, dtype=np.int64)
        found[task.inputs.items] = labels  # the rules keep together what must stay together
        return torch.from_numpy(found)

    def _task(self, problem: Problem, preset: Preset, start: Start, evaluate: Evaluator | None) -> Task[Operators]:
        grouping, inputs = self.inputs(problem)
        relative = start.reference_seconds(problem) if preset.relative else 1.0
        reward = Reward("sqrt", relative, None if preset.relative else FAILING_SECONDS)
        scorer = Scorer(problem, grouping, threads=self.threads, evaluate=evaluate, limit=start.limit)
        return Task(grouping, inputs, scorer, reward, start)


@dataclass(frozen=True, slots=True)
class AblatedHDP(HDP):
    """HDP with other parts, for experiments and for what files hold."""

    parts: Parts = Parts()


def waves(count: int) -> NDArray[np.float32]:  # [N, 2 OCTAVES]
    """Sines and cosines of the position, 1, 2, 4, ... half turns over the graph."""
    angle = np.pi * np.arange(count)[:, None] / max(1, count - 1) * 2.0 ** np.arange(OCTAVES)
    return np.concatenate([np.sin(angle), np.cos(angle)], axis=1).astype(np.float32)


def neighbour_positions(table: OperatorTable, items: NDArray[np.int64]) -> NDArray[np.float32]:  # [N, 12]
    """Positions / N of up to 6 producers and 6 readers of every operator; -1 where there are fewer."""
    count = int(items.max(initial=-1)) + 1
    pairs = items[table.edges]
    pairs = np.unique(pairs[pairs[:, 0] != pairs[:, 1]], axis=0)
    found = np.full((count, 2 * NEIGHBOURS), -1.0, dtype=np.float32)
    for own, other, column in ((1, 0, 0), (0, 1, NEIGHBOURS)):
        order = np.lexsort((pairs[:, other], pairs[:, own]))
        mine, theirs = pairs[order, own], pairs[order, other]
        rank = np.arange(len(mine)) - np.searchsorted(mine, mine)
        few = rank < NEIGHBOURS
        found[mine[few], column + rank[few]] = theirs[few] / max(1, count - 1)
    return found
