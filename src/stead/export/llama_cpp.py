"""llama.cpp: how many layers go to which device, and which experts stay in main memory.

    -ngl 49 -dev CUDA0,CUDA1 -sm layer -ts 20,29 -fit off \\
    -ot '^blk\\.(3|5)\\.ffn_(up|down|gate|gate_up)_(ch|)exps\\.=CPU'

Layers of the CPU are a prefix, every accelerator has one stretch of the rest with the output at the end of the last,
and the experts of a layer may be elsewhere. `-ts` is written in whole numbers of layers: ratios with two decimals are
wrong in a quarter of all cases. A device is known by its alias `llama` (`CUDA0`, `RPC0[host:port]`), else by its place
among its kind; experts run where their weights are, attention and its cache where the layer is.
"""

from __future__ import annotations

import os
import re
import shlex
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from stead.cluster import Cluster
from stead.errors import BadInput, RunFailed
from stead.export.base import Answer, Bundle, Granularity, Projection, Result, Verification
from stead.export.consumers import NOT_LOADED, NOT_RUN, model_of, versions_of
from stead.export.cuts import Items, Stretches, stretches_of
from stead.export.layer_stack import BEFORE, LayerStack, stack_of, why_no_stack
from stead.export.llama_fit import NAME as FIT
from stead.export.llama_fit import fitted
from stead.export.llama_library import LlamaLibrary, Seen
from stead.export.llama_rules import (
    CPU,
    MOST_DEVICES,
    MOST_OVERRIDES,
    Override,
    buffer_of,
    device_names,
    expert_override,
    expert_tensors,
    layer_table,
    rpc_servers,
)
from stead.export.projecting import part_of, projected, refuse_moves, refuse_replicas, share_of_time
from stead.export.stage_targets import IN_A_ROW, WHOLE
from stead.graph import Graph
from stead.plan import Baseline, Plan
from stead.printing.wording import shown_path
from stead.problem import Constraints, Placement, Problem
from stead.readers.gguf.reader import tensor_names
from stead.sim import simulate

LIBRARY = "LLAMA_CPP_LIB_PATH"  # a folder with libllama and ggml-rpc-server
ON_CPU = "llama.cpp looks words up on the CPU"
PREFIX = "the layers on the CPU must be the first ones"
EXPERTS_WHOLE = "the experts of a layer stay together"


@dataclass(frozen=True, slots=True)
class Assignment:
    """What llama.cpp is told: devices, layers of each, and experts that are elsewhere."""

    layers: int
    ngl: int
    devices: tuple[str, ...]  # names of buffer types, in the order of -dev
    split: tuple[int, ...]  # [device]; layers of each, the output included
    experts: tuple[tuple[str, tuple[int, ...]], ...]  # buffer type, layers whose experts it holds away from their layer

    @property
    def overrides(self) -> list[Override]:
        """The experts that are elsewhere, as patterns."""
        return [expert_override(layers, buffer) for buffer, layers in self.experts]

    def flags(self) -> list[str]:
        """The words of the command line."""
        servers = rpc_servers(self.devices)
        words = ["--rpc", ",".join(servers)] if servers else []
        words += ["-ngl", str(self.ngl)]
        if self.devices:
            words += ["-dev", ",".join(device_names(self.devices)), "-sm", "layer"]
            words += ["-ts", ",".join(map(str, self.split))] if len(self.devices) > 1 else []
        words += ["-fit", "off"]
        if self._first_experts_on_cpu:
            words += ["--n-cpu-moe", str(len(self.experts[0][1]))]
        elif self.experts:
            words += ["-ot", ",".join(map(str, self.overrides))]
        return words

    @property
    def _first_experts_on_cpu(self) -> bool:
        """Whether all that is elsewhere are experts of the first layers, on the CPU: there is a flag for that."""
        first = tuple(range(len(self.experts[0][1]))) if self.experts else ()
        return self.experts == ((CPU, first),) and bool(first)

    def table(self) -> list[str]:
        """The buffer type of every layer and, last, of the output, by llama.cpp's own rule."""
        split = self.split if len(self.devices) > 1 else (1,) * len(self.devices)
        found = layer_table(self.layers, self.ngl, split, len(self.devices))
        return [CPU if d < 0 else self.devices[d] for d in found]


