"""torchtitan: names of modules for every part of a model.

    config.parallelism.pipeline_parallel_degree = 2
    config.parallelism.module_fqns_per_model_part = [["tok_embeddings", "layers.0"], ["layers.1", "norm", "lm_head"]]

These two lines go into the function of a model's `config_registry` that `--config` names.
Names are those of torchtitan's own models (tok_embeddings, layers.N, norm, lm_head); every name is there exactly once.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from stead.errors import BadInput
from stead.export.base import Answer, Bundle, Verification
from stead.export.consumers import NOT_LOADED, NOT_RUN, device_index, versions_of
from stead.export.stage_targets import Stage, StageTarget
from stead.plan import Plan


@dataclass(frozen=True, slots=True)
class Torchtitan(StageTarget):
    """Names of modules per part for torchtitan."""

    name: ClassVar[str] = "torchtitan"
    tool: ClassVar[str] = "torchtitan"

    def export(self, plan: Plan) -> Bundle:
        """The lines of the configuration, and the names as JSON."""
        _, stages = self.stages(plan)
        names = part_names(stages)
        text = (
            f"config.parallelism.pipeline_parallel_degree = {len(stages)}\n"
            f"config.parallelism.module_fqns_per_model_part = {json.dumps(names)}"
        )
        order = [device_index(plan.problem.cluster, stage.device) for stage in stages]
        visible = "" if None in order else f"env CUDA_VISIBLE_DEVICES={','.join(map(str, order))} "
        load = (
            f"# in the function of config_registry that --config names:\n{text}\n"
            f"# then:\n{visible}torchrun --nproc-per-node {len(stages)} "
            "-m torchtitan.train --module MODEL --config NAME"
        )
        files = {"parallelism.py": f"{text}\n", "parts.json": json.dumps(names, indent=1) + "\n"}
        return Bundle(files, load, text, versions_of("torchtitan"))

    def verify(self, plan: Plan) -> Verification:
        """Every name exactly once, in the order in which they run."""
        stack, stages = self.stages(plan)
        found = check_parts(part_names(stages), layers=len(stack))
        wanted = [stage.layers for stage in stages]
        same = found == wanted
        said = f"{len(stack) + 3} names in {len(stages)} parts, each once, in order"
        return Verification(NOT_RUN, Answer("passed" if same else "failed", said), NOT_LOADED)


def part_names(stages: Sequence[Stage]) -> list[list[str]]:
    """Names of the modules of every part."""
    return [
        [*(["tok_embeddings"] if stage.embeds else []), *(f"layers.{n}" for n in stage.layers),
         *(["norm", "lm_head"] if stage.has_head else [])]
        for stage in stages
    ]  # fmt: skip


def check_parts(parts: Sequence[Sequence[str]], *, layers: int) -> list[range]:
    """The layers of every part; BadInput where a name is missing, there twice, or out of order."""
    flat = [name for part in parts for name in part]
    wanted = ["tok_embeddings", *(f"layers.{n}" for n in range(layers)), "norm", "lm_head"]
    if flat != wanted:
        odd = next((name for name in flat if flat.count(name) > 1 or name not in wanted), None)
        missing = next((name for name in wanted if name not in flat), None)
        said = f"{odd!r} should not be there" if odd is not None else f"{missing!r} is missing"
        raise BadInput(f"parts name every module once and in order: {said if odd or missing else 'the order differs'}")
    numbers = [[int(name.split(".")[1]) for name in part if name.startswith("layers.")] for part in parts]
    found, begin = [], 0
    for part in numbers:
        found.append(range(begin, begin + len(part)))
        begin += len(part)
    return found
