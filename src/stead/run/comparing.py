"""Compares results of real runs, without torch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stead.errors import RunFailed
from stead.run.executor import Numerics


def tensor_from(dtype: str, shape: tuple[int, ...], contents: bytes) -> NDArray[Any]:
    """A tensor that came from a worker; bf16 as single precision."""
    if dtype == "bfloat16":
        wide = np.frombuffer(contents, dtype=np.uint16).astype(np.uint32) << 16
        return wide.view(np.float32).reshape(shape)
    return np.frombuffer(contents, dtype=np.dtype(dtype)).reshape(shape)


def compare(found: Mapping[int, Any], reference: Mapping[int, Any], tolerance: float) -> Numerics:
    """The largest difference over all results; what is missing, or no number on one side alone, is infinitely far."""
    if found.keys() != reference.keys():
        raise RunFailed(f"{len(reference)} results were expected, {len(found)} came")
    most, relative = 0.0, 0.0
    for number, expected in reference.items():
        if found[number] == expected:
            continue
        one, other = tensor_from(*found[number]), tensor_from(*expected)
        if one.shape != other.shape:
            return Numerics(float("inf"), float("inf"), tolerance)
        wide = np.complex128 if np.iscomplexobj(other) else np.float64
        difference, scale = _difference(one.astype(wide), other.astype(wide))
        most = max(most, difference)
        if difference:
            relative = max(relative, difference / scale if scale else float("inf"))
    return Numerics(most, relative, tolerance)


def _difference(one: NDArray[Any], other: NDArray[Any]) -> tuple[float, float]:
    both = (one == other) | (np.isnan(one) & np.isnan(other))
    with np.errstate(invalid="ignore"):
        apart = np.where(both, 0.0, np.abs(one - other))
    largest = float("inf") if np.isnan(apart).any() else float(apart.max(initial=0.0))
    sizes = np.abs(other[np.isfinite(other)])
    return largest, float(sizes.max(initial=0.0))