@dataclass(frozen=True, slots=True)
class Llama:
    """Layers and experts for llama.cpp."""

    name: ClassVar[str] = "llama"
    granularity: ClassVar[Granularity] = "layer"

    model: str = ""  # the GGUF file: for the command, and for a check of the patterns by its tensors

    def unsupported(self, problem: Problem) -> str | None:
        """Why no plan can be exported."""
        if problem.graph.is_training:
            return "it is a training graph, and llama.cpp only runs models"
        reason = why_no_stack(problem.graph)
        if reason is not None:
            return reason
        return _wrong_names(problem.cluster)

    def constraints(self, graph: Graph, cluster: Cluster) -> Constraints:
        """Whole layers, experts of a layer together, the embedding on the CPU."""
        stack = stack_of(graph)
        places = _Places(stack, cluster)
        units = np.where(stack.position == BEFORE, -1, np.where(stack.expert, len(stack) + 1, 0) + stack.position)
        together = stack.together(units.astype(np.int32), count=2 * len(stack) + 1).colocate
        if places.host is None:
            return Constraints(colocate=together)
        before = np.where(stack.position == BEFORE, 0, -1).astype(np.int32)
        pinned = [name for group in stack.together(before, count=1).colocate for name in group]
        return Constraints(pin=tuple((name, cluster.names[places.host]) for name in pinned), colocate=together)

    def charged(self, problem: Problem) -> Problem:
        """As it is: weights run where they are, tensors cross as the simulator has it."""
        return problem

    def project(self, plan: Plan) -> Projection:
        """CPU first, then a stretch of layers for each accelerator; experts where they are, each layer's together."""
        refuse_replicas(plan)
        problem, stack = plan.problem, stack_of(plan.problem.graph)
        places, before = _Places(stack, problem.cluster), plan.placement.devices
        homes, experts = places.homes(problem, before)
        stretches = places.stretches(homes)
        row = before.copy()
        if places.host is not None:
            row[stack.position == BEFORE] = places.host
        # Experts that have a place of their own keep it; the others go where their layer goes.
        apart = (experts >= 0) & (experts != homes[:-1])
        layer = np.clip(stack.position, 0, len(stack) - 1)
        stays = stack.expert & apart[layer]
        row[stays] = experts[layer[stays]]
        inside = (stack.position >= 0) & ~stays
        items = np.where(inside, stack.position, -1).astype(np.int32)
        if stretches is None:
            used = sorted({*homes.tolist(), *([] if places.host is None else [places.host])})
            room = Items(problem, items, len(stack) + 1, row)
            every = range(len(problem.cluster))
            stretches = room.nearest(used, every, like=homes.tolist(), first=places.host)
            if stretches is None:
                raise BadInput("no way to cut the layers for llama.cpp can run on the devices of this plan")
        row = Items(problem, items, len(stack) + 1, row).row(stretches)

        def why(v: int) -> str:
            position = int(stack.position[v])
            if position == BEFORE:
                return ON_CPU
            if stays[v]:
                return EXPERTS_WHOLE
            if homes[position] != before[v]:
                return WHOLE
            return PREFIX if before[v] == places.host or row[v] == places.host else IN_A_ROW

        return projected(
            plan, problem, row,
            group=lambda v: "experts" if stack.expert[v] else "",
            name=lambda members: _called(problem, stack, members),
            why=why,
        )  # fmt: skip

    def export(self, plan: Plan) -> Bundle:
        """The flags, and the command that they belong to."""
        flags = shlex.join(self.assignment(plan).flags())
        model = self.model or model_of(plan)
        path = model if model.endswith(".gguf") else f"{model}.gguf"
        command = f"llama-server -m {shlex.quote(path)} {flags}"
        return Bundle({"llama.sh": f"#!/bin/sh\n{command}\n"}, command, flags, versions_of("llama.cpp"))

    def own_choice(self, problem: Problem) -> Baseline:
        """What llama.cpp fits by itself."""
        stack = stack_of(problem.graph)
        try:
            row = fitted(problem, stack, _Places(stack, problem.cluster).host)
        except BadInput as error:
            return Baseline(FIT, reason=str(error))
        placement = Placement(problem, row)
        trace = simulate(problem, placement)
        if not trace.feasible:
            return Baseline(FIT, reason=str(trace.problems[0]))
        return Baseline(FIT, trace.objective_seconds, placement=placement)

    def assignment(self, plan: Plan) -> Assignment:
        """What llama.cpp is told of a plan; BadInput by name where it has no words for it."""
        reason = self.unsupported(plan.problem)
        if reason is not None:
            raise BadInput(f"llama cannot take this plan: {reason}")
        refuse_moves(self, self.project(plan))
        problem, stack = plan.problem, stack_of(plan.problem.graph)
        places = _Places(stack, problem.cluster)
        homes, experts = places.homes(problem, plan.placement.devices)
        stretches = places.stretches(homes)
        assert stretches is not None
        away: dict[int, list[int]] = defaultdict(list)
        for layer, d in enumerate(experts.tolist()):
            if d >= 0 and d != homes[layer]:
                away[d].append(layer)
        used = stretches.used
        counts = {d: n for d, n in zip(used.devices, used.counts, strict=True) if d != places.host}
        counts |= {d: 0 for d in sorted(away) if d != places.host and d not in counts}
        if len(counts) > MOST_DEVICES:
            raise BadInput(f"llama.cpp takes {MOST_DEVICES} devices at most, the plan uses {len(counts)}")
        if len(away) > MOST_OVERRIDES:
            raise BadInput(f"llama.cpp takes {MOST_OVERRIDES} overrides at most, the plan needs {len(away)}")
        return Assignment(
            layers=len(stack),
            ngl=sum(counts.values()),
            devices=tuple(places.buffers[d] for d in counts),
            split=tuple(counts.values()),
            experts=tuple((places.buffers[d], tuple(layers)) for d, layers in sorted(away.items())),
        )

    def verify(self, plan: Plan) -> Verification:
        """Ask the rules of llama.cpp, and the library itself where there is one, where every layer and tensor goes."""
        told, stack = self.assignment(plan), stack_of(plan.problem.graph)
        places = _Places(stack, plan.problem.cluster)
        homes, experts = places.homes(plan.problem, plan.placement.devices)
        wanted = [places.buffers[d] for d in homes.tolist()]
        wrong = [n for n, (a, b) in enumerate(zip(told.table(), wanted, strict=True)) if a != b]
        if wrong:
            return _placed("failed", f"{stack.called(wrong)} elsewhere by the rules of llama.cpp")
        moved = {n: places.buffers[int(d)] for n, d in enumerate(experts) if d >= 0 and d != homes[n]}
        names = tensor_names(self.model) if self.model else [t for n in range(len(stack)) for t in expert_tensors(n)]
        strays = _strays(names, told.overrides, moved)
        if strays:
            return _placed("failed", f"patterns take or miss {', '.join(strays[:3])}")
        whose = f"of {shown_path(self.model)}" if self.model else "that experts can have"
        said = f"{len(stack)} layers and the output by the rules of llama.cpp; patterns on {len(names)} names {whose}"
        folder = os.environ.get(LIBRARY)
        return _placed("passed", said) if not folder else _asked(Path(folder), told, said)


