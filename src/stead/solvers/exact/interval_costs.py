"""What a call costs that runs an interval of a linear order, for all intervals at once."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from stead.solvers.exact.reduction import Reduced


class Late(Exception):
    """Time is up before all intervals are known."""


class IntervalCosts:
    """Nodes along an order, in blocks between the positions where it may be cut.

    Position p is the border before block p; an interval (i, j) holds the blocks i .. j - 1. Once `stop` says so, Late
    is raised.
    """

    def __init__(
        self,
        reduced: Reduced,
        order: NDArray[np.int32],
        *,
        positions: int,
        stop: Callable[[], bool] = lambda: False,
    ) -> None:
        self._reduced, self._stop = reduced, stop
        self.block_of = np.zeros(reduced.count, dtype=np.int64)  # [node]
        self.block_of[order] = _blocks(reduced, order, positions)
        self.blocks = int(self.block_of.max()) + 1 if reduced.count else 0
        source = self.block_of[reduced.tensor_source]
        tensor = np.repeat(np.arange(len(source)), np.diff(reduced.reader_first))
        self._readers = _Events(tensor, self.block_of[reduced.readers], len(source))
        self._source = source
        weight = np.repeat(np.arange(len(reduced.weight_bytes)), np.diff(reduced.user_first))
        self._users = _Events(weight, self.block_of[reduced.users], len(reduced.weight_bytes))

    def host_ticks(self) -> tuple[NDArray[np.float64], NDArray[np.int64]]:  # [block], [node]
        """Ticks of every block on its best CPUs, one operator after another, and the CPU of every node."""
        reduced = self._reduced
        hosts = [j for j, kind in enumerate(reduced.kinds) if kind.is_host]
        firsts = np.array([reduced.kinds[j].devices[0] for j in hosts], dtype=np.int64)
        ticks = reduced.ticks[:, hosts].sum(axis=2).astype(np.float64)
        ticks[ticks < 0] = np.inf
        best = ticks.argmin(axis=1)
        return self._by_block(ticks.min(axis=1)), firsts[best]

    def call_ticks(self, j: int) -> NDArray[np.float64]:  # [begin, end]; inf where no call is possible
        """Ticks of every interval as a call on an accelerator of kind j."""
        reduced, count = self._reduced, self.blocks
        ticks = reduced.ticks[:, j].sum(axis=1)
        work = np.concatenate([[0.0], np.cumsum(self._by_block(np.maximum(ticks, 0)))])
        barred = np.concatenate([[0.0], np.cumsum(self._by_block(ticks < 0))])
        total = work[None, :] - work[:, None]
        total += self._received(reduced.receive_ticks[:, j].astype(np.float64))
        total += self._sent(reduced.send_ticks[:, j].astype(np.float64))
        total[barred[None, :] > barred[:, None]] = np.inf
        total[self._held() > reduced.kinds[j].memory_bytes] = np.inf
        total[np.tril_indices(count + 1)] = np.inf  # empty calls are no calls
        return np.asarray(total, dtype=np.float64)

    def _by_block(self, values: NDArray[np.generic]) -> NDArray[np.float64]:
        summed = np.bincount(self.block_of, weights=values.astype(np.float64), minlength=self.blocks)
        return np.asarray(summed, dtype=np.float64)

    def _received(self, ticks: NDArray[np.float64]) -> NDArray[np.float64]:  # [begin, end]
        """Tensors from before the interval with a reader in it."""
        return self._readers.first_in_interval(self.blocks, ticks, born=self._source, stop=self._stop)

    def _sent(self, ticks: NDArray[np.float64]) -> NDArray[np.float64]:  # [begin, end]
        """Tensors of the interval with a reader behind it."""
        count, last = self.blocks, self._readers.last()
        table = np.zeros((count + 1, count + 1))
        for end in range(1, count + 1):
            if self._stop():
                raise Late
            leaving = (self._source < end) & (last >= end)
            by_source = np.bincount(self._source[leaving], weights=ticks[leaving], minlength=count + 1)
            table[:, end] = by_source[::-1].cumsum()[::-1]
        return table

    def _held(self) -> NDArray[np.float64]:  # [begin, end]
        """Bytes of the weights with a user in the interval."""
        return self._users.first_in_interval(
            self.blocks, self._reduced.weight_bytes.astype(np.float64), born=None, stop=self._stop
        )


class _Events:
    """Where the things of a list are used along the order."""

    def __init__(self, thing: NDArray[np.int64], block: NDArray[np.int64], things: int) -> None:
        order = np.lexsort((block, thing))
        self._thing, self._block = thing[order], block[order]
        self._things = things

    def last(self) -> NDArray[np.int64]:  # [thing]; -1 if it is not used
        """The block of the last use."""
        last = np.full(self._things, -1, dtype=np.int64)
        np.maximum.at(last, self._thing, self._block)
        return last

    def first_in_interval(
        self,
        blocks: int,
        amount: NDArray[np.float64],
        *,
        born: NDArray[np.int64] | None,
        stop: Callable[[], bool],
    ) -> NDArray[np.float64]:  # [begin, end]
        """The amounts of all things used in the interval and born before it, each once."""
        table = np.zeros((blocks + 1, blocks + 1))
        following = np.full(self._things, blocks, dtype=np.int64)  # the first use at or behind `begin`
        by_block = np.argsort(self._block, kind="stable")
        edges = np.searchsorted(self._block[by_block], np.arange(blocks + 1))
        for begin in range(blocks - 1, -1, -1):
            if stop():
                raise Late
            following[self._thing[by_block[edges[begin] : edges[begin + 1]]]] = begin
            counted = amount if born is None else np.where(born < begin, amount, 0.0)
            by_first = np.bincount(following, weights=counted, minlength=blocks + 1)[:blocks]
            table[begin, 1:] = by_first.cumsum()
        return table


def _blocks(reduced: Reduced, order: NDArray[np.int32], positions: int) -> NDArray[np.int64]:  # [position]
    """The block of every node along the order: one each, or even shares of the work if there are too many."""
    if len(order) <= positions:
        return np.arange(len(order))
    share = np.maximum(reduced.ticks[order].max(axis=1).sum(axis=1), 0).astype(np.float64)
    share = share / max(share.sum(), 1.0) + 1.0 / len(order)
    number = np.minimum((share.cumsum() / share.sum() * positions).astype(np.int64), positions - 1)
    return np.unique(number, return_inverse=True)[1].reshape(-1).astype(np.int64)
