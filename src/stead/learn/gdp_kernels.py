"""Operations of GDP's network with their gradients written out: the general ones take several times as long.

Notation    N nodes, E edges, H width
    m  [N, H]  messages
    a  [N, H]  a_v = max of m_u over the neighbours u of v; neighbours that are equal share the gradient equally
"""

from __future__ import annotations

import warnings
from typing import Any

import torch
from torch import Tensor, nn

AT_ONCE = 4096  # nodes whose edges are looked at together: what is in between stays in the cache of a core


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
