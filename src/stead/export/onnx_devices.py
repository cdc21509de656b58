"""Device configurations in an ONNX file, as the standard has them: devices of the model, a stage and one per node."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from stead.export.base import Answer, Bundle, Verification, unseen
from stead.export.by_operator import ByOperator, elsewhere, no_file, ready
from stead.export.consumers import versions_of
from stead.export.ort import inputs_of, not_onnx, segments_of, session_of
from stead.plan import Plan
from stead.problem import Problem
from stead.run.ort.cut_onnx import package

FILE, KEY = "model.onnx", "stead.device"
NEWEST_IR = 13  # that runtimes load; device configurations came with 11
OLDEST_IR = 11


@dataclass(frozen=True, slots=True)
class OnnxDevices(ByOperator):
    """The target `onnx`; `model` is the .onnx file that the plan was made of."""

    model: str = ""
    name: ClassVar[str] = "onnx"

    def unsupported(self, problem: Problem) -> str | None:
        """Why no plan of a problem can be exported."""
        return not_onnx(problem)

    def export(self, plan: Plan) -> Bundle:
        """The model with a device for every node."""
        ready(self, plan, no_file(self.model, ".onnx"))
        model = self._configured(plan)
        load = f'import onnx\nmodel = onnx.load("{FILE}")\n[one.device for one in model.configuration]'
        content = model.SerializeToString(deterministic=True)
        return Bundle({FILE: content}, load, versions=versions_of("onnx", "onnxruntime"))

    def _configured(self, plan: Plan) -> Any:
        file, model, segments = segments_of(plan, self.model)
        for info in model.graph.output:  # the checker wants them to say their shapes
            if not info.type.tensor_type.HasField("shape") and info.name in file.layouts:
                for size in file.layouts[info.name].shape:
                    info.type.tensor_type.shape.dim.add().dim_value = size
        cluster = plan.problem.cluster
        model.ir_version = min(max(model.ir_version, OLDEST_IR), NEWEST_IR)
        del model.configuration[:]
        made = model.configuration.add()
        made.name, made.num_devices = f"stead:{plan.problem.fingerprint}", len(cluster)
        made.device.extend(cluster.names)
        nodes = {node.name: node for node in model.graph.node}
        for stage, segment in enumerate(segments):
            for name in segment.nodes:
                node = nodes[name]
                del node.device_configurations[:]
                own = node.device_configurations.add()
                own.configuration_id, own.pipeline_stage = made.name, stage
                for tensor in filter(None, node.output):
                    spec = own.sharding_spec.add()
                    spec.tensor_name = tensor
                    spec.device.append(segment.device)
                for entry in [one for one in node.metadata_props if one.key == KEY]:
                    node.metadata_props.remove(entry)
                entry = node.metadata_props.add()
                entry.key, entry.value = KEY, cluster.names[segment.device]
        return model

    def verify(self, plan: Plan) -> Verification:
        """The checker of onnx and a session of ONNX Runtime take the file; what it says is read back."""
        reason = no_file(self.model, ".onnx")
        if reason is not None:
            return unseen(reason)
        content = self.export(plan).files[FILE]
        assert isinstance(content, bytes)
        onnx = package("onnx")
        model = onnx.load_from_string(content)
        file, whole, segments = segments_of(plan, self.model)
        try:
            onnx.checker.check_model(model)
            found = session_of(content).run(None, inputs_of(whole, file))
        except Exception as error:  # both raise errors of their own kinds
            failed = Answer("failed", f"{type(error).__name__}: {str(error).partition(chr(10))[0]}")
            return Verification(failed, failed, elsewhere(plan.problem.cluster))
        wanted = session_of(whole.SerializeToString()).run(None, inputs_of(whole, file))
        difference = max((float(abs(a - b).max(initial=0)) for a, b in zip(found, wanted, strict=True)), default=0.0)
        planned = {name: segment.device for segment in segments for name in segment.nodes}
        told = {
            node.name: one.sharding_spec[0].device[0]
            for node in model.graph.node
            for one in node.device_configurations
            if one.sharding_spec
        }
        wrong = [name for name, device in planned.items() if told.get(name) != device]
        outputs = Answer(
            "passed" if difference == 0.0 else "failed",
            f"onnx checks it, ONNX Runtime loads it (IR {model.ir_version}); outputs differ by {difference:.1e}",
        )
        placed = Answer(
            "failed" if wrong else "passed",
            f"{wrong[0]} is elsewhere" if wrong else f"{len(told)} nodes say their device; no runtime acts on it yet",
        )
        return Verification(outputs, placed, elsewhere(plan.problem.cluster))
