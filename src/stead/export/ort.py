"""ONNX Runtime: a chain of sub-models, one session each, for any devices; and where one session can, its assignment."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from stead.cluster import Cluster
from stead.errors import PlacementNotHonoured
from stead.export.base import Answer, Bundle, Verification, unseen
from stead.export.by_operator import ByOperator, check_same, elsewhere, no_file, order_of, ready
from stead.export.consumers import versions_of
from stead.plan import Plan
from stead.problem import Problem
from stead.run.ort.assignment import BY_ANNOTATION, annotate, open_assigned
from stead.run.ort.cut_onnx import OnnxFile, cut_onnx, package, read_onnx, submodel
from stead.run.segments import Segment

PROVIDERS = {"cpu": "CPUExecutionProvider", "gpu": "CUDAExecutionProvider", "npu": "QNNExecutionProvider"}
OPENVINO, TORCH = "Parameter", "."


def not_onnx(problem: Problem) -> str | None:
    """Why operators are not nodes of an ONNX file; None if they can be."""
    kinds = set(problem.graph.kinds)
    if not kinds & {"Input", "input"} or OPENVINO in kinds or any(TORCH in kind for kind in kinds):
        return "its operators are not nodes of an ONNX file; read the model from an .onnx file"
    return None


@dataclass(frozen=True, slots=True)
class Ort(ByOperator):
    """The target `ort`; `model` is the .onnx file that the plan was made of."""

    model: str = ""
    name: ClassVar[str] = "ort"

    def unsupported(self, problem: Problem) -> str | None:
        """Why no plan of a problem can be exported."""
        return not_onnx(problem)

    def banned(self, cluster: Cluster) -> dict[int, str]:
        """Devices that no provider is known for."""
        return {
            d: f"ONNX Runtime has no provider that is known for {device.name} of kind {device.kind}; the device file "
            'can name one: alias = {ort = "...ExecutionProvider"}'
            for d, device in enumerate(cluster)
            if provider_of(cluster, d) is None
        }

    def export(self, plan: Plan) -> Bundle:
        """Sub-models, what passes between them, a program that runs the chain, and the annotated whole."""
        ready(self, plan, no_file(self.model, ".onnx"))
        file, model, segments = segments_of(plan, self.model)
        cluster = plan.problem.cluster
        files: dict[str, str | bytes] = {}
        listed = []
        for n, segment in enumerate(segments):
            files[f"seg_{n}.onnx"] = submodel(model, segment, file.codes, file.layouts).SerializeToString()
            device = cluster.devices[segment.device]
            listed.append({
                "file": f"seg_{n}.onnx", "device": device.name, "provider": provider_of(cluster, segment.device),
                "provider_options": provider_options(cluster, segment.device),
                "inputs": list(segment.takes), "outputs": list(segment.gives),
            })  # fmt: skip
        results = [one.name for one in model.graph.output]
        table: dict[str, Any] = {"segments": listed, "order": list(range(len(segments))), "results": results}
        designators = designators_of(cluster)
        if designators is not None:
            planned = self._nodes(segments, designators)
            annotated = file.model()
            self._mark_rest(annotated, planned, designators)
            table["session"] = {"file": "annotated.onnx", BY_ANNOTATION: annotate(annotated, planned)}
            files["annotated.onnx"] = annotated.SerializeToString()
        files["pipeline.json"] = json.dumps(table, indent=1) + "\n"
        files["run.py"] = RUNNER
        held = {one.name for one in model.graph.initializer}
        given = ", ".join(f"{json.dumps(one.name)}: array" for one in model.graph.input if one.name not in held)
        load = f"from run import Chain\nchain = Chain()\nresults = chain({{{given}}})"
        return Bundle(files, load, versions=versions_of("onnxruntime", "onnx"))

    def _nodes(self, segments: tuple[Segment, ...], designators: Mapping[int, str]) -> dict[str, str]:
        return {name: designators[segment.device] for segment in segments for name in segment.nodes}

    def _mark_rest(self, model: Any, planned: dict[str, str], designators: Mapping[int, str]) -> None:
        """Constants go with whoever reads them."""
        readers: dict[str, str] = {}
        for node in reversed(model.graph.node):
            if node.name not in planned:
                known = (readers[one] for one in node.output if one in readers)
                planned[node.name] = next(known, next(iter(designators.values())))
            for tensor in node.input:
                readers[tensor] = planned[node.name]

    def verify(self, plan: Plan) -> Verification:
        """Run the chain on the CPU provider and compare with the whole; read back where one session puts nodes."""
        reason = no_file(self.model, ".onnx")
        if reason is not None:
            return unseen(reason)
        bundle = self.export(plan)
        table = json.loads(str(bundle.files["pipeline.json"]))
        file, model, segments = segments_of(plan, self.model)
        given = inputs_of(model, file)
        whole = session_of(model.SerializeToString())
        wanted = dict(zip(table["results"], whole.run(table["results"], given), strict=True))
        known: dict[str, Any] = dict(given)
        for one in table["segments"]:
            content = bundle.files[one["file"]]
            assert isinstance(content, bytes)
            part = session_of(content)
            feeds = {name: known[name] for name in one["inputs"]}
            known.update(zip(one["outputs"], part.run(one["outputs"], feeds), strict=True))
        differences = [float(np.abs(known[name] - value).max(initial=0)) for name, value in wanted.items()]
        difference = max(differences, default=0.0)
        outputs = Answer(
            "passed" if difference == 0.0 else "failed",
            f"a chain of {len(segments)} sub-models differs by {difference:.1e} at most from the whole",
        )
        return Verification(outputs, self._placed(bundle, table, segments), elsewhere(plan.problem.cluster))

    def _placed(self, bundle: Bundle, table: dict[str, Any], segments: tuple[Segment, ...]) -> Answer:
        nodes = sum(len(segment.nodes) for segment in segments)
        chain = f"{nodes} nodes in {len(segments)} sub-models, each in a session of its own"
        if "session" not in table:
            return Answer("passed", f"{chain}; one session cannot take two devices of a kind")
        onnx = package("onnx")
        content = bundle.files["annotated.onnx"]
        assert isinstance(content, bytes)
        model = onnx.load_from_string(content)
        rule = table["session"][BY_ANNOTATION]
        if {one.partition("(")[0].strip() for one in rule.split(";")} != {"cpu"}:
            return Answer("passed", f"{chain}; the one session needs providers that are not here")
        try:
            _, said = open_assigned(model, {BY_ANNOTATION: rule}, {node.name: "cpu" for node in model.graph.node})
        except PlacementNotHonoured as error:
            return Answer("failed", str(error))
        return Answer("passed", f"{chain}; one session: {said}")


def segments_of(plan: Plan, model: str) -> tuple[OnnxFile, Any, tuple[Segment, ...]]:
    """The file of a plan, its model, and its sub-models in order."""
    graph, file = read_onnx(Path(model), {})
    check_same(plan.problem.graph, graph, model)
    whole = file.model()
    return file, whole, cut_onnx(whole, plan.problem.graph).segments(plan.placement.devices, order_of(plan))


def provider_of(cluster: Cluster, d: int) -> str | None:
    """The provider that serves a device: the alias of the device file, or the usual one of its kind."""
    device = cluster.devices[d]
    given = str(device.alias.get("ort", ""))
    return given if given.endswith("ExecutionProvider") else PROVIDERS.get(device.kind)


def provider_options(cluster: Cluster, d: int) -> dict[str, str]:
    """Which of several devices of a kind a provider takes."""
    device = cluster.devices[d]
    if device.is_host:
        return {}
    return {"device_id": str(sum(one.kind == device.kind for one in cluster.devices[:d]))}


def designators_of(cluster: Cluster) -> dict[int, str] | None:
    """What rules of one session call the devices; None where it cannot hold them: two of one kind."""
    kinds = [device.kind for device in cluster]
    return dict(enumerate(kinds)) if len(set(kinds)) == len(kinds) else None


def session_of(content: bytes) -> Any:
    """A session on the CPU that runs a model as it is written."""
    ort = package("onnxruntime")
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    return ort.InferenceSession(content, options, providers=["CPUExecutionProvider"])


def inputs_of(model: Any, file: OnnxFile) -> dict[str, Any]:
    """Numbers at random for every input."""
    random = np.random.default_rng(0)
    stored = {one.name for one in model.graph.initializer}
    given = {}
    for info in model.graph.input:
        if info.name in stored:
            continue
        layout = file.layouts[info.name]
        dtype = np.dtype(layout.dtype)
        drawn = random.standard_normal(layout.shape) if dtype.kind == "f" else random.integers(0, 2, layout.shape)
        given[info.name] = drawn.astype(dtype)
    return given


RUNNER = '''"""Runs the sub-models of this folder, one session each on its device."""

import json
from pathlib import Path

import onnxruntime as ort

HERE = Path(__file__).parent


class Chain:
    """Call it with arrays by input name; gives the results of the whole model by name."""

    def __init__(self):
        self.table = json.loads((HERE / "pipeline.json").read_text())
        self.sessions = [self._open(one) for one in self.table["segments"]]

    def _open(self, one):
        provider = (one["provider"], one["provider_options"])
        session = ort.InferenceSession(HERE / one["file"], providers=[provider])
        if session.get_providers()[0] != one["provider"]:
            raise RuntimeError(f"{one['file']} is planned for {one['provider']}, which is not here")
        return session

    def __call__(self, given):
        known = {name: ort.OrtValue.ortvalue_from_numpy(value) for name, value in given.items()}
        for number in self.table["order"]:
            one, session = self.table["segments"][number], self.sessions[number]
            bound = session.io_binding()
            for name in one["inputs"]:
                bound.bind_ortvalue_input(name, known[name])
            for name in one["outputs"]:
                bound.bind_output(name)
            session.run_with_iobinding(bound)
            known.update(zip(one["outputs"], bound.get_outputs()))
        return {name: known[name].numpy() for name in self.table["results"]}
'''
