"""Megatron-LM: the layout of a pipeline as one string.

    --pipeline-model-parallel-size 4 --pipeline-model-parallel-layout "Ettttttt|ttttttttt|ttttttttt|tttttttL"

E is the embedding, t a layer, L head and loss, `|` ends a stage; `x*n` and `(..)*n` repeat, commas are cosmetic, and
parts may be empty. With virtual stages the part number v * stages + rank is on that rank; stead writes one part each.
"""

from __future__ import annotations

import contextlib
import io
import re
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any, ClassVar

from stead.errors import BadInput
from stead.export.base import Answer, Bundle, Result, Verification
from stead.export.consumers import NOT_LOADED, NOT_RUN, device_index, versions_of
from stead.export.stage_targets import Stage, StageTarget
from stead.plan import Plan

MOST_LETTERS = 10_000  # of an expanded layout
_REPEATED = re.compile(r"(?:\(([^()]*)\)|([EtmL|]))\*(\d{1,5})")


@dataclass(frozen=True, slots=True)
class Megatron(StageTarget):
    """Pipeline layouts of Megatron-LM."""

    name: ClassVar[str] = "megatron"
    tool: ClassVar[str] = "Megatron"

    def export(self, plan: Plan) -> Bundle:
        """The two arguments of the training script."""
        _, stages = self.stages(plan)
        text = f"--pipeline-model-parallel-size {len(stages)} --pipeline-model-parallel-layout '{layout_text(stages)}'"
        order = [device_index(plan.problem.cluster, stage.device) for stage in stages]
        visible = "" if None in order else f"env CUDA_VISIBLE_DEVICES={','.join(map(str, order))} "
        load = f"{visible}torchrun --nproc-per-node {len(stages)} pretrain_gpt.py {text}"
        return Bundle({"megatron.txt": f"{text}\n"}, load, text, versions_of("megatron-core"))

    def verify(self, plan: Plan) -> Verification:
        """Have Megatron's own class read the layout, or our reader of the same grammar."""
        stack, stages = self.stages(plan)
        text = layout_text(stages)
        wanted = [_letters(stage) for stage in stages]
        found, by = own_parts(text, len(stages), len(stack))
        if found is None:
            found, by = parts_of(text, layers=len(stack)), "our reader of its grammar"
        result: Result = "passed" if found == wanted else "failed"
        said = f"{len(stack)} layers on {len(stages)} stages as read by {by}"
        return Verification(NOT_RUN, Answer(result, said), NOT_LOADED)


def layout_text(stages: Sequence[Stage]) -> str:
    """The layout of stages."""
    return "|".join(_letters(stage) for stage in stages)


def _letters(stage: Stage) -> str:
    return f"{'E' if stage.embeds else ''}{'t' * len(stage.layers)}{'L' if stage.has_head else ''}"


def parts_of(layout: str, *, layers: int) -> list[str]:
    """The letters of every part of a layout; BadInput where Megatron would refuse it.

    >>> parts_of("Et*2|(t|)*2L", layers=4)
    ['Ett', 't', 't', 'L']
    """
    expanded = layout.replace(",", "").replace(" ", "")
    while found := _REPEATED.search(expanded):
        inner = (found[1] if found[1] is not None else found[2]) * int(found[3])
        expanded = expanded[: found.start()] + inner + expanded[found.end() :]
        if len(expanded) > MOST_LETTERS:
            raise BadInput(f"the layout has more than {MOST_LETTERS} letters")
    if wrong := set(expanded) - set("EtmL|"):
        raise BadInput(f"a layout has the letters E, t, m, L and |, got {' '.join(sorted(wrong))} in {layout!r}")
    parts = expanded.split("|")
    flat = "".join(parts)
    if flat.count("E") != 1 or not flat.startswith("E"):
        raise BadInput(f"a layout begins with E, and has one of it: {layout!r}")
    if flat.count("L") != 1 or not flat.endswith("L"):
        raise BadInput(f"a layout ends with L, and has one of it: {layout!r}")
    if flat.count("t") != layers:
        raise BadInput(f"the layout has {flat.count('t')} layers (t), the model {layers}")
    if "mt" in flat.replace("|", "") or sum("m" in part for part in parts) > 1:
        raise BadInput(f"m comes after all t, in one part: {layout!r}")
    return parts


def own_parts(text: str, stages: int, layers: int) -> tuple[list[str] | None, str]:
    """What Megatron's own class makes of a layout; None where it is not installed."""
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        try:
            module: Any = import_module("megatron.core.transformer.pipeline_parallel_layer_layout")
        except ImportError:
            return None, ""
        try:
            made = module.PipelineParallelLayerLayout(text, stages)
            made.validate_layer_layout(layers, 0)
        except (AssertionError, ValueError) as error:
            return [], f"Megatron's PipelineParallelLayerLayout, which refuses it: {error}"
    letter = {"embedding": "E", "decoder": "t", "loss": "L", "mtp": "m"}
    parts = ["".join(letter[one.name] for one in rank[0]) for rank in made.layout]
    return parts, "Megatron's PipelineParallelLayerLayout"
