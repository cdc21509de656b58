"""Classes of equal devices, which is what makes large clusters small: what holds for one device holds for its class."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from stead.cluster.devices import Cluster, Device

SOLVER_DEVICES = 64  # that constructions and searches take: masks of one word, and tables with a column for each

DeviceIndices: TypeAlias = NDArray[np.unsignedinteger[Any]]  # uint8 where that suffices, else uint16


def device_type(count: int) -> type[np.uint8] | type[np.uint16]:
    """The type of device indices of a cluster of so many devices.

    >>> device_type(256).__name__, device_type(257).__name__
    ('uint8', 'uint16')
    """
    return np.uint8 if count <= 256 else np.uint16


def equal_devices(cluster: Cluster) -> tuple[NDArray[np.uint16], tuple[int, ...]]:
    """The class of every device, and the first device of every class; equal devices differ in their names alone."""
    numbers: dict[str, int] = {}
    firsts: list[int] = []
    classes = np.empty(len(cluster), dtype=np.uint16)
    for d, device in enumerate(cluster):
        classes[d] = numbers.setdefault(_nameless(device), len(numbers))
        if classes[d] == len(firsts):
            firsts.append(d)
    return classes, tuple(firsts)


def _nameless(device: Device) -> str:
    return json.dumps({**device.as_dict(), "name": "", "alias": {}}, sort_keys=True)
