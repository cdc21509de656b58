"""The flags of a llama.cpp command line, as a placement."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from stead.cluster.classes import DeviceIndices, device_type
from stead.errors import BadInput, did_you_mean
from stead.export.layer_stack import BEFORE, LayerStack, stack_of
from stead.export.llama_cpp import buffer_names
from stead.export.llama_fit import fitted
from stead.export.llama_rules import (
    ALL_LAYERS,
    CPU,
    Override,
    buffer_of,
    device_names,
    expert_override,
    expert_tensors,
    layer_table,
    overrides_from,
)
from stead.graph.paths import module_paths
from stead.problem import Problem

_VALUED = {
    "-ngl": "ngl", "--gpu-layers": "ngl", "--n-gpu-layers": "ngl",
    "-ts": "split", "--tensor-split": "split",
    "-dev": "devices", "--device": "devices",
    "-ot": "overrides", "--override-tensor": "overrides",
    "-ncmoe": "cpu_moe", "--n-cpu-moe": "cpu_moe",
    "-sm": "mode", "--split-mode": "mode",
    "-fit": "fit", "--fit": "fit",
}  # fmt: skip
_ALL_EXPERTS = ("-cmoe", "--cpu-moe")
# Tensors of GGUF files by the end of the module path that transformers has for them.
_TENSORS = {
    "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output", "self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm",
    "input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm", "mlp.gate": "ffn_gate_inp",
    "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down",
}  # fmt: skip


@dataclass(slots=True)
class _Flags:
    """What the flags say; defaults are those of llama.cpp."""

    ngl: int | None = None
    split: list[float] = field(default_factory=list)
    devices: list[str] | None = None
    overrides: list[Override] = field(default_factory=list)
    fit: bool = True
    ignored: list[str] = field(default_factory=list)

    @property
    def fits_itself(self) -> bool:
        """Whether llama.cpp chooses: its fit gives up as soon as one of these is set."""
        return self.fit and self.ngl is None and not self.split and not self.overrides


def llama_setup(text: str, problem: Problem) -> tuple[DeviceIndices, tuple[str, ...]]:
    """The device of every operator that flags mean, and what there is to say about them."""
    stack = stack_of(problem.graph)
    flags = _flags(text, len(stack))
    buffers = buffer_names(problem.cluster)
    host = buffers.index(CPU) if CPU in buffers else None
    notes = [f"no matter for a placement: {' '.join(flags.ignored)}"] if flags.ignored else []
    if flags.fits_itself:
        return fitted(problem, stack, host), (*notes, "what llama.cpp fits by itself, as its source has it")
    cards = _cards(flags, buffers)
    # Without -ts llama.cpp splits by free memory.
    split = flags.split if any(flags.split) else [float(problem.cluster.devices[d].usable_bytes) for d in cards]
    if len(split) > len(cards) and any(split[len(cards) :]):
        raise BadInput(f"-ts has {len(split)} parts for {len(cards)} devices: {', '.join(buffers[d] for d in cards)}")
    split += [0.0] * (len(cards) - len(split))
    table = layer_table(len(stack), ALL_LAYERS if flags.ngl is None else flags.ngl, split, len(cards))
    if host is None and -1 in table:
        said = stack.called([n for n, d in enumerate(table) if d < 0])
        raise BadInput(f'{said} would be on the CPU, which is not among the devices; add "+ cpu"')
    places = [host if d < 0 else cards[d] for d in table]
    row: DeviceIndices = np.array(
        [places[max(0, p)] for p in stack.position.tolist()], dtype=device_type(len(problem.cluster))
    )
    if host is not None:
        row[stack.position == BEFORE] = host
    else:
        notes.append("the input embedding is on the CPU, which is not among the devices")
    home = row.copy()
    _override(problem, stack, flags.overrides, buffers, row)
    if np.any((home != row) & (_cached_bytes(problem) > 0)):
        notes.append("llama.cpp leaves caches of keys and values with the layer; here they go with their weights")
    return row, tuple(notes)


def _cached_bytes(problem: Problem) -> NDArray[np.int64]:  # [operator]
    """Bytes of keys and values that each operator keeps."""
    graph = problem.graph
    held = np.zeros(len(graph), dtype=np.int64)
    sizes = np.where(graph.is_kv_cache, graph.weight_bytes, 0)
    np.add.at(held, graph.weight_users, sizes[graph.weight_of_use])
    return held


def _flags(text: str, layers: int) -> _Flags:
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise BadInput(f"cannot read the flags: {error}") from None
    found = _Flags()
    experts = 0
    while words:
        word, equals, value = words.pop(0).partition("=") if words[0].startswith("--") else (words.pop(0), "", "")
        if word in _ALL_EXPERTS:
            experts = layers
        elif word in _VALUED:
            if not equals and not words:
                raise BadInput(f"{word} needs a value")
            given = value if equals else words.pop(0)
            what = _VALUED[word]
            if what == "cpu_moe":
                experts = _whole(word, given)
            else:
                _set(found, what, word, given)
        elif word.startswith("-"):
            more = [words.pop(0)] if words and not words[0].startswith("-") and not equals else []
            found.ignored.append(" ".join([word, *more]))
        else:
            found.ignored.append(word)
    if experts:
        found.overrides.append(expert_override(range(min(experts, layers)), CPU))
    return found


def _set(found: _Flags, what: str, word: str, given: str) -> None:
    if what == "ngl":
        found.ngl = ALL_LAYERS if given in ("all", "max") else None if given == "auto" else _whole(word, given)
    elif what == "split":
        found.split = [_amount(word, part) for part in re.split(r"[,/]+", given) if part]
    elif what == "devices":
        found.devices = [] if given == "none" else given.split(",")
    elif what == "overrides":
        found.overrides += overrides_from(given)
    elif what == "mode" and given != "layer":
        raise BadInput(f"{word} {given} splits tensors, which no placement of operators says; -sm layer can be read")
    elif what == "fit":
        found.fit = given in ("on", "1", "true")


def _whole(word: str, given: str) -> int:
    if not re.fullmatch(r"-?\d{1,9}", given, re.ASCII):
        raise BadInput(f"{word} needs a whole number, got {given!r}")
    return ALL_LAYERS if int(given) < 0 else int(given)


def _amount(word: str, given: str) -> float:
    if not re.fullmatch(r"\d{1,12}(\.\d{1,12})?|\.\d{1,12}", given.strip(), re.ASCII):
        raise BadInput(f"{word} needs numbers separated by commas, got {given!r}")
    return float(given)


def _cards(flags: _Flags, buffers: Sequence[str]) -> list[int]:
    """The accelerators in the order of -dev, or as they stand."""
    cards = [d for d, name in enumerate(buffers) if name != CPU]
    if flags.devices is None:
        return cards
    called = dict(zip(device_names([buffers[d] for d in cards]), cards, strict=True))
    called |= {buffers[d]: d for d in cards}
    found = []
    for name in flags.devices:
        if name not in called:
            raise BadInput(f"-dev: no device {name!r}{did_you_mean(name, called)}; there are {', '.join(called)}")
        found.append(called[name])
    return found


def _override(
    problem: Problem, stack: LayerStack, overrides: Sequence[Override], buffers: Sequence[str], row: DeviceIndices
) -> None:
    """Put operators whose tensors are overridden where their weights are."""
    if not overrides:
        return
    graph, modules = problem.graph, module_paths(problem.graph)
    weights: dict[int, list[str]] = {}
    for weight, v in zip(graph.weight_of_use.tolist(), graph.weight_users.tolist(), strict=True):
        weights.setdefault(v, []).append(graph.weight_names[weight])
    for v, position in enumerate(stack.position.tolist()):
        tensors = _tensors(stack, v, position, modules[v], weights.get(v, []))
        if not tensors:
            continue
        taken = {buffer_of(name, overrides) for name in tensors}
        if taken == {None}:
            continue
        if len(taken) > 1:
            raise BadInput(
                f"-ot takes some of the tensors of {graph.operator_names[v]!r} and leaves others, "
                "which the model as it was read has in one operator"
            )
        name = str(taken.pop())
        if name not in buffers:
            raise BadInput(f"-ot: no buffer type {name!r}{did_you_mean(name, buffers)}; there are {', '.join(buffers)}")
        row[v] = buffers.index(name)


def _tensors(stack: LayerStack, v: int, position: int, module: str, weights: Sequence[str]) -> list[str]:
    """The names that tensors of an operator have in a GGUF file; empty where none are known."""
    own = [name for name in weights if re.fullmatch(r"blk\.\d+\..+|output.*", name) and "cache" not in name]
    if own or not 0 <= position < len(stack):
        return own
    if stack.expert[v]:
        # Separate and fused experts are never in one file: a pattern for one kind is enough.
        names = expert_tensors(position)
        return [name for name in names if "gate_up" not in name and "chexps" not in name]
    inside = module.removeprefix(f"{stack.names[position]}.")
    return [f"blk.{position}.{_TENSORS[inside]}.weight"] if inside in _TENSORS else []
