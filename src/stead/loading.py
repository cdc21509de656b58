"""From what a user brings, a model and a description of devices, to a Problem."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from stead.cluster import Cluster, cluster_from
from stead.costs import CostSource, Roofline
from stead.errors import BadInput
from stead.formats import Model, read
from stead.graph import Graph
from stead.problem import Constraints, Objective, Problem


@dataclass(frozen=True, slots=True)
class Loaded:
    """A model and a cluster that belong together, with what there is to say about how they were read."""

    graph: Graph
    cluster: Cluster
    costs: CostSource
    resolutions: tuple[str, ...]  # how device names were understood
    notes: tuple[str, ...]  # what a reader of the model should know
    model_name: str
    devices_text: str

    def problem(self, objective: Objective, constraints: Constraints | None = None) -> Problem:
        """The question to be solved."""
        return Problem(
            self.graph,
            self.cluster,
            self.costs.costs(self.graph, self.cluster),
            objective=objective,
            constraints=constraints,
        )

    def on(self, cluster: Cluster) -> Loaded:
        """The same model on other devices."""
        return replace(self, cluster=cluster)


def load(model: str | Path | Graph | Model, devices: str | Path | Cluster | None = None) -> Loaded:
    """Read a model and the devices to place it on; a file that brings its own devices needs no others."""
    if isinstance(model, Graph):
        model = Model(model)
    name = model.graph.name if isinstance(model, Model) else Path(model).name
    found = model if isinstance(model, Model) else read(Path(model))
    resolutions: tuple[str, ...] = ()
    text = "" if isinstance(devices, Cluster) else str(devices or "")
    if isinstance(devices, Cluster):
        cluster = devices
    elif devices is not None:
        cluster, resolutions = cluster_from(devices)
    elif found.cluster is not None:
        cluster = found.cluster
        resolutions = (f"{len(cluster)} devices as the file gives them: {', '.join(cluster.names)}",)
    else:
        raise BadInput(f'{name} says nothing about devices; add --devices, for example --devices "3090,3060"')
    costs: CostSource = found.given if found.given is not None else Roofline()
    return Loaded(found.graph, cluster, costs, resolutions, found.notes, name, text)