def _placed(result: Result, detail: str) -> Verification:
    """What rules can say: where things go."""
    return Verification(NOT_RUN, Answer(result, detail), NOT_LOADED)


def _asked(folder: Path, told: Assignment, said: str) -> Verification:
    """What the library does with a tiny model of as many layers on local servers, beside the rules."""
    servers = {name: n for n, name in enumerate(told.devices)}
    overrides = [(one.pattern, servers.get(one.buffer, -1)) for one in told.overrides]
    experts = bool(told.experts)
    try:
        with LlamaLibrary(folder, len(servers)) as library:
            seen = library.load(told.layers, ngl=told.ngl, split=told.split, overrides=overrides, experts=experts)
            alone = library.load(told.layers, ngl=0, split=[], overrides=[], experts=experts)
            wrong = wrongly_placed(told, seen, library.endpoints)
    except RunFailed as error:
        return _placed("passed", f"{said}; the library could not be asked: {error}")
    if wrong:
        return _placed("failed", f"the library puts {wrong[0]} elsewhere ({len(wrong)} in all)")
    same: Result = "passed" if seen.logits and seen.logits == alone.logits else "failed"
    outputs = Answer(same, f"{len(seen.logits)} logits of a random model, identical to those on the CPU alone")
    if same == "failed":
        outputs = Answer(same, "logits of a random model differ from those on the CPU alone")
    return Verification(outputs, Answer("passed", f"{said}; and by the library itself, on RPC servers"), NOT_LOADED)


