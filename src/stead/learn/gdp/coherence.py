"""Which units roll their dice together: those of a layer, or those of a stretch of the order.

GDP draws the device of every unit independently of all others, so that a sample cuts tensors where the likeliest
placement does not, and hardly one of many samples is better than one device. Units that share the noise of the Gumbel
trick (a device is the largest log p + noise) move together, while each has the odds that the network gives it.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from stead.coarsen import Grouping
from stead.graph import Graph

Noise = Literal["alone", "layers", "segments", "mixed"]
SEGMENTS = 8


def shared_by(noise: Noise, graph: Graph, units: Grouping) -> tuple[Tensor | None, ...]:  # of [M]
    """Numbers of the noise that units have; samples take these in turn, None: every unit has its own."""
    ways: dict[str, Tensor | None] = {"alone": None}
    if noise in ("layers", "mixed"):
        ways["layers"] = torch.from_numpy(layers(graph, units))
    if noise in ("segments", "mixed"):
        ways["segments"] = torch.from_numpy(segments(units.count))
    return tuple(ways.values()) if noise == "mixed" else (ways[noise],)


def layers(graph: Graph, units: Grouping) -> NDArray[np.int64]:  # [M]
    """The first weight that each unit uses, as a number; units without any belong to the one before them."""
    users = np.diff(graph.weight_user_first)
    nothing = len(users)
    found = np.full(units.count, nothing)
    np.minimum.at(found, units.group[graph.weight_users], np.repeat(np.arange(len(users)), users))
    last = np.maximum.accumulate(np.where(found < nothing, np.arange(units.count), 0))
    return np.unique(found[last], return_inverse=True)[1].astype(np.int64)


def segments(units: int) -> NDArray[np.int64]:  # [M]
    """Which eighth of the order each unit lies in."""
    found: NDArray[np.int64] = np.arange(units) * SEGMENTS // max(1, units)
    return found


def drawn_together(log_p: Tensor, group: Tensor, samples: int, generator: torch.Generator) -> Tensor:  # [S, M]
    """Choices of units that share the noise of their group."""
    groups = int(group.max()) + 1 if len(group) else 0
    uniform = torch.rand(samples, groups, log_p.shape[1], generator=generator).clamp(min=1e-30)
    noise = -torch.log(-torch.log(uniform))
    return (log_p + noise[:, group]).argmax(dim=2)
