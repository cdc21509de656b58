"""DeepSpeed: a PipelineModule that takes its parts as given. Experimental: DeepSpeed accepts no list of its own.

`_partition_layers` is overridden, so that `parts` is what the plan says instead of what `partition_method` finds; the
list of layer specifications counts the embedding first and norm and head last.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from stead.export.base import Answer, Bundle, Verification
from stead.export.consumers import NOT_LOADED, NOT_RUN, versions_of
from stead.export.stage_targets import Stage, StageTarget
from stead.plan import Plan

_MODULE = '''"""A DeepSpeed pipeline whose parts are those of a plan; written by stead. Experimental."""

from deepspeed.pipe import PipelineModule

PARTS = {parts}  # the first layer of every stage, and the number of all: embedding, {layers} layers, head


class PlannedPipeline(PipelineModule):
    """PipelineModule(layers=[embedding, layer 0, ..., head], num_stages={stages}) with the parts of the plan."""

    def _partition_layers(self, method="uniform"):
        stage = self._topo.get_coord(self.global_rank).pipe
        if len(self._layer_specs) != PARTS[-1]:
            raise ValueError(f"the plan is for {{PARTS[-1]}} layers, got {{len(self._layer_specs)}}")
        self.parts = PARTS
        self._set_bounds(start=PARTS[stage], stop=PARTS[stage + 1])
'''


@dataclass(frozen=True, slots=True)
class DeepSpeed(StageTarget):
    """A PipelineModule for DeepSpeed."""

    name: ClassVar[str] = "deepspeed"
    tool: ClassVar[str] = "DeepSpeed"

    def export(self, plan: Plan) -> Bundle:
        """A module to import."""
        stack, stages = self.stages(plan)
        code = _MODULE.format(parts=bounds(stages, len(stack)), layers=len(stack), stages=len(stages))
        load = (
            "from planned_pipeline import PlannedPipeline\n"
            f"net = PlannedPipeline(layers=[embedding, *blocks, head], num_stages={len(stages)})\n"
            "engine, *_ = deepspeed.initialize(model=net, ...)"
        )
        return Bundle({"planned_pipeline.py": code}, load, "", versions_of("deepspeed"))

    def verify(self, plan: Plan) -> Verification:
        """Read the parts back from the module; DeepSpeed itself is not run."""
        stack, stages = self.stages(plan)
        tree = ast.parse(str(self.export(plan).files["planned_pipeline.py"]))
        parts = next(
            ast.literal_eval(node.value)
            for node in tree.body
            if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "PARTS"
        )
        same = parts == bounds(stages, len(stack))
        said = f"{parts} read back from the module; its form only, DeepSpeed was not run"
        return Verification(NOT_RUN, Answer("not checkable here" if same else "failed", said), NOT_LOADED)


def bounds(stages: Sequence[Stage], layers: int) -> list[int]:
    """The first of every stage in [embedding, layers, head], and the number of all."""
    found = [0]
    for stage in stages:
        found.append(found[-1] + len(stage.layers) + stage.embeds + stage.has_head)
    assert found[-1] == layers + 2
    return found
