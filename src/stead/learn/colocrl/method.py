"""ColocRL: groups by co-location rules, placed by an attentional sequence-to-sequence network, trained by REINFORCE.

Mirhoseini et al., "Device Placement Optimization with Reinforcement Learning", ICML 2017.

Notation    G groups in the order of the graph, K devices, S samples per update
    P_i    sampled placement          r(P)   seconds of one step, as the simulator says
    R(P)   -sqrt(r), to be made large; with `corrected` -sqrt(r / best of expert and single devices)
    B      baseline                   grad J ~ 1/S sum_i (R(P_i) - B) grad log p(P_i | G)
    logits C tanh(z / T)

Presets, and why
                  faithful                             corrected
    reward        -sqrt(t), in seconds                 relative, so that learning does not depend on a model's speed
    infeasible    -sqrt(100 s), or 10 times the        1 below the worst feasible one, less the share of memory that
                  slowest single device if larger      lacks, for 50 updates; afterwards such samples do not count
    baseline      moving average 0.9, begins at the    mean of the batch, standardised; moving average below 8 samples
                  failing signal
    C, T          5, 10: logits stay below 0.5 for     5, 1: T 10 ended on one device where a placement 37 % faster
                  z of order 1                         exists
    samples       8                                    8
    optimiser     Adam 1e-3, gradient norm 1           the same
    memory        not looked at while decoding         devices without room for a group's weights are masked
    extras        valid samples only after 5,000       entropy 0.0005 per choice to 0; cross-entropy on the best
                  updates                              placements seen, weight 1; the greedy placement is scored at
                                                       every update, and the network whose greedy placement was best
                                                       is kept; the decoder sees where placed neighbours are and
                                                       begins by following them
    features      kinds, shapes, who feeds whom        + FLOPs, bytes, seconds per device, degrees, levels, positions

Losses are sums over the G choices. Following neighbours is a prior, not learning: samples differ by whole layers at
first, so that the untrained network already comes upon what an expert does; without it, single groups differ, nearly
every difference costs time, and the policy falls onto one device. `follow=0` leaves it out; whoever compares with
learning rate 0 says which one was used. Elites matter as much: RNNLM-2 on two devices, one seed, 1,650 evaluations,
run time over that of one device: 0.523 (greedy 0.562) with weight 1, greedy 1.0 (one device) with weight 0.02.

Deviations from the paper, both presets: the simulator stands for measured steps; shapes are log1p and standardised, and
adjacency is by bytes and in rows of fixed length, since raw indices are no usable inputs; there is a residual around
the encoder (mem = input + LSTM of it), so that what a group is does not drown in what is around it; the decoder is told
which group it places (mem_t), plain attention would have to learn to count; hidden width 128, so that minutes on 2
cores suffice; controllers (workers.py) keep in step instead of being asynchronous; at most 256 groups, joined along the
steps of one layer. The number of devices is part of the network (one embedding each): a policy is for clusters of that
size.

With `decoder=walk` the decoder is left out: what the encoder makes of a group, held against the embeddings of devices,
is an opinion that walks of list scheduling follow (learn/walk), and learning begins at list scheduling itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import ClassVar, Literal, get_args

import numpy as np
import torch

from stead.coarsen import Grouping
from stead.errors import BadInput
from stead.learn.ground.ablation import former, from_options
from stead.learn.ground.equal_devices import canonical, device_classes
from stead.learn.ground.features import NUMBERS, VOCABULARY, group_features, operator_table, width
from stead.learn.ground.losses import Linear
from stead.learn.ground.one_shot import OneShot, Training
from stead.learn.ground.option_checks import check_even, check_least, check_words, one_number_of_devices
from stead.learn.ground.placed_groups import memory_room, placed_groups
from stead.learn.ground.policy import NetworkPolicy, Seen, other_width
from stead.learn.ground.reward import FAILING_SECONDS, Evaluator, Reward, Scorer
from stead.learn.ground.seq2seq import FOLLOW, Inputs, Seq2Seq
from stead.learn.ground.solver import ask_or_learn
from stead.learn.ground.task import Start, Task, slowest_single
from stead.learn.ground.training_loop import Algorithm, Loop
from stead.learn.walk.opinion_loop import OpinionTraining
from stead.learn.walk.opinion_solver import (
    OpinionSolver,
    learn_and_walk,
    no_walk,
    opinion_learner,
    opinion_solver,
)
from stead.problem import Problem
from stead.solvers.few_devices import few_devices
from stead.solvers.solution import Budget, Solution

Variant = Literal["corrected", "faithful"]
Decoder = Literal["devices", "walk"]
MOST_GROUPS = 256  # attention takes time in proportion to the square of it
SHAPES_BEGIN = NUMBERS - 4  # columns of `numbers` that a faithful network sees


@dataclass(frozen=True, slots=True)
class Preset:
    """What tells the variants apart."""

    bidirectional: bool
    temperature: float
    training: Training
    relative: bool  # rewards against the best of expert and singles
    failing: bool  # a constant for what does not run
    masks_memory: bool
    all_features: bool


PRESETS: dict[str, Preset] = {
    "corrected": Preset(True, 1.0, Training(keep_greedy=True), True, False, True, True),
    "faithful": Preset(
        False,
        10.0,
        Training(
            baseline="ema", entropy=Linear(0.0), explore=5000, elite_weight=0.0, greedy=False
        ),
        relative=False,
        failing=True,
        masks_memory=False,
        all_features=False,
    ),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Parts:
    """What experiments vary and nobody else; a policy file keeps it."""

    temperature: float = 0.0  # of the logits; 0: that of the variant
    follow: float = FOLLOW  # how strongly a group goes with placed neighbours before training; corrected only


@few_devices
@dataclass(frozen=True, slots=True)
class ColocRL:
    """Train a sequence-to-sequence policy on the problem itself, or use one from a file.

    It returns the best of all samples, the greedy placement and cheap baselines, and says which of them won.
    """

    name: ClassVar[str] = "colocrl"
    FORMER: ClassVar[Mapping[str, str]] = former(Parts)

    variant: str = "corrected"
    policy: str = ""  # a file of `stead train colocrl`; empty: train on the problem
    updates: int = 500
    samples: int = 8
    hidden: int = 128
    groups: int = MOST_GROUPS
    learning_rate: float = 1e-3
    algorithm: str = "reinforce"
    imitation: int = 0  # updates that copy the best baseline before anything else
    graphs_per_step: int = 1  # of several that are trained on
    polish: bool = False
    threads: int = 0  # of the simulator; 0: all cores
    decoder: str = "devices"  # one group after another; or walk: list scheduling that follows the encoder's opinions

    def __post_init__(self) -> None:
        check_words(
            self, {"variant": get_args(Variant), "algorithm": get_args(Algorithm), "decoder": get_args(Decoder)}
        )
        if self.walks and self.variant != "corrected":
            raise BadInput("colocrl: walks follow the corrected variant; leave out variant or decoder")
        check_least(self, {"updates": 0, "samples": 1, "hidden": 2, "groups": 1, "imitation": 0, "graphs_per_step": 1})
        check_even(self, "hidden")

    @property
    def parts(self) -> Parts:
        """The parts as they are, unless an experiment says otherwise."""
        return Parts()

    @property
    def walks(self) -> bool:
        """Whether walks follow its opinions."""
        return self.decoder == "walk"

    def unsupported(self, problem: Problem) -> str | None:
        """Training takes every problem that walks can place; a trained policy those with its number of devices."""
        if self.walks and (reason := no_walk(problem)) is not None:
            return reason
        return NetworkPolicy.load(Path(self.policy), ColocRL).unsupported(problem) if self.policy else None

    def misfit(self, devices: int, problem: Problem) -> str | None:
        """The number of devices is part of the network."""
        return other_width(devices, problem)

    def solve(self, problem: Problem, budget: Budget, seed: int = 0) -> Solution:
        """Train on the problem, or ask the policy in the file."""
        if not self.policy and self.walks:
            return learn_and_walk(self, problem, budget, seed, threads=self.threads)
        if self.policy and (asked := self.opinions(Path(self.policy))) is not None:
            return asked.solve(problem, budget, seed)
        return ask_or_learn(self, problem, budget, seed)

    def learner(
        self,
        problems: Sequence[Problem],
        seed: int,
        starts: Sequence[Start],
        *,
        evaluate: Evaluator | None = None,
    ) -> Loop[Inputs]:
        """A network with its graphs, ready for the first update; `evaluate` measures instead of simulating."""
        preset = PRESETS[self.variant]
        devices = one_number_of_devices("colocrl", problems)
        network = self.network(devices, seed)
        if self.walks:
            training = self._opinion_training()
            return opinion_learner(
                self, network, problems, starts, training, seed=seed, evaluate=evaluate, climbs=False
            )
        tasks = [self._task(problem, preset, start, evaluate) for problem, start in zip(problems, starts, strict=True)]
        return OneShot(network, tasks, self._training(preset), seed=seed)

    def _opinion_training(self) -> OpinionTraining:
        pairs = max(1, self.samples // 2)
        return OpinionTraining(pairs, learning_rate=self.learning_rate, graphs_per_step=self.graphs_per_step)

    def opinions(self, path: Path) -> OpinionSolver[Inputs] | None:
        """Whoever asks the network of a file for opinions; None where the file is not of that kind."""
        return opinion_solver(path, ColocRL, threads=self.threads, polish=self.polish)

    def viewer(self, threads: int) -> ColocRL:
        """The method itself, which simulates nothing to show a problem."""
        return self

    def network(self, devices: int, seed: int) -> Seq2Seq:
        """A network with random weights."""
        preset = PRESETS[self.variant]
        features = width(devices) if preset.all_features else NUMBERS - SHAPES_BEGIN
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            return Seq2Seq(
                words=VOCABULARY,
                features=features,
                near=2 * self.groups,
                devices=devices,
                hidden=self.hidden,
                bidirectional=preset.bidirectional,
                temperature=self.parts.temperature or preset.temperature,
                mean_words=preset.all_features,
                follows=preset.all_features,
                follow=self.parts.follow,
                opinions=self.walks,
            )

    def inputs(self, problem: Problem) -> tuple[Grouping, Inputs]:
        """What the network sees of a problem."""
        preset = PRESETS[self.variant]
        grouping = placed_groups(problem, most=self.groups)
        found = group_features(
            problem, operator_table(problem), grouping.group.astype(np.int64), columns=self.groups
        )
        x = found.stacked if preset.all_features else found.numbers[:, SHAPES_BEGIN:].copy()
        room = memory_room(problem, grouping.group) if preset.masks_memory else None
        counts, near = torch.from_numpy(found.counts), torch.from_numpy(found.adjacency)
        ties, allowed = torch.from_numpy(found.ties), torch.from_numpy(found.allowed)
        return grouping, Inputs(counts, torch.from_numpy(x), near, ties, allowed, room)

    def looks(self, problem: Problem) -> int:
        """Nothing is simulated before learning."""
        return 0

    def seen(self, inputs: Inputs) -> Seen:
        """Nothing."""
        return Seen()

    def _training(self, preset: Preset) -> Training:
        return replace(
            preset.training,
            samples=self.samples,
            learning_rate=self.learning_rate,
            algorithm="ppo" if self.algorithm == "ppo" else "reinforce",
            imitation=self.imitation,
            graphs_per_step=self.graphs_per_step,
        )

    def _task(self, problem: Problem, preset: Preset, start: Start, evaluate: Evaluator | None) -> Task[Inputs]:
        """A problem with its reward: references come from the cheap baselines."""
        grouping, inputs = self.inputs(problem)
        failing = max(FAILING_SECONDS, 10 * slowest_single(problem)) if preset.failing else None
        reward = Reward("sqrt", start.reference_seconds(problem) if preset.relative else 1.0, failing)
        target = None
        if self.imitation and start.best is not None:
            row = grouping.lower(start.best)[None, :]
            target = canonical(row, device_classes(problem))[0].astype(np.int64)
        return Task(
            grouping,
            inputs,
            Scorer(problem, grouping, threads=self.threads, evaluate=evaluate, limit=start.limit),
            reward,
            start,
            target,
            copied=start.best_by if target is not None else "",
            average=reward.failing if preset.failing else None,
        )

    def planned(self, updates: int) -> ColocRL:
        """With so many updates."""
        return replace(self, updates=updates)

    def network_options(self) -> dict[str, object]:
        """What a reader of the file needs to build the same network."""
        decoder = {"decoder": self.decoder} if self.walks else {}  # files that name none are of the other kind
        own = {"variant": self.variant, "hidden": self.hidden, "groups": self.groups}
        return {**own, **decoder, **asdict(self.parts)}

    @classmethod
    def stored(cls, options: Mapping[str, object]) -> AblatedColocRL:
        """The method with the network options that a file names."""
        return from_options(AblatedColocRL, Parts, options)


@dataclass(frozen=True, slots=True)
class AblatedColocRL(ColocRL):
    """ColocRL with other parts, for experiments and for what files hold."""

    parts: Parts = Parts()
