"""The three models of HSDAG's paper as OpenVINO IR: ResNet-50, Inception-v3 and BERT-base.

Weights, biases and BatchNorm statistics are random: with the usual initial values (0 and 1) a converter folds many of
them away and the graphs get smaller. Shapes are fixed, weights are stored in fp16 as `openvino.save_model` does by
itself. Layers and edges of the files: ResNet-50 396 and 411, Inception-v3 726 and 762; BERT depends on the versions of
transformers and openvino (981 and 1059 with 5.22.2 and 2026.4.1).
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from stead.cluster import Cluster, Device, link_all
from stead.costs import Costs, Source
from stead.errors import BadGraph, BadInput, MissingExtra, did_you_mean
from stead.graph import Graph
from stead.workloads.resnet50_measured import (
    BLOCKS,
    LAST,
    MEAN,
    POOL,
    SEND_RATE,
    SEND_SECONDS,
    STEM,
    TAIL,
    Times,
    device_times,
)

if TYPE_CHECKING:
    from torch import nn

IR_MODELS = ("resnet50", "inception-v3", "bert")
LENGTH = 128  # of the sentence that BERT reads
_SCALES, _SHIFTS = (
    (0.229, 0.224, 0.225),
    (0.485, 0.456, 0.406),
)  # of the pictures that Inception was trained on


def save_ir(name: str, folder: Path, *, attention: str = "sdpa") -> Path:
    """Build a model, convert it and save NAME.xml and NAME.bin; needs torch and openvino, and transformers for BERT."""
    if name not in IR_MODELS:
        raise BadInput(f"there is no model {name!r}{did_you_mean(name, IR_MODELS)}")
    try:
        openvino = import_module("openvino")
    except ImportError:
        raise MissingExtra("openvino", "openvino", "saving OpenVINO IR") from None
    module, inputs = _built(name, attention)
    _randomised(module)
    shapes = [(key, list(value.shape)) for key, value in inputs.items()]
    model = openvino.convert_model(module, example_input=inputs, input=shapes)
    model.set_friendly_name(name)  # the converter numbers models of a process
    path = folder / f"{name}.xml"
    openvino.save_model(model, path)
    return path


def measured_costs(graph: Graph, devices: str = "f32 mixed") -> tuple[Cluster, Costs]:
    """The times of `resnet50_measured` on the ResNet-50 of the IR, one operator per layer, constants for nothing.

    Constants and what only converts them neither take time nor cost anything to send.
    """
    us, block = _times(graph)
    table = device_times(us, block)
    names = devices.split()
    cluster = Cluster(
        tuple(Device(name) for name in names),
        link_all(names, bytes_per_second=SEND_RATE, latency_seconds=0.0),
    )
    stored = np.array([kind == "Const" for kind in graph.kinds])
    for u, v in graph.edges.tolist():
        if graph.kinds[v] == "Convert" and stored[u]:
            stored[v] = True
    sending = np.where(
        stored[graph.tensor_producer], 0.0, SEND_SECONDS + graph.tensor_bytes.astype(np.float64) / SEND_RATE
    )
    seconds = np.stack([table[name] for name in names], axis=1) * 1e-6
    sources = np.full(seconds.shape, Source.MEASURED, dtype=np.uint8)
    return cluster, Costs(graph, cluster, seconds, sources=sources, tensor_seconds=sending)


def _times(graph: Graph) -> tuple[Any, Any]:
    """(us in f32 and bf16 [operator, 2], block [operator])."""
    order: list[tuple[Times, int]] = [(STEM, 0)]
    order += [(times, number) for number, own in enumerate(BLOCKS) for times in own]
    us, block = np.zeros((len(graph), 2)), np.zeros(len(graph), dtype=np.int64)
    by_kind = {
        "Convolution": order,
        "MaxPool": [(POOL, 0)],
        "ReduceMean": [(MEAN, TAIL)],
        "Add": [(LAST, TAIL)],
    }
    for kind, times in by_kind.items():
        found = [v for v, own in enumerate(graph.kinds) if own == kind][-len(times) :]
        if len(found) != len(times):
            raise BadGraph(
                f"{graph.name} is no ResNet-50: {len(found)} operators {kind} where {len(times)} belong"
            )
        for v, (own, number) in zip(found, times, strict=True):
            us[v], block[v] = own, number
    return us, block


def _built(name: str, attention: str) -> tuple[nn.Module, dict[str, Any]]:
    """A module and its inputs by name."""
    import torch

    if name == "bert":
        try:
            transformers = import_module("transformers")
        except ImportError:
            raise MissingExtra("transformers", "hf", "building BERT") from None
        words = torch.ones(1, LENGTH, dtype=torch.int64)
        config = transformers.BertConfig(attn_implementation=attention)
        return transformers.BertModel(config), {"input_ids": words, "attention_mask": words}
    from stead.workloads.models import inception_v3, resnet

    if name == "resnet50":
        built = resnet.build(depth=50, batch=1, side=224, classes=1000)
        return built.module, {"x": built.inputs[0]}
    built = inception_v3.build(batch=1, side=299, classes=1000, dropout=0.5)
    return _with_transform(built.module), {"x": built.inputs[0]}


def _with_transform(module: nn.Module) -> nn.Module:
    """Inception behind the change of scale of its three channels."""
    import torch

    class Transformed(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = module

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            channels = [
                torch.unsqueeze(x[:, c], 1) * (scale / 0.5) + (shift - 0.5) / 0.5
                for c, (scale, shift) in enumerate(zip(_SCALES, _SHIFTS, strict=True))
            ]
            scores: torch.Tensor = self.inner(torch.cat(channels, 1))
            return scores

    return Transformed()


def _randomised(module: nn.Module) -> None:
    """Random weights, biases and statistics, the same each time."""
    import torch

    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.copy_(0.05 * torch.randn(parameter.shape, generator=generator))
        for name, statistic in module.named_buffers():
            if name.endswith("running_mean"):
                statistic.copy_(0.1 * torch.randn(statistic.shape, generator=generator))
            elif name.endswith("running_var"):
                statistic.copy_(0.5 + torch.rand(statistic.shape, generator=generator))
    module.eval()
