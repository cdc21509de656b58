"""Operations of GDP's network with their gradients written out: the general ones take several times as long.

Notation    N nodes, E edges, H width, P segment length, B segments
    m  [N, H]   messages
    a  [N, H]   a_v = max of m_u over the neighbours u of v; neighbours that are equal share the gradient equally
    s  [N, 3H]  s = W x + b: queries, keys and values of all nodes

Keys of a segment and of the one before it are rows of `s` that follow each other: they are read where they are. The
first segment has none before it and the last one may be shorter; all others are one batch. Nothing is padded or masked.
Attention is the operation that torch itself takes on a CPU, called by its own name to have its gradient apart.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

AT_ONCE = 4096  # nodes that are looked at together: what is in between stays in the cache of a core


class LargestMessage(torch.autograd.Function):
    """The largest message of the neighbours of every node; 0 where there are none."""

    @staticmethod
    def forward(ctx: Any, messages: Tensor, nodes: Tensor, lengths: Tensor) -> Tensor:  # [N, H], [E], [N]
        ends = lengths.cumsum(0)
        begins = torch.cat([ends.new_zeros(1), ends])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that sparse rows are in beta state
            rows = torch.sparse_csr_tensor(
                begins, nodes, torch.ones(len(nodes)), (len(lengths), len(messages)), check_invariants=False
            )
        found: Tensor = torch.sparse.mm(rows, messages, "amax")
        ctx.save_for_backward(messages, found, nodes, lengths, begins)
        return found

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        messages, found, nodes, lengths, begins = ctx.saved_tensors
        total = torch.zeros_like(messages)
        for first in range(0, len(lengths), AT_ONCE):
            part = slice(first, first + AT_ONCE)
            count = len(lengths[part])
            begin, end = int(begins[first]), int(begins[first + count])
            others = nodes[begin:end]
            own = torch.repeat_interleave(torch.arange(count), lengths[part], output_size=end - begin)
            largest = messages.index_select(0, others).eq_(found[part].index_select(0, own))
            equal = nn.functional.embedding_bag(
                torch.arange(end - begin), largest, begins[part][:count] - begin, mode="sum"
            )
            each = gradients[0][part] / equal  # by 0 where there are no edges that would read it
            total.index_add_(0, others, largest.mul_(each.index_select(0, own)))
        return total, None, None


@dataclass(frozen=True, slots=True)
class Window:
    """Segments of equal length with as many nodes before each of them that they look at, too."""

    begin: int  # of the first segment
    batch: int
    length: int
    before: int

    def of(self, rows: Tensor, heads: int, column: int, *, before: int, length: int) -> Tensor:
        """Nodes from `before` each segment on, of queries, keys or values [N, 3H]: [B, heads, length, H / heads]."""
        width = rows.shape[1]
        return rows.as_strided(
            (self.batch, heads, length, width // 3 // heads),
            (self.length * width, width // 3 // heads, width, 1),
            (self.begin - before) * width + column * (width // 3),
        )

    def own(self, rows: Tensor, heads: int, column: int) -> Tensor:
        """Of the segments themselves."""
        return self.of(rows, heads, column, before=0, length=self.length)

    def past(self, rows: Tensor, heads: int, column: int) -> Tensor:
        """Of what is before them."""
        return self.of(rows, heads, column, before=self.before, length=self.before)

    def seen(self, rows: Tensor, heads: int, column: int) -> Tensor:
        """Of both."""
        return self.of(rows, heads, column, before=self.before, length=self.before + self.length)

    def flat(self, rows: Tensor, heads: int) -> Tensor:
        """Rows [N, H] of the segments by head."""
        mine = rows[self.begin : self.begin + self.batch * self.length]
        return mine.view(self.batch, self.length, heads, -1).transpose(1, 2)


def windows(count: int, length: int) -> Iterator[Window]:
    """The first segment, those that are whole, and what is left."""
    whole = count // length
    if count:
        yield Window(0, 1, min(count, length), 0)
    if whole > 1:
        yield Window(length, whole - 1, length, length)
    if whole and count % length:
        yield Window(whole * length, 1, count % length, length)


class SegmentAttention(torch.autograd.Function):
    """Every node attends to its segment and to the one before it, whose nodes get no gradient; only weights do."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, heads: int, length: int) -> Tensor:
        rows = torch.addmm(bias, x, weight.T)
        found, logs = torch.empty_like(x), []
        for window in windows(len(x), length):
            key, value = window.seen(rows, heads, 1), window.seen(rows, heads, 2)
            mixed, log = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(
                window.own(rows, heads, 0), key, value
            )
            window.flat(found, heads).copy_(mixed)
            logs.append(log)
        ctx.save_for_backward(x, weight, rows, found, *logs)
        ctx.heads, ctx.length = heads, length
        return found

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, Tensor, None, None]:
        x, weight, rows, found, *logs = ctx.saved_tensors
        heads, given = ctx.heads, gradients[0].contiguous()
        total, memories = torch.empty_like(rows), []
        for window, log in zip(windows(len(x), ctx.length), logs, strict=True):
            query, key, value = window.own(rows, heads, 0), *(window.seen(rows, heads, c) for c in (1, 2))
            mine, out = window.flat(given, heads), window.flat(found, heads)
            of_query, *others = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward(
                mine, query, key, value, out, log, 0.0, False
            )
            window.own(total, heads, 0).copy_(of_query)
            for column, one in enumerate(others, start=1):
                past, own = one.split([window.before, window.length], dim=2)
                window.own(total, heads, column).copy_(own)
                memories.append((window.past(total, heads, column), past))
        of_nodes = total @ weight
        for place, past in memories:
            place.add_(past)
        return of_nodes, total.T @ x, total.sum(dim=0), None, None


class FeedForward(torch.autograd.Function):
    """W2 relu(W1 x + b1) + b2; the gradient of what is in between is masked in place."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, first: Tensor, bias: Tensor, second: Tensor, last_bias: Tensor
    ) -> Tensor:
        inner = torch.addmm(bias, x, first.T).relu_()
        ctx.save_for_backward(x, first, inner, second)
        return torch.addmm(last_bias, inner, second.T)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, ...]:
        x, first, inner, second = ctx.saved_tensors
        given = gradients[0]
        masked = given @ second
        torch.ops.aten.threshold_backward.grad_input(masked, inner, 0, grad_input=masked)
        return masked @ first, masked.T @ x, masked.sum(dim=0), given.T @ inner, given.sum(dim=0)
