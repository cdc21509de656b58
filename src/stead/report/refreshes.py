"""Updated weights in a plan: how many go to readers on other devices in each step."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from stead.graph import REFRESH
from stead.graph.arrays import distinct_pairs
from stead.problem import Placement


@dataclass(frozen=True, slots=True)
class RefreshFacts:
    """Weights that are read elsewhere than updated."""

    weights: int
    transfers: int  # one for each device that reads a weight and does not update it
    sent_bytes: int  # per step


NOTHING = RefreshFacts(0, 0, 0)


def refresh_facts(placement: Placement) -> RefreshFacts:
    """What is sent after the updates of a step so that the next one has the new weights."""
    graph, devices = placement.problem.graph, placement.devices
    if REFRESH not in graph.kinds:
        return NOTHING
    is_refresh = np.array([kind == REFRESH for kind in graph.kinds], dtype=bool)
    tensor, reader = graph.tensor_of_read, graph.readers
    sent = is_refresh[reader] & (devices[graph.tensor_producer[tensor]] != devices[reader])
    weight, _ = distinct_pairs(tensor[sent], devices[reader[sent]])
    return RefreshFacts(len(np.unique(weight)), len(weight), int(graph.tensor_bytes[weight].sum()))
