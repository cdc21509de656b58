"""What passes between devices: bytes, transfers and busy time of every pair, beside what its link can carry."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from stead.problem.ticks import TICKS_PER_SECOND
from stead.report.slices import Run

if TYPE_CHECKING:
    from stead.plan import Plan

MOST_PAIRS = 256


def link_facts(plan: Plan, run: Run) -> list[dict[str, Any]]:
    """Pairs of devices that something passes between, those with the most bytes first.

    Without a time line there are no busy seconds; each tensor then counts once for every device that reads it.
    """
    problem = plan.problem
    graph, count = problem.graph, len(problem.cluster)
    if run.timeline is not None:
        moved = run.timeline.transfers
        pair = moved.source.astype(np.int64) * count + moved.target
        size = run.timeline.problem.graph.tensor_bytes[moved.tensor]
        busy = (moved.arrive_ticks - moved.begin_ticks) / TICKS_PER_SECOND
    else:
        on = plan.placement.devices.astype(np.int64)
        tensor, target = graph.tensor_of_read, on[graph.readers]
        source = on[graph.tensor_producer[tensor]]
        away = source != target
        key = np.unique(tensor[away] * count * count + source[away] * count + target[away])
        pair, size, busy = key % (count * count), graph.tensor_bytes[key // (count * count)], None
    cells = count * count
    carried = np.bincount(pair, weights=size, minlength=cells)
    transfers = np.bincount(pair, minlength=cells)
    seconds = None if busy is None else np.bincount(pair, weights=busy, minlength=cells)
    links = {(link.source, link.target): link for link in problem.cluster.links}
    names = problem.cluster.names
    facts = []
    for cell in np.argsort(-carried, kind="stable")[:MOST_PAIRS].tolist():
        if not transfers[cell]:
            continue
        link = links.get((names[cell // count], names[cell % count]))
        rate = None if link is None or not math.isfinite(link.bytes_per_second) else link.bytes_per_second
        facts.append({
            "from": cell // count, "to": cell % count, "bytes": float(carried[cell]),
            "transfers": int(transfers[cell]), "seconds": None if seconds is None else float(seconds[cell]),
            "bytes_per_second": rate, "latency_seconds": None if link is None else link.latency_seconds,
        })  # fmt: skip
    return facts
