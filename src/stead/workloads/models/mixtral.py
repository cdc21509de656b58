"""Mixtral: Llama's layers with eight experts in place of the feed-forward part, two of them for every word.

Jiang et al., "Mixtral of Experts", 2024. Every expert is a module of its own that works on a fixed number of words,
so that shapes are static and experts can be placed one by one. An expert takes the words that want it most; words
beyond its capacity lose that expert, and spare places are filled with words that give it weight 0.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from stead.workloads.models.building_blocks import Built, CrossEntropy, in_dtype, tokens
from stead.workloads.models.llama import FeedForward, Llama


class Experts(nn.Module):
    """A router and its experts."""

    def __init__(self, width: int, inner: int, experts: int, chosen: int, slack: float) -> None:
        super().__init__()
        self.chosen, self.slack = chosen, slack
        self.router = nn.Linear(width, experts, bias=False)
        self.experts = nn.ModuleList([FeedForward(width, inner) for _ in range(experts)])

    def forward(self, x: Tensor) -> Tensor:
        words = x.reshape(-1, x.shape[-1])
        best, which = torch.topk(self.router(words), self.chosen, dim=-1)
        shares = torch.softmax(best.float(), dim=-1).to(x.dtype)
        weights = words.new_zeros(len(words), len(self.experts)).scatter(1, which, shares)
        fair = self.chosen * len(words) / len(self.experts)
        capacity = min(len(words), math.ceil(fair * self.slack))
        total = torch.zeros_like(words)
        for number, expert in enumerate(self.experts):
            weight, taken = torch.topk(weights[:, number], capacity)
            made = expert(words.index_select(0, taken)) * weight.unsqueeze(1)
            total = total.index_add(0, taken, made)
        return total.view(x.shape)


def build(
    *,
    layers: int,
    width: int,
    heads: int,
    key_heads: int,
    inner: int,
    experts: int,
    chosen: int,
    slack: float,
    vocabulary: int,
    batch: int,
    length: int,
    attention: str,
    dtype: str,
) -> Built:
    """The model, a batch of prompts and the loss of predicting the next word."""
    module = Llama(
        layers, width, heads, key_heads, vocabulary, False, attention == "fused",
        lambda: Experts(width, inner, experts, chosen, slack),
    )  # fmt: skip
    inputs = (tokens(batch, length, vocabulary),)
    return Built(*in_dtype(module, inputs, dtype), CrossEntropy(tokens(batch, length, vocabulary)))
