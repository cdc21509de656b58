"""Pictures of a plan: a time line for Perfetto, a graph for Graphviz, colours for Model Explorer.

They show every plan as it is. `verify` reads back what was written: that every operator is there, on its device.
"""

from __future__ import annotations

import gzip
import json
import re
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, replace
from importlib import import_module
from itertools import pairwise
from typing import Any, ClassVar

from stead.cluster import Cluster
from stead.errors import BadInput
from stead.export.base import Answer, Bundle, Granularity, Projection, Verification
from stead.export.consumers import versions_of
from stead.graph import Graph
from stead.graph.paths import layer_names, module_paths
from stead.plan import Plan
from stead.printing.svg import COLOURS
from stead.problem import Constraints, Problem, Throughput
from stead.report.chrome_trace import packed_trace

NOTHING_RUNS = Answer("not checkable here", "a picture: nothing is run")
PACKED = "trace.json.gz"
NO_LIMIT = Answer("not checkable here", "a picture: nothing is loaded")


class _View(ABC):
    """What all pictures share: they take every plan as it is."""

    __slots__ = ()
    name: ClassVar[str]
    granularity: ClassVar[Granularity] = "operator"

    def unsupported(self, problem: Problem) -> str | None:
        """None: everything can be drawn."""
        return None

    def constraints(self, graph: Graph, cluster: Cluster) -> Constraints:
        """None."""
        return Constraints()

    def charged(self, problem: Problem) -> Problem:
        """As it is."""
        return problem

    def project(self, plan: Plan) -> Projection:
        """As it is."""
        seconds = plan.trace.objective_seconds
        return Projection(plan.placement, (), seconds, seconds)

    @abstractmethod
    def export(self, plan: Plan) -> Bundle:
        """The files."""

    @abstractmethod
    def found(self, plan: Plan) -> tuple[dict[str, str], str]:
        """The device of every operator as read back from the export, and what was read."""

    def verify(self, plan: Plan) -> Verification:
        """Read the picture back and compare."""
        found, said = self.found(plan)
        wanted = plan.placement.by_name()
        wrong = [name for name in wanted if found.get(name) != wanted[name]]
        if wrong or len(found) != len(wanted):
            first = wrong[0] if wrong else "an operator that is not planned"
            return Verification(NOTHING_RUNS, Answer("failed", f"{first} is drawn elsewhere"), NO_LIMIT)
        return Verification(NOTHING_RUNS, Answer("passed", f"{len(found)} operators read back from {said}"), NO_LIMIT)


@dataclass(frozen=True, slots=True)
class TraceView(_View):
    """A time line for Perfetto and chrome://tracing."""

    name: ClassVar[str] = "trace"

    def unsupported(self, problem: Problem) -> str | None:
        """Why there is no time line."""
        if isinstance(problem.objective, Throughput) and problem.objective.microbatches is None:
            return "a full pipeline has no time line; plan with --microbatches or for latency"
        return None

    def export(self, plan: Plan) -> Bundle:
        """trace.json.gz."""
        reason = self.unsupported(plan.problem)
        if reason is not None:
            raise BadInput(f"trace cannot take this plan: {reason}")
        return Bundle({PACKED: packed_trace(plan.trace)}, f"open {PACKED} in Perfetto or chrome://tracing")

    def events(self, plan: Plan) -> list[dict[str, Any]]:
        """The events as read back from the export."""
        packed = self.export(plan).files[PACKED]
        assert isinstance(packed, bytes)
        events: list[dict[str, Any]] = json.loads(gzip.decompress(packed))["traceEvents"]
        return events

    def found(self, plan: Plan) -> tuple[dict[str, str], str]:
        """The device of every operator, after a check of all events."""
        events = self.events(plan)
        check_trace(events)
        names = {one["pid"]: one["args"]["name"] for one in events if one["name"] == "process_name"}
        ran = [one for one in events if one["ph"] == "X" and one["tid"] == 0]
        stepped = isinstance(plan.problem.objective, Throughput)
        places: dict[str, str] = {}
        for one in ran:  # a step of micro-batches runs every operator as `name@0`, `name@1`, ... on the same device
            name = one["name"].rpartition("@")[0] if stepped else one["name"]
            device = names[one["pid"]]
            places[name] = device if places.get(name, device) == device else "several devices"
        return places, f"{len(events)} events, none overlapping in a thread"


    def verify(self, plan: Plan) -> Verification:
        """Read the events back; memory is as the counters have it."""
        events = self.events(plan)
        over = memory_over(events, {d: device.memory_bytes for d, device in enumerate(plan.problem.cluster)})
        if over:
            names = ", ".join(plan.problem.cluster.names[d] for d in over)
            memory = Answer("failed", f"the counters of {names} go beyond what there is")
        else:
            memory = Answer("passed", "no counter goes beyond what its device has")
        return replace(_View.verify(self, plan), memory=memory)


