"""Placeto's network as a giver of opinions: it sees what list scheduling does with a problem, all groups at once.

Where episodes visit one group after another, here no group is current: messages are passed once, and every group says
what it thinks of every device from what lies around it in that one placement. Walks follow these opinions (learn/walk).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from stead.coarsen import Grouping
from stead.learn.ground.placed_groups import by_most_seconds, placed_groups
from stead.learn.ground.policy import Seen
from stead.learn.ground.reward import Reward
from stead.learn.ground.task import Start, Task, slowest_single
from stead.learn.placeto.episodes import Observation, State, Walk
from stead.learn.placeto.features import Inputs, View, inputs_of
from stead.learn.placeto.timed import TimedScorer
from stead.learn.walk.opinion_scorer import OpinionScorer
from stead.learn.walk.opinion_solver import no_walk
from stead.problem import Problem

LOOKS = 5  # simulations at most: a walk, also in two orders by ranks, and when its groups start


@dataclass(frozen=True, slots=True, eq=False)
class Overview:
    """What the network reads of a problem."""

    inputs: Inputs
    e: Tensor  # [d, 1, N]; features of groups, none of them current
    f: Tensor  # [N, K, F]; features of groups on devices
    seen: Seen


@dataclass(frozen=True, slots=True)
class Viewer:
    """How problems are shown to the network."""

    groups: int  # at most
    view: View
    observation: Observation
    threads: int = 0
    name: str = "placeto"

    def unsupported(self, problem: Problem) -> str | None:
        """Whatever walks cannot place."""
        return no_walk(problem)

    def looks(self, problem: Problem) -> int:
        """Of `inputs`."""
        return LOOKS

    def seen(self, inputs: Overview) -> Seen:
        """What was simulated."""
        return inputs.seen

    def inputs(self, problem: Problem) -> tuple[Grouping, Overview]:
        """Groups, and what they are like where list scheduling places them."""
        grouping = placed_groups(problem, most=self.groups)
        inputs = inputs_of(problem, grouping, self.view)
        listed = OpinionScorer(problem, grouping, threads=self.threads)
        nothing = np.zeros((1, grouping.count, inputs.devices))
        _, rows = listed.walked(nothing, ["heft"])
        row = by_most_seconds(problem, grouping, listed.lifted(rows)[0])
        timed = TimedScorer(problem, grouping, inputs, threads=self.threads)
        reward = Reward("log", max(slowest_single(problem), 1e-12))
        walk = Walk(Task(grouping, inputs, timed, reward, Start({}, None)), self.observation)
        e, f = State(walk, row[None, :]).overview()
        seen = Seen(listed.evaluations + timed.evaluations)
        return grouping, Overview(inputs, torch.from_numpy(e), torch.from_numpy(f), seen)
