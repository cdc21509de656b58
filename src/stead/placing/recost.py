"""The problem of a plan on other devices, which keep their names where they are the same ones."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from stead.cluster import Cluster
from stead.costs import Costs, Source
from stead.costs.repriced import repriced
from stead.problem import Problem


def with_known_names(before: Cluster, after: Cluster) -> Cluster:
    """`after` with devices called as in `before` where they are the same: by name, else by model in order.

    >>> from stead.cluster import cluster_from
    >>> with_known_names(cluster_from("2x 3090 + 3060")[0], cluster_from("3060 + 3090 + 4090")[0]).names
    ('3060', '3090:0', '4090')
    """
    left = [name for name in before.names if name not in after.names]
    names: dict[str, str] = {}
    for name in after.names:
        alike = next((one for one in left if name not in before.names and _model(one) == _model(name)), None)
        if alike is not None:
            left.remove(alike)
        names[name] = alike or name
    return replace(
        after,
        devices=tuple(replace(device, name=names[device.name]) for device in after),
        links=tuple(replace(link, source=names[link.source], target=names[link.target]) for link in after.links),
        hosts=tuple(replace(host, devices=tuple(names[name] for name in host.devices)) for host in after.hosts),
    )


def _model(name: str) -> str:
    """What a device is called apart from its number: `3090` of `3090:1`."""
    return name.partition(":")[0]


def recosted(problem: Problem, cluster: Cluster) -> Problem:
    """The same question about another cluster."""
    costs = repriced(problem.graph, problem.cluster, problem.costs, cluster)
    return Problem(problem.graph, cluster, costs, objective=problem.objective, constraints=problem.constraints)


def with_seconds(problem: Problem, seconds: NDArray[np.float64], *, source: Source | None = None) -> Problem:
    """The same problem with other seconds where they are known, [operator, device]; `source` says whence."""
    costs, known = problem.costs, ~np.isnan(seconds)
    made = Costs(
        problem.graph, problem.cluster, np.where(known, seconds, costs.seconds), workspace_bytes=costs.workspace_bytes,
        sources=costs.sources if source is None else np.where(known, source, costs.sources).astype(np.uint8),
        tensor_seconds=costs.tensor_seconds, reasons=costs.reasons,
    )  # fmt: skip
    return Problem(
        problem.graph, problem.cluster, made, objective=problem.objective, constraints=problem.constraints
    )
