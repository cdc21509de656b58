"""ONNX Runtime: sub-models in processes, profiles by node, and assignments that are read back."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from small_files import save_onnx
from test_openvino_executor import half, problem_of, shared_memory, two_workers

from stead import Placement
from stead.errors import BadInput, PlacementNotHonoured
from stead.run.executor import Worker
from stead.run.ort.assignment import (
    BY_ANNOTATION,
    BY_NAME,
    annotate,
    check_settings,
    open_assigned,
    read_back,
)
from stead.run.ort.cut_onnx import cut_onnx, read_onnx, submodel
from stead.run.ort.executor import OrtExecutor
from stead.run.ort.in_worker import FusedSteps, kernel_seconds

ort = pytest.importorskip("onnxruntime")
onnx = pytest.importorskip("onnx")
needs_two_cores = pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="two workers need two cores")


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_onnx(tmp_path_factory.mktemp("models"))


@pytest.fixture(scope="module")
def executor(path: Path) -> Iterator[OrtExecutor]:
    with OrtExecutor(path, two_workers()) as opened:
        yield opened


@needs_two_cores
@pytest.mark.parametrize("seed", range(4))
def test_any_placement_runs_and_gives_the_results_of_one_worker(executor: OrtExecutor, seed: int) -> None:
    problem = problem_of(executor.graph)
    placement = Placement(problem, np.random.default_rng(seed).integers(0, 2, len(problem.graph)))
    burst = executor.burst(placement, runs=2)
    assert burst.lost or (len(burst.seconds) == 2 and min(burst.seconds) > 0)
    assert executor.check(placement).passed


@needs_two_cores
def test_without_optimisation_every_placement_gives_the_same_bits(path: Path) -> None:
    with OrtExecutor(path, two_workers(), level="none") as executor:
        problem = problem_of(executor.graph)
        for seed in range(3):
            devices = np.random.default_rng(seed).integers(0, 2, len(problem.graph))
            assert executor.check(Placement(problem, devices)).max_abs == 0.0


@needs_two_cores
def test_stages_run_as_a_pipeline(executor: OrtExecutor) -> None:
    burst = executor.pipeline(half(executor), samples=5)
    assert burst.lost or len(burst.seconds) == 4


@needs_two_cores
def test_the_times_of_kernels_go_to_operators_and_none_is_lost(executor: OrtExecutor) -> None:
    seconds = executor.profile(0, repeats=2)
    assert seconds.shape == (2, len(executor.graph))
    assert (seconds[:, executor.graph.index("conv1")] > 0).all()
    assert (seconds[:, executor.graph.index("conv2")] > 0).all()


@needs_two_cores
def test_nothing_is_left_behind(path: Path) -> None:
    before = shared_memory()
    with OrtExecutor(path, two_workers()) as executor:
        executor.burst(half(executor), runs=1)
        processes = executor.process_ids
    assert shared_memory() == before
    assert not any(Path(f"/proc/{process}").exists() for process in processes)


def test_a_submodel_takes_all_that_crosses_and_has_its_own_constants(path: Path) -> None:
    graph, file = read_onnx(path, {})
    model = file.model()
    cut = cut_onnx(model, graph)
    devices = np.array([name in ("conv2", "relu2") for name in graph.operator_names], dtype=np.uint8)
    found = cut.segments(devices, range(len(graph)))
    second = next(segment for segment in found if "conv2" in segment.nodes)
    made = submodel(model, second, file.codes, file.layouts)
    assert second.takes == ("r1",)
    assert [one.name for one in made.graph.initializer] == ["w2"]
    assert "Shape" not in {node.op_type for node in model.graph.node}


def test_a_fused_kernel_counts_for_the_first_node_that_it_stands_for(path: Path) -> None:
    nodes = onnx.load(path).graph.node
    steps = FusedSteps(nodes, {name: node.name for node in nodes for name in node.output})
    assert steps.first("relu2", "Conv") == "conv2"
    assert steps.first("relu2", "FusedConv") == "conv2"
    assert steps.first("relu2", "Relu") == "relu2"
    assert steps.first("relu2", "Gemm") == "relu2"


def test_kernels_are_told_apart_by_run() -> None:
    def event(cat: str, name: str, ts: int, dur: int) -> dict[str, Any]:
        return {"cat": cat, "name": name, "ts": ts, "dur": dur, "args": {"op_name": name[0]}}

    events = [
        event("Session", "model_run", 0, 10),
        event("Node", "conv_kernel_time", 1, 5),
        event("Session", "model_run", 20, 10),
        event("Node", "relu_kernel_time", 27, 1),
        event("Node", "conv_kernel_time", 21, 4),
    ]
    assert kernel_seconds(events) == [[("conv", "c", 5e-6)], [("conv", "c", 4e-6), ("relu", "r", 1e-6)]]


def annotated(path: Path, device: str) -> tuple[Any, dict[str, str], str]:
    model = onnx.load(path)
    devices = {node.name: "cpu" for node in model.graph.node}
    devices["conv2"] = devices["sum"] = device
    return model, devices, annotate(model, devices)


def test_a_plan_for_the_cpu_is_honoured_node_by_node(path: Path) -> None:
    model, devices, rules = annotated(path, "cpu")
    assert rules == "cpu(stead.0.)"
    session, verdict = open_assigned(model, {BY_ANNOTATION: rules}, devices)
    assert verdict == "honoured"
    assert (
        session.get_providers() == ["CPUExecutionProvider"]
        or "CPUExecutionProvider" in session.get_providers()
    )


@pytest.mark.skipif("CUDAExecutionProvider" in ort.get_available_providers(), reason="this host has a GPU")
def test_a_plan_for_a_gpu_on_a_host_without_one_is_an_error_that_lists_the_nodes(path: Path) -> None:
    model, devices, rules = annotated(path, "gpu")
    assert rules == "cpu(stead.0.); gpu(stead.1.)"
    with pytest.raises(PlacementNotHonoured, match="2 nodes run elsewhere than planned") as caught:
        open_assigned(model, {BY_ANNOTATION: rules}, devices)
    assert caught.value.differing == {
        "conv2": ("gpu", "CPUExecutionProvider"),
        "sum": ("gpu", "CPUExecutionProvider"),
    }


def test_both_ways_of_assigning_are_refused_before_the_runtime_is_called(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(
        "stead.run.ort.assignment.package", lambda name: pytest.fail("the runtime was called")
    )
    with pytest.raises(BadInput, match="not both"):
        open_assigned(None, {BY_ANNOTATION: "cpu(stead.0.)", BY_NAME: "cpu(conv)"}, {})


def test_a_rule_that_is_none_is_refused() -> None:
    with pytest.raises(BadInput, match="is no rule; write device"):
        check_settings({BY_ANNOTATION: "gpu(stead.0."})


def test_a_runtime_that_cannot_tell_is_no_proof() -> None:
    assert read_back(object(), {"conv": "cpu"}) == "cannot verify"


def test_a_node_without_device_is_named(path: Path) -> None:
    with pytest.raises(BadInput, match='node "conv1" has no device'):
        annotate(onnx.load(path), {"relu1": "cpu"})


def test_what_the_machine_lacks_is_refused_by_name(path: Path) -> None:
    with pytest.raises(BadInput, match="ONNX Runtime has no npu here for n"):
        OrtExecutor(path, (Worker("n", two_workers()[0].cores, device="npu:0"),))
    with pytest.raises(BadInput, match="computes as the file says, not in bf16"):
        OrtExecutor(path, (Worker("b", two_workers()[0].cores, dtype="bf16"),))
    with pytest.raises(BadInput, match="no level 'al'; did you mean 'all'"):
        OrtExecutor(path, two_workers(), level="al")
