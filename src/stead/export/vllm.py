"""vLLM: a layer partition for pipeline stages, one device each.

    env VLLM_PP_LAYER_PARTITION=20,12 CUDA_VISIBLE_DEVICES=0,1 vllm serve MODEL --pipeline-parallel-size 2

The rule (`get_pp_indices`): comma-separated whole numbers, as many as stages, that sum to the hidden layers; the
embedding is on the first stage and the head on the last. Devices without layers are left out of the group. The cache of
keys and values has as many blocks on every stage as the tightest one has room for.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import ClassVar

from stead.errors import BadInput
from stead.export.base import Answer, Bundle, Verification
from stead.export.consumers import NOT_RUN, device_index, model_of, versions_of
from stead.export.stage_targets import Ends, Stage, StageTarget
from stead.plan import Plan
from stead.problem import Problem
from stead.report.facts import resident_weights


@dataclass(frozen=True, slots=True)
class Vllm(StageTarget):
    """Layer partitions of vLLM."""

    name: ClassVar[str] = "vllm"
    tool: ClassVar[str] = "vLLM"
    ends: ClassVar[Ends] = "fixed"

    model: str = ""  # what `vllm serve` is to load; by default the model that the plan was made of

    def unsupported(self, problem: Problem) -> str | None:
        """Why no plan can be exported: it only serves."""
        if problem.graph.is_training:
            return "it is a training graph, and vLLM only serves"
        return StageTarget.unsupported(self, problem)

    def export(self, plan: Plan) -> Bundle:
        """The command, with its environment."""
        _, stages = self.stages(plan)
        partition = partition_text(stages)
        order = [device_index(plan.problem.cluster, stage.device) for stage in stages]
        visible = [] if None in order else [f"CUDA_VISIBLE_DEVICES={','.join(map(str, order))}"]
        model = shlex.quote(self.model or model_of(plan))
        environment = " ".join([f"VLLM_PP_LAYER_PARTITION={partition}", *visible])
        text = f"env {environment} vllm serve {model} --pipeline-parallel-size {len(stages)}"
        return Bundle({"vllm.sh": f"#!/bin/sh\n{text}\n"}, text, text, versions_of("vllm"))

    def verify(self, plan: Plan) -> Verification:
        """Ask vLLM's own rule, or ours of the same words, which layers every stage gets."""
        stack, stages = self.stages(plan)
        text, size = partition_text(stages), len(stages)
        rule, by = _own_rule(text), "vLLM's own get_pp_indices"
        if rule is None:
            rule, by = (lambda layers, rank, size: pp_indices(layers, rank, size, text)), "the rule of get_pp_indices"
        wrong = [
            stage.device
            for rank, stage in enumerate(stages)
            if rule(len(stack), rank, size) != (stage.layers.start, stage.layers.stop)
        ]
        said = f"{len(stack)} layers on {size} stages by {by}"
        placed = Answer("failed", f"other layers on {', '.join(wrong)}") if wrong else Answer("passed", said)
        return Verification(NOT_RUN, placed, Answer("not checkable here", _cache_text(plan, stages)))


def partition_text(stages: Sequence[Stage]) -> str:
    """Layers of every stage, as the environment variable wants them."""
    return ",".join(str(len(stage.layers)) for stage in stages)


def pp_indices(layers: int, rank: int, size: int, partition: str | None = None) -> tuple[int, int]:
    """First layer of a stage and the one after its last, by the rule of vLLM's `get_pp_indices`.

    >>> pp_indices(6, 1, 2, "4,2"), pp_indices(7, 0, 2)
    ((4, 6), (0, 4))
    """
    if partition is not None:
        try:
            counts = [int(part) for part in partition.split(",")]
        except ValueError:
            raise BadInput(f"invalid partition {partition!r}: whole numbers separated by commas are needed") from None
        if len(counts) != size:
            raise BadInput(f"{len(counts)} parts do not match {size} pipeline stages")
        if sum(counts) != layers:
            raise BadInput(f"the parts sum to {sum(counts)}, which does not match {layers} layers")
    else:
        counts = [layers // size] * size
        # What is left goes to the stages before the last, from behind: the last has norm and head to do.
        for i in range(2, layers % size + 2):
            counts[-i] += 1
    start = sum(counts[:rank])
    return start, start + counts[rank]


def _own_rule(partition: str) -> Callable[[int, int, int], tuple[int, int]] | None:
    """vLLM's own function with a partition in its environment; None where it is not installed."""
    try:
        get_pp_indices = import_module("vllm.distributed.utils").get_pp_indices
    except (ImportError, AttributeError):
        return None

    def rule(layers: int, rank: int, size: int) -> tuple[int, int]:
        before = os.environ.get("VLLM_PP_LAYER_PARTITION")
        os.environ["VLLM_PP_LAYER_PARTITION"] = partition
        try:
            start, end = get_pp_indices(layers, rank, size)
        except ValueError:
            return -1, -1  # it refuses the partition
        finally:
            if before is None:
                del os.environ["VLLM_PP_LAYER_PARTITION"]
            else:
                os.environ["VLLM_PP_LAYER_PARTITION"] = before
        return start, end

    return rule


def _cache_text(plan: Plan, stages: Sequence[Stage]) -> str:
    """How much more cache the tightest stage has room for than was planned."""
    cluster, graph = plan.problem.cluster, plan.problem.graph
    if not graph.kv_cache_bytes:
        return "the model was read without a cache of keys and values"
    weights = resident_weights(plan.problem, plan.placement)
    caches = resident_weights(plan.problem, plan.placement, caches=True)
    peaks = plan.trace.peak_bytes
    times = {}
    for stage in stages:
        d = cluster.index(stage.device)
        if caches[d]:
            work = max(0, int(peaks[d]) - weights[d] - caches[d])
            times[stage.device] = (cluster.devices[d].usable_bytes - weights[d] - work) / caches[d]
    tightest = min(times, key=lambda name: times[name])
    return f"room for {times[tightest]:.2f} times the planned cache; {tightest} has least, and all stages get as much"