@dataclass(frozen=True, slots=True)
class DotView(_View):
    """A graph for Graphviz, coloured by device."""

    name: ClassVar[str] = "dot"

    def export(self, plan: Plan) -> Bundle:
        """plan.dot."""
        return Bundle({"plan.dot": dot_text(plan)}, "dot -Tsvg plan.dot -o plan.svg")

    def found(self, plan: Plan) -> tuple[dict[str, str], str]:
        """The device of every node."""
        lines = re.findall(r'^ *n\d+ \[label=("(?:[^"\\]|\\.)*").*device=("(?:[^"\\]|\\.)*")', dot_text(plan), re.M)
        return {json.loads(name): json.loads(device) for name, device in lines}, "plan.dot"


@dataclass(frozen=True, slots=True)
class ModelExplorerView(_View):
    """Node data for Model Explorer: devices and times over the picture of a model."""

    name: ClassVar[str] = "model-explorer"

    model: str = ""  # the file that Model Explorer shows; by default the one that the plan was made of
    graph: str = ""  # the id of the graph in it; by default its name

    def export(self, plan: Plan) -> Bundle:
        """Two sets of node data."""
        graph = self.graph or plan.problem.graph.name or "main"
        model = self.model or str(plan.provenance.get("model") or "MODEL")
        extension = " --extensions=model_explorer_onnx" if model.endswith(".onnx") else ""
        load = f"model-explorer {model}{extension} --node_data_paths placement.nd.json,time.nd.json"
        files = {
            "placement.nd.json": json.dumps({graph: _devices_data(plan)}, indent=1) + "\n",
            "time.nd.json": json.dumps({graph: _time_data(plan)}, indent=1) + "\n",
        }
        return Bundle(files, load, "", versions_of("ai-edge-model-explorer"))

    def found(self, plan: Plan) -> tuple[dict[str, str], str]:
        """The device of every node, through Model Explorer's own classes where they are installed."""
        said = "node data of Model Explorer's form"
        results: dict[str, str] = {}
        for content in self.export(plan).files.values():
            for data in json.loads(content).values():
                if (own := _rebuilt(data)) is not None:
                    if own != data:
                        return {}, "node data that Model Explorer's classes change"
                    said = "node data rebuilt by Model Explorer's own classes"
                if data["name"] == "placement":
                    results = {name: one["value"] for name, one in data["results"].items()}
        return results, said


def check_trace(events: list[dict[str, Any]]) -> None:
    """BadInput where a trace is none: bad times, events that overlap in a thread, flows without an end."""
    lanes: dict[tuple[int, int], list[tuple[float, float]]] = {}
    flows: dict[Any, list[str]] = {}
    for one in events:
        if type(one["pid"]) is not int or type(one["tid"]) is not int:
            raise BadInput(f"{one['name']}: process and thread are whole numbers")
        if one["ph"] == "X":
            if one["dur"] < 0 or one["ts"] < 0:
                raise BadInput(f"{one['name']}: times are not negative")
            lanes.setdefault((one["pid"], one["tid"]), []).append((one["ts"], one["ts"] + one["dur"]))
        elif one["ph"] in "sf":
            flows.setdefault(one["id"], []).append(one["ph"])
    for place, spans in lanes.items():
        spans.sort()
        if any(end > begin + 1e-9 for (_, end), (begin, _) in pairwise(spans)):
            raise BadInput(f"two events overlap in thread {place}")
    if any(ends != ["s", "f"] for ends in flows.values()):
        raise BadInput("a flow has no begin or no end")