def wrongly_placed(told: Assignment, seen: Seen, endpoints: Sequence[str]) -> list[str]:
    """Layers and tensors that the library puts elsewhere than it was told; device n is the server at endpoint n."""
    called = {name: f"RPC{n}" for n, name in enumerate(told.devices)} | {CPU: CPU}
    wanted = [called[name] for name in told.table()]
    wrong = [f"layer {n}" for n, (a, b) in enumerate(zip(seen.table, wanted, strict=True)) if a != b]
    # Buffer types count from 0 on every server, and say where it is.
    buffers = {name: f"RPC0[{where}]" for name, where in zip(told.devices, endpoints, strict=False)} | {CPU: CPU}
    planned = {
        f"blk.{n}.ffn_{part}_exps.weight": buffers[buffer]
        for buffer, layers in told.experts
        for n in layers
        for part in ("up", "down", "gate")
    }
    return wrong + sorted(name for name in {*planned, *seen.moved} if planned.get(name) != seen.moved.get(name))


class _Places:
    """Which device is the CPU, and what llama.cpp calls the others."""

    def __init__(self, stack: LayerStack, cluster: Cluster) -> None:
        self.stack = stack
        self.buffers = buffer_names(cluster)
        self.host = self.buffers.index(CPU) if CPU in self.buffers else None

    def homes(
        self, problem: Problem, row: NDArray[np.uint8]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:  # [layer and output], [layer]
        """The device of every layer without its experts, and of its experts; -1 where it has none."""
        position, expert, count = self.stack.position, self.stack.expert, len(self.stack)
        core = np.where(expert | (position < 0), -1, position).astype(np.int32)
        apart = np.where(expert, position, -1).astype(np.int32)
        homes = share_of_time(problem, row, core, count + 1)
        homes[-1] = homes[-2] if homes[-1] < 0 else homes[-1]
        return homes, share_of_time(problem, row, apart, count)

    def stretches(self, homes: NDArray[np.int64]) -> Stretches | None:
        """The stretches that devices of layers make, if llama.cpp has words for them."""
        found = stretches_of(homes.tolist())
        if found is None or (self.host is not None and self.host in found.devices[1:]):
            return None
        return found


def buffer_names(cluster: Cluster) -> list[str]:  # [device]
    """What llama.cpp calls the buffer type of every device: its alias `llama`, else CPU or CUDA and a number."""
    gpus = [device.name for device in cluster if not device.is_host]
    return [
        str(device.alias.get("llama", CPU if device.is_host else f"CUDA{gpus.index(device.name)}"))
        for device in cluster
    ]


def _wrong_names(cluster: Cluster) -> str | None:
    """What is wrong with the names of devices: two alike, or one that flags cannot carry."""
    names = buffer_names(cluster)
    for device, name in zip(cluster, names, strict=True):
        if names.count(name) > 1:
            return f"two devices are {name} to llama.cpp; give them aliases, alias = {{llama = ...}}, in a device file"
        if not re.fullmatch(r"[\w.:\[\]-]+", name, re.ASCII):
            return f"{device.name} is called {name!r} in llama.cpp, which its flags cannot carry"
    return None


def _called(problem: Problem, stack: LayerStack, members: list[int]) -> str:
    """Layers without their experts, or experts of layers; operators by name where only a part of that is meant."""
    positions, are_experts = np.unique(stack.position[members]), bool(stack.expert[members[0]])
    words = stack.called(positions.tolist())
    count = int((np.isin(stack.position, positions) & (stack.expert == are_experts)).sum())
    return part_of(problem, members, f"experts of {words}" if are_experts else words, count)


def _strays(names: list[str], overrides: list[Override], moved: dict[int, str]) -> list[str]:
    """Tensors that patterns send elsewhere than planned."""
    found = []
    for name in names:
        inside = re.fullmatch(r"blk\.(\d+)\.ffn_(?:up|down|gate|gate_up)_(?:ch|)exps\..+", name)
        if buffer_of(name, overrides) != (moved.get(int(inside[1])) if inside else None):
            found.append(name)
    return found


