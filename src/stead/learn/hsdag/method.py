"""HSDAG: groups that are learned together with their devices.

Duan et al., "A structure-aware framework for learning device placements on computation graphs", NeurIPS 2024.

Notation    n groups after coarsening, K devices, S samples per update; the network is in network.py
    P       partition of the n groups into larger ones, drawn by picks of neighbours (parsing.py)
    a       device of every part of P                 t(P, a)  seconds, as the simulator says
    R       -log(t / best single device or expert)    A        R, standardised over the S samples
    loss    -mean_s A_s (log p(P_s) + log p(a_s | P_s)) - 0.001 (entropy of picks + entropy of devices)

Variants, and why
                  faithful (published.py)                corrected
    coarsening    an operator joins its one predecessor  lossless where the objective adds up: no optimum is given away
    features      kinds of operators, raw group number   + seconds, bytes, FLOPs, levels, positions, fractal dimension;
                                                         relative, so that a policy can meet another graph
    encoder       GCN on the symmetrised graph           predecessors and successors through weights of their own
    grouping      best edges, until nothing joins any    one level, picks drawn, "stay alone" among them, limits kept;
                  more; differs by dropout alone         its log probability is part of the loss
    reward        1/t; on one device: t = 1e10 s         relative; one device is a placement like any other
    credit        one discounted sum for 20 steps        per sample, against the batch
    state         x += group embedding, 20 times         none; iterative: the placement of the sample before
    optimiser     Adam 1e-3                              Adam 3e-3, gradient norm 1
    evaluations   25 episodes of 20                      50 updates of 10

Why nodes are centred: the encoder's output has its mean over the graph taken off. Without, the mean of all nodes moves
all groups to the same device first, since one device beats random placements; on ResNet-50 with devices `f32 mixed`
3 of 5 seeds had found no better than 68 ms after 500 evaluations, with it the same 5 ended at 56.70 or less (optimum
55.95; of 12 seeds one ended at 62.00, and none of 30 above 56.84 once the greedy placement was no longer scored).
The bias of staying alone is 0 and not below: lossless coarsening has joined already what belongs together. Both were
chosen on that instance with seeds that no reported number uses, and so was the greedy placement left unscored while
training: it cost every eleventh evaluation.

Parts and options that are off: `iterative` gives every sample the placement of the one before, in place of the
published sums of embeddings; `walks` adds chances of return (walks.py; eigenvectors of the Laplacian would tell as
much, but their signs are arbitrary on every new graph); `patience` ends learning that draws nothing new, as a policy
does that has become deterministic. Such a policy can still change its mind: of seeds 100 to 102 on the same instance,
one drew nothing new for six updates and improved after that.

Deviations from the paper, corrected: the table above; besides, devices may be any number, forbidden ones are masked,
groups that no device could hold are not made. Deviations from the published code, faithful: placements reach operators
by name and not by position in another list (experiments bring that back by a scorer, `Misplacing`), words of the
vocabulary are sorted, the weights kept are copies. Both: the simulator stands for measured run times; `learner`
takes an `evaluate` that measures instead, and `Scorer.final_measure` times the best samples at the end. What is
returned is the best of the samples, the preferred placement and, with `portfolio`, an exact or constructive solver; the
notes tell the policy's own value.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import ClassVar, Literal, cast, get_args

import numpy as np
import torch

from stead.coarsen import Grouping
from stead.errors import BadInput
from stead.learn.ground.ablation import former, from_options
from stead.learn.ground.features import VOCABULARY
from stead.learn.ground.losses import Linear
from stead.learn.ground.one_shot import OneShot, Training
from stead.learn.ground.option_checks import check_least, check_words, one_number_of_devices
from stead.learn.ground.policy import NetworkPolicy, Seen, other_width
from stead.learn.ground.reward import Evaluator, Reward, Scorer
from stead.learn.ground.solver import ask_or_learn
from stead.learn.ground.task import Start, Task
from stead.learn.ground.training_loop import Trainee
from stead.learn.hsdag.coarsening import COARSENINGS, Coarsening, coarsened
from stead.learn.hsdag.features import STRUCTURE, cost_width, look
from stead.learn.hsdag.network import Encoder, GraphInputs, GroupBy, GroupPolicy
from stead.learn.hsdag.parsing import Limits, Neighbours
from stead.learn.hsdag.published import STEPS, PublishedInputs, PublishedLoop, PublishedNet
from stead.learn.hsdag.walks import returns
from stead.problem import Problem
from stead.solvers.few_devices import few_devices
from stead.solvers.solution import Budget, Solution

Variant = Literal["corrected", "faithful"]
Features = Literal["cost", "structure"]
PORTFOLIO = ("mincut", "heft")  # tried after learning: the first where costs add up, the second elsewhere
RATES = {"corrected": 3e-3, "faithful": 1e-3}
ALWAYS = 10**9  # updates in which infeasible samples teach
GONE = {"stay": 0.0, "convex": False}  # options that left; files name them still, for old readers and checkpoints


@dataclass(frozen=True, slots=True)
class Parts:
    """What experiments vary and nobody else; a policy file keeps it. Corrected only."""

    name: ClassVar[str] = "hsdag"  # for error lines

    layers: int = 2
    encoder: str = "gcn"
    features: str = "cost"  # structure: without anything that knows seconds
    walks: int = 0  # steps of random walks whose chances to come back are features, too
    grouping: str = "learned"  # none: a device for every group that coarsening leaves
    levels: int = 1  # of parsing
    min_groups: int = 0  # that parsing leaves; 0: the number of devices
    iterative: bool = False  # every sample sees the placement of the one before

    def __post_init__(self) -> None:
        words = {"encoder": get_args(Encoder), "features": get_args(Features), "grouping": get_args(GroupBy)}
        check_words(self, words)
        check_least(self, {"layers": 0, "walks": 0, "levels": 1, "min_groups": 0})


@few_devices
@dataclass(frozen=True, slots=True)
class HSDAG:
    """Learn groups and their devices on the problem itself, or use a policy from a file.

    It returns the best of all samples, the preferred placement, cheap baselines and a portfolio, and says who won.
    """

    name: ClassVar[str] = "hsdag"
    FORMER: ClassVar[Mapping[str, str]] = {
        **former(Parts),
        **dict.fromkeys(GONE, " any more; no result needs it"),
        "defects": " any more; experiments give the task a scorer that misplaces",
    }

    variant: str = "corrected"
    policy: str = ""  # a file of `stead train hsdag`; empty: train on the problem
    evaluations: int = 500  # placements to be scored on a problem it is given
    samples: int = 10  # per update; corrected only, as are all below up to entropy
    hidden: int = 64
    coarsening: str = "lossless"
    groups: int = 2048  # that coarsening leaves at most
    entropy: float = 1e-3
    learning_rate: float = -1.0  # below 0: that of the variant
    patience: int = 0  # updates in a row that draw nothing new before learning ends early; 0: it never does
    portfolio: bool = True  # try an exact or constructive solver, too
    polish: bool = False
    threads: int = 0  # of the simulator; 0: all cores

    def __post_init__(self) -> None:
        check_words(self, {"variant": get_args(Variant), "coarsening": COARSENINGS})
        check_least(self, {"evaluations": 0, "samples": 1, "hidden": 1, "groups": 1, "patience": 0})

    @property
    def parts(self) -> Parts:
        """The parts as they are, unless an experiment or a file says otherwise."""
        return Parts()

    @property
    def updates(self) -> int:
        """Updates on a problem it is given."""
        return self.evaluations // (self.samples if self.variant == "corrected" else STEPS)

    def unsupported(self, problem: Problem) -> str | None:
        """Training takes every problem; a trained policy those with its number of devices."""
        return NetworkPolicy.load(Path(self.policy), HSDAG).unsupported(problem) if self.policy else None

    def misfit(self, devices: int, problem: Problem) -> str | None:
        """The number of devices is part of the network."""
        return other_width(devices, problem)

    def solve(self, problem: Problem, budget: Budget, seed: int = 0) -> Solution:
        """Train on the problem, or ask the policy in the file."""
        after = PORTFOLIO if self.portfolio else ()
        return ask_or_learn(self, problem, budget, seed, after=after, patience=self.patience)

    def learner(
        self,
        problems: Sequence[Problem],
        seed: int,
        starts: Sequence[Start],
        *,
        evaluate: Evaluator | None = None,
    ) -> Trainee:
        """A network with its graphs, ready for the first update; `evaluate` measures instead of simulating."""
        devices = one_number_of_devices("hsdag", problems)
        if self.variant == "faithful":
            return self._published(problems, seed, starts, evaluate)
        tasks = [
            self._task(problem, start, evaluate) for problem, start in zip(problems, starts, strict=True)
        ]
        return OneShot(self.network(devices, seed), tasks, self._training(), seed=seed)

    def network(self, devices: int, seed: int) -> GroupPolicy:
        """A network with random weights."""
        parts = self.parts
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            return GroupPolicy(
                words=VOCABULARY,
                features=STRUCTURE + parts.walks + (cost_width(devices) if parts.features == "cost" else 0),
                devices=devices,
                hidden=self.hidden,
                layers=parts.layers,
                encoder=cast(Encoder, parts.encoder),
                learned=parts.grouping == "learned",
                levels=parts.levels,
                iterative=parts.iterative,
            )

    def inputs(self, problem: Problem) -> tuple[Grouping, GraphInputs]:
        """What the network sees of a problem."""
        grouping, inputs, _ = self._looked(problem)
        return grouping, inputs

    def looks(self, problem: Problem) -> int:
        """Nothing is simulated before learning."""
        return 0

    def seen(self, inputs: GraphInputs) -> Seen:
        """Nothing."""
        return Seen()

    def planned(self, updates: int) -> HSDAG:
        """Nothing here depends on the number of updates."""
        return self

    def network_options(self) -> dict[str, object]:
        """What a reader of the file needs to build the same network; the published one is for its own graph alone."""
        if self.variant == "faithful":
            raise BadInput(
                "hsdag: the published network has a column for every kind of operator of one model and fits no other; "
                "train policies with variant=corrected"
            )
        own = {"hidden": self.hidden, "coarsening": self.coarsening, "groups": self.groups}
        return {**own, **asdict(self.parts), **GONE}

    @classmethod
    def stored(cls, options: Mapping[str, object]) -> AblatedHSDAG:
        """The method with the network options that a file names."""
        if options.get("convex"):
            raise BadInput("hsdag: convex groups, which this policy was trained with, are no more; train it again")
        left = {name: value for name, value in options.items() if name not in GONE}
        return from_options(AblatedHSDAG, Parts, left)

    def _looked(self, problem: Problem) -> tuple[Grouping, GraphInputs, str]:
        grouping, how = coarsened(problem, cast(Coarsening, self.coarsening), most=self.groups)
        seen = look(problem, grouping)
        knows = self.parts.features == "cost"
        columns = [seen.structure, returns(grouping.count, seen.edges, self.parts.walks)]
        x = np.concatenate([*columns, seen.cost] if knows else columns, axis=1)
        weight = seen.seconds if knows else seen.work
        limits = Limits(
            allowed=seen.allowed,
            held=seen.held,
            most_held=float(max(device.usable_bytes for device in problem.cluster)),
            min_groups=self.parts.min_groups or len(problem.cluster),
        )
        source, target = (torch.from_numpy(seen.edges[:, side].copy()) for side in (0, 1))
        inputs = GraphInputs(
            words=torch.from_numpy(seen.words),
            x=torch.from_numpy(x),
            source=source,
            target=target,
            weight=torch.from_numpy(weight.astype(np.float32)),
            allowed=torch.from_numpy(seen.allowed),
            near=Neighbours.of(grouping.count, seen.edges),
            limits=limits,
        )
        return grouping, inputs, how

    def _rate(self) -> float:
        return self.learning_rate if self.learning_rate >= 0 else RATES[self.variant]

    def _training(self) -> Training:
        return Training(
            samples=self.samples,
            learning_rate=self._rate(),
            entropy=Linear(self.entropy, self.entropy),
            explore=ALWAYS,
            elite_weight=0.0,
            greedy=False,
        )

    def _task(self, problem: Problem, start: Start, evaluate: Evaluator | None) -> Task[GraphInputs]:
        grouping, inputs, how = self._looked(problem)
        scorer = Scorer(problem, grouping, threads=self.threads, evaluate=evaluate, limit=start.limit)
        reward = Reward("log", start.reference_seconds(problem))
        return Task(grouping, inputs, scorer, reward, start, notes=(how,))

    def _published(
        self, problems: Sequence[Problem], seed: int, starts: Sequence[Start], evaluate: Evaluator | None
    ) -> PublishedLoop:
        if len(problems) != 1:
            raise BadInput(
                f"hsdag: the published loop learns on one graph, got {len(problems)}; take variant=corrected"
            )
        problem, start = problems[0], starts[0]
        grouping, how = coarsened(problem, "published", most=self.groups)
        inputs = PublishedInputs.of(problem, grouping)
        scorer = Scorer(problem, grouping, threads=self.threads, evaluate=evaluate, limit=start.limit)
        reward = Reward("log", start.reference_seconds(problem))
        task = Task(grouping, inputs, scorer, reward, start, notes=(how,))
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            network = PublishedNet(inputs.x.shape[1], len(problem.cluster))
        return PublishedLoop(network, task, learning_rate=self._rate(), seed=seed)


@dataclass(frozen=True, slots=True)
class AblatedHSDAG(HSDAG):
    """HSDAG with other parts, for experiments and for what files hold."""

    parts: Parts = Parts()
