"""HETERO: affinities by name, read back both ways; sub-models give the same numbers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from small_files import IR_MODELS, save_ir

from stead.errors import BadInput, PlacementNotHonoured
from stead.readers.openvino.reader import OpenVino
from stead.run.executor import Worker
from stead.run.openvino.hetero import (
    affinities,
    compile_hetero,
    plugins_for,
    properties,
    read_back,
    set_affinities,
)
from stead.run.openvino.ir import cut_ir, input_shapes, read_ir, submodels

ov = pytest.importorskip("openvino")
WORKERS = (Worker("c0", (0,)), Worker("c1", (1,)))


class Placed:
    """A model of this folder on two CPU plugins."""

    def __init__(self, name: str, folder: Path) -> None:
        self.path = save_ir(name, folder)
        self.graph = OpenVino().read(self.path).graph
        self.core = ov.Core()
        self.plugins = plugins_for(self.core, WORKERS)
        self.told = {
            plugin: properties(self.core, plugin, worker)
            for plugin, worker in zip(self.plugins, WORKERS, strict=True)
        }
        self.model = read_ir(self.path, input_shapes(self.graph))
        self.cut = cut_ir(self.model, self.graph)
        self.half = (np.arange(len(self.graph)) >= len(self.graph) // 2).astype(np.uint8)
        given = np.random.default_rng(0)
        self.inputs = [given.standard_normal(list(one.shape), dtype=np.float32) for one in self.model.inputs]

    def planned(self, devices: Any) -> dict[str, str]:
        return affinities(self.model, self.cut, self.graph, self.plugins, devices)

    def compiled(self, planned: dict[str, str]) -> tuple[Any, Any]:
        set_affinities(self.model, planned)
        compiled = compile_hetero(self.core, self.model, self.told)
        request = compiled.create_infer_request()
        request.infer(self.inputs)
        return compiled, request

    def reference(self) -> list[Any]:
        whole = self.core.compile_model(self.path, "CPU", self.told["CPU"])
        request = whole.create_infer_request()
        request.infer(self.inputs)
        return [request.get_output_tensor(i).data.copy() for i in range(len(whole.outputs))]


@pytest.fixture(params=IR_MODELS)
def placed(request: pytest.FixtureRequest, tmp_path: Path) -> Placed:
    return Placed(request.param, tmp_path)


def test_a_second_cpu_plugin_stands_for_a_second_device(tmp_path: Path) -> None:
    core = ov.Core()
    assert plugins_for(core, WORKERS) == ("CPU", "XCPU")
    assert set(core.available_devices) >= {"CPU", "XCPU"}


def test_a_convex_half_gives_two_submodels_that_are_read_back_clean(placed: Placed) -> None:
    planned = placed.planned(placed.half)
    compiled, request = placed.compiled(planned)
    honoured = read_back(compiled, request.get_profiling_info(), planned, placed.told)
    assert honoured.submodels == 2
    assert honoured.devices == ("CPU", "XCPU")
    assert honoured.precisions == {"CPU": "f32", "XCPU": "f32"}
    assert honoured.layers >= len(placed.graph)


def test_two_plugins_in_f32_give_the_same_bits_as_one(placed: Placed) -> None:
    _, request = placed.compiled(placed.planned(placed.half))
    for i, wanted in enumerate(placed.reference()):
        assert np.array_equal(request.get_output_tensor(i).data, wanted)


def test_submodels_of_a_half_split_give_the_same_bits_as_the_whole(placed: Placed) -> None:
    stages = placed.cut.stages(placed.half, range(len(placed.graph)), ["c0", "c1"])
    have = dict(zip(placed.cut.inputs, placed.inputs, strict=True))
    for stage, model in zip(stages, submodels(placed.model, stages), strict=True):
        request = placed.core.compile_model(model, "CPU", placed.told["CPU"]).create_infer_request()
        request.infer([have[tensor] for tensor in stage.takes])
        have.update(
            (tensor, request.get_output_tensor(i).data.copy()) for i, tensor in enumerate(stage.gives)
        )
    for tensor, wanted in zip(placed.cut.results, placed.reference(), strict=True):
        assert np.array_equal(have[tensor], wanted)


def test_all_on_the_second_plugin_is_one_submodel_there(tmp_path: Path) -> None:
    placed = Placed("residual", tmp_path)
    planned = placed.planned(np.ones(len(placed.graph), dtype=np.uint8))
    compiled, request = placed.compiled(planned)
    honoured = read_back(compiled, request.get_profiling_info(), planned, placed.told)
    assert (honoured.devices, honoured.submodels) == (("XCPU",), 1)


def test_a_constant_that_both_devices_read_is_copied_and_never_crosses(tmp_path: Path) -> None:
    placed = Placed("branching", tmp_path)
    devices = np.array([name.startswith("right") for name in placed.graph.operator_names], dtype=np.uint8)
    planned = placed.planned(devices)
    assert sorted(name for name in planned if name.startswith(("shared", "wide"))) == [
        "shared", "shared@XCPU", "wide", "wide@XCPU",
    ]  # fmt: skip
    assert (planned["wide"], planned["wide@XCPU"]) == ("CPU", "XCPU")
    compiled, request = placed.compiled(planned)
    assert read_back(compiled, request.get_profiling_info(), planned, placed.told).submodels == 3


def test_a_layer_without_device_is_named_before_anything_is_compiled(tmp_path: Path) -> None:
    placed = Placed("residual", tmp_path)
    planned = placed.planned(placed.half)
    del planned["w2"]
    with pytest.raises(
        BadInput, match=r'layer "w2" \(Constant\) has no device; HETERO needs one for all 9 layers'
    ):
        set_affinities(placed.model, planned)


def test_a_name_that_is_no_layer_is_refused(tmp_path: Path) -> None:
    placed = Placed("residual", tmp_path)
    with pytest.raises(BadInput, match='names layer "conv9", which the model does not have'):
        set_affinities(placed.model, {**placed.planned(placed.half), "conv9": "CPU"})


def test_layers_that_run_elsewhere_than_planned_are_listed(tmp_path: Path) -> None:
    placed = Placed("residual", tmp_path)
    planned = placed.planned(placed.half)
    compiled, request = placed.compiled(planned)
    with pytest.raises(
        PlacementNotHonoured, match='1 layers run elsewhere than planned, first "conv2"'
    ) as caught:
        read_back(compiled, request.get_profiling_info(), {**planned, "conv2": "CPU"}, placed.told)
    assert caught.value.differing == {"conv2": ("CPU", "XCPU")}


def test_another_precision_than_asked_is_told(tmp_path: Path) -> None:
    placed = Placed("residual", tmp_path)
    planned = placed.planned(placed.half)
    compiled, request = placed.compiled(planned)
    asked = {**placed.told, "XCPU": {"INFERENCE_PRECISION_HINT": "bf16"}}
    with pytest.raises(PlacementNotHonoured, match="XCPU computes in f32 and not in bf16 as asked"):
        read_back(compiled, request.get_profiling_info(), planned, asked)


def test_what_the_machine_lacks_is_refused_by_name() -> None:
    core = ov.Core()
    with pytest.raises(BadInput, match=r"OpenVINO has no device NPU\.7 here for n; it has CPU"):
        plugins_for(core, [Worker("n", (0,), device="npu:7")])
    with pytest.raises(BadInput, match="does not compute in fp8; known: fp32, bf16, fp16"):
        properties(core, "CPU", Worker("c", (0,), dtype="fp8"))
