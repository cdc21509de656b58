"""Stages for OpenVINO: models of their own for what a device runs in one go, so that several requests are under way.

HETERO runs the parts of one request one after another. A pipeline that is kept full needs each part compiled alone.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from stead.export.by_operator import order_of
from stead.plan import Plan
from stead.run.openvino.ir import cut_ir, input_shapes, openvino, read_ir, submodels

TABLE, RUNNER = "stages.json", "run.py"


def stage_files(file: Path, plan: Plan, names: Sequence[str]) -> dict[str, str | bytes]:
    """The models of all stages, what passes between them, and a program that runs the chain; `names` are of devices."""
    graph = plan.problem.graph
    model = read_ir(file, input_shapes(graph))
    cut = cut_ir(model, graph)
    segments = cut.segments(plan.placement.devices, order_of(plan))
    files: dict[str, str | bytes] = {}
    listed = []
    for n, (segment, part) in enumerate(zip(segments, submodels(model, segments), strict=True)):
        xml, weights = saved(part)
        files.update({f"stage_{n}.xml": xml, f"stage_{n}.bin": weights})
        listed.append({
            "file": f"stage_{n}.xml", "device": names[segment.device],
            "inputs": segment.takes, "outputs": segment.gives,
        })  # fmt: skip
    table = {"stages": listed, "inputs": cut.inputs, "results": cut.results}
    return {**files, TABLE: json.dumps(table, indent=1) + "\n", RUNNER: RUNNER_TEXT}


def saved(model: Any) -> tuple[bytes, bytes]:
    """The two files of a model, in full precision."""
    with tempfile.TemporaryDirectory(prefix="stead-openvino-") as work:
        path = Path(work) / "model.xml"
        openvino().save_model(model, path, compress_to_fp16=False)
        return path.read_bytes(), path.with_suffix(".bin").read_bytes()


def run_stages(folder: Path, core: Any, devices: Mapping[str, str], given: Sequence[Any]) -> tuple[int, list[Any]]:
    """How many stages the program of an export runs, and what it gives, with other names for its devices."""
    space: dict[str, Any] = {"__file__": str(folder / RUNNER), "__name__": "run"}
    exec(compile((folder / RUNNER).read_text(), RUNNER, "exec"), space)
    chain = space["Chain"](core, devices)
    return len(chain.stages), chain(*given)


RUNNER_TEXT = '''"""Runs the stages of this folder, each compiled for its device."""

import json
from pathlib import Path

import openvino as ov

HERE = Path(__file__).parent


class Chain:
    """Call it with arrays in the order of the model's inputs; gives the results of the whole model in their order.

    `devices` says what planned devices are called here, where that is something else. To keep a pipeline full, run
    `stages` in threads of their own: each needs `inputs` and gives `outputs` of its line in stages.json.
    """

    def __init__(self, core=None, devices=None):
        core, called = core or ov.Core(), devices or {}
        self.table = json.loads((HERE / "stages.json").read_text())
        self.stages = [
            core.compile_model(HERE / one["file"], called.get(one["device"], one["device"]),
                               {"INFERENCE_PRECISION_HINT": "f32"})
            for one in self.table["stages"]
        ]

    def __call__(self, *given):
        known = dict(zip(self.table["inputs"], given))
        for one, stage in zip(self.table["stages"], self.stages):
            found = stage([known[name] for name in one["inputs"]])
            known.update((name, found[n]) for n, name in enumerate(one["outputs"]))
        return [known[name] for name in self.table["results"]]
'''
