"""Affinities for OpenVINO: the model, a device for each of its layers, and a program that loads both (HETERO).

On demand also stages: models of their own, for a pipeline that is kept full.
"""

from __future__ import annotations

import json
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from stead.cluster import Cluster
from stead.errors import BadInput
from stead.export.base import Answer, Bundle, Verification, did_not_run, unseen
from stead.export.by_operator import ByOperator, check_same, elsewhere, no_file, ready
from stead.export.check_process import told_by, write_files
from stead.export.consumers import versions_of
from stead.export.openvino_check import TOLERANCE
from stead.export.openvino_stages import saved, stage_files
from stead.graph import Graph
from stead.plan import Plan
from stead.problem import Problem
from stead.readers import read
from stead.run.openvino.hetero import affinities
from stead.run.openvino.ir import cut_ir, input_shapes, openvino, read_ir

RELATIVE = 1e-5  # of logits by their size: sums in another order differ by less
PARAMETER = "Parameter"
PLUGINS = ("cpu", "gpu", "npu")  # kinds of devices


@dataclass(frozen=True, slots=True)
class OpenVino(ByOperator):
    """The target `openvino`; `model` is the .xml file that the plan was made of, `stages` asks for sub-models, too."""

    model: str = ""
    stages: bool = False
    name: ClassVar[str] = "openvino"

    def unsupported(self, problem: Problem) -> str | None:
        """Why no plan of a problem can be exported."""
        if PARAMETER not in problem.graph.kinds:
            return "its operators are not layers of OpenVINO; read the model from an .xml file"
        return None

    def banned(self, cluster: Cluster) -> dict[int, str]:
        """Devices of kinds that OpenVINO has no plugin for."""
        return {
            d: f"OpenVINO has no plugin for {device.name} of kind {device.kind}; the device file can name one: "
            "alias = {openvino = ...}"
            for d, device in enumerate(cluster)
            if device.kind not in PLUGINS and not device.alias.get("openvino")
        }

    def export(self, plan: Plan) -> Bundle:
        """The model, the device of each layer by name, and a program that compiles both."""
        ready(self, plan, no_file(self.model, ".xml"))
        check_same(plan.problem.graph, _graph_of(self.model), self.model)
        names = openvino_names(plan.problem.cluster)
        used = [names[d] for d in sorted(set(plan.placement.devices.tolist()))]
        graph = plan.problem.graph
        model = read_ir(Path(self.model), input_shapes(graph))
        planned = affinities(model, cut_ir(model, graph), graph, names, plan.placement.devices)
        xml, weights, known = _saved(model)
        missing = sorted(known - planned.keys())
        if missing:
            raise BadInput(f"layer {missing[0]} is called otherwise once the model is saved; save the model again")
        placed = {name: planned[name] for name in sorted(known)}
        files: dict[str, str | bytes] = {
            "model.xml": xml, "model.bin": weights, "affinity.json": json.dumps(placed, indent=0) + "\n",
            "load.py": LOADER.format(devices=",".join(used)),
        }  # fmt: skip
        load = "from load import load\ncompiled = load()\nresult = compiled([x])"
        if self.stages:
            files |= stage_files(Path(self.model), plan, names)
            load += "\n# or stage by stage:\nfrom run import Chain\nchain = Chain()\nresults = chain(x)"
        return Bundle(files, load, versions=versions_of("openvino"))

    def verify(self, plan: Plan) -> Verification:
        """Compile and run the exported files on as many CPU plugins, and read back which layer ran where."""
        reason = no_file(self.model, ".xml")
        if reason is not None:
            return unseen(reason)
        return _verified(self, plan, self.export(plan))


def openvino_names(cluster: Cluster) -> list[str]:
    """What OpenVINO calls each device: the alias of the device file, or its kind with a number."""
    names: list[str] = []
    for d, device in enumerate(cluster):
        given = device.alias.get("openvino")
        same = [one for one in cluster.devices[:d] if one.kind == device.kind]
        several = sum(one.kind == device.kind for one in cluster) > 1
        kind = device.kind.upper()
        names.append(str(given) if given else kind if device.is_host or not several else f"{kind}.{len(same)}")
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise BadInput(f"two devices are {twice} to OpenVINO; give them an alias: alias = {{openvino = ...}}")
    return names


def _graph_of(model: str) -> Graph:
    return read(Path(model)).graph


def _saved(model: Any) -> tuple[bytes, bytes, set[str]]:
    """The two files of a model, in full precision, and the names of its layers as they are read from them."""
    xml, weights = saved(model)
    read = openvino().Core().read_model(xml, weights)
    return xml, weights, {str(op.get_friendly_name()) for op in read.get_ops()}


def _verified(target: OpenVino, plan: Plan, bundle: Bundle) -> Verification:
    job = {"model": str(Path(target.model).resolve()), "shapes": input_shapes(plan.problem.graph)}
    with tempfile.TemporaryDirectory(prefix="stead-openvino-") as work:
        write_files(bundle, Path(work))
        told = told_by("stead.export.openvino_check", job, work)
    if "missing" in told:
        return unseen(told["missing"])
    if "error" in told:
        return did_not_run(told["error"])
    return Verification(_outputs(told), _placed(told), elsewhere(plan.problem.cluster))


def _outputs(told: dict[str, Any]) -> Answer:
    difference, relative = told["difference"], told["relative"]
    word = f"outputs differ by {difference:.1e} at most"
    chained = told.get("chained", 0.0)
    if "chained" in told:
        word += f", those of {told['stages']} stages by {chained:.1e}"
    if relative is None:
        return Answer("passed" if max(difference, chained) <= TOLERANCE else "failed", word)
    why = f"rounding alone decides about their softmax; what it reads differs by {relative:.1e} of its largest value"
    return Answer("passed" if relative <= RELATIVE else "failed", f"{word}, but {why}")


def _placed(told: dict[str, Any]) -> Answer:
    if "wrong" in told:
        return Answer("failed", told["wrong"])
    played = ", ".join(f"{plugin} for {device}" for device, plugin in told["plugins"].items())
    word = f"{told['layers']} layers in {told['submodels']} submodels, all where planned; {played}"
    if set(told["ran"]) == set(told["plugins"].values()):
        return Answer("passed", word)
    return Answer("failed", f"only {told['ran']} ran; {word}")


LOADER = '''"""Compiles the model of this folder with every layer on its planned device."""

import json
from pathlib import Path

import openvino as ov

HERE, DEVICES = Path(__file__).parent, "{devices}"


def load(core=None, **properties):
    """The compiled model; affinities are not saved in the model, so they are set here."""
    core = core or ov.Core()
    planned = json.loads((HERE / "affinity.json").read_text())
    model = core.read_model(HERE / "model.xml")
    for op in model.get_ops():
        op.get_rt_info()["affinity"] = planned[op.get_friendly_name()]
    told = {{device: {{"INFERENCE_PRECISION_HINT": "f32"}} for device in DEVICES.split(",")}}
    return core.compile_model(model, f"HETERO:{{DEVICES}}", {{"DEVICE_PROPERTIES": told, **properties}})
'''
