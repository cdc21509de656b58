"""Placeto: a policy that walks over the groups of a graph and improves a placement step by step.

Addanki et al., "Placeto: Learning Generalizable Device Placement Algorithms for Distributed Machine Learning",
NeurIPS 2019. The graph is read by message passing, so that one policy can place graphs it has never seen.

Notation    N groups, K devices, B episodes; an episode visits every group once (episodes.py has the process,
            network.py the network, learner.py the losses, features.py what is seen of a graph)

Presets, and why
                  faithful                              corrected
    features      cost, output bytes, visits, current,  the same without devices, "on the device of v", when things
                  start (by the column's maximum),      end; all within -1 .. 1 (a column without a positive value
                  one-hot device                        was not scaled at all)
    head          one output per device: devices that   one network for every (group, device), with features of the
                  are alike must be told apart by       pair: where inputs and readers are, how loaded it is, how
                  chance, and it often ends on one      fast, how much memory is free; any number of devices
    pooling       sum                                   mean, so that larger graphs look alike
    reward        seconds gained by each step           log of the run time: does not depend on a model's speed
    memory        2 s per gigabyte that lacks, all      seconds * (1 + 10 * share that lacks), no cap; devices without
                  capped at 10 s                        room for what stays are masked
    algorithm     REINFORCE, baseline per step over     PPO, clip 0.2, 4 epochs; mean of the batch per step and kind of
                  the last 10 updates, summed           start, standardised, averaged (with one mean over all starts
                                                        episodes ended at 11.5 instead of 10.8 ms after 40 updates on
                                                        the graph of 50 operators, one seed)
    entropy       1 to 0 over 70 % of the updates       0.02, falling to a twentieth over 70 %
    start         one fixed random placement            half random, the rest single device, contiguous blocks, list
                                                        scheduling, best so far
    imitation     none                                  on demand: where all steps of an unrolled layer share weights,
                                                        moving one of them costs more than leaving it, and rewards alone
                                                        lead back to one device. Half of the episodes copy, the others
                                                        look for something better to copy
    Adam          1e-3 falling to 1e-4, norm 1.25       1e-3, falling over the last 30 %
    groups        at most 128                           at most 256

Deviations from the paper, both presets: the simulator stands for measured steps; groups are those of the co-location
rules; the published code's errors that stop it are repaired (rewards of two scalars, start times that are not there,
masks of another graph of a batch, baselines over other graphs). Corrected only: training graphs are seen through their
forward operators, since with the backward pass every group would be an ancestor of every other; "seconds on k against
the fastest device" is turned round to stay within 0 .. 1. `sweep` (one exact pass instead of 8 rounds), a value head
and limits on peers are not there. At most 2,000 groups.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import ClassVar, Literal, cast, get_args

import numpy as np
import torch
from numpy.typing import NDArray

from stead.coarsen import Grouping
from stead.errors import BadInput
from stead.learn.ground.ablation import former, from_options, varied
from stead.learn.ground.collapse_alarm import collapsed
from stead.learn.ground.option_checks import check_least, check_words
from stead.learn.ground.placed_groups import by_most_seconds, placed_groups
from stead.learn.ground.policy import Proposal, Seen, read_policy
from stead.learn.ground.reward import Evaluator, Reward
from stead.learn.ground.solver import BASELINES, Account, begin_with_baselines, polish, shown, start_of
from stead.learn.ground.task import Start, Task, constructed
from stead.learn.ground.tensor_file import Arrays
from stead.learn.ground.torch_state import load_network, one_thread
from stead.learn.ground.training_loop import Algorithm, Loop
from stead.learn.placeto.episodes import Observation
from stead.learn.placeto.features import Inputs, View, inputs_of
from stead.learn.placeto.learner import EpisodeTraining, KnownRows, PlacetoLearner, random_rows
from stead.learn.placeto.network import PlacetoNet
from stead.learn.placeto.overview import Overview, Viewer
from stead.learn.placeto.timed import TimedScorer
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
from stead.solvers.few_devices import few_devices
from stead.solvers.rules.settle import started
from stead.solvers.search_state import Search
from stead.solvers.solution import Budget, Solution

Variant = Literal["corrected", "faithful"]
Traversal = Literal["topological", "random"]
PRETRAINED = "pretrained"  # the policy that comes with the package
SHIPPED = Path(__file__).parents[1] / "pretrained" / "placeto.safetensors"
SHIPPED_WALK = SHIPPED.with_name("placeto-walk.safetensors")  # whose opinions walks follow
Decoder = Literal["episodes", "walk"]
MOST_GROUPS = 2000
CONSTRUCTIONS = ("chunks", "heft")  # contiguous blocks and list scheduling: placements that episodes begin at
START_SHARE = 0.5  # of a budget of evaluations, that constructions may take
SAMPLED_EPISODES = 8  # of a policy from a file, beside its argmax sweeps


@dataclass(frozen=True, slots=True)
class Preset:
    """What tells the variants apart."""

    groups: int
    observation: Observation
    mean: bool  # pooling
    training: EpisodeTraining


PRESETS: dict[str, Preset] = {
    "corrected": Preset(256, Observation(), True, EpisodeTraining()),
    "faithful": Preset(
        128,
        Observation(published=True, one_hot=True, device_features=0),
        False,
        EpisodeTraining(
            algorithm="reinforce", returns="intermediate", baseline="history", rate_holds=0.0, entropy=1.0,
            least_entropy=0.0, mixed_starts=False, alarm=False, summed=True, offset=1e-3,
        ),
    ),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Parts:
    """What experiments vary and nobody else; a policy file keeps what its network is made of or shown (`KEPT`)."""

    name: ClassVar[str] = "placeto"  # for error lines

    algorithm: str = ""  # reinforce or ppo; empty: that of the variant
    led: int = 4  # of the episodes of an update that imitates, that copy; the others learn from rewards
    messages: bool = True  # off: groups hear nothing of their neighbours (simple aggregator)
    split: bool = True  # off: all other groups are pooled as one (simple partitioner)
    peers: bool = True  # off: no pool of groups that are neither before nor behind
    one_hot: bool = False  # devices by name instead of by what is on them
    sum_pooling: bool = False
    traversal: str = "topological"  # or random: one fixed shuffle
    start_times: bool = True

    def __post_init__(self) -> None:
        check_words(self, {"algorithm": ("", *get_args(Algorithm)), "traversal": get_args(Traversal)})
        check_least(self, {"led": 1})


KEPT = tuple(one.name for one in fields(Parts) if one.name not in ("algorithm", "led"))


@few_devices
@dataclass(frozen=True, slots=True)
class Placeto:
    """Ask the policy that comes with the package or one from a file, go on training it, or train on the problem.

    It returns the best placement that any episode came upon, argmax sweeps and cheap baselines among them, and says
    which of them won.
    """

    name: ClassVar[str] = "placeto"
    FORMER: ClassVar[Mapping[str, str]] = {
        **former(Parts),
        **dict.fromkeys(("returns", "alarm"), " any more; it is part of the variant"),
        "kl": " any more; no result needs it",
    }

    variant: str = "corrected"
    policy: str = PRETRAINED  # or a file of `stead train placeto`; empty: train on the problem from the beginning
    updates: int = 100  # without a policy, or of a training run
    fine_tune: int = 0  # updates on the problem that go on from the policy; 0: ask it once
    episodes: int = 8
    imitation: int = 0  # of the updates, that copy the best placement known
    teacher: int = 0  # placements per graph by which hill climbing improves what is copied
    groups: int = 0  # at most; 0: that of the variant
    learning_rate: float = 1e-3
    polish: bool = False
    threads: int = 0  # of the simulator; 0: all cores
    decoder: str = ""  # episodes: that visit groups; walk: list scheduling that follows the network's opinions;
    #                    empty: that of the policy; the package's own walks wherever walks can place the problem

    def __post_init__(self) -> None:
        check_words(self, {"variant": get_args(Variant), "decoder": ("", *get_args(Decoder))})
        if self.walks and self.variant != "corrected":
            raise BadInput("placeto: walks follow the corrected variant; leave out variant or decoder")
        check_least(self, dict.fromkeys(("updates", "fine_tune", "imitation", "teacher", "groups"), 0))
        check_least(self, {"episodes": 2})
        if self.groups > MOST_GROUPS:
            raise BadInput(f"placeto: at most {MOST_GROUPS} groups, got {self.groups}")
        if not 0 <= self.learning_rate < 1:
            raise BadInput(f"placeto: a learning rate lies in 0 .. 1, got {self.learning_rate}")
        if self.fine_tune and (not self.policy or (self.policy == PRETRAINED and self.variant != "corrected")):
            raise BadInput("placeto: fine_tune goes on from a policy; give policy=FILE or set updates")

    @property
    def parts(self) -> Parts:
        """The parts as they are, unless an experiment or a file says otherwise."""
        return Parts()

    @property
    def walks(self) -> bool:
        """Whether walks follow its opinions."""
        return self.decoder == "walk"

    def viewer(self, threads: int) -> Viewer:
        """What opinions are made from."""
        groups = self.groups or PRESETS[self.variant].groups
        return Viewer(groups, self.view, self.observation, threads)

    @property
    def observation(self) -> Observation:
        """Features of this choice of options."""
        preset, parts = PRESETS[self.variant].observation, self.parts
        one_hot = preset.one_hot or parts.one_hot
        return Observation(preset.published, one_hot, parts.start_times, preset.device_features)

    @property
    def view(self) -> View:
        """The graph as this choice of options sees it."""
        preset, parts = PRESETS[self.variant], self.parts
        shuffle = 0 if parts.traversal == "random" else -1
        mean = preset.mean and not parts.sum_pooling
        return View(mean, parts.split, parts.peers, preset.observation.published, shuffle)

    def unsupported(self, problem: Problem) -> str | None:
        """Training takes every problem; a policy with one output per device those with as many devices."""
        path = self._file()
        if self.walks and (reason := no_walk(problem)) is not None:
            return reason
        return None if path is None else PlacetoPolicy.load(path).unsupported(problem)

    def decided(self, problem: Problem) -> Placeto:
        """With a decoder: where none is named, the package's own policy walks wherever walks can place the problem.

        Only episodes copy, and whoever sets `imitation` or `teacher` asks for those.
        """
        if self.decoder or self.policy != PRETRAINED:
            return self
        copies = self.imitation or self.teacher
        walks = self.variant == "corrected" and not copies and no_walk(problem) is None
        return replace(self, decoder="walk" if walks else "episodes")

    def misfit(self, devices: int, problem: Problem) -> str | None:
        """Only a head with one output per device depends on their number."""
        if not self.observation.one_hot or devices == len(problem.cluster):
            return None
        return f"the policy was trained for {devices} devices, the problem has {len(problem.cluster)}"

    def solve(self, problem: Problem, budget: Budget, seed: int = 0) -> Solution:
        """Ask the policy, fine-tune it, or train on the problem."""
        if (decided := self.decided(problem)) is not self:
            return decided.solve(problem, budget, seed)
        path = self._file()
        if path is None:
            chosen = replace(self, policy="")
        else:
            same = decoded_alike(self, path, Placeto).network_options()
            if not self.fine_tune and (asked := self.opinions(path)) is not None:
                return asked.solve(problem, budget, seed)
            chosen = varied(self, **same, policy=str(path), updates=self.fine_tune)
        if chosen.walks:
            return learn_and_walk(chosen, problem, budget, seed, threads=self.threads)
        search = started(self, problem, budget, seed)
        with search.interruptible(), one_thread():
            known = begin_with_baselines(search, BASELINES)
            if len(problem.graph) and len(problem.cluster) > 1 and not search.done:
                learner = chosen.learner([problem], seed, [start_of(search, known)])
                assert isinstance(learner, PlacetoLearner)
                _improve(search, learner, chosen.updates)
            if self.polish:
                polish(search)
        return search.solution()

    def learner(
        self,
        problems: Sequence[Problem],
        seed: int,
        starts: Sequence[Start],
        *,
        evaluate: Evaluator | None = None,
    ) -> Loop[object]:
        """A network with its graphs, ready for the first update; it begins with the policy of a given file.

        `evaluate` measures instead of simulating.
        """
        own, arrays, taught = self, None, False
        if self.policy not in ("", PRETRAINED):
            method, arrays, _, taught = read_policy(Path(self.policy), Placeto)
            own = varied(self, **method.network_options())
        counts = {len(problem.cluster) for problem in problems}
        if own.observation.one_hot and len(counts) > 1:
            raise BadInput(
                f"placeto with one output per device learns for one number of devices, got clusters of "
                f"{sorted(counts)}; leave out faithful"
            )
        network = own.network(max(counts, default=1), seed)
        if arrays is not None:
            load_network(network, arrays)
        if own.walks:
            training = own._opinion_training()
            taught_by_walks = opinion_learner(own, network, problems, starts, training, seed=seed, evaluate=evaluate)
            taught_by_walks.carried_on = taught
            return taught_by_walks
        tasks = [own._task(problem, start, evaluate) for problem, start in zip(problems, starts, strict=True)]
        known = [known_rows(task) for task in tasks]
        learner = PlacetoLearner(network, tasks, own._training(), own.observation, known, seed=seed)
        learner.carried_on = taught
        return learner

    def _opinion_training(self) -> OpinionTraining:
        return OpinionTraining(pairs=self.episodes, learning_rate=self.learning_rate)

    def opinions(self, path: Path) -> OpinionSolver[Overview] | None:
        """Whoever asks the network of a file for opinions; None where the file is not of that kind."""
        return opinion_solver(path, Placeto, threads=self.threads, polish=self.polish)

    def network(self, devices: int, seed: int) -> PlacetoNet:
        """A network with random weights."""
        seen = self.observation
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            return PlacetoNet(
                features=seen.width(devices),
                device_features=seen.device_features,
                devices=devices if seen.one_hot else 0,
                parts=self.view.parts,
                messages=self.parts.messages,
                opinions=self.walks,
            )

    def inputs(self, problem: Problem) -> tuple[Grouping, Inputs]:
        """What the network sees of a problem before the first step."""
        grouping = placed_groups(problem, most=self.groups or PRESETS[self.variant].groups)
        return grouping, inputs_of(problem, grouping, self.view)

    def looks(self, problem: Problem) -> int:
        """Its constructions keep within what is left; opinions are made from list scheduling."""
        return self.viewer(self.threads).looks(problem) if self.walks else 0

    def planned(self, updates: int) -> Placeto:
        """With so many updates, which rate and entropy are planned for."""
        return replace(self, updates=updates)

    def network_options(self) -> dict[str, object]:
        """What a reader of the file needs to build the same network and to show it the same."""
        kept = {name: value for name, value in asdict(self.parts).items() if name in KEPT}
        decoder = {"decoder": self.decoder} if self.walks else {}  # files that name none are of the other kind
        return {"variant": self.variant, "groups": self.groups, **decoder, **kept}

    @classmethod
    def stored(cls, options: Mapping[str, object]) -> AblatedPlaceto:
        """The method with the network options that a file names."""
        return from_options(AblatedPlaceto, Parts, options)

    def _file(self) -> Path | None:
        """Where the policy lies; None to train without one."""
        if self.policy != PRETRAINED:
            return Path(self.policy) if self.policy else None
        shipped = SHIPPED_WALK if self.walks else SHIPPED
        return shipped if shipped.exists() and self.variant == "corrected" else None

    def _training(self) -> EpisodeTraining:
        preset = PRESETS[self.variant].training
        return replace(
            preset,
            episodes=self.episodes,
            imitation=self.imitation,
            led=self.parts.led,
            teacher=self.teacher,
            updates=self.updates,
            learning_rate=self.learning_rate,
            algorithm=cast(Algorithm, self.parts.algorithm or preset.algorithm),
        )

    def _task(self, problem: Problem, start: Start, evaluate: Evaluator | None) -> Task[Inputs]:
        grouping, inputs = self.inputs(problem)
        reward = Reward("log", start.reference_seconds(problem))
        scorer = TimedScorer(
            problem, grouping, inputs, threads=self.threads, evaluate=evaluate, limit=start.limit
        )
        return Task(grouping, inputs, scorer, reward, start)


@dataclass(frozen=True, slots=True)
class AblatedPlaceto(Placeto):
    """Placeto with other parts, for experiments and for what files hold."""

    parts: Parts = Parts()


@dataclass(frozen=True, slots=True)
class PlacetoPolicy:
    """A trained network, ready to improve placements of problems it may never have seen."""

    method: Placeto
    arrays: Arrays  # of the network
    devices: int
    taught: bool = True
    name: ClassVar[str] = "placeto"

    @staticmethod
    def load(path: Path) -> PlacetoPolicy:
        """Read a policy; a damaged or foreign file is BadInput."""
        return PlacetoPolicy(*read_policy(path, Placeto))

    def unsupported(self, problem: Problem) -> str | None:
        """What the head says about the number of devices."""
        return self.method.misfit(self.devices, problem)

    def looks(self, problem: Problem) -> int:
        """More than any budget: every step of a walk is simulated. `Placeto` itself keeps to a budget."""
        return sys.maxsize

    def propose(self, problem: Problem, samples: int, seed: int) -> Proposal:
        """The best of argmax sweeps first, then the best placement of one sampled episode each."""
        with one_thread():
            learner = self.learner(problem, seed)
            task = learner.tasks[0]
            rows, log_p = [learner.greedy(task)[None, :]], [0.0]
            if samples > 1:
                found = sampled(learner, samples - 1, seed)
                rows.append(found[0])
                log_p += found[1].tolist()
        seen = Seen(task.scorer.evaluations)
        return Proposal(task.grouping.lift(np.concatenate(rows)), np.array(log_p), greedy=0, seen=seen)

    def learner(self, problem: Problem, seed: int) -> PlacetoLearner:
        """The network before a problem."""
        own = replace(self.method, policy="").learner([problem], seed, [Start.of(problem)])
        assert isinstance(own, PlacetoLearner)
        load_network(own.network, self.arrays)
        own.carried_on = self.taught
        return own


def sampled(learner: PlacetoLearner, count: int, seed: int) -> tuple[NDArray[np.uint8], NDArray[np.float64]]:
    """(best placements [episode, group], log p of the choices [episode]) of sampled episodes.

    Half of them go on from the best placement seen, the others begin at random.
    """
    task = learner.tasks[0]
    rng = np.random.default_rng((seed, 2**32))
    generator = torch.Generator().manual_seed(int(rng.integers(2**62)))
    starts = random_rows(task, rng, count)
    if task.scorer.incumbent is not None:
        starts[: count // 2] = task.scorer.incumbent.row
    nobody = np.zeros(count, dtype=bool)
    episodes = learner.walks[0].run(
        learner.network, starts, generator, greedy=nobody, keep=False, taught=learner.taught
    )
    log_p = torch.stack(episodes.log_p).sum(dim=0).double().numpy() if episodes.log_p else np.zeros(count)
    return episodes.best_rows, log_p


def known_rows(task: Task[Inputs]) -> KnownRows:
    """Placements that episodes begin at: single device, contiguous blocks, list scheduling.

    What finding them takes is counted; where evaluations are limited, half of them remain for episodes.
    """
    inputs, scorer = task.inputs, task.scorer
    allowed, seconds = inputs.allowed, inputs.seconds.astype(np.float64)
    total = np.where(allowed, seconds, np.inf).sum(axis=0)
    runs = allowed.sum(axis=0) - 1e-9 * np.where(
        np.isfinite(total), total / max(float(seconds.sum()), 1e-30), 0.0
    )
    single = int(np.argmax(runs)) if runs.size else 0  # runs the most groups; the fastest of such
    other = np.where(allowed, seconds, np.inf).argmin(axis=1)
    rows, names = [np.where(allowed[:, single], single, other).astype(np.uint8)], ["single"]
    spare = None if scorer.left is None else int(START_SHARE * scorer.left)
    for name in CONSTRUCTIONS if inputs.groups and inputs.devices > 1 else ():
        if spare is not None and spare < 1:
            break
        found, spent = constructed(task.problem, name, Budget(evaluations=spare))
        scorer.charge(spent)
        spare = None if spare is None else spare - spent
        if found is not None:
            rows.append(by_most_seconds(task.problem, task.grouping, found.placement.devices))
            names.append(name)
    return KnownRows(np.stack(rows), tuple(names))


def _improve(search: Search, learner: PlacetoLearner, updates: int) -> None:
    """Updates on one problem, then argmax sweeps, and for a policy without updates sampled episodes.

    What is noted as greedy begins on the single device or at random: a construction may be good as it is. So
    constructions are scored before anything else, and what no step made better remains theirs.
    """
    task = learner.tasks[0]
    account, scorer, visit = Account(search, task, "placeto"), task.scorer, learner.runs * (task.grouping.count + 1)

    def room_for(evaluations: int) -> bool:
        left = search.remaining_evaluations
        return left is None or left >= evaluations

    account.hand_over()
    if room_for(len(learner.known[0])):
        scorer.score(learner.known[0], by=learner.known_by[0])
        account.hand_over()
    while learner.version < updates and not search.done and room_for(learner.evaluations_per_update):
        account.learnt(learner.update())
        account.hand_over()
    greedy = "not scored"
    if room_for(visit):
        row, seconds = learner.evaluated(task, limit=search.remaining_evaluations)
        task.greedy_seconds, task.greedy_devices, greedy = seconds, len(np.unique(row)), shown(seconds)
        account.hand_over()
    if room_for(visit):
        learner.evaluated(task, constructed=True, limit=search.remaining_evaluations)
        account.hand_over()
    if not learner.version and room_for(visit):
        left = search.remaining_evaluations
        sampled(learner, SAMPLED_EPISODES if left is None else min(SAMPLED_EPISODES, left // visit), search.seed)
        account.hand_over()
    drawn = "no step was taken" if scorer.own is None else f"best step {shown(scorer.best_seconds)}"
    fallen = "; collapsed onto one device" if learner.version and collapsed(task) else ""
    search.notes.append(
        f"placeto: {learner.version} updates, {scorer.evaluations} evaluations{account.begun_with()}, {drawn}, "
        f"greedy {greedy}{fallen}{'' if learner.taught else '; it has learnt from no reward'}"
    )
