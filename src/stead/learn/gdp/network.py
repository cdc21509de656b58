"""The network of GDP: graph embedding, segment-recurrent attention, superposition, logits of every device at once.

Notation    N nodes (operators or units), M units that are placed, E edges, K devices, H width, P segment length,
            S samples, V words, F features
    h  [N, H]         what the graph embedding makes of a node
    x  [N, H]         the same in every layer; nodes are in topological order, P after P of them make a segment
    g  [G]            the graph as a whole;  c_l = 2 sigmoid(W_l g) gates the input of layer l and the output
    z  [M, K]         logits C tanh(z / C)
    q  [M, CLASSES]   logits of priorities, if there is a head for them

    embedding, 3 rounds:  m = sigmoid(W h + b);  a_v = max of m over neighbours, 0 without any
                          h = LN(h + relu(f([h, a_in, a_out])))
    layer l:              memory of a segment = input of layer l of the segment before it, without gradient
                          x = LN(x + Wo attention(Wq x, Wk [memory, x], Wv [memory, x]));  x = LN(x + W2 relu(W1 x))
    head:                 z(v, d) = u_v . w_d / sqrt(H) + (M u_v) . b(v on d);  w_d = MLP(features of d) + embedding of
                          its number;  b: MLP to 16 numbers that each node weighs by itself
    priorities:           q = Q layer(J [u_v, sum_d p(d | v) b(v on d)]), one more layer that knows where units will be

The inputs of a layer are known for all segments when the layer starts, so that there is no loop over segments (see
fast_ops.py). A device has a number besides its features because equal devices would otherwise have equal logits.
Without `ordinals` the first term is left out: then devices differ only by how well a node lies on them, which is what
other graphs have in common.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from stead.learn.gdp.coherence import drawn_together
from stead.learn.gdp.fast_ops import AT_ONCE, FeedForward, LargestMessage, SegmentAttention
from stead.learn.ground.network import Network
from stead.learn.ground.policy import NOTHING_SEEN, Seen
from stead.learn.ground.priorities import CLASSES, MIDDLE
from stead.learn.ground.seq2seq import NEVER, Room

SHARP = 4.0  # factor of the logits of priorities: a certainty to begin with, that can be unlearnt
INNER = 256  # width between the two halves of a feed-forward block
BESIDE, WEIGHED = 32, 16  # widths of the part of the head that looks at a node on a device
MOST_DEVICES = 16


@dataclass(frozen=True, slots=True, eq=False)
class Neighbours:
    """For every node the nodes on the other side of its edges, one node after another."""

    nodes: Tensor  # [E]
    lengths: Tensor  # [N]


@dataclass(frozen=True, slots=True, eq=False)
class GraphInputs:
    """What the network sees of one problem."""

    words: Tensor  # [N, V]; share of each kind of operator in a node
    numbers: Tensor  # [N, F]
    near: tuple[Neighbours, ...]  # producers and readers, or both as one
    beside: Tensor  # [N, K, beside]; relative seconds and permission of a node on a device, distances from its part
    devices: Tensor  # [K, D]
    whole: Tensor  # [W]; numbers about graph and cluster
    unit: Tensor | None  # [N]; None where nodes are the units
    allowed: Tensor  # [M, K]
    room: Room | None = None  # None where memory is ample or is not looked at
    ordered: bool = False  # whether priorities are chosen, too
    shared: tuple[Tensor | None, ...] = (None,)  # of [M]; whose noise units share, by samples in turn (coherence.py)
    seen: Seen = NOTHING_SEEN  # what was simulated for it


@dataclass(frozen=True, slots=True)
class Shape:
    """Sizes and switches of a network."""

    words: int
    features: int
    device_features: int
    whole_features: int
    beside_features: int
    hidden: int = 64
    rounds: int = 3
    layers: int = 2
    heads: int = 4
    segment: int = 128
    directions: int = 2  # neighbourhoods of the embedding
    attention: bool = True
    superposition: bool = True
    ordinals: bool = True
    residual: bool = True  # of the embedding, with LayerNorm
    fixed_devices: int = 0  # a plain linear head for at most so many devices; 0: from features of devices
    scale: float = 5.0
    priorities: bool = False  # a second head, for the order of units


class Round(nn.Module):
    """One round of the graph embedding."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.residual = shape.residual
        self.message = nn.ModuleList([nn.Linear(shape.hidden, shape.hidden) for _ in range(shape.directions)])
        self.join = nn.Linear((1 + shape.directions) * shape.hidden, shape.hidden)
        self.norm = nn.LayerNorm(shape.hidden) if shape.residual else nn.Identity()

    def forward(self, h: Tensor, near: tuple[Neighbours, ...]) -> Tensor:  # [N, H]
        weight = torch.split(self.join.weight.T, h.shape[1])  # of the node itself and of each direction
        joined = torch.addmm(self.join.bias, h, weight[0])
        for message, side, own in zip(self.message, near, weight[1:], strict=True):
            joined = joined.addmm_(largest(message(h).sigmoid_(), side), own)
        joined = joined.relu_()
        found: Tensor = self.norm(h + joined) if self.residual else joined
        return found


