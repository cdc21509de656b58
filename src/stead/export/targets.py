"""The targets of exports by name; only the one that is asked for is imported."""

from __future__ import annotations

import shlex
from dataclasses import dataclass, fields
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from stead.errors import BadInput, did_you_mean
from stead.option_values import option_value

if TYPE_CHECKING:
    from stead.export.base import Exporter, Granularity

# By running where the consumer is installed, else by its rule; by its rule alone; or that it can be read back.
Checked = Literal["by running", "by running or rule", "by rule", "format only"]


@dataclass(frozen=True, slots=True)
class Target:
    """A line of the table of targets."""

    summary: str
    granularity: Granularity  # the smallest thing that it can put on a device of its own
    checked: Checked  # how `verify` finds out that a consumer does what was planned
    at: str  # module:class
    is_text: bool = False  # flags or a string, which `stead export` prints


TARGETS: dict[str, Target] = {
    "hf": Target("a device_map for transformers", "module", "by running", "stead.export.hf:HuggingFaceMap"),
    "torch": Target(
        "stages for torch.distributed.pipelining", "stage", "by running", "stead.export.torch_pipeline:TorchPipeline"
    ),
    "openvino": Target(
        "affinities for HETERO of OpenVINO", "operator", "by running", "stead.export.openvino:OpenVino"
    ),
    "ort": Target("a chain of sub-models for ONNX Runtime", "operator", "by running", "stead.export.ort:Ort"),
    "onnx": Target(
        "device configurations in an ONNX file", "operator", "by running", "stead.export.onnx_devices:OnnxDevices"
    ),
    "llama": Target(
        "flags of llama.cpp: layers, experts, RPC", "layer", "by running or rule", "stead.export.llama_cpp:Llama",
        is_text=True,
    ),
    "vllm": Target(
        "a layer partition for pipeline stages of vLLM", "layer", "by running or rule", "stead.export.vllm:Vllm",
        is_text=True,
    ),
    "megatron": Target(
        "the pipeline layout of Megatron-LM as one string", "layer", "by running or rule",
        "stead.export.megatron:Megatron", is_text=True,
    ),
    "torchtitan": Target(
        "names of modules per part for torchtitan", "layer", "by rule", "stead.export.torchtitan:Torchtitan",
        is_text=True,
    ),
    "deepspeed": Target(
        "a PipelineModule of DeepSpeed with given parts; experimental", "layer", "format only",
        "stead.export.deepspeed:DeepSpeed",
    ),
    "trace": Target("a time line for Perfetto", "operator", "format only", "stead.export.views:TraceView"),
    "dot": Target("a graph for Graphviz, coloured by device", "operator", "format only", "stead.export.views:DotView"),
    "model-explorer": Target(
        "devices and times over a model in Model Explorer", "operator", "format only",
        "stead.export.views:ModelExplorerView",
    ),
}


def exporter(name: str, **options: Any) -> Exporter:
    """The exporter of a target; texts are taken as values of its options."""
    if name not in TARGETS:
        raise BadInput(f"no target {name!r}{did_you_mean(name, TARGETS)}; `stead targets` lists them")
    kind, known = _kind(name)
    given: dict[str, Any] = {}
    for option, value in options.items():
        if option not in known:
            takes = f"; it takes {', '.join(known)}" if known else "; it takes none"
            raise BadInput(f"target {name!r} has no option {option!r}{did_you_mean(option, known) or takes}")
        try:
            given[option] = option_value(value, known[option])
        except ValueError:
            wanted = type(known[option]).__name__
            raise BadInput(f"target {name!r}: option {option} needs a value of type {wanted}, got {value!r}") from None
    made: Exporter = kind(**given)
    return made


def export_command(plan: str | Path, name: str, model: str) -> str:
    """The command that exports a plan for a target, ready to be pasted."""
    words = ["stead", "export", str(plan), "--to", name]
    if not TARGETS[name].is_text:
        takes_model = "model" in _kind(name)[1]
        words += ["--set", f"model={model}"] if takes_model else []
        words += ["-o", "out"]
    return shlex.join(words)


def _kind(name: str) -> tuple[Any, dict[str, Any]]:
    """The class of a target, and its options with their defaults."""
    module, _, attribute = TARGETS[name].at.partition(":")
    kind = getattr(import_module(module), attribute)
    return kind, {option.name: option.default for option in fields(kind) if option.init}
