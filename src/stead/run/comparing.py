"""Compares results of real runs, without torch."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stead.errors import RunFailed
from stead.run.executor import Numerics

SPREAD = 8.0  # chance decides how far roundings add up: on workers alone, and once more on a placement


def tensor_from(dtype: str, shape: tuple[int, ...], contents: bytes) -> NDArray[Any]:
    """A tensor that came from a worker; bf16 as single precision."""
    if dtype == "bfloat16":
        wide = np.frombuffer(contents, dtype=np.uint16).astype(np.uint32) << 16
        return wide.view(np.float32).reshape(shape)
    return np.frombuffer(contents, dtype=np.dtype(dtype)).reshape(shape)


def compare(
    found: Mapping[int, Any],
    reference: Mapping[int, Any],
    tolerance: float,
    alone: Sequence[Mapping[int, Any]] = (),
) -> Numerics:
    """The largest difference over all results; what is missing, or no number on one side alone, is infinitely far.

    `alone` has the same results as other workers give them on their own. What rounding moves there, a placement on
    unlike workers may move `SPREAD` times as far. A result that can be any other of its size then says nothing, and is
    counted.
    """
    if found.keys() != reference.keys():
        raise RunFailed(f"{len(reference)} results were expected, {len(found)} came")
    most, relative, sensitive = 0.0, 0.0, 0
    for number, expected in reference.items():
        if found[number] == expected:
            continue
        difference, scale = _apart(found[number], expected)
        by_rounding = SPREAD * max((_apart(one[number], expected)[0] for one in alone), default=0.0)
        most = max(most, difference)
        if 0.0 < by_rounding < math.inf:
            sensitive += scale <= by_rounding
            scale = max(scale, by_rounding / tolerance)
        if difference:
            relative = max(relative, difference / scale if scale else math.inf)
    return Numerics(most, relative, tolerance, sensitive, len(reference))


def _apart(found: Any, expected: Any) -> tuple[float, float]:
    """The largest difference of two results as workers send them, and the largest value of the second."""
    one, other = tensor_from(*found), tensor_from(*expected)
    if one.shape != other.shape:
        return math.inf, 0.0
    wide = np.complex128 if np.iscomplexobj(other) else np.float64
    return _difference(one.astype(wide), other.astype(wide))


def _difference(one: NDArray[Any], other: NDArray[Any]) -> tuple[float, float]:
    both = (one == other) | (np.isnan(one) & np.isnan(other))
    with np.errstate(invalid="ignore"):
        apart = np.where(both, 0.0, np.abs(one - other))
    largest = math.inf if np.isnan(apart).any() else float(apart.max(initial=0.0))
    sizes = np.abs(other[np.isfinite(other)])
    return largest, float(sizes.max(initial=0.0))
