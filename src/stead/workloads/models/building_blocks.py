"""What several models are made of: inputs, the loss, recurrent cells, attention, normalised convolutions."""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

DTYPES = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}


class Built(NamedTuple):
    """A model, the inputs of one step and the loss of its outputs."""

    module: nn.Module
    inputs: tuple[Tensor, ...]
    loss: CrossEntropy


def tokens(batch: int, length: int, vocabulary: int) -> Tensor:  # [batch, length]
    """Words of random texts."""
    return torch.randint(vocabulary, (batch, length))


def images(batch: int, side: int) -> Tensor:  # [batch, 3, side, side]
    """Random pictures."""
    return torch.randn(batch, 3, side, side)


class CrossEntropy:
    """The loss of scores [..., class] against the classes they should give."""

    def __init__(self, targets: Tensor) -> None:
        self.targets = targets

    def __call__(self, scores: Tensor, targets: Tensor | None = None) -> Tensor:
        """The mean over all positions, against the own targets or others of their shape."""
        wanted = self.targets if targets is None else targets
        return F.cross_entropy(scores.reshape(-1, scores.shape[-1]), wanted.reshape(-1))


def in_dtype(
    module: nn.Module, inputs: tuple[Tensor, ...], dtype: str
) -> tuple[nn.Module, tuple[Tensor, ...]]:
    """The module and its inputs with floating-point numbers of that type."""
    wanted = DTYPES[dtype]
    if wanted is torch.float32:
        return module, inputs
    return module.to(wanted), tuple(one.to(wanted) if one.is_floating_point() else one for one in inputs)


class LSTMCell(nn.Module):
    """One step of one LSTM layer; one product of [input, state] gives all gates."""

    FORGET_BIAS = 1.0

    def __init__(self, inputs: int, hidden: int) -> None:
        super().__init__()
        self.hidden = hidden
        self.gates = nn.Linear(inputs + hidden, 4 * hidden)

    def start(self, like: Tensor) -> tuple[Tensor, Tensor]:
        """The state before the first step of a batch."""
        return like.new_zeros(len(like), self.hidden), like.new_zeros(len(like), self.hidden)

    def forward(self, x: Tensor, h: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
        i, f, g, o = self.gates(torch.cat([x, h], dim=-1)).chunk(4, dim=-1)
        c = torch.sigmoid(f + self.FORGET_BIAS) * c + torch.sigmoid(i) * torch.tanh(g)
        return torch.sigmoid(o) * torch.tanh(c), c


def split_heads(x: Tensor, heads: int) -> Tensor:
    """[batch, length, heads * width] as [batch, heads, length, width]."""
    return x.view(x.shape[0], x.shape[1], heads, -1).transpose(1, 2)


def join_heads(x: Tensor) -> Tensor:
    """The reverse of `split_heads`."""
    return x.transpose(1, 2).reshape(x.shape[0], x.shape[2], -1)


def causal_mask(length: int, reach: int, like: Tensor) -> Tensor:  # [length, reach]
    """What to add to scores so that nobody looks ahead, if the last `length` of `reach` positions ask."""
    none = torch.full((length, reach), float("-inf"), dtype=like.dtype, device=like.device)
    return none.triu(1 + reach - length)


def attend(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    fused: bool,
    causal: bool = False,
    mask: Tensor | None = None,
    dropout: float = 0.0,
) -> Tensor:
    """Scaled dot-product attention of [batch, heads, length, width].

    Fused it is one operator, which knows by itself how not to look ahead; otherwise its parts, with a mask to add.
    """
    if fused:
        return F.scaled_dot_product_attention(q, k, v, is_causal=causal, dropout_p=dropout)
    scores = torch.matmul(q, k.transpose(2, 3)) * q.shape[-1] ** -0.5
    if mask is not None:
        scores = scores + mask
    weights = torch.softmax(scores, dim=-1)
    if dropout:
        weights = F.dropout(weights, dropout)
    return torch.matmul(weights, v)


class ConvNorm(nn.Module):
    """A convolution and batch normalisation."""

    def __init__(
        self,
        inputs: int,
        outputs: int,
        window: int | tuple[int, int],
        *,
        stride: int = 1,
        padding: int | tuple[int, int] = 0,
        epsilon: float = 1e-5,
    ) -> None:
        super().__init__()
        self.conv = nn.Conv2d(inputs, outputs, window, stride, padding, bias=False)
        self.norm = nn.BatchNorm2d(outputs, eps=epsilon)

    def forward(self, x: Tensor) -> Tensor:
        normed: Tensor = self.norm(self.conv(x))
        return normed


class ConvNormRelu(ConvNorm):
    """A convolution, batch normalisation and ReLU."""

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(super().forward(x))


class RMSNorm(nn.Module):
    """Normalisation by the root mean square, in single precision."""

    def __init__(self, width: int, epsilon: float = 1e-6) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.epsilon = epsilon

    def forward(self, x: Tensor) -> Tensor:
        wide = x.float()
        normed = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + self.epsilon)
        return self.weight * normed.to(x.dtype)