def memory_over(events: list[dict[str, Any]], limits: Mapping[int, int]) -> list[int]:
    """Devices whose memory counters go beyond their limits."""
    counters = [one for one in events if one["ph"] == "C"]
    return sorted({one["pid"] for one in counters if sum(one["args"].values()) > limits[one["pid"]]})


def dot_text(plan: Plan) -> str:
    """The graph in the language of Graphviz: a box for every operator, a frame for every layer."""
    graph, names = plan.problem.graph, plan.problem.cluster.names
    devices = plan.placement.devices.tolist()
    lines = [f"digraph {_quoted(graph.name or 'plan')} {{", ' node [shape=box, style=filled, fontname="sans-serif"];']
    frames: dict[str, list[int]] = {}
    for v, layer in enumerate(layer_names(module_paths(graph))):
        frames.setdefault(layer, []).append(v)
    for number, (layer, members) in enumerate(frames.items()):
        if layer:
            lines.append(f" subgraph cluster_{number} {{ label={_quoted(layer)};")
        lines += [
            f"  n{v} [label={_quoted(graph.operator_names[v])}, fillcolor=\"{COLOURS[devices[v] % len(COLOURS)]}\", "
            f"device={_quoted(names[devices[v]])}];"
            for v in members
        ]
        lines += [" }"] if layer else []
    for t, u in enumerate(graph.tensor_producer.tolist()):
        readers = graph.readers[graph.reader_first[t] : graph.reader_first[t + 1]].tolist()
        for v in dict.fromkeys(readers):
            crossing = " [color=red, penwidth=2]" if devices[u] != devices[v] else ""
            lines.append(f" n{u} -> n{v}{crossing};")
    return "\n".join([*lines, "}"]) + "\n"


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _devices_data(plan: Plan) -> dict[str, Any]:
    colour = {name: COLOURS[d % len(COLOURS)] for d, name in enumerate(plan.problem.cluster.names)}
    results = {name: {"value": d, "bgColor": colour[d]} for name, d in plan.placement.by_name().items()}
    return _data("placement", results, summary=True)


def _time_data(plan: Plan) -> dict[str, Any]:
    devices = plan.placement.devices.tolist()
    seconds = [float(plan.problem.costs.seconds[v, d]) * 1e6 for v, d in enumerate(devices)]
    results = {name: {"value": one} for name, one in zip(plan.problem.graph.operator_names, seconds, strict=True)}
    gradient = [{"stop": 0, "bgColor": "#ffffff"}, {"stop": 1, "bgColor": "#e06c75"}]
    return _data("microseconds", results, gradient=gradient)


def _data(
    name: str, results: dict[str, Any], *, gradient: list[dict[str, Any]] | None = None, summary: bool = False
) -> dict[str, Any]:
    return {
        "results": results, "name": name, "thresholds": [], "gradient": gradient or [],
        "hideInAggregatedStatsTable": False, "hideInChildrenStatsTable": False,
        "showExpandedSummaryOnGroupNode": summary, "showLabelCountColumnsInChildrenStatsTable": summary,
    }  # fmt: skip


def _rebuilt(data: dict[str, Any]) -> dict[str, Any] | None:
    """The same data made by Model Explorer's classes; None where they are not installed."""
    try:
        own = import_module("model_explorer.node_data_builder")
    except ImportError:
        return None
    results = {key: own.NodeDataResult(**one) for key, one in data["results"].items()}
    gradient = [own.GradientItem(**one) for one in data["gradient"]]
    made = own.GraphNodeData(**{**data, "results": results, "gradient": gradient})
    rebuilt: dict[str, Any] = json.loads(made.to_json_string())
    return rebuilt
