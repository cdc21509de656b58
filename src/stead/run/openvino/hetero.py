"""One request on several OpenVINO plugins (HETERO): affinities by name, and what the runtime made of them.

One request runs its submodels one after another, so its latency is a sum. Where there is only the CPU plugin, it is
registered again under other names, so that placements can be tried anywhere.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stead.errors import BadInput, PlacementNotHonoured
from stead.graph import Graph
from stead.printing.wording import one_line, quoted
from stead.run.executor import Worker
from stead.run.openvino.ir import constant_layers
from stead.run.segments import CutFile

PRECISIONS = {"fp32": "f32", "bf16": "bf16", "fp16": "f16"}  # of workers, as OpenVINO calls them
_CAPABILITIES = {"bf16": "BF16", "fp16": "FP16"}
_CPU_PLUGIN = "openvino_intel_cpu_plugin"
_SUBGRAPH = re.compile(r"subgraph(\d+): (.*)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Honoured:
    """What OpenVINO says about a compiled placement, after it was found to be the planned one."""

    devices: tuple[str, ...]  # that execute something
    submodels: int
    precisions: Mapping[str, str]  # device: what it computes in
    layers: int  # layers whose submodel was looked at


def plugins_for(core: Any, workers: Sequence[Worker]) -> tuple[str, ...]:
    """The plugin of each worker; the second worker on the CPU gets a second CPU plugin, called XCPU."""
    names: list[str] = []
    for worker in workers:
        name = worker.device.upper().replace(":", ".")
        if name in names and name == "CPU":
            number = sum(one.endswith("CPU") for one in names)
            name = "XCPU" if number == 1 else f"X{number}CPU"  # a name without "CPU" would not be listed
            core.register_plugin(_CPU_PLUGIN, name)
        available = list(core.available_devices)
        if name not in available and f"{name}.0" not in available:
            raise BadInput(
                f"OpenVINO has no device {name} here for {worker.name}; it has {', '.join(available)}"
            )
        if name in names:
            raise BadInput(f"two workers share the device {name}; each needs a device of its own")
        names.append(name)
    return tuple(names)


def properties(core: Any, plugin: str, worker: Worker) -> dict[str, Any]:
    """What a plugin is told: precision always, threads on the CPU; BadInput where it lacks the precision."""
    if worker.dtype not in PRECISIONS:
        raise BadInput(
            f"{worker.name}: OpenVINO does not compute in {worker.dtype}; known: {', '.join(PRECISIONS)}"
        )
    needs = _CAPABILITIES.get(worker.dtype)
    if needs and needs not in core.get_property(plugin, "OPTIMIZATION_CAPABILITIES"):
        raise BadInput(f"{worker.name}: this machine's {plugin} has no {worker.dtype}; use fp32")
    told: dict[str, Any] = {"INFERENCE_PRECISION_HINT": PRECISIONS[worker.dtype]}
    if plugin.endswith("CPU"):
        told["INFERENCE_NUM_THREADS"] = len(worker.cores)
    return told


def affinities(
    model: Any, cut: CutFile, graph: Graph, plugins: Sequence[str], devices: NDArray[np.uint8]
) -> dict[str, str]:
    """A plugin for every layer: that of its operator, constants where they are read.

    A constant that is read on several devices is copied, so that it never crosses.
    """
    planned = {node.name: plugins[devices[v]] for node, v in zip(cut.nodes, cut.operator, strict=True)}
    _copy_shared_constants(model, planned, plugins)
    index = {name: v for v, name in enumerate(graph.operator_names)}
    for op in reversed(model.get_ordered_ops()):
        name, kind = op.get_friendly_name(), op.get_type_name()
        if name in planned:
            continue
        if kind == "Parameter" and name in index:
            planned[name] = plugins[devices[index[name]]]
        else:
            around = [op.input(0).get_source_output().get_node()] if kind == "Result" else _readers(op)
            planned[name] = next((planned[one] for one in map(_name, around) if one in planned), plugins[0])
    return planned


def _readers(op: Any) -> list[Any]:
    return [one.get_node() for output in op.outputs() for one in output.get_target_inputs()]


def _name(op: Any) -> str:
    return str(op.get_friendly_name())


def _copy_shared_constants(model: Any, planned: Mapping[str, str], plugins: Sequence[str]) -> None:
    """Give each device its own copy of constants that several read."""
    constant = constant_layers(model)
    home: dict[str, str] = {}
    copies: dict[str, dict[str, Any]] = {}
    for op in model.get_ordered_ops():
        plugin = planned.get(op.get_friendly_name())
        if plugin is None:
            continue
        for one in op.inputs():
            source = one.get_source_output()
            name = source.get_node().get_friendly_name()
            if name not in constant or home.setdefault(name, plugin) == plugin:
                continue
            if plugin not in copies:
                copies[plugin] = {same.get_friendly_name(): same for same in model.clone().get_ordered_ops()}
                for layer, same in copies[plugin].items():
                    same.set_friendly_name(f"{layer}@{plugin}")
            one.replace_source_output(copies[plugin][name].output(source.get_index()))


def set_affinities(model: Any, planned: Mapping[str, str]) -> None:
    """Tell every layer its plugin; BadInput that names one without, before anything is compiled."""
    names = {op.get_friendly_name() for op in model.get_ops()}
    for name in planned:
        if name not in names:
            raise BadInput(f"the placement names layer {quoted(name)}, which the model does not have")
    missing = [op for op in model.get_ordered_ops() if op.get_friendly_name() not in planned]
    if missing:
        kind = missing[0].get_type_name()
        raise BadInput(
            f"layer {quoted(missing[0].get_friendly_name())} ({kind}) has no device; "
            f"HETERO needs one for all {len(names)} layers, {len(missing)} have none"
        )
    for op in model.get_ops():
        op.get_rt_info()["affinity"] = planned[op.get_friendly_name()]


def compile_hetero(core: Any, model: Any, told: Mapping[str, Mapping[str, Any]]) -> Any:
    """Compile for plugins with properties of their own, counting the time of every layer."""
    try:
        return core.compile_model(
            model,
            f"HETERO:{','.join(told)}",
            {"PERF_COUNT": True, "DEVICE_PROPERTIES": {plugin: dict(own) for plugin, own in told.items()}},
        )
    except RuntimeError as error:
        raise BadInput(f"OpenVINO cannot compile this placement: {one_line(str(error), 300)}") from None


def read_back(
    compiled: Any, profile: Sequence[Any], planned: Mapping[str, str], told: Mapping[str, Mapping[str, Any]]
) -> Honoured:
    """Compare what was compiled with what was planned, layer by layer; PlacementNotHonoured if they differ.

    `profile` is the profiling information of a request that ran once.
    """
    used = tuple(compiled.get_property("EXECUTION_DEVICES"))
    submodels = int(compiled.get_property("HETERO_NUMBER_OF_SUBMODELS"))
    own: Mapping[str, Mapping[str, Any]] = compiled.get_property("DEVICE_PROPERTIES")
    precisions = {plugin: _precision(facts["INFERENCE_PRECISION_HINT"]) for plugin, facts in own.items()}
    for plugin, found in precisions.items():
        if found != told[plugin]["INFERENCE_PRECISION_HINT"]:
            raise PlacementNotHonoured(
                f"{plugin} computes in {found} and not in {told[plugin]['INFERENCE_PRECISION_HINT']} as asked"
            )
    found_on: dict[int, dict[str, str]] = {}  # submodel: layers of the plan in it
    for one in profile:
        match = _SUBGRAPH.fullmatch(one.node_name)
        if match and match[2] in planned:
            found_on.setdefault(int(match[1]), {})[match[2]] = planned[match[2]]
    known = {int(re.sub(r".*_", "", str(facts["NETWORK_NAME"]))): plugin for plugin, facts in own.items()}
    _compare(found_on, known)
    busy = {plugin for layers in found_on.values() for plugin in layers.values()}
    if not busy <= set(used):
        raise PlacementNotHonoured(
            f"planned on {', '.join(sorted(busy))}, but OpenVINO runs on {', '.join(used)}"
        )
    return Honoured(used, submodels, precisions, sum(map(len, found_on.values())))


def _compare(found_on: Mapping[int, Mapping[str, str]], known: Mapping[int, str]) -> None:
    """Layers of one submodel must be planned for one device: the one that it is known to run on."""
    differing: dict[str, tuple[str, str]] = {}
    for submodel, layers in found_on.items():
        plugins = list(layers.values())
        actual = known.get(submodel) or max(sorted(set(plugins)), key=plugins.count)
        differing.update({name: (plugin, actual) for name, plugin in layers.items() if plugin != actual})
    if differing:
        name, (plan, found) = next(iter(differing.items()))
        raise PlacementNotHonoured(
            f"{len(differing)} layers run elsewhere than planned, first {quoted(name)}: planned {plan}, found {found}",
            differing,
        )


def _precision(found: Any) -> str:
    """A precision in the word it is asked for by."""
    return str(found.get_type_name())
