"""What llama.cpp chooses by itself (`--fit`, on unless flags say otherwise), for one accelerator beside the CPU.

As its source has it (common/fit.cpp): everything on the card if that fits; else layers from the last to the first,
experts in main memory; and if all layers fit so, experts back to the card, those of the last layers first, as long as
1 GiB stays free. It then tries to fit a part of one more layer, which is not modelled; nor are several accelerators.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from stead.errors import BadInput
from stead.export.layer_stack import BEFORE, LayerStack
from stead.problem import Problem
from stead.sim import simulate_many

MARGIN_BYTES = 2**30
NAME = "llama-fit"


def fitted(problem: Problem, stack: LayerStack, host: int | None) -> NDArray[np.uint8]:  # [operator]
    """The devices that llama.cpp's own fit gives operators; BadInput where its rule is not known here."""
    cards = [d for d in range(len(problem.cluster)) if d != host]
    if host is None or len(cards) != 1:
        raise BadInput(
            "what llama.cpp fits by itself is modelled for one accelerator and a CPU only; give -ngl, -ts and -ot"
        )
    card = cards[0]
    rows = [_row(stack, host, card, first=0, expert_layers=len(stack))]
    rows += [_row(stack, host, card, first=first, expert_layers=0) for first in range(len(stack) + 2)]
    dense = _most(problem, rows[:1], card)
    if dense is not None:
        return dense
    found = _most(problem, rows[1:], card)
    if found is None:
        return rows[-1]
    if not stack.expert.any() or not np.array_equal(found, rows[1]):
        return found
    more = [_row(stack, host, card, first=0, expert_layers=n) for n in range(len(stack), -1, -1)]
    best = _most(problem, more, card)
    return found if best is None else best


def _row(stack: LayerStack, host: int, card: int, *, first: int, expert_layers: int) -> NDArray[np.uint8]:
    """Layers from `first` on and the output on the card, with the experts of the last so many layers."""
    position = stack.position
    there = (position != BEFORE) & (position >= first)
    there &= ~stack.expert | (position >= len(stack) - expert_layers)
    return np.where(there, card, host).astype(np.uint8)


def _most(problem: Problem, rows: list[NDArray[np.uint8]], card: int) -> NDArray[np.uint8] | None:
    """The first of some placements that leaves the margin free."""
    device = problem.cluster.devices[card]
    limit = device.memory_bytes - max(device.reserve_bytes, MARGIN_BYTES)
    peaks = simulate_many(problem, np.stack(rows), memory="peak").peak_bytes[:, card]
    return next((row for row, peak in zip(rows, peaks.tolist(), strict=True) if 0 <= peak <= limit), None)
