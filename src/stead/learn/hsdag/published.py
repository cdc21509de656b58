"""HSDAG as published: its network and its loop, with the faults that the paper's results were made with.

Notation    n groups of the co-location, F features, H = 128, K devices, T = 20 steps of an episode
    x       [n, F]  share of each kind of operator in a group, and the raw number of the group (`raw_numbers`)
    s_uv    in (0, 1), both ways with dropout in between: s_uv != s_vu while training
    h       [G, F]  embeddings of the groups that parsing ends with
    r_t     1 / seconds;  a placement on one device, or one that fails, counts as 1e10 s
    R       sum_i 0.95^i r_(T - i): one number for all steps;  loss = -R sum_t sum_g log p(device_g)

Parsing, until the number of nodes no longer falls: every node keeps its best edge. The best kept edge (u, v) begins a
community, and whoever's kept edge leads into it joins. Where scores are not symmetric, v's own kept edge is still there
and takes v into another community later; edges between u and v are cut nevertheless, so that parts lose touch and more
than one group is left. With symmetric scores this never happens, and every connected graph ends as one group.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from stead.coarsen import Grouping
from stead.graph import Graph
from stead.learn.ground.reward import Scorer
from stead.learn.ground.task import Task
from stead.learn.ground.tensor_file import Arrays
from stead.learn.ground.torch_state import network_arrays
from stead.learn.ground.training_loop import Clock, Loop, Step, mean_of
from stead.problem import Problem

HIDDEN = 128
DROPOUT = 0.2
STEPS = 20
DISCOUNT = 0.95
FAILED_SECONDS = 1e10


@dataclass(frozen=True, slots=True, eq=False)
class PublishedInputs:
    """What the published network sees of one problem."""

    x: Tensor  # [n, F]
    edges: NDArray[np.int64]  # [edge, 2]; both ways, each once, sorted

    @staticmethod
    def of(problem: Problem, grouping: Grouping) -> PublishedInputs:
        """Shares of kinds and raw numbers; kinds in the order of their names."""
        words = {kind: n for n, kind in enumerate(sorted(set(problem.graph.kinds)))}
        kinds = np.array([words[kind] for kind in problem.graph.kinds], dtype=np.int64)
        group, count = grouping.group.astype(np.int64), grouping.count
        shares = np.bincount(group * len(words) + kinds, minlength=count * len(words))
        mean = shares.reshape(count, len(words)) / grouping.sizes[:, None]
        x = np.concatenate([mean, raw_numbers(problem.graph, grouping)[:, None]], axis=1)
        pairs = group[problem.graph.edges]
        pairs = pairs[pairs[:, 0] != pairs[:, 1]]
        edges = np.unique(np.concatenate([pairs, pairs[:, ::-1]]), axis=0).reshape(-1, 2)
        return PublishedInputs(torch.from_numpy(x.astype(np.float32)), edges)


def raw_numbers(graph: Graph, grouping: Grouping) -> NDArray[np.int64]:  # [n]
    """The numbers that the published co-location gives to groups: by when it visits the last operator of each.

    It visits generation by generation: first all operators without inputs, then all that read from these alone, ...
    A group is taken out of the list and put behind all others whenever an operator joins it.
    """
    after: list[list[int]] = [[] for _ in range(len(graph))]
    for u, v in graph.edges.tolist():
        after[u].append(v)
    missing = np.bincount(graph.edges[:, 1], minlength=len(graph)).tolist()
    visits = [v for v, count in enumerate(missing) if not count]
    for u in visits:
        for v in after[u]:
            missing[v] -= 1
            if not missing[v]:
                visits.append(v)
    last = np.zeros(grouping.count, dtype=np.int64)
    np.maximum.at(last, grouping.group[visits], np.arange(len(graph)))
    numbers = np.empty(grouping.count, dtype=np.int64)
    numbers[np.argsort(last)] = np.arange(grouping.count)
    return numbers


class PublishedNet(nn.Module):
    """Encoder, graph parsing and classifier."""

    def __init__(self, features: int, devices: int) -> None:
        super().__init__()
        self.devices = devices
        self.enter = nn.Sequential(*_layer(features, HIDDEN, norm=True), *_layer(HIDDEN, HIDDEN, norm=True))
        self.first = nn.ModuleList([nn.Linear(HIDDEN, HIDDEN) for _ in range(2)])
        self.first_norm = nn.LayerNorm(HIDDEN)
        self.second = nn.ModuleList([nn.Linear(HIDDEN, HIDDEN)])
        self.second_norm = nn.LayerNorm(HIDDEN)
        for layer in (*self.first, *self.second):  # the other layers begin as torch has it
            nn.init.xavier_uniform_(layer.weight)
            nn.init.zeros_(layer.bias)
        self.edge = nn.Sequential(*_layer(HIDDEN, HIDDEN, norm=True), nn.Linear(HIDDEN, 1))
        self.before, self.after = nn.Linear(HIDDEN, HIDDEN), nn.Linear(HIDDEN, HIDDEN)
        self.before_norm, self.after_norm = nn.LayerNorm(HIDDEN), nn.LayerNorm(HIDDEN)
        self.leave = nn.Sequential(*_layer(HIDDEN, HIDDEN), *_layer(HIDDEN, features))
        self.classify = nn.Sequential(nn.Linear(features, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, devices))

    def forward(self, x: Tensor, edges: NDArray[np.int64]) -> tuple[Tensor, NDArray[np.int64]]:
        """(h [G, F], group of every node)."""
        h: Tensor = self.enter(x)
        label = np.arange(len(x))
        while True:
            z = self._encoded(h, edges, self.first, self.first_norm)
            score = torch.sigmoid(self.edge(z[edges[:, 0]] * z[edges[:, 1]]))[:, 0]
            found = communities(len(h), edges, score.detach().numpy())
            falls = found.count < len(h)
            if falls or found.count > 1:
                pooled = self._encoded(h, edges, self.second, self.second_norm)
                h = self._pooled(pooled, score, edges, found)
            label = found.label[label]
            if not falls:
                return self.leave(h), label
            edges = found.edges

    def log_probabilities(self, h: Tensor) -> Tensor:  # [G, K]
        """Of the devices of groups."""
        return torch.log_softmax(self.classify(h), dim=1)

    def _encoded(
        self, h: Tensor, edges: NDArray[np.int64], layers: nn.ModuleList, norm: nn.LayerNorm
    ) -> Tensor:
        """GCN: D^-1/2 (A + I) D^-1/2 h W + b."""
        source, target = torch.from_numpy(edges[:, 0].copy()), torch.from_numpy(edges[:, 1].copy())
        scale = (1.0 + torch.bincount(target, minlength=len(h)).float()).rsqrt()[:, None]
        z = h
        for layer in layers:
            sent = scale * z
            z = layer(scale * (sent + torch.zeros_like(sent).index_add(0, target, sent[source])))
            z = nn.functional.dropout(torch.relu(z), DROPOUT, self.training)
        encoded: Tensor = norm(h + z)
        return encoded

    def _pooled(self, z: Tensor, score: Tensor, edges: NDArray[np.int64], found: Communities) -> Tensor:
        """Sums of members, multiplied by the mean and by the number of the inner edges."""
        own = torch.from_numpy(found.label)
        z = self.before_norm(z + self.before(z))
        total = z.new_zeros(found.count, z.shape[1]).index_add(0, own, z)
        total = self.after_norm(total + self.after(total))
        inner = torch.from_numpy(found.inner)
        home = own[torch.from_numpy(edges[:, 0].copy())][inner]
        number = torch.bincount(home, minlength=found.count).float()
        summed = score.new_zeros(found.count).index_add(0, home, score[inner])
        alone = number == 0
        mean = torch.where(alone, 1.0, summed / number.clamp(min=1.0))
        pooled: Tensor = total * (mean * torch.where(alone, 1.0, number))[:, None]
        return pooled


@dataclass(frozen=True, slots=True, eq=False)
class Communities:
    """What one round of parsing makes of a graph."""

    label: NDArray[np.int64]  # [node]; from 0
    count: int
    inner: NDArray[np.bool_]  # [edge]; cut, since both ends were in one community at some time
    edges: NDArray[np.int64]  # [edge, 2]; between communities


def communities(count: int, edges: NDArray[np.int64], score: NDArray[np.float32]) -> Communities:
    """One round of the published parsing on edges both ways, sorted, with a score each."""
    label = np.full(count, -1, dtype=np.int64)
    inner = np.zeros(len(edges), dtype=bool)
    rank = np.argsort(-score, kind="stable")
    best: dict[int, int] = {}
    for e in rank.tolist():
        best.setdefault(int(edges[e, 0]), e)
    number = 0
    kept = list(best.values())  # best edges first
    into: dict[int, list[int]] = {}  # sources of kept edges by target
    for e in kept:
        into.setdefault(int(edges[e, 1]), []).append(int(edges[e, 0]))
    used: set[int] = set()
    first = np.searchsorted(edges[:, 0], np.arange(count + 1)).tolist()
    targets = edges[:, 1].tolist()
    for e in kept:
        u, v = edges[e].tolist()
        if u in used:
            continue
        members = {u, v}
        waiting = [u, v]
        while waiting:
            for source in into.get(waiting.pop(), ()):
                if source not in used:
                    used.add(source)
                    if source not in members:
                        members.add(source)
                        waiting.append(source)
        label[list(members)] = number
        for node in members:
            for place in range(first[node], first[node + 1]):
                if targets[place] in members:
                    inner[place] = True
        number += 1
    alone = np.flatnonzero(label < 0)
    label[alone] = number + np.arange(len(alone))
    between = np.unique(label[edges[~inner]], axis=0).reshape(-1, 2)
    return Communities(label, number + len(alone), inner, between)


class PublishedLoop(Loop[PublishedInputs]):
    """Episodes of 20 steps on one graph; an update is an episode."""

    def __init__(
        self, network: PublishedNet, task: Task[PublishedInputs], *, learning_rate: float, seed: int
    ) -> None:
        super().__init__(network, [task], learning_rate=learning_rate, seed=seed)
        self.network, self.learning_rate = network, learning_rate
        self.counts: list[int] = []  # groups of every sample of this process
        self.rejected = 0  # of them, on one device or failing

    @property
    def evaluations_per_update(self) -> int:
        """One per step."""
        return STEPS

    def learn(self) -> Step:
        """One episode and one step of the optimiser."""
        clock, task = Clock(), self.tasks[0]
        x, edges = task.inputs.x, task.inputs.edges
        log_p, rewards, spread, found = [], [], [], []
        seed = int(np.random.default_rng((self.seed, self.version)).integers(2**62))
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self.network.train()
            for _ in range(STEPS):
                with clock:
                    h, label = self.network(x, edges)
                    table = self.network.log_probabilities(h)
                    chosen = torch.multinomial(table.detach().exp(), 1)
                seconds = self._seconds(chosen[:, 0].numpy()[label])
                found.append(seconds)
                rewards.append(1.0 / min(seconds, FAILED_SECONDS))
                log_p.append(table.gather(1, chosen).sum())
                spread.append(float(-(table.exp() * table).sum(dim=1).mean().detach()))
                self.counts.append(len(h))
                x = x + h.detach()[torch.from_numpy(label)]
        gain = sum(reward * DISCOUNT**i for i, reward in enumerate(reversed(rewards)))
        norm = 0.0
        if self.learning_rate > 0:
            with clock:
                self.optimiser.zero_grad(set_to_none=True)
                (-gain * torch.stack(log_p).sum()).backward()  # type: ignore[no-untyped-call]
                norm = self.stepped(math.inf)
        self.keep(task.scorer.best_seconds)
        return Step(
            tasks=[task],
            seconds=[np.array(found)],
            entropy=mean_of(spread),
            gradient=norm,
            stepped=norm > 0,
            network_seconds=clock.seconds,
        )

    def _seconds(self, devices: NDArray[np.int64]) -> float:
        """Of a placement of groups; inf for one on one device, and for one that fails."""
        seconds = math.inf
        if len(np.unique(devices)) > 1:
            row = devices[None, :].astype(np.uint8)
            seconds = float(self.tasks[0].scorer.score(row, by=self.credit("sample")).seconds[0])
        self.rejected += not math.isfinite(seconds)
        return seconds

    def groups(self, task: Task[object]) -> NDArray[np.int64]:  # [n]
        """The groups in evaluation mode."""
        return self._preferred(task)[1]

    def greedy(self, task: Task[object]) -> NDArray[np.uint8]:  # [n]
        """The likeliest devices of the groups in evaluation mode."""
        chosen, label = self._preferred(task)
        return np.asarray(chosen[label]).astype(np.uint8)

    @torch.no_grad()
    def _preferred(self, task: Task[object]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """(device of every group, group of every node)."""
        inputs = self.tasks[self.number(task)].inputs
        self.network.eval()
        h, label = self.network(inputs.x, inputs.edges)
        chosen: NDArray[np.int64] = self.network.log_probabilities(h).argmax(dim=1).numpy()
        self.network.train()
        return chosen, label

    def policy_arrays(self) -> Arrays:
        """The network of the best sample."""
        return self.kept or network_arrays(self.module)

    @property
    def taught(self) -> bool:
        """After the first episode."""
        return self.version > 0 and self.learning_rate > 0

    def options(self) -> dict[str, object]:
        """There is but one."""
        return {"learning_rate": self.learning_rate}


def index_order(graph: Graph) -> NDArray[np.int64]:  # [operator]
    """Another order of the operators: inputs of the model, then depth first from its results backwards.

    OpenVINO's `get_ops` goes that way, too (it differs where an operator has several inputs). A placement in the order
    of the graph that is written onto operators in this one lands on other operators.
    """
    before: list[list[int]] = [[] for _ in range(len(graph))]
    has_reader = np.zeros(len(graph), dtype=bool)
    for u, v in graph.edges.tolist():
        before[v].append(u)
        has_reader[u] = True
    order = [v for v, kind in enumerate(graph.kinds) if kind == "Parameter"]
    seen = set(order)
    stack = np.flatnonzero(~has_reader).tolist()
    while stack:
        v = stack.pop()
        if v not in seen:
            seen.add(v)
            order.append(v)
            stack += before[v]
    return np.array(order, dtype=np.int64)


class Misplacing(Scorer):
    """A scorer that writes placements onto operators by position in another order: a fault of the published code.

    It is for experiments alone, and nothing that it puts somewhere can be measured.
    """

    def __init__(self, problem: Problem, grouping: Grouping, *, threads: int = 0) -> None:
        super().__init__(problem, grouping, threads=threads)

    def lifted(self, rows: NDArray[np.uint8]) -> NDArray[np.uint8]:  # [S, operator]
        """Entry i of a placement goes to the operator at place i of the other order."""
        graph = self.problem.graph
        wrong = np.empty((len(rows), len(graph)), dtype=np.uint8)
        wrong[:, index_order(graph)] = self.grouping.lift(rows)
        return wrong


def _layer(inputs: int, outputs: int, *, norm: bool = False) -> list[nn.Module]:
    made: list[nn.Module] = [nn.Linear(inputs, outputs)]
    if norm:
        made.append(nn.LayerNorm(outputs))
    return [*made, nn.ReLU(), nn.Dropout(DROPOUT)]
