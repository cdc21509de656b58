"""From what a user brings, a model and a description of devices, to a Problem."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from stead.cluster import Cluster, cluster_from
from stead.costs import CostSource, Fitted, Profile, Roofline, precision_notes
from stead.errors import BadInput, SteadError
from stead.graph import Graph
from stead.option_values import sizes_from
from stead.printing.wording import one_line, printable
from stead.problem import Constraints, Objective, Problem
from stead.readers import Model, read
from stead.readers.base import reader_for
from stead.readers.common.assumed_sizes import TYPICAL, Assumed

_MOST_ASSUMED = 6  # dimensions that a line names
_MOST_READ_AGAIN = 2_000  # operators of a model that is read again at other sizes: a second or so each time


@dataclass(frozen=True, slots=True)
class Source:
    """What a model was read from, so that it can be read again at another size."""

    model: str | Path
    options: Mapping[str, Any]
    profiles: tuple[Profile, ...]

    def as_dict(self) -> dict[str, Any]:
        """Plain data for a plan file: the model as it was given, and the options it was read with."""
        return {"model": printable(str(self.model)), "options": _plain(self.options)}

    def size(self, option: str) -> int | None:
        """The batch or context that the model was read at; None if it has no such option or leaves it open."""
        if str(self.model).startswith("zoo:"):
            from stead.workloads import size_in_zoo

            return size_in_zoo(str(self.model), option, **self.options)
        value = getattr(reader_for(self.model, options=self.options), option, None)
        return value if type(value) is int else None


@dataclass(frozen=True, slots=True)
class Loaded:
    """A model and a cluster that belong together, with what there is to say about how they were read."""

    graph: Graph
    cluster: Cluster
    costs: CostSource
    resolutions: tuple[str, ...]  # how devices were understood, and what they compute types in that they lack
    notes: tuple[str, ...]  # what a reader of the model should know
    model_name: str
    devices_text: str
    assumed: tuple[Assumed, ...] = ()  # open dimensions of the model that nobody set
    source: Source | None = None  # None: what a graph in memory was made from is not known

    def __repr__(self) -> str:
        return f"Loaded({self.graph!r} on {self.cluster!r})"

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

    def at_size(self, option: str, size: int) -> Loaded:
        """The same model, read again with another batch or context."""
        assert self.source is not None
        found, _ = read_model(self.source.model, {**self.source.options, option: size})
        costs = _costs(found, self.source.profiles)
        return replace(self, graph=found.graph, costs=costs, notes=found.notes, assumed=found.assumed)


def load(
    model: str | Path | Graph | Model,
    devices: str | Path | Cluster | Sequence[str] | None = None,
    *,
    options: Mapping[str, Any] | None = None,
    profiles: Sequence[Profile] = (),
) -> Loaded:
    """Read a model and the devices to place it on; a file that brings its own devices needs no others.

    `model` is a graph, a file or a name of the zoo (`zoo:gnmt-8`); `options` are those of its reader or of the model
    (batch, context, phase, ...). `profiles` replace and correct the costs of the devices they speak about.
    """
    found, name = read_model(model, options)
    resolutions: tuple[str, ...] = ()
    if isinstance(devices, Cluster) or devices is None:
        text = ""
    else:
        text = str(devices) if isinstance(devices, str | Path) else " + ".join(devices)
    if isinstance(devices, Cluster):
        cluster = devices
    elif devices is not None:
        cluster, resolutions = cluster_from(devices)
    elif found.cluster is not None:
        cluster = found.cluster
        resolutions = (f"{len(cluster)} devices as the file gives them: {', '.join(cluster.names)}",)
    else:
        raise BadInput(f'{name} says nothing about devices; add --devices, for example --devices "3090,3060"')
    if found.given is None:
        resolutions = (*resolutions, *precision_notes(found.graph, cluster))
    source = None
    if isinstance(model, str | Path):
        given = {key: value for key, value in (options or {}).items() if value is not None}
        source = Source(model, given, tuple(profiles))
    costs = _costs(found, profiles)
    return Loaded(
        found.graph, cluster, costs, resolutions, found.notes, name, printable(text), found.assumed, source
    )


def _plain(value: Any) -> Any:
    """An option of a reader as JSON holds it."""
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value if value is None or isinstance(value, bool | int | float) else printable(str(value))


def _costs(found: Model, profiles: Sequence[Profile]) -> CostSource:
    """The costs that a model brings, or those of its work, corrected by what was measured."""
    costs: CostSource = found.given if found.given is not None else Roofline()
    return Fitted(tuple(profiles), base=costs) if profiles else costs


def assumptions(
    found: Model | Loaded, model: str | Path, options: Mapping[str, Any] | None = None
) -> tuple[str, ...]:
    """Lines about open dimensions that nobody set: their sizes, and FLOPs at other usual sizes.

    `model` and `options` are what `found` was read from: it is read again at those sizes unless it is very large.
    """
    if not found.assumed:
        return ()
    sizes = ", ".join(f"{one_line(one.name, 300)} = {one.size}" for one in found.assumed[:_MOST_ASSUMED])
    more = f" and {len(found.assumed) - _MOST_ASSUMED} more" if len(found.assumed) > _MOST_ASSUMED else ""
    lines = [f"{sizes}{more} (--shape {one_line(found.assumed[0].name, 300)}=N sets one)"]
    kinds = [kind for kind in TYPICAL if any(one.kind == kind for one in found.assumed)]
    if len(found.graph) > _MOST_READ_AGAIN:
        return tuple(lines)
    lines += [line for kind in kinds[:2] if (line := _at_other_sizes(found, str(model), options or {}, kind))]
    return tuple(lines)


def _at_other_sizes(found: Model | Loaded, model: str, options: Mapping[str, Any], kind: str) -> str:
    """FLOPs at the typical sizes of one kind of dimension; empty if they make no difference."""
    names = [one.name for one in found.assumed if one.kind == kind]
    flops: dict[int, float] = {}
    here = {one.size for one in found.assumed if one.kind == kind}
    given = options.get("shapes", {})
    given = sizes_from(given) if isinstance(given, str) else given
    for size in TYPICAL[kind]:
        if here == {size}:
            flops[size] = float(found.graph.flops.sum())
            continue
        shapes = {**given, **dict.fromkeys(names, size)}
        try:
            flops[size] = float(read(model, options={**options, "shapes": shapes}).graph.flops.sum())
        except SteadError:  # not every model can take every size
            continue
    if len(set(flops.values())) < 2:
        return ""
    figures = ", ".join(f"{amount / 1e9:.4g} at {size}" for size, amount in flops.items())
    return f"GFLOP by {kind}: {figures}"


def read_model(
    model: str | Path | Graph | Model, options: Mapping[str, Any] | None = None
) -> tuple[Model, str]:
    """A model, wherever it comes from, and what to call it."""
    if isinstance(model, Graph):
        model = Model(model)
    if isinstance(model, Model):
        if options:
            raise BadInput(f"{model.graph.name} is read already; {', '.join(options)} cannot be set any more")
        return model, model.graph.name
    if str(model).startswith("zoo:"):
        from stead.workloads import model_from_zoo

        return model_from_zoo(str(model), **(options or {})), printable(str(model))
    # Names of files can hold half characters, which no plan file may.
    return read(Path(model), options=options), printable(Path(model).name)
