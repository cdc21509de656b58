"""Slack: how much later every operator could begin without the run ending later.

Every device keeps its order, every link the order of its transfers, and every transfer its duration: what is found is
there without planning anew, and more may be.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from stead.cluster.routes import BY_SENDER
from stead.sim import Timeline

Pairs = tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]  # an item, one after it, ticks between begins


def slack_ticks(timeline: Timeline) -> NDArray[np.int64]:  # [operator]
    """Ticks that each operator of a run can be late."""
    moved, count = timeline.transfers, len(timeline.devices)
    begin = np.concatenate([timeline.start_ticks, moved.begin_ticks])
    end = np.concatenate([timeline.finish_ticks, moved.arrive_ticks])
    turn = np.empty(len(begin), dtype=np.int64)
    turn[np.lexsort((np.arange(len(begin)), end, begin))] = np.arange(len(begin))
    before, after, apart = _pairs(timeline)
    order = np.argsort(-turn[before], kind="stable")
    order = order[turn[before[order]] < turn[after[order]]]
    latest = (max(int(end.max(initial=0)), 0) - (end - begin)).tolist()
    # From the last to the first: what comes after an item is settled before the item itself.
    for one, other, gap in zip(before[order].tolist(), after[order].tolist(), apart[order].tolist(), strict=True):
        allowed = latest[other] - gap
        if allowed < latest[one]:
            latest[one] = allowed
    return np.asarray(latest[:count], dtype=np.int64) - timeline.start_ticks


def _pairs(timeline: Timeline) -> Pairs:
    """Who must come before whom; transfers are items behind the operators."""
    graph, moved, on = timeline.problem.graph, timeline.transfers, timeline.devices.astype(np.int64)
    count = len(on)
    start, carried = timeline.start_ticks, moved.channel == BY_SENDER
    length = timeline.finish_ticks - start
    takes = moved.arrive_ticks - moved.begin_ticks
    producer, tensor, reader = graph.tensor_producer.astype(np.int64), graph.tensor_of_read, graph.readers
    maker = producer[tensor]
    local = on[maker] == on[reader]
    away = np.flatnonzero(~local)
    arrival = moved.find(tensor[away], on[reader[away]])
    away, arrival = away[arrival >= 0], arrival[arrival >= 0]
    sender = producer[moved.tensor]
    queued = np.flatnonzero(moved.channel >= 0)
    first, second, apart = _in_turn(moved.channel[queued], moved.begin_ticks[queued], takes[queued])
    parts = [
        (maker[local], reader[local], length[maker[local]]),
        (sender, count + np.arange(len(moved)), np.where(carried, moved.begin_ticks - start[sender], length[sender])),
        (count + arrival, reader[away], takes[arrival]),
        _in_turn(timeline.devices, start, timeline.busy_until_ticks() - start),
        (count + queued[first], count + queued[second], apart),
    ]
    before, after, least = (np.concatenate([part[i] for part in parts]).astype(np.int64) for i in range(3))
    return before, after, least


def _in_turn(
    group: NDArray[np.uint8] | NDArray[np.int32], begin: NDArray[np.int64], length: NDArray[np.int64]
) -> Pairs:
    """Items of one group that follow each other; a link may take the next tensor before the last one has arrived."""
    order = np.lexsort((begin + length, begin, group))
    same = group[order][1:] == group[order][:-1]
    first, second = order[:-1][same], order[1:][same]
    return first, second, np.minimum(length[first], begin[second] - begin[first])
