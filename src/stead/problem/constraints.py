"""What the user wants fixed before anything is optimised: pins, exclusions, togetherness."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fnmatch import translate
from re import compile as pattern

import numpy as np
from numpy.typing import NDArray

from stead.cluster import Cluster
from stead.errors import BadInput, did_you_mean
from stead.graph import Graph
from stead.graph.components import connected


@dataclass(frozen=True, slots=True)
class Constraints:
    """Patterns (`*` and `?`) over operator names or module paths, and devices.

    `pin` allows only the given device, `forbid` excludes it, `colocate` puts all operators that match any pattern of
    one group on one device.
    """

    pin: tuple[tuple[str, str], ...] = ()
    forbid: tuple[tuple[str, str], ...] = ()
    colocate: tuple[tuple[str, ...], ...] = ()

    def __bool__(self) -> bool:
        return bool(self.pin or self.forbid or self.colocate)

    def items(self) -> list[tuple[str, object]]:
        """Every single constraint as (field, value), to drop them one at a time."""
        return [(field, value) for field in ("pin", "forbid", "colocate") for value in getattr(self, field)]

    @staticmethod
    def of(items: Iterable[tuple[str, object]]) -> Constraints:
        """The inverse of `items`."""
        by_field: dict[str, list[object]] = {"pin": [], "forbid": [], "colocate": []}
        for field, value in items:
            by_field[field].append(value)
        return Constraints(*(tuple(values) for values in by_field.values()))  # type: ignore[arg-type]

    def allowed(self, graph: Graph, cluster: Cluster) -> NDArray[np.bool_]:  # [operator, device]
        """Which devices pins and exclusions leave to each operator."""
        allowed = np.ones((len(graph), len(cluster)), dtype=bool)
        for name, device in self.pin:
            others = np.arange(len(cluster)) != cluster.index(device)
            allowed[np.ix_(matching(graph, name), others)] = False
        for name, device in self.forbid:
            allowed[matching(graph, name), cluster.index(device)] = False
        return allowed

    def units(self, graph: Graph) -> NDArray[np.int32]:  # [operator]
        """Units that must share a device (the graph's own colocation groups included), numbered by first operator."""
        groups = _split(graph.colocation)
        for patterns in self.colocate:
            groups.append(np.unique(np.concatenate([matching(graph, name) for name in patterns])))
        return _united(len(graph), groups) if groups else np.arange(len(graph), dtype=np.int32)


def matching(graph: Graph, name: str) -> NDArray[np.int64]:
    """Operators whose name or module path fits a pattern; an error if there are none.

    A module path also stands for everything below it.
    """
    fits = pattern(translate(name)).match
    below = f"{name}."
    found = [
        v
        for v, (operator, module) in enumerate(zip(graph.operator_names, graph.modules, strict=True))
        if fits(operator) or (module and (fits(module) or module.startswith(below)))
    ]
    if not found:
        raise BadInput(
            f"no operator or module fits {name!r}{did_you_mean(name, graph.operator_names[:20_000])}"
        )
    return np.array(found, dtype=np.int64)


def _split(colocation: NDArray[np.int32]) -> list[NDArray[np.int64]]:
    """Members of every group, by one sort instead of one scan per group."""
    members = np.flatnonzero(colocation >= 0)
    by_group = members[np.argsort(colocation[members], kind="stable")]
    borders = np.flatnonzero(np.diff(colocation[by_group])) + 1
    return [group for group in np.split(by_group, borders) if group.size]


def _united(count: int, groups: Sequence[NDArray[np.int64]]) -> NDArray[np.int32]:
    """Union of overlapping groups; every operator in none is a unit of its own."""
    firsts = np.concatenate([np.full(len(group) - 1, group[0]) for group in groups])
    roots = connected(count, firsts, np.concatenate([group[1:] for group in groups]))
    return np.unique(roots, return_inverse=True)[1].astype(np.int32).reshape(count)
