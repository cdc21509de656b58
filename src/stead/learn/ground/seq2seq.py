"""Network blocks that several papers share: the sequence-to-sequence placer and the masks it decodes under.

Notation    G groups, F features, V words, H hidden width, K devices, S samples, W weights
            A width of the attention, C columns of adjacency
    counts  [G, V]     operators of each kind in a group
    x       [G, F]     features of groups, in decoding order
    near    [G, C]     their rows of adjacency
    mem     [G, H]     what the encoder makes of them; m1 = W1 mem [G, A]
    a       [S, G]     device of every group
    logits  [S, G, K]  C tanh(z / T), -inf where a device may not be chosen

    decoder step t: h, c = LSTM([e(a_{t-1}), mem_t], (h, c))          e has K + 1 rows, the last one means "start"
        score_i = v . tanh(m1_i + W2 h);  alpha = softmax(score);  ctx = sum_i alpha_i mem_i
        z = Wo [h, ctx]

With `follows` the decoder also sees n_t [K], the share of the bytes between group t and groups before it that lie on
each device: h, c = LSTM([e(a_{t-1}), mem_t, n_t], (h, c)) and z = Wo [h, ctx, n_t]. It begins by following n_t.

Sampling runs step by step without gradients. The likelihood of given placements is one call of the LSTM, because all
inputs are known then; both give the same numbers.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from stead.learn.ground.network import Network

CHUNK = 250_000  # floats of the attention that are computed at a time: they stay in the cache of a core
KEPT = (
    40_000_000  # floats of the attention that are kept for the backward pass; beyond, they are computed twice
)
FOLLOW = (
    1.5  # weight of n_t at the beginning; samples then differ by whole layers at first, not by single groups
)
NEVER = float("-inf")


@dataclass(frozen=True, slots=True, eq=False)
class Room:
    """Memory along the decoding order: which weights a group brings, and how many bytes every device has."""

    uses: Tensor  # [G, W]; 1 where a group uses a weight
    weight_bytes: Tensor  # [W]; float64
    held_bytes: Tensor  # [G]; float64; outputs that stay
    capacity: Tensor  # [K]; float64

    def begin(self, samples: int) -> tuple[Tensor, Tensor]:
        """(resident weights [S, K, W], bytes [S, K]) of empty devices."""
        devices, weights = len(self.capacity), len(self.weight_bytes)
        resident = torch.zeros(samples, devices, weights, dtype=torch.bool)
        return resident, torch.zeros(samples, devices, dtype=torch.float64)

    def fits(self, t: int, state: tuple[Tensor, Tensor], allowed: Tensor) -> Tensor:  # [S, K]
        """Allowed devices that have room for group t; the least overfull one where none has."""
        after = state[1] + self._added(t, state[0])
        over = (after - self.capacity) / self.capacity
        over = torch.where(allowed, over, torch.inf)
        mask = (over <= 0) & allowed
        none = ~mask.any(dim=1)
        if none.any():
            least = torch.zeros_like(mask).scatter_(1, over.argmin(dim=1, keepdim=True), True)
            mask = torch.where(none[:, None], least, mask)
        return mask

    def place(self, t: int, chosen: Tensor, state: tuple[Tensor, Tensor]) -> None:
        """Put group t of every sample on its device."""
        resident, used = state
        samples = torch.arange(len(chosen))
        used[samples, chosen] += self._added(t, resident)[samples, chosen]
        resident[samples, chosen] |= self.uses[t] > 0

    def masks(self, actions: Tensor, allowed: Tensor) -> Tensor:  # [S, G, K]
        """The masks under which given placements would have been decoded."""
        state, found = self.begin(len(actions)), []
        for t in range(actions.shape[1]):
            found.append(self.fits(t, state, allowed[t]))
            self.place(t, actions[:, t], state)
        return torch.stack(found, dim=1)

    def _added(self, t: int, resident: Tensor) -> Tensor:  # [S, K]
        own = torch.nonzero(self.uses[t]).flatten()
        fresh = (~resident[:, :, own]).double() @ self.weight_bytes[own]
        return fresh + self.held_bytes[t]


@dataclass(frozen=True, slots=True, eq=False)
class Inputs:
    """What a network sees of one grouped problem."""

    counts: Tensor  # [G, V]
    x: Tensor  # [G, F]
    near: Tensor  # [G, C]
    ties: Tensor  # [G, G]; share of the bytes of a group that it exchanges with each group before it
    allowed: Tensor  # [G, K]
    room: Room | None = None  # None where memory is ample or is not looked at

    def masks(self, actions: Tensor) -> Tensor:  # [S, G, K]
        """Devices that could be chosen at every step of given placements."""
        if self.room is None:
            return self.allowed.expand(len(actions), -1, -1)
        return self.room.masks(actions, self.allowed)


def drawn(logits: Tensor, generator: torch.Generator) -> Tensor:
    """One choice of every row, with the probabilities of its softmax; -inf is never chosen."""
    noise = torch.rand(logits.shape, generator=generator)
    gumbel = -torch.log((-torch.log(noise.clamp(min=1e-20))).clamp(min=1e-20))
    return (logits + gumbel).argmax(dim=-1)


class Seq2Seq(Network[Inputs]):
    """Encoder over groups, attentional decoder over devices."""

    def __init__(
        self,
        *,
        words: int,
        features: int,
        near: int,
        devices: int,
        hidden: int = 128,
        attention: int = 32,
        word_width: int = 20,
        bidirectional: bool = True,
        scale: float = 5.0,
        temperature: float = 1.0,
        mean_words: bool = True,
        follows: bool = True,
        follow: float = FOLLOW,
        opinions: bool = False,
    ) -> None:
        super().__init__()
        self.devices, self.scale, self.temperature = devices, scale, temperature
        self.mean_words, self.follows = mean_words, follows
        seen = devices if follows else 0
        self.words = nn.Parameter(0.1 * torch.randn(words, word_width))
        self.join = nn.Linear(word_width + features, hidden)
        self.near = nn.Linear(near, hidden, bias=False)
        nn.init.normal_(self.near.weight, std=0.5)  # rows of adjacency are sparse and sum to 1
        each = hidden // 2 if bidirectional else hidden
        self.encoder = nn.LSTM(hidden, each, bidirectional=bidirectional, batch_first=True)
        self.device_embedding = nn.Embedding(devices + 1, hidden)
        nn.init.normal_(self.device_embedding.weight, std=0.1)  # louder, the last choice drowns the group
        self.decoder = nn.LSTM(2 * hidden + seen, hidden, batch_first=True)
        self.w1 = nn.Linear(hidden, attention, bias=False)
        self.w2 = nn.Linear(hidden, attention, bias=False)
        self.v = nn.Parameter(torch.randn(attention) / math.sqrt(attention))
        self.out = nn.Linear(2 * hidden + seen, devices)
        if follows:
            with torch.no_grad():
                self.out.weight[:, -devices:] = follow * torch.eye(devices)
        if opinions:  # instead of what the decoder chooses
            self.say = nn.Linear(hidden, hidden)
            nn.init.zeros_(self.say.weight)
            nn.init.zeros_(self.say.bias)

    def encode(self, inputs: Inputs) -> tuple[Tensor, Tensor]:
        """(mem, m1), shared by all samples."""
        share = inputs.counts
        if self.mean_words:
            share = share / share.sum(dim=1, keepdim=True).clamp(min=1.0)
        joined = torch.tanh(
            self.join(torch.cat([share @ self.words, inputs.x], dim=1)) + self.near(inputs.near)
        )
        mem = joined + self.encoder(joined[None])[0][0]  # what a group is must not drown in what is around it
        return mem, self.w1(mem)

    def codes(self, inputs: Inputs) -> tuple[Tensor, Tensor]:  # [G, H], [G, K, H]
        """What is made of every group, and of every device, for opinions that walks follow."""
        mem, _ = self.encode(inputs)
        named = self.device_embedding.weight[: self.devices]
        named = nn.functional.layer_norm(named, named.shape[1:])  # as loud as groups are
        return mem, named.expand(len(mem), -1, -1)

    @torch.no_grad()
    def sample(
        self, inputs: Inputs, samples: int, generator: torch.Generator, *, greedy: bool = False
    ) -> tuple[Tensor, Tensor]:
        """(a [S, G], log p [S]); greedy: the likeliest device at every step, in the first row."""
        mem, m1 = self.encode(inputs)
        weights = [
            getattr(self.decoder, name)
            for name in ("weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "bias_hh_l0")
        ]
        h = c = mem.new_zeros(samples, mem.shape[1])
        last = torch.full((samples,), self.devices)
        state = inputs.room.begin(samples) if inputs.room is not None else None
        placed = torch.zeros(samples, len(mem), self.devices)
        log_p = torch.zeros(samples)
        for t in range(len(mem)):
            beside = inputs.ties[t] @ placed if self.follows else placed[:, 0, :0]
            step = torch.cat([self.device_embedding(last), mem[t].expand(samples, -1), beside], dim=1)
            h, c = torch.lstm_cell(step, (h, c), *weights)
            allowed = inputs.allowed[t].expand(samples, -1)
            if inputs.room is not None and state is not None:
                allowed = inputs.room.fits(t, state, inputs.allowed[t])
            logits = self._logits(h, beside, mem, m1).masked_fill(~allowed, NEVER)
            last = drawn(logits, generator)
            if greedy:
                last[0] = logits[0].argmax()
            log_p += torch.log_softmax(logits, dim=1).gather(1, last[:, None])[:, 0]
            if inputs.room is not None and state is not None:
                inputs.room.place(t, last, state)
            placed[:, t].scatter_(1, last[:, None], 1.0)
        return placed.argmax(dim=2), log_p

    def placements(self, inputs: Inputs, actions: Tensor) -> Tensor:  # [S, G]
        """Actions are the devices of groups."""
        return actions

    def renamed(self, inputs: Inputs, actions: Tensor, names: Tensor) -> Tensor:  # [S, G]
        """The same placements with other names of devices."""
        return names.gather(1, actions)

    def likelihood(self, inputs: Inputs, actions: Tensor) -> tuple[Tensor, Tensor]:
        """(log p of every choice [S, G], entropy of every choice [S, G]) of given placements."""
        logits = self.logits(inputs, actions).masked_fill(~inputs.masks(actions), NEVER)
        log_p = torch.log_softmax(logits, dim=2)
        finite = log_p.masked_fill(torch.isinf(log_p), 0.0)
        entropy = -(finite.exp() * finite).sum(dim=2)  # a masked device adds exp(0) * 0 = 0
        return log_p.gather(2, actions[:, :, None])[:, :, 0], entropy

    def logits(self, inputs: Inputs, actions: Tensor) -> Tensor:  # [S, G, K]
        """Logits before masks, with the given placements as decoder inputs."""
        mem, m1 = self.encode(inputs)
        samples, groups = actions.shape
        before = torch.cat([torch.full((samples, 1), self.devices), actions[:, :-1]], dim=1)
        placed = nn.functional.one_hot(actions, self.devices).to(mem.dtype)
        beside = inputs.ties @ placed if self.follows else placed[:, :, :0]
        steps = torch.cat([self.device_embedding(before), mem.expand(samples, -1, -1), beside], dim=2)
        h = self.decoder(steps)[0].reshape(samples * groups, -1)
        beside = beside.reshape(samples * groups, -1)
        rows = max(1, CHUNK // max(1, m1.numel()))
        twice = len(h) * m1.numel() > KEPT and torch.is_grad_enabled()
        parts = [
            checkpoint(self._logits, *part, mem, m1, use_reentrant=False)
            if twice
            else self._logits(*part, mem, m1)
            for part in zip(torch.split(h, rows), torch.split(beside, rows), strict=True)
        ]
        return torch.cat(parts).reshape(samples, groups, self.devices)

    def _logits(self, h: Tensor, beside: Tensor, mem: Tensor, m1: Tensor) -> Tensor:  # h [B, H] -> [B, K]
        scores = torch.tanh(m1[None] + self.w2(h)[:, None]) @ self.v
        context = torch.softmax(scores, dim=1) @ mem
        z: Tensor = self.out(torch.cat([h, context, beside], dim=1))
        return self.scale * torch.tanh(z / self.temperature)