class Layer(nn.Module):
    """Attention over a segment and the one before it, then a feed-forward block."""

    def __init__(self, hidden: int, heads: int, *, attention: bool = True) -> None:
        super().__init__()
        self.heads, self.attention = heads, attention
        if attention:
            self.query = nn.Linear(hidden, hidden)
            self.key_value = nn.Linear(hidden, 2 * hidden)
            self.out = nn.Linear(hidden, hidden)
            self.norm = nn.LayerNorm(hidden)
        self.inner = nn.Linear(hidden, INNER)
        self.outer = nn.Linear(INNER, hidden)
        self.last_norm = nn.LayerNorm(hidden)

    def forward(self, x: Tensor, segment: int) -> Tensor:  # [N, H]
        """All segments at once; block by block where nothing is kept for gradients, to stay in the cache of a core."""
        if torch.is_grad_enabled() or len(x) <= AT_ONCE:
            return self.all_at_once(x, segment)
        found, step = torch.empty_like(x), max(1, AT_ONCE // segment) * segment
        for begin in range(0, len(x), step):
            before = min(begin, segment)
            found[begin : begin + step] = self.all_at_once(x[begin - before : begin + step], segment)[before:]
        return found

    def all_at_once(self, x: Tensor, segment: int) -> Tensor:  # [N, H]
        """Nodes from the beginning of a segment on; nothing is before them."""
        if self.attention:
            weight = torch.cat([self.query.weight, self.key_value.weight])
            bias = torch.cat([self.query.bias, self.key_value.bias])
            mixed = SegmentAttention.apply(x, weight, bias, self.heads, segment)  # type: ignore[no-untyped-call]
            x = self.norm(x + self.out(mixed))
        inner, outer = self.inner, self.outer
        passed = FeedForward.apply(x, inner.weight, inner.bias, outer.weight, outer.bias)  # type: ignore[no-untyped-call]
        found: Tensor = self.last_norm(x + passed)
        return found


class Ordering(nn.Module):
    """Logits of priorities, from what was read of every node and where it will be."""

    def __init__(self, hidden: int, heads: int, segment: int) -> None:
        super().__init__()
        self.segment = segment
        self.join = nn.Linear(hidden + WEIGHED, hidden)
        self.layer = Layer(hidden, heads)
        self.head = nn.Linear(hidden, CLASSES)
        nn.init.zeros_(self.head.weight)  # at the beginning one unit in twenty leaves the middle
        nn.init.zeros_(self.head.bias)
        self.head.bias.data[MIDDLE] = math.log(19 * (CLASSES - 1)) / SHARP

    def forward(self, u: Tensor, where: Tensor) -> Tensor:  # [N, H], [N, WEIGHED] -> [N, CLASSES]
        joined = self.join(torch.cat([u, where], dim=1))
        q: Tensor = SHARP * self.head(self.layer(joined, self.segment))
        return q


class GraphPlacer(Network[GraphInputs]):
    """Devices of all units in one pass."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape, half, hidden = shape, shape.hidden // 2, shape.hidden
        self.words = nn.Parameter(torch.randn(shape.words, half) / math.sqrt(half))
        self.numbers = nn.Linear(shape.features, hidden - half)
        self.rounds = nn.ModuleList([Round(shape) for _ in range(shape.rounds)])
        self.layers = nn.ModuleList(
            [Layer(hidden, shape.heads, attention=shape.attention) for _ in range(shape.layers)]
        )
        if shape.superposition:
            gates = [nn.Linear(2 * hidden + shape.whole_features, hidden) for _ in range(shape.layers + 1)]
            for gate in gates:
                nn.init.zeros_(gate.weight)  # every gate is 1 at the beginning
                nn.init.zeros_(gate.bias)
            self.gates = nn.ModuleList(gates)
        if shape.fixed_devices:
            self.plain = nn.Linear(hidden, shape.fixed_devices)
        else:
            if shape.ordinals:
                self.device = nn.Sequential(
                    nn.Linear(shape.device_features, hidden), nn.ReLU(), nn.Linear(hidden, hidden)
                )
                self.ordinal = nn.Embedding(MOST_DEVICES, hidden)
            self.beside = nn.Sequential(
                nn.Linear(shape.beside_features, BESIDE), nn.ReLU(inplace=True), nn.Linear(BESIDE, WEIGHED)
            )
            self.weigh = nn.Linear(hidden, WEIGHED)
            nn.init.zeros_(self.weigh.weight)  # no opinion about any cut at the beginning
            nn.init.zeros_(self.weigh.bias)
        if shape.priorities:
            self.ordering = Ordering(hidden, shape.heads, shape.segment)

    # What training asks for

    @torch.no_grad()
    def sample(
        self, inputs: GraphInputs, samples: int, generator: torch.Generator, *, greedy: bool = False
    ) -> tuple[Tensor, Tensor]:
        """(devices and classes of units [S, A], log p [S]); greedy: the likeliest everywhere, in the first row."""
        drawn, total = [], torch.zeros(samples)
        for number, log_p in enumerate(self.tables(inputs)):
            part = torch.multinomial(
                log_p.exp(), samples, replacement=True, generator=generator
            ).T.contiguous()
            for turn, group in enumerate(inputs.shared if number == 0 else ()):  # priorities stay each for itself
                if group is not None:
                    rows = part[turn :: len(inputs.shared)]
                    rows[:] = drawn_together(log_p, group, len(rows), generator)
            if greedy:
                part[0] = log_p.argmax(dim=1)
            drawn.append(part)
            total = total + chosen(log_p, part).sum(dim=1)
        return torch.cat(drawn, dim=1), total

    def likelihood(self, inputs: GraphInputs, actions: Tensor) -> tuple[Tensor, Tensor]:
        """(log p [S, A], entropy [S, A]); all samples share one pass."""
        found, entropy = [], []
        parts = torch.split(actions, max(1, len(inputs.allowed)), dim=1)
        for log_p, part in zip(self.tables(inputs), parts, strict=True):
            finite = log_p.masked_fill(torch.isinf(log_p), 0.0)
            found.append(chosen(log_p, part))
            entropy.append(-(finite.exp() * finite).sum(dim=1))
        return torch.cat(found, dim=1), torch.cat(entropy).expand(len(actions), -1)

    def placements(self, inputs: GraphInputs, actions: Tensor) -> Tensor:  # [S, A]
        """The devices chosen, where units for which there is no room move, and the classes."""
        if inputs.room is None:
            return actions
        units = len(inputs.allowed)
        moved = repaired(actions[:, :units], inputs.room, inputs.allowed)
        return torch.cat([moved, actions[:, units:]], dim=1)

    def renamed(self, inputs: GraphInputs, actions: Tensor, names: Tensor) -> Tensor:  # [S, A]
        """The same rows with other names of devices."""
        rows, units = self.placements(inputs, actions), len(inputs.allowed)
        return torch.cat([names.gather(1, rows[:, :units]), rows[:, units:]], dim=1)

    # What walks follow

    @property
    def say(self) -> nn.Linear:
        """What a node weighs the devices by; zero at the beginning."""
        return self.weigh

    def codes(self, inputs: GraphInputs) -> tuple[Tensor, Tensor]:  # [N, H], [N, K, WEIGHED]
        """What is made of every node, and what it finds on every device."""
        return self.read(inputs), self.found(inputs.beside)

    # The pass

    def tables(self, inputs: GraphInputs) -> list[Tensor]:  # [M, K] and, with priorities, [M, CLASSES]
        """log p of every device and of every class for every unit; -inf where a unit may not be."""
        u = self.read(inputs)
        b = self.found(inputs.beside)
        z = self.capped(by_unit(self.node_logits(u, b, inputs), inputs))
        log_p = torch.log_softmax(z.masked_fill(~inputs.allowed, NEVER), dim=1)
        if not (self.shape.priorities and inputs.ordered):
            return [log_p]
        share = log_p.exp() if inputs.unit is None else log_p.exp()[inputs.unit]
        q: Tensor = self.ordering(u, (share[:, :, None] * b).sum(dim=1))
        return [log_p, torch.log_softmax(by_unit(q, inputs), dim=1)]

    def logits(self, inputs: GraphInputs) -> Tensor:  # [M, K]
        """Of devices, before masks: those of a unit are the mean of those of its nodes."""
        z = self.node_logits(self.read(inputs), self.found(inputs.beside), inputs)
        return self.capped(by_unit(z, inputs))

    def capped(self, z: Tensor) -> Tensor:
        """Logits that stay within the scale."""
        return self.shape.scale * torch.tanh(z / self.shape.scale)

    def read(self, inputs: GraphInputs) -> Tensor:  # [N, H]
        """What embedding and attention make of every node."""
        h = self.embedded(inputs)
        gates = self.gated(h, inputs.whole)
        x = self.attended(h, gates)
        return x if gates is None else x * gates[-1]

    def node_logits(self, u: Tensor, b: Tensor, inputs: GraphInputs) -> Tensor:  # [N, K]
        """What every node would choose by itself."""
        if self.shape.fixed_devices:
            plain: Tensor = self.plain(u)[:, : len(inputs.devices)]
            return plain
        z: Tensor = (b * self.weigh(u)[:, None]).sum(dim=2)
        if self.shape.ordinals:
            w = self.device(inputs.devices) + self.ordinal.weight[: len(inputs.devices)]
            z = u @ w.T / math.sqrt(self.shape.hidden) + z
        return z

    def found(self, beside: Tensor) -> Tensor:  # [N, K, WEIGHED]
        """What every node finds on every device; as given where the head does not look at that."""
        if self.shape.fixed_devices:
            return beside
        b: Tensor = self.beside(beside.flatten(0, 1))  # flat: gradients of what is done in place on a view are copied
        return b.view(*beside.shape[:2], WEIGHED)

    def embedded(self, inputs: GraphInputs) -> Tensor:  # [N, H]
        """Rounds of messages over the edges."""
        h = torch.cat([inputs.words @ self.words, self.numbers(inputs.numbers)], dim=1)
        for one in self.rounds:
            h = one(h, inputs.near)
        return h

    def gated(self, h: Tensor, whole: Tensor) -> list[Tensor] | None:  # [layer] of [H]
        """The gates of superposition."""
        if not self.shape.superposition:
            return None
        g = torch.cat([h.mean(dim=0), h.amax(dim=0), whole])
        return [2 * torch.sigmoid(gate(g)) for gate in self.gates]

    def attended(self, h: Tensor, gates: list[Tensor] | None) -> Tensor:  # [N, H]
        """All segments through all layers."""
        for number, layer in enumerate(self.layers):
            h = layer(h if gates is None else h * gates[number], self.shape.segment)
        return h


def by_unit(z: Tensor, inputs: GraphInputs) -> Tensor:  # [M, ...]
    """Means over the nodes of every unit."""
    if inputs.unit is None:
        return z
    units = len(inputs.allowed)
    total = z.new_zeros(units, z.shape[1]).index_add(0, inputs.unit, z)
    return total / torch.bincount(inputs.unit, minlength=units).clamp(min=1)[:, None]


def largest(messages: Tensor, near: Neighbours) -> Tensor:  # [N, H]
    """The largest message of the neighbours of every node; 0 where there are none, which messages are above."""
    if not len(near.nodes):
        return torch.zeros_like(messages)
    found: Tensor = LargestMessage.apply(messages, near.nodes, near.lengths)  # type: ignore[no-untyped-call]
    return found


def chosen(log_p: Tensor, actions: Tensor) -> Tensor:  # [S, M]
    """log p of every choice."""
    return log_p.gather(1, actions.T).T


def repaired(actions: Tensor, room: Room, allowed: Tensor) -> Tensor:  # [S, M]
    """Rows that fit: a device that once had no room for a unit is closed to all later ones.

    They follow the unit before them if they can, or else go where most room is left, so that what moves moves together.
    """
    full = (loads(actions, room) > room.capacity).any(dim=1)
    rows = actions[full]
    if not len(rows):
        return actions
    rows, state = rows.clone(), room.begin(len(rows))
    closed = torch.zeros(len(rows), len(room.capacity), dtype=torch.bool)
    for t in range(rows.shape[1]):
        fits = room.fits(t, state, allowed[t])
        closed |= ~fits & (nn.functional.one_hot(rows[:, t], closed.shape[1]) > 0) & allowed[t]
        open_ = torch.where((fits & ~closed).any(dim=1, keepdim=True), fits & ~closed, fits)
        free = torch.where(open_, (room.capacity - state[1]) / room.capacity, NEVER)
        free.scatter_add_(1, rows[:, max(0, t - 1), None], torch.full((len(rows), 1), 1e3, dtype=free.dtype))
        stays = open_.gather(1, rows[:, t : t + 1])[:, 0]
        rows[:, t] = torch.where(stays, rows[:, t], free.argmax(dim=1))
        room.place(t, rows[:, t], state)
    found = actions.clone()
    found[full] = rows
    return found


def loads(actions: Tensor, room: Room) -> Tensor:  # [S, K]
    """Bytes of weights and of outputs that stay on every device."""
    found = []
    uses = room.uses.float()
    for d in range(len(room.capacity)):
        here = (actions == d).float()
        found.append(((here @ uses) > 0).double() @ room.weight_bytes + here.double() @ room.held_bytes)
    return torch.stack(found, dim=1)
