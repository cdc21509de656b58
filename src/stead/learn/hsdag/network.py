"""The network of HSDAG, corrected: a graph encoder that knows directions, groups that are drawn, a device per group.

Notation    n nodes (groups of operators that were joined beforehand), m pairs of neighbours, H hidden width, K devices
            S samples, L levels of parsing, V words
    z       [n, H]    encoded nodes, shared by all samples
    s_uv    [m]       score of joining u and v: MLP([z_u * z_v, |z_u - z_v|]), the same both ways
    s_v     [n]       score of staying alone: w . z_v + b
    picks   [S, n]    pick_v ~ softmax over its neighbours' s_uv and s_v; see parsing.py for the groups that follow
    logits  [S, G, K] MLP([mean z, weighted mean z] of a group), -inf where a member may not run
    actions [S, A]    picks and labels of every level, then the device of every node; A = (2 L + 1) n
    seen    [n]       iterative: the devices of the sample before, -1 where there is none; they precede the action, and
                      nodes see them one-hot, with the share of all work that each device has there

    log p of a placement = sum_l sum_v log p(pick_v) + sum_g log p(device_g)

Level l + 1 parses the graph of groups of level l: mean z of the members with the log of their number. A group stands at
its lowest node; the columns of all other nodes hold -1 as picks and count nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from stead.learn.ground.network import Network
from stead.learn.ground.seq2seq import NEVER
from stead.learn.hsdag.parsing import Limits, Neighbours, joined, partitions

Encoder = Literal["gcn", "gat", "gin"]
GroupBy = Literal["learned", "none"]
WORD_WIDTH = 16
ROWS = 2**17  # nodes times samples that are pooled at a time


@dataclass(frozen=True, slots=True, eq=False)
class GraphInputs:
    """What the network sees of one coarsened problem."""

    words: Tensor  # [n, V]; share of each kind of operator
    x: Tensor  # [n, F]
    source: Tensor  # [edge]; directed
    target: Tensor  # [edge]
    weight: Tensor  # [n]; of the weighted mean
    allowed: Tensor  # [n, K]
    near: Neighbours
    limits: Limits


class Messages(nn.Module):
    """One layer: what predecessors and successors say, each through weights of its own."""

    def __init__(self, hidden: int, encoder: Encoder) -> None:
        super().__init__()
        self.encoder = encoder
        self.own = nn.Linear(hidden, hidden)
        self.before = nn.Linear(hidden, hidden, bias=False)
        self.after = nn.Linear(hidden, hidden, bias=False)
        self.norm = nn.LayerNorm(hidden)
        if encoder == "gat":
            self.sends = nn.Parameter(0.1 * torch.randn(2, hidden))
            self.hears = nn.Parameter(0.1 * torch.randn(2, hidden))
        if encoder == "gin":
            self.more = nn.Linear(hidden, hidden)

    def forward(self, z: Tensor, source: Tensor, target: Tensor) -> Tensor:
        heard = self.own(z)
        ways = ((self.before, source, target), (self.after, target, source))
        for way, (weights, sender, hearer) in enumerate(ways):
            said = weights(z)
            if self.encoder == "gin":
                heard = heard + _sum(said[sender], hearer, len(z))
            elif self.encoder == "gat":
                score = (said @ self.sends[way])[sender] + (said @ self.hears[way])[hearer]
                share = softmax_by(nn.functional.leaky_relu(score, 0.2), hearer, len(z)).exp()
                heard = heard + _sum(share[:, None] * said[sender], hearer, len(z))
            else:
                count = torch.bincount(hearer, minlength=len(z)).clamp(min=1)[:, None]
                heard = heard + _sum(said[sender], hearer, len(z)) / count
        heard = torch.relu(heard)
        if self.encoder == "gin":
            heard = torch.relu(self.more(heard))
        joined: Tensor = self.norm(z + heard)
        return joined


class GroupPolicy(Network[GraphInputs]):
    """Encode, parse, place."""

    def __init__(
        self,
        *,
        words: int,
        features: int,
        devices: int,
        hidden: int = 64,
        layers: int = 2,
        encoder: Encoder = "gcn",
        learned: bool = True,
        levels: int = 1,
        iterative: bool = False,
    ) -> None:
        super().__init__()
        self.devices = devices
        self.iterative = iterative
        self.levels = levels if learned else 0
        self.words = nn.Parameter(0.1 * torch.randn(words, WORD_WIDTH))
        self.enter = mlp(WORD_WIDTH + features + 2 * devices * iterative, hidden, hidden)
        self.layers = nn.ModuleList([Messages(hidden, encoder) for _ in range(layers)])
        self.join = nn.ModuleList([mlp(2 * hidden, hidden, 1) for _ in range(self.levels)])
        self.alone = nn.ModuleList([nn.Linear(hidden, 1) for _ in range(self.levels)])
        self.grow = nn.ModuleList([nn.Linear(hidden + 1, hidden) for _ in range(self.levels - 1)])
        with torch.no_grad():
            for name, value in self.alone.named_parameters():
                if name.endswith("bias"):
                    value.zero_()  # nothing speaks for or against staying alone
        self.place = mlp(2 * hidden, hidden, devices)

    def encode(self, inputs: GraphInputs, seen: Tensor | None = None) -> Tensor:  # [n, H]
        """Nodes with what is around them."""
        given = [inputs.words @ self.words, inputs.x]
        if self.iterative:
            own = nn.functional.one_hot((_nothing(inputs) if seen is None else seen) + 1, self.devices + 1)
            device = own[:, 1:].to(inputs.x.dtype)
            load = inputs.weight @ device / inputs.weight.sum().clamp(min=1e-12)
            given += [device, load.expand(len(device), -1)]
        z: Tensor = self.enter(torch.cat(given, dim=1))
        for layer in self.layers:
            z = layer(z, inputs.source, inputs.target)
        return z - z.mean(dim=0, keepdim=True)  # or one device for all is what is learnt first; see method.py

    @torch.no_grad()
    def sample(
        self, inputs: GraphInputs, samples: int, generator: torch.Generator, *, greedy: bool = False
    ) -> tuple[Tensor, Tensor]:
        """(actions [S, A], log p [S]); greedy: the best pick and the best device everywhere, in the first row.

        Iterative: every row has seen the one before; the greedy one has seen what would be best if nothing were seen.
        """
        if not self.iterative:
            return self._sample(inputs, self.encode(inputs), samples, generator, greedy)
        seen = _nothing(inputs)
        if greedy:
            actions, _ = self._sample(inputs, self.encode(inputs, seen), 1, generator, True)
            seen = self.placements(inputs, actions)[0]
        rows, log_p = [], []
        for s in range(samples):
            row, own = self._sample(inputs, self.encode(inputs, seen), 1, generator, greedy and s == 0)
            rows.append(torch.cat([seen[None, :], row], dim=1))
            log_p.append(own)
            seen = self.placements(inputs, row)[0]
        return torch.cat(rows), torch.cat(log_p)

    def _sample(
        self, inputs: GraphInputs, z: Tensor, samples: int, generator: torch.Generator, greedy: bool
    ) -> tuple[Tensor, Tensor]:
        count = len(z)
        labels = np.tile(np.arange(count), (samples, 1))
        columns: list[Tensor] = []
        log_p = torch.zeros(samples)
        for level in range(self.levels):
            noise = torch.rand(samples, count, generator=generator, dtype=torch.float64)
            parsed = self._parse(level, z, inputs, labels, noise, greedy)
            columns += [torch.from_numpy(parsed.picks), torch.from_numpy(parsed.labels)]
            labels = parsed.labels
            log_p += parsed.log_p
        groups = Groups.of(labels)
        logits = self._logits(z, inputs, groups)
        noise = torch.rand(len(logits), self.devices, generator=generator)
        gumbel = -torch.log((-torch.log(noise.clamp(min=1e-20))).clamp(min=1e-20))
        if greedy:
            gumbel[groups.row == 0] = 0.0
        chosen = (logits + gumbel).argmax(dim=1)
        own_log_p = torch.log_softmax(logits, dim=1).gather(1, chosen[:, None])[:, 0]
        log_p.index_add_(0, groups.row, own_log_p)
        return torch.cat([*columns, chosen[groups.of_node].reshape(samples, count)], dim=1), log_p

    def likelihood(self, inputs: GraphInputs, actions: Tensor) -> tuple[Tensor, Tensor]:
        """(log p, entropy), both [S, (L + 1) n]: of the picks of every level, then of the devices of groups."""
        if not self.iterative:
            return self._likelihood(inputs, self.encode(inputs), actions)
        count = len(inputs.x)
        found = [
            self._likelihood(inputs, self.encode(inputs, row[:count]), row[None, count:]) for row in actions
        ]
        return torch.cat([log_p for log_p, _ in found]), torch.cat([entropy for _, entropy in found])

    def _likelihood(self, inputs: GraphInputs, z: Tensor, actions: Tensor) -> tuple[Tensor, Tensor]:
        count, samples = len(z), len(actions)
        parts, spreads = [], []
        labels = np.tile(np.arange(count), (samples, 1))
        for level in range(self.levels):
            picks = actions[:, 2 * level * count : (2 * level + 1) * count].numpy()
            log_p, entropy = self._pick_likelihood(level, z, inputs, labels, picks)
            parts.append(log_p)
            spreads.append(entropy)
            labels = actions[:, (2 * level + 1) * count : (2 * level + 2) * count].numpy()
        groups = Groups.of(labels)
        table = torch.log_softmax(self._logits(z, inputs, groups), dim=1)
        chosen = actions[:, -count:].reshape(-1)[groups.slot]
        finite = table.masked_fill(torch.isinf(table), 0.0)
        spread = -(finite.exp() * finite).sum(dim=1)  # a masked device adds exp(0) * 0 = 0
        empty = torch.zeros(samples * count)
        own = table.gather(1, chosen[:, None])[:, 0]
        parts.append(empty.index_copy(0, groups.slot, own).reshape(samples, count))
        spreads.append(empty.index_copy(0, groups.slot, spread).reshape(samples, count))
        return torch.cat(parts, dim=1), torch.cat(spreads, dim=1)

    def placements(self, inputs: GraphInputs, actions: Tensor) -> Tensor:  # [S, n]
        """The device of every node."""
        return actions[:, -len(inputs.x) :]

    def renamed(self, inputs: GraphInputs, actions: Tensor, names: Tensor) -> Tensor:
        """The same groups on devices of other names."""
        count = len(inputs.x)
        return torch.cat([actions[:, :-count], names.gather(1, actions[:, -count:])], dim=1)

    @torch.no_grad()
    def hierarchy(self, inputs: GraphInputs) -> list[NDArray[np.int64]]:
        """The groups of every level as the policy prefers them, finest first; [n] labels each."""
        actions, _ = self.sample(inputs, 1, torch.Generator().manual_seed(0), greedy=True)
        columns = actions[0].reshape(-1, len(inputs.x)).numpy()
        return [columns[2 * level + 1 + self.iterative] for level in range(self.levels)]

    # Parsing

    def scores(self, level: int, z: Tensor, near: Neighbours) -> tuple[Tensor, Tensor]:
        """(log softmax of every choice [2m + n], the plain scores [m]); the score of a pair is the same both ways."""
        u, v = (torch.from_numpy(near.pairs[:, side]) for side in (0, 1))
        both: Tensor = self.join[level](torch.cat([z[u] * z[v], (z[u] - z[v]).abs()], dim=1))[:, 0]
        alone: Tensor = self.alone[level](z)[:, 0]
        owner, pair = torch.from_numpy(near.owner), torch.from_numpy(near.pair)
        single = pair == len(both)
        table = torch.where(single, alone[owner], torch.cat([both, both.new_zeros(1)])[pair])
        return softmax_by(table, owner, len(z)), both

    def _parse(
        self,
        level: int,
        z: Tensor,
        inputs: GraphInputs,
        labels: NDArray[np.int64],
        noise: Tensor,
        greedy: bool,
    ) -> _Parsed:
        """Draw one level for all samples: at once on the graph itself, one by one where every sample has its own."""
        if level == 0:
            return self._parse_graph(level, z, inputs.near, inputs.limits, noise, greedy)
        rows = []
        for s, label in enumerate(labels):
            heads, number = np.unique(label, return_inverse=True)
            near = Neighbours.of(len(heads), number[inputs.near.pairs])
            small = inputs.limits.of_groups(number, len(heads))
            pooled = self._pooled(level, z, number, len(heads))
            found = self._parse_graph(level, pooled, near, small, noise[s : s + 1, heads], greedy and s == 0)
            picks = np.full(len(label), -1, dtype=np.int64)
            picks[heads] = heads[found.picks[0]]
            rows.append((picks, heads[found.labels[0]][number], found.log_p))
        return _Parsed(
            np.stack([row[0] for row in rows]),
            np.stack([row[1] for row in rows]),
            torch.cat([row[2] for row in rows]),
        )

    def _parse_graph(
        self, level: int, z: Tensor, near: Neighbours, limits: Limits, noise: Tensor, greedy: bool
    ) -> _Parsed:
        log_p, scores = self.scores(level, z, near)
        table = log_p.double().numpy()
        end = np.cumsum(np.exp(table))
        begin = np.concatenate([[0.0], end])[near.first[:-1]]
        total = np.concatenate([[0.0], end])[near.first[1:]] - begin
        entry = np.searchsorted(end, begin + noise.numpy() * total, side="right")
        entry = np.clip(entry, near.first[:-1], near.first[1:] - 1)
        if greedy:
            entry[0] = best_entries(table, near)
        picks = near.other[entry]
        labels = partitions(picks, limits)
        if greedy:
            pair = np.unique(near.pair[entry[0]])
            pair = pair[pair < len(near.pairs)]
            by_score = pair[np.argsort(-scores.numpy()[pair], kind="stable")]
            labels[0] = joined(len(near), near.pairs[by_score], limits)
        return _Parsed(picks, labels, torch.from_numpy(table[entry].sum(axis=1)).float())

    def _pick_likelihood(
        self, level: int, z: Tensor, inputs: GraphInputs, labels: NDArray[np.int64], picks: NDArray[np.int64]
    ) -> tuple[Tensor, Tensor]:  # both [S, n]
        if level == 0:
            log_p, _ = self.scores(0, z, inputs.near)
            owner = torch.from_numpy(inputs.near.owner)
            spread = _sum(-(log_p.exp() * log_p), owner, len(z))
            return log_p[torch.from_numpy(inputs.near.entries(picks))], spread.expand(len(picks), -1)
        parts, spreads = [], []
        for label, pick in zip(labels, picks, strict=True):
            heads, number = np.unique(label, return_inverse=True)
            near = Neighbours.of(len(heads), number[inputs.near.pairs])
            log_p, _ = self.scores(level, self._pooled(level, z, number, len(heads)), near)
            place = torch.from_numpy(heads)
            empty = torch.zeros(len(label))
            own = log_p[torch.from_numpy(near.entries(number[pick[heads]]))]
            spread = _sum(-(log_p.exp() * log_p), torch.from_numpy(near.owner), len(heads))
            parts.append(empty.index_copy(0, place, own))
            spreads.append(empty.index_copy(0, place, spread))
        return torch.stack(parts), torch.stack(spreads)

    def _pooled(self, level: int, z: Tensor, number: NDArray[np.int64], count: int) -> Tensor:
        """Nodes of the graph of groups."""
        sizes = torch.from_numpy(np.bincount(number, minlength=count)).float()[:, None]
        mean = _sum(z, torch.from_numpy(number), count) / sizes
        grown: Tensor = self.grow[level - 1](torch.cat([mean, sizes.log()], dim=1))
        return mean + torch.relu(grown)

    # Placing

    def _logits(self, z: Tensor, inputs: GraphInputs, groups: Groups) -> Tensor:  # [all groups, K]
        """Masked logits of the groups of all samples, one after another."""
        weighted = torch.cat([z, inputs.weight[:, None] * z], dim=1)
        samples, count = groups.samples, len(z)
        total = groups.size[:, None]
        weights = groups.sums(inputs.weight[:, None])[:, 0]
        step = max(1, ROWS // max(1, count))
        parts = [
            groups.part(begin, min(samples, begin + step), weighted) for begin in range(0, samples, step)
        ]
        summed = torch.cat(parts)
        hidden = z.shape[1]
        mean, heavy = summed[:, :hidden] / total, summed[:, hidden:] / weights.clamp(min=1e-12)[:, None]
        logits: Tensor = self.place(torch.cat([mean, heavy], dim=1))
        if not bool(inputs.allowed.all()):
            barred = groups.sums((~inputs.allowed).float()) > 0
            logits = logits.masked_fill(barred, NEVER)
        return logits


@dataclass(frozen=True, slots=True, eq=False)
class Groups:
    """The groups of several samples, numbered one sample after another."""

    samples: int
    count: int  # nodes
    of_node: Tensor  # [S * n]; the number of each node's group
    slot: Tensor  # [group]; sample * n + lowest node
    row: Tensor  # [group]; sample
    size: Tensor  # [group]; nodes

    @staticmethod
    def of(labels: NDArray[np.int64]) -> Groups:
        """From labels [S, n]."""
        samples, count = labels.shape
        flat = (labels + np.arange(samples)[:, None] * count).reshape(-1)
        head = flat == np.arange(samples * count)
        number = np.cumsum(head) - 1
        of_node = torch.from_numpy(number[flat])
        slot = torch.from_numpy(np.flatnonzero(head))
        size = torch.bincount(of_node, minlength=len(slot)).float()
        return Groups(samples, count, of_node, slot, slot // max(1, count), size)

    def part(self, begin: int, end: int, values: Tensor) -> Tensor:
        """Sums of values [n, X] over the groups of some samples."""
        own = self.of_node[begin * self.count : end * self.count]
        first = int(own[0]) if len(own) else 0
        total = int(own.max()) + 1 - first if len(own) else 0
        many = values.expand(end - begin, -1, -1).reshape(-1, values.shape[1])
        return _sum(many, own - first, total)

    def sums(self, values: Tensor) -> Tensor:
        """Sums of values [n, X] over all groups."""
        return self.part(0, self.samples, values)


@dataclass(frozen=True, slots=True, eq=False)
class _Parsed:
    picks: NDArray[np.int64]  # [S, n]
    labels: NDArray[np.int64]  # [S, n]
    log_p: Tensor  # [S]


def best_entries(table: NDArray[np.float64], near: Neighbours) -> NDArray[np.int64]:  # [n]
    """The best choice of every node; of equal ones the first, which is the pair of the lowest id."""
    best = np.maximum.reduceat(table, near.first[:-1])
    place = np.where(table == best[near.owner], np.arange(len(table)), len(table))
    return np.asarray(np.minimum.reduceat(place, near.first[:-1]))


def _nothing(inputs: GraphInputs) -> Tensor:  # [n]
    """What is seen before there is a placement."""
    return torch.full((len(inputs.x),), -1, dtype=torch.int64)


def softmax_by(scores: Tensor, owner: Tensor, count: int) -> Tensor:
    """Log softmax over the scores of each owner."""
    most = scores.new_full((count,), NEVER).scatter_reduce(0, owner, scores.detach(), "amax")
    most = most.masked_fill(torch.isinf(most), 0.0)
    total = _sum((scores - most[owner]).exp(), owner, count).clamp(min=1e-30).log() + most
    return scores - total[owner]


def mlp(inputs: int, hidden: int, outputs: int) -> nn.Sequential:
    """Two layers."""
    return nn.Sequential(nn.Linear(inputs, hidden), nn.ReLU(), nn.Linear(hidden, outputs))


def _sum(values: Tensor, owner: Tensor, count: int) -> Tensor:
    """Sums of rows by owner."""
    return values.new_zeros((count, *values.shape[1:])).index_add(0, owner, values)
