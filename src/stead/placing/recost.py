"""The problem of a plan on other devices: devices that stayed as they were keep their costs, others are priced anew."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from stead.cluster import Cluster
from stead.costs import Costs, Roofline, Source
from stead.errors import BadInput
from stead.problem import Problem


def same_devices(before: Cluster, after: Cluster) -> tuple[int, ...]:  # [device of after]
    """The device of `before` that each one of `after` is, -1 for a new one: by name, then by model in order.

    >>> from stead.cluster import cluster_from
    >>> same_devices(cluster_from("2x 3090 + 3060")[0], cluster_from("3060 + 3090 + 4090")[0])
    (2, 0, -1)
    """
    index = {name: d for d, name in enumerate(before.names)}
    found = [index.get(name, -1) for name in after.names]
    left = [name for name in before.names if name not in after.names]
    for d, name in enumerate(after.names):
        alike = next((one for one in left if found[d] < 0 and _model(one) == _model(name)), None)
        if alike is not None:
            left.remove(alike)
            found[d] = index[alike]
    return tuple(found)


def _model(name: str) -> str:
    """What a device is called apart from its number: `3090` of `3090:1`."""
    return name.partition(":")[0]


def recosted(problem: Problem, cluster: Cluster) -> Problem:
    """The same question about another cluster; a device that is described as before keeps its costs.

    Costs that came with a file cannot be computed for a device that it does not speak of: that is an error.
    """
    known = problem.cluster.devices
    same = [
        d if d >= 0 and replace(known[d], name=device.name) == device else -1
        for device, d in zip(cluster, same_devices(problem.cluster, cluster), strict=True)
    ]
    old = problem.costs
    if all(d >= 0 for d in same):
        seconds, workspace = old.seconds[:, same], old.workspace_bytes[:, same]
        sources, reasons = old.sources[:, same], old.reasons
    else:
        if old.source == Source.IMPORTED or old.tensor_seconds is not None:
            strange = next(device.name for device, d in zip(cluster, same, strict=True) if d < 0)
            raise BadInput(
                f"the costs of this plan came with its file, which says nothing of {strange}; "
                "change links or leave devices out, or place the model again with costs for it"
            )
        priced = Roofline().costs(problem.graph, cluster)
        seconds, workspace, sources = priced.seconds.copy(), priced.workspace_bytes.copy(), priced.sources.copy()
        reasons = {**old.reasons, **priced.reasons}
        for d, one in enumerate(same):
            if one >= 0:
                seconds[:, d] = old.seconds[:, one]
                workspace[:, d] = old.workspace_bytes[:, one]
                sources[:, d] = old.sources[:, one]
    costs = Costs(
        problem.graph, cluster, np.asarray(seconds), workspace_bytes=workspace, sources=sources,
        tensor_seconds=old.tensor_seconds, reasons=reasons,
    )  # fmt: skip
    return Problem(problem.graph, cluster, costs, objective=problem.objective, constraints=problem.constraints)


def with_seconds(problem: Problem, seconds: NDArray[np.float64]) -> Problem:
    """The same problem with other seconds where they are known, [operator, device]."""
    costs = problem.costs
    made = Costs(
        problem.graph, problem.cluster, np.where(np.isnan(seconds), costs.seconds, seconds),
        workspace_bytes=costs.workspace_bytes, sources=costs.sources, tensor_seconds=costs.tensor_seconds,
        reasons=costs.reasons,
    )  # fmt: skip
    return Problem(
        problem.graph, problem.cluster, made, objective=problem.objective, constraints=problem.constraints
    )
