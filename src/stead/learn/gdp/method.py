"""GDP: a graph network and segment-recurrent attention place all units in one pass, and one policy serves many graphs.

Zhou et al., "GDP: Generalized Device Placement for Dataflow Graphs", 2019; "Transferable Graph Optimizers for ML
Compilers", NeurIPS 2020. Elites after Gao et al., "Post", NeurIPS 2018.

Notation    N operators, M units, K devices, S samples per update
    t      seconds of one step, as the simulator says          t_ref  best of expert and single devices
    R      -sqrt(t / t_ref), to be made large                  A      R standardised over the batch
    r      p(device of a unit) / p when the sample was drawn
    loss   - w_p sum_unit min(r A, clip(r, 0.8, 1.2) A) - ent sum_unit entropy - w_e mean log p(elites)

Presets, and why
                  faithful                             corrected
    actions       one device per operator              one per unit (a cell call, a block's inner call): per operator no
                                                       sample beat a single device
    network       messages from all neighbours alike,  producers and readers apart, residual and LayerNorm; logits from
                  a linear head for 8 devices          features of devices: 2 to 16 unequal devices share a policy
    features      kind, shape, numbers of neighbours   amounts, levels, shares of time, seconds per device, distance
                                                       from each device's part of the best plain cut; no numbers
    reward        -sqrt(t), in seconds; -10 for what   relative; 1 below the worst feasible one, less the share of
                  does not run                         memory that lacks, for 50 updates; afterwards such samples do
                                                       not count
    baseline      moving average 0.99                  mean of the batch, standardised
    samples       16                                   256: they share one pass, and more of them find more
    noise         every unit rolls its own dice        of every three samples one like that, one with a noise per layer,
                                                       one with a noise per eighth of the order (coherence.py)
    optimiser     Adam 1e-3, gradient norm 1           the same; 3e-4 after imitation
    PPO           clip 0.2, 4 epochs, weight 1,        clip 0.2, 2 epochs, weight 1 from scratch with entropy 0.05 to 0:
                  entropy 0.01                         with weight 0.1 elites froze a poor placement; 0.3 without
                                                       entropy after imitation: with weight 1 a prototype forgot what
                                                       it had copied
    elites        none                                 cross-entropy on the 32 best placements seen, those within 3 % of
                                                       the best: 31 poor ones would outvote a good one
    begin         random                               copies the best construction that uses several devices
    priorities    none                                 classes around the upward rank (priorities.py): without them
                                                       the best samples of GNMT-4 were 19 % slower
    memory        not looked at                        units for which there is no room go where most room is

The file of a policy holds for every number of devices up to 16 (faithful: 8). `level` says what the nodes of the
network are: operators, or units, which cost a tenth (RNNLM-2: 0.04 s per update instead of 0.4 s) and end as well.

Deviations from the paper, both presets: its layer counts and constants are not known to us, these are our own; the
simulator stands for measured steps; the gates of superposition read mean and maximum of the graph embedding and five
numbers about graph and cluster, also in `faithful`; the faithful baseline is a slow moving average instead of the mean
of all trials. Corrected: no expected-memory term in the loss, since placements are repaired while decoding; targets
come from constructions, not from an annealed placement, whose irregularities are hard to copy.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import ClassVar, Literal, get_args

import numpy as np
import torch
from numpy.typing import NDArray

from stead.coarsen import Grouping, single_groups, unit_groups
from stead.errors import BadInput
from stead.learn.gdp.coherence import Noise, shared_by
from stead.learn.gdp.features import (
    BESIDE_FEATURES,
    CUT,
    DEVICE_FEATURES,
    FAITHFUL_FEATURES,
    FEATURES,
    LOOKS,
    NEAREST,
    WHOLE_FEATURES,
    graph_inputs,
)
from stead.learn.gdp.network import MOST_DEVICES, GraphInputs, GraphPlacer, Shape, by_unit, repaired
from stead.learn.ground.ablation import former, from_options, varied
from stead.learn.ground.equal_devices import canonical, device_classes
from stead.learn.ground.features import VOCABULARY
from stead.learn.ground.losses import Linear
from stead.learn.ground.one_shot import OneShot, Training
from stead.learn.ground.option_checks import check_least, check_words
from stead.learn.ground.placed_groups import by_most_seconds, placed_groups
from stead.learn.ground.policy import NetworkPolicy, Seen, read_policy
from stead.learn.ground.priorities import OrderedScorer
from stead.learn.ground.reward import FAILING_SECONDS, Evaluator, Reward, Scorer
from stead.learn.ground.solver import PolicySolver, solve_by_learning
from stead.learn.ground.task import MOST_ELITES, Start, Task, constructed
from stead.learn.ground.torch_state import load_network
from stead.learn.ground.training_loop import Loop
from stead.learn.walk.opinion_loop import OpinionTraining
from stead.learn.walk.opinion_solver import (
    OpinionSolver,
    decoded_alike,
    learn_and_walk,
    no_walk,
    opinion_learner,
    opinion_solver,
)
from stead.problem import Problem
from stead.solvers.build.schedules import takes_orders
from stead.solvers.few_devices import few_devices
from stead.solvers.solution import Budget, Solution

Variant = Literal["corrected", "faithful"]
Level = Literal["auto", "operator", "unit"]
Actions = Literal["unit", "operator"]
PRETRAINED = "pretrained"  # the policy that comes with the package
SHIPPED = Path(__file__).parents[1] / "pretrained" / "gdp.safetensors"
SHIPPED_WALK = SHIPPED.with_name("gdp-walk.safetensors")  # whose opinions walks follow
Decoder = Literal["devices", "walk"]
MOST_UNITS = 512
OPERATOR_LEVEL = 500  # operators up to which the network reads operators when `level` is auto
CONSTRUCTIONS = (
    "expert",
    "expert:time",
    "chunks",
    "heft",
    "peft",
    "etf",
    "dfs-sticky",
    "multilevel",
    CUT,
)  # that imitation may copy
COPY_WORK = 6_000_000  # operators times evaluations that one of them may take: a second or two
COPY_SHARE = 0.5  # of a budget of evaluations, that constructions to copy may take
SLOW = "multilevel"  # the only one that needs as much
WORSE = 0.1  # share by which a copied placement on several devices may be slower than a single device
UNSURE = 0.2  # weight of entropy while copying: about one unit in a hundred still goes elsewhere
AFTER_IMITATION = 0.3  # of learning rate and PPO weight
FAITHFUL_DEVICES = 8


@dataclass(frozen=True, slots=True)
class Preset:
    """What tells the variants apart."""

    training: Training
    relative: bool  # rewards against the best of expert and singles
    failing: bool  # a constant for what does not run
    corrected: bool  # features, embedding, head and repair


PRESETS: dict[str, Preset] = {
    "corrected": Preset(
        Training(
            algorithm="ppo", samples=256, entropy=Linear(0.05, 0.0, 300), elite_samples=MOST_ELITES,
            elite_band=Linear(1.0, 0.03, 100), keep_greedy=True, alarm=True,
        ),
        relative=True,
        failing=False,
        corrected=True,
    ),
    "faithful": Preset(
        Training(
            algorithm="ppo", samples=16, entropy=Linear(0.01, 0.01), baseline="ema", ema_decay=0.99, explore=10**9,
            elite_weight=0.0, greedy=False, epochs=4,
        ),
        relative=False,
        failing=True,
        corrected=False,
    ),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Parts:
    """What experiments vary and nobody else; a policy file keeps all of it but `copies`."""

    name: ClassVar[str] = "gdp"  # for error lines

    hidden: int = 64
    rounds: int = 3
    layers: int = 2
    heads: int = 4
    segment: int = 128
    attention: bool = True
    superposition: bool = True
    priorities: bool = True  # also choose which of several ready units goes first; corrected only
    positions: bool = True  # nodes know where in the order they are; without, unrolled steps look alike
    ordinals: bool = True  # devices have numbers; without, only what a node finds on a device counts
    actions: str = ""  # unit or operator; empty: that of the variant
    level: str = "auto"  # nodes of the network: operator, unit, or auto
    copies: str = ",".join(CONSTRUCTIONS)  # solvers, or cut, of which imitation takes the best

    def __post_init__(self) -> None:
        check_words(self, {"level": get_args(Level), "actions": ("", *get_args(Actions))})
        check_least(self, {"rounds": 0, "layers": 0, "hidden": 1, "heads": 1, "segment": 1})
        if self.hidden % (2 * self.heads):
            raise BadInput(
                f"gdp: hidden must be a multiple of twice the heads, got {self.hidden} for {self.heads} heads"
            )


@few_devices
@dataclass(frozen=True, slots=True)
class GDP:
    """Ask the policy that comes with the package or one from a file, go on training it, or train on the problem.

    It returns the best of all samples, the greedy placement and cheap baselines, says which of them won, and polishes
    it by local search.
    """

    name: ClassVar[str] = "gdp"
    FORMER: ClassVar[Mapping[str, str]] = former(Parts)

    variant: str = "corrected"
    policy: str = PRETRAINED  # or a file of `stead train gdp`; empty: train on the problem from the beginning
    fine_tune: int = 0  # updates on the problem that go on from the policy; 0: ask it once
    updates: int = 300  # without a policy
    samples: int = 0  # per update; 0: those of the variant
    imitation: int = 50  # of the updates, that copy a construction before anything else; corrected only
    learning_rate: float = 1e-3
    units: int = MOST_UNITS
    graphs_per_step: int = 4
    polish: bool = True
    threads: int = 0  # of the simulator; 0: all cores
    noise: str = ""  # that units share in samples: alone (none), layers, segments, mixed; empty: that of the variant
    decoder: str = ""  # devices: of all units at once; walk: list scheduling that follows the network's opinions;
    #                    empty: that of the policy; the package's own walks wherever walks can place the problem

    def __post_init__(self) -> None:
        check_words(self, {"variant": get_args(Variant), "noise": ("", *get_args(Noise))})
        check_words(self, {"decoder": ("", *get_args(Decoder))})
        if self.walks and self.variant != "corrected":
            raise BadInput("gdp: walks follow the corrected variant; leave out variant or decoder")
        check_least(self, dict.fromkeys(("fine_tune", "updates", "samples", "imitation"), 0))
        check_least(self, {"units": 1, "graphs_per_step": 1})

    @property
    def parts(self) -> Parts:
        """The parts as they are, unless an experiment or a file says otherwise."""
        return Parts()

    @property
    def walks(self) -> bool:
        """Whether walks follow its opinions."""
        return self.decoder == "walk"

    @property
    def places_units(self) -> bool:
        """Whether a choice is about a unit, not about an operator."""
        return (self.parts.actions or ("unit" if PRESETS[self.variant].corrected else "operator")) == "unit"

    def unsupported(self, problem: Problem) -> str | None:
        """Clusters of more devices than the network has numbers for, and what walks cannot place."""
        return (no_walk(problem) if self.walks else None) or self.misfit(0, problem)

    def decided(self, problem: Problem) -> GDP:
        """With a decoder: where none is named, the package's own policy walks wherever walks can place the problem.

        Noise is of samples, and whoever sets it asks for those.
        """
        if self.decoder or self.policy != PRETRAINED:
            return self
        walks = self.variant == "corrected" and not self.noise and no_walk(problem) is None
        return replace(self, decoder="walk" if walks else "devices")

    def misfit(self, devices: int, problem: Problem) -> str | None:
        """One network serves every number of devices up to its limit."""
        limit = MOST_DEVICES if PRESETS[self.variant].corrected else FAITHFUL_DEVICES
        if len(problem.cluster) <= limit:
            return None
        return (
            f"gdp ({self.variant}) places on at most {limit} devices, the problem has {len(problem.cluster)}"
        )

    def solve(self, problem: Problem, budget: Budget, seed: int = 0) -> Solution:
        """Ask the policy, fine-tune it, or train on the problem."""
        if (decided := self.decided(problem)) is not self:
            return decided.solve(problem, budget, seed)
        path = self._file()
        if path is None and self.walks:
            return learn_and_walk(self, problem, budget, seed, threads=self.threads)
        if path is None:
            return solve_by_learning(self._within(budget, problem), problem, budget, seed)
        same = decoded_alike(self, path, GDP).network_options()
        if not self.fine_tune and (asked := self.opinions(path)) is not None:
            return asked.solve(problem, budget, seed)
        if not self.fine_tune:
            policy = NetworkPolicy.load(path, GDP)
            assert isinstance(policy.method, GDP)
            policy.method = replace(policy.method, noise=self.noise)
            return PolicySolver(policy, polish=self.polish).solve(problem, budget, seed)
        tuned = varied(self, **same, policy=str(path), updates=self.fine_tune, imitation=0)
        if tuned.walks:
            return learn_and_walk(tuned, problem, budget, seed, threads=self.threads)
        return solve_by_learning(tuned._within(budget, problem), problem, budget, seed)

    def learner(
        self,
        problems: Sequence[Problem],
        seed: int,
        starts: Sequence[Start],
        *,
        evaluate: Evaluator | None = None,
    ) -> Loop[GraphInputs]:
        """A network with its graphs, ready for the first update; it begins with the policy of a given file.

        `evaluate` measures instead of simulating; it is given devices alone, without the order of a sample.
        """
        own, arrays, taught = self, None, False
        if self.policy not in ("", PRETRAINED):
            method, arrays, _, taught = read_policy(Path(self.policy), GDP)
            own = varied(self, **method.network_options())
        network, preset = own.network(0, seed), PRESETS[own.variant]
        if arrays is not None:
            load_network(network, arrays)
        learner: Loop[GraphInputs]
        if own.walks:
            training = own._opinion_training()
            learner = opinion_learner(own, network, problems, starts, training, seed=seed, evaluate=evaluate)
        else:
            given = zip(problems, starts, strict=True)
            tasks = [own._task(problem, preset, start, evaluate) for problem, start in given]
            learner = OneShot(network, tasks, own._training(preset), seed=seed)
        learner.carried_on = taught
        return learner

    def _opinion_training(self) -> OpinionTraining:
        pairs = max(1, self.samples // 2) if self.samples else OpinionTraining().pairs
        return OpinionTraining(
            pairs=pairs, learning_rate=self.learning_rate, graphs_per_step=self.graphs_per_step
        )  # fmt: skip

    def opinions(self, path: Path) -> OpinionSolver[GraphInputs] | None:
        """Whoever asks the network of a file for opinions; None where the file is not of that kind."""
        return opinion_solver(path, GDP, threads=self.threads, polish=self.polish)

    def viewer(self, threads: int) -> GDP:
        """The method itself; what it simulates to show a problem is little."""
        return self

    def network(self, devices: int, seed: int) -> GraphPlacer:
        """A network with random weights, whatever the number of devices."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            return GraphPlacer(self.shape)

    @property
    def shape(self) -> Shape:
        """Sizes of the network."""
        corrected, parts = PRESETS[self.variant].corrected, self.parts
        return Shape(
            words=VOCABULARY,
            features=FEATURES if corrected else FAITHFUL_FEATURES,
            device_features=DEVICE_FEATURES,
            whole_features=WHOLE_FEATURES,
            beside_features=BESIDE_FEATURES,
            hidden=parts.hidden,
            rounds=parts.rounds,
            layers=parts.layers,
            heads=parts.heads,
            segment=parts.segment,
            directions=2 if corrected else 1,
            attention=parts.attention,
            superposition=parts.superposition,
            ordinals=parts.ordinals and not self.walks,
            residual=corrected,
            fixed_devices=0 if corrected else FAITHFUL_DEVICES,
            priorities=parts.priorities and corrected and not self.walks,
        )

    def inputs(self, problem: Problem) -> tuple[Grouping, GraphInputs]:
        """What is placed, and what the network sees of it."""
        corrected = PRESETS[self.variant].corrected
        units = placed_groups(problem, most=self.units) if self.places_units else unit_groups(problem)
        level = self.parts.level
        large = corrected and len(problem.graph) > OPERATOR_LEVEL
        by_unit = self.walks or level == "unit" or (level == "auto" and large)
        nodes = units if by_unit else single_groups(problem.graph)
        found = graph_inputs(
            problem,
            nodes,
            units,
            faithful=not corrected,
            positions=self.parts.positions,
            looks_at_memory=corrected,
        )
        noise: Noise = self.noise or ("mixed" if corrected else "alone")  # type: ignore[assignment]
        shared = shared_by(noise, problem.graph, units)
        return units, replace(found, ordered=self.shape.priorities and takes_orders(problem), shared=shared)

    def looks(self, problem: Problem) -> int:
        """Cuts are simulated for the features; the faithful ones need none."""
        return LOOKS if PRESETS[self.variant].corrected else 0

    def seen(self, inputs: GraphInputs) -> Seen:
        """What the features took, and the best cut."""
        return inputs.seen

    def planned(self, updates: int) -> GDP:
        """With so many updates."""
        return replace(self, updates=updates)

    def network_options(self) -> dict[str, object]:
        """What a reader of the file needs to build the same network and to ask it the same way."""
        kept = {name: value for name, value in asdict(self.parts).items() if name != "copies"}
        decoder = {"decoder": self.decoder} if self.walks else {}  # files that name none are of the other kind
        return {"variant": self.variant, "units": self.units, **decoder, **kept}

    @classmethod
    def stored(cls, options: Mapping[str, object]) -> AblatedGDP:
        """The method with the network options that a file names; the first files had no priorities to name."""
        return from_options(AblatedGDP, Parts, {"priorities": False, **options})

    def _file(self) -> Path | None:
        """Where the policy lies; None to train without one."""
        if self.policy != PRETRAINED:
            return Path(self.policy) if self.policy else None
        shipped = SHIPPED_WALK if self.walks else SHIPPED
        return shipped if shipped.exists() and self.variant == "corrected" else None

    def _within(self, budget: Budget, problem: Problem) -> GDP:
        """With so few samples that a budget of evaluations allows some twenty updates; nothing slow if it is short."""
        most, copies = self.samples or PRESETS[self.variant].training.samples, self.parts.copies.split(",")
        if budget.evaluations is not None:
            most = min(most, max(8, budget.evaluations // 20))
        slow_seconds = 0.5 + 8e-5 * len(problem.graph)
        if budget.evaluations is not None or slow_seconds > (budget.seconds or math.inf) / 3:
            copies = [name for name in copies if name != SLOW]
        return varied(self, samples=most, copies=",".join(copies))

    def _training(self, preset: Preset) -> Training:
        training = replace(
            preset.training,
            samples=self.samples or preset.training.samples,
            learning_rate=self.learning_rate,
            graphs_per_step=self.graphs_per_step,
        )
        if not preset.corrected or not self._has_prior:
            return training
        return replace(
            training,
            imitation=self.imitation,
            imitation_rate=self.learning_rate,
            imitation_entropy=UNSURE,
            learning_rate=AFTER_IMITATION * self.learning_rate,
            policy_weight=AFTER_IMITATION,
            entropy=Linear(0.0),
            elite_band=Linear(0.03, 0.03),
        )

    @property
    def _has_prior(self) -> bool:
        """Whether the policy knows something before the first reward."""
        return self.imitation > 0 or self.policy not in ("", PRETRAINED)

    def _task(
        self, problem: Problem, preset: Preset, start: Start, evaluate: Evaluator | None
    ) -> Task[GraphInputs]:
        """A problem with its reward and, unless it is learnt from scratch, a placement to begin with."""
        grouping, inputs = self.inputs(problem)
        kind = OrderedScorer if inputs.ordered else Scorer
        scorer = kind(problem, grouping, threads=self.threads, evaluate=evaluate, limit=start.limit)
        scorer.charge(inputs.seen.evaluations)
        if inputs.seen.cut is not None and evaluate is None:
            cut = inputs.seen.cut
            scorer.begin_with(scorer.whole(cut.devices[None, :])[0], cut.seconds, cut.name)
        target, copied = None, ""
        if preset.corrected and self._has_prior:
            names = self.parts.copies.split(",") if self.parts.copies else []
            known = {CUT: nearest(inputs)} if CUT in names else {}
            others = [name for name in names if name != CUT]
            given = start if others or not known else replace(start, best=None)
            target, copied = target_of(problem, grouping, scorer, others, given, known)
        relative = start.reference_seconds(problem) if preset.relative else 1.0
        reward = Reward("sqrt", relative, FAILING_SECONDS if preset.failing else None)
        return Task(grouping, inputs, scorer, reward, start, target, copied)


@dataclass(frozen=True, slots=True)
class AblatedGDP(GDP):
    """GDP with other parts, for experiments and for what files hold."""

    parts: Parts = Parts()


def target_of(
    problem: Problem,
    grouping: Grouping,
    scorer: Scorer,
    names: Sequence[str],
    start: Start,
    known: Mapping[str, NDArray[np.uint8]] | None = None,
) -> tuple[NDArray[np.int64] | None, str]:  # a row
    """(the best construction that uses several devices, its name); a single device only where that is clearly better.

    Copying a single device teaches nothing about where to cut, so a placement a little slower is preferred. Whatever is
    simulated on the way is counted by the scorer; where evaluations are limited, half of them remain for learning.
    """
    lowered = dict(known or {})
    if start.best is not None:
        lowered[start.best_by or "start"] = by_most_seconds(problem, grouping, start.best)
    work = max(1, COPY_WORK // max(1, len(problem.graph)))
    spare = None if scorer.left is None else int(COPY_SHARE * scorer.left)
    names = [name for name in names if name not in lowered]
    for number, name in enumerate(names):
        reserved = scorer.runs * (len(lowered) + 1)  # for what is copied, as units
        if spare is not None and spare <= reserved:
            break
        share = work if spare is None else min(work, max(1, (spare - reserved) // (len(names) - number)))
        found, spent = constructed(problem, name, Budget(evaluations=share))
        scorer.charge(spent)
        spare = None if spare is None else spare - spent
        if found is not None:
            lowered[name] = by_most_seconds(problem, grouping, found.placement.devices)
    if not lowered or (scorer.left is not None and scorer.left < scorer.runs * len(lowered)):
        return None, ""
    rows, first = np.unique(np.stack(list(lowered.values())), axis=0, return_index=True)
    rows = canonical(rows, device_classes(problem))
    made = [list(lowered)[n] for n in first]
    seconds = scorer.score(scorer.whole(rows), by=made).seconds
    several = np.array([len(np.unique(row)) > 1 for row in rows])
    single = float(seconds[~several].min(initial=np.inf))
    shared = np.where(several & (seconds <= (1 + WORSE) * single), seconds, np.inf)
    order = shared if np.isfinite(shared).any() else seconds
    if not np.isfinite(order).any():
        return None, ""
    best = int(np.argmin(order))
    target: NDArray[np.int64] = scorer.whole(rows[best : best + 1])[0].astype(np.int64)
    return target, made[best]


def nearest(inputs: GraphInputs) -> NDArray[np.uint8]:  # [unit]
    """Every unit on the device whose part of the work is nearest, as memory allows."""
    far = by_unit(inputs.beside[:, :, NEAREST], inputs)
    row = far.masked_fill(~inputs.allowed, torch.inf).argmin(dim=1)[None]
    row = row if inputs.room is None else repaired(row, inputs.room, inputs.allowed)
    return np.asarray(row[0].numpy()).astype(np.uint8)
