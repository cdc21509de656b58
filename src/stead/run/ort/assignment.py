"""Which provider of ONNX Runtime runs which node: as planned, or an error.

A rule for a device that no provider serves is only logged by the runtime, and everything runs on the CPU; so nothing is
believed that was not read back node by node.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Literal

from stead.errors import BadInput, PlacementNotHonoured
from stead.printing.wording import one_line, quoted
from stead.run.ort.cut_onnx import package

BY_ANNOTATION = "session.layer_assignment_settings"
BY_NAME = "session.name_based_layer_assignment"
RECORD = "session.record_ep_graph_assignment_info"
ANNOTATION = "layer_ann"
ReadBack = Literal["honoured", "cannot verify"]

# Which provider serves the devices that rules may name.
PROVIDERS: dict[str, tuple[str, ...]] = {
    "cpu": ("CPUExecutionProvider",),
    "gpu": (
        "CUDAExecutionProvider", "NvTensorRTRTXExecutionProvider", "TensorrtExecutionProvider", "DmlExecutionProvider",
        "ROCMExecutionProvider", "MIGraphXExecutionProvider", "WebGpuExecutionProvider", "OpenVINOExecutionProvider",
    ),
    "cuda": ("CUDAExecutionProvider",),
    "npu": ("QNNExecutionProvider", "VitisAIExecutionProvider", "OpenVINOExecutionProvider"),
}  # fmt: skip


def annotate(model: Any, devices: Mapping[str, str]) -> str:
    """Write a device for every node into a model, and give the option that says what the marks mean.

    Marks end in a dot, since rules match prefixes: `stead.1` would also match `stead.10`.
    """
    known = sorted(set(devices.values()))
    mark = {device: f"stead.{number}." for number, device in enumerate(known)}
    for node in model.graph.node:
        if node.name not in devices:
            raise BadInput(
                f"node {quoted(node.name or node.op_type)} has no device; the plan must name every node"
            )
        for entry in [one for one in node.metadata_props if one.key == ANNOTATION]:
            node.metadata_props.remove(entry)
        made = node.metadata_props.add()
        made.key, made.value = ANNOTATION, mark[devices[node.name]]
    return "; ".join(f"{device}({mark[device]})" for device in known)


def check_settings(settings: Mapping[str, str]) -> None:
    """BadInput for options that the runtime would refuse or misread, before it is called."""
    if settings.get(BY_ANNOTATION) and settings.get(BY_NAME):
        raise BadInput(f"give {BY_ANNOTATION} or {BY_NAME}, not both: ONNX Runtime takes one of them")
    for key in (BY_ANNOTATION, BY_NAME):
        for rule in filter(None, (part.strip() for part in settings.get(key, "").split(";"))):
            if not re.fullmatch(r"[\w:]+\([^()]+\)", rule):
                raise BadInput(
                    f"{key}: {quoted(rule)} is no rule; write device(name, ...), such as gpu(stead.0.)"
                )


def open_assigned(model: Any, settings: Mapping[str, str], devices: Mapping[str, str]) -> tuple[Any, ReadBack]:
    """A session whose nodes run where planned; PlacementNotHonoured with the nodes that do not.

    `devices` are those of nodes by name, as rules call them (cpu, gpu, npu:0). A runtime that cannot tell is no proof:
    the verdict is then "cannot verify".
    """
    check_settings(settings)
    ort = package("onnxruntime")
    options = ort.SessionOptions()
    options.log_severity_level = 4  # what it logs is raised here
    for key, value in {**settings, RECORD: "1"}.items():
        options.add_session_config_entry(key, value)
    try:
        session = ort.InferenceSession(
            model.SerializeToString(), options, providers=ort.get_available_providers()
        )
    except Exception as error:
        raise BadInput(
            f"ONNX Runtime refuses the model or its settings: {one_line(str(error), 300)}"
        ) from None
    return session, read_back(session, devices)


def read_back(session: Any, devices: Mapping[str, str]) -> ReadBack:
    """Compare node by node; nodes that the runtime removed or made itself are not of the plan."""
    if not hasattr(session, "get_provider_graph_assignment_info"):
        return "cannot verify"
    found = {
        node.name: part.ep_name
        for part in session.get_provider_graph_assignment_info()
        for node in part.get_nodes()
    }
    listed = {name: provider for name, provider in found.items() if name in devices}
    if devices and not listed:
        return "cannot verify"
    differing = {
        name: (devices[name], provider)
        for name, provider in listed.items()
        if provider not in PROVIDERS.get(devices[name].partition(":")[0].lower(), ())
    }
    if differing:
        name, (planned, provider) = next(iter(differing.items()))
        count = "1 node runs" if len(differing) == 1 else f"{len(differing)} nodes run"
        raise PlacementNotHonoured(
            f"{count} elsewhere than planned, first {quoted(name)}: planned {planned}, found {provider}",
            differing,
        )
    return "honoured"
