"""Profiles of four tools, and analytic costs corrected by them."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest

from stead.cluster import Cluster, Device
from stead.costs import Fitted, Profile, Source, calibrate, read_profile, write_profile
from stead.errors import BadInput
from stead.graph import Graph, GraphBuilder

GPU = Device("g", flops_per_second={"fp32": 1e12})


def three() -> Graph:
    """Two products and an addition; 1, 2 and 4 ms at the device's peak."""
    build = GraphBuilder()
    for name, kind, flops in (("/a/MatMul", "MatMul", 1e9), ("/b/MatMul", "MatMul", 2e9), ("/c/Add", "Add", 4e9)):
        build.operator(name, kind=kind, flops=flops)
    return build.build()


def written(folder: Path, data: object, name: str = "profile.json") -> Path:
    path = folder / name
    path.write_text(data if isinstance(data, str) else json.dumps(data))
    return path


def test_onnx_runtime_events_lose_their_suffix_and_give_medians(tmp_path: Path) -> None:
    events = [
        {"cat": "Session", "name": "model_run", "dur": 1e6},
        {"cat": "Node", "name": "/a/MatMul_kernel_time", "dur": 100, "args": {"op_name": "MatMul"}},
        {"cat": "Node", "name": "/a/MatMul_kernel_time", "dur": 300},
        {"cat": "Node", "name": "/a/MatMul_kernel_time", "dur": 200},
        {"cat": "Node", "name": "/a/MatMul_fence_before", "dur": 9999},
    ]
    profile = read_profile(written(tmp_path, events), device="g")
    assert profile.by_name == {"/a/MatMul": pytest.approx(200e-6)}
    assert profile.samples == {"/a/MatMul": 3}


def test_openvino_counters_skip_what_did_not_run(tmp_path: Path) -> None:
    rows = [
        {"node_name": "/c/Add", "node_type": "Add", "status": "EXECUTED", "real_time": 50},
        {"node_name": "gone", "node_type": "Const", "status": "OPTIMIZED_OUT", "real_time": 0},
    ]
    assert read_profile(written(tmp_path, rows), device="cpu").by_name == {"/c/Add": pytest.approx(50e-6)}


def test_torch_events_are_known_by_kind(tmp_path: Path) -> None:
    trace = {"traceEvents": [{"ph": "X", "cat": "cpu_op", "name": "aten::addmm", "ts": 0, "dur": 20}]}
    profile = read_profile(written(tmp_path, trace), device="cpu")
    build = GraphBuilder()
    build.operator("n1", kind="aten.addmm.default")
    assert profile.column(build.build()).tolist() == [pytest.approx(20e-6)]


def test_csv_repeats_are_samples(tmp_path: Path) -> None:
    text = "name,seconds\n/a/MatMul,0.1\n/a/MatMul,0.3\n"
    profile = read_profile(written(tmp_path, text, "p.csv"), device="g")
    assert (profile.by_name, profile.samples) == ({"/a/MatMul": pytest.approx(0.2)}, {"/a/MatMul": 2})


def test_our_own_form_round_trips(tmp_path: Path) -> None:
    profile = Profile("g", {"x": 0.5}, {"Add": 0.25}, {"x": 3}, Source.MEASURED, "stead profile")
    write_profile(profile, tmp_path / "p.json")
    assert read_profile(tmp_path / "p.json", device="g") == profile


@pytest.mark.parametrize(
    "text",
    ["", "{}", "[]", "{", "[1]", "name\nx\n", "name,seconds\nx,fast\n", "name,seconds\nx,-1\n", "name,seconds\nx,nan\n",
     '{"format": "stead.profile", "version": 9}', '{"format": "stead.profile", "version": 1, "operators": []}',
     '[{"cat": "Node", "name": "x_kernel_time", "dur": "soon"}]', "[" * 100_000],
)  # fmt: skip
def test_files_that_are_no_profiles_are_refused(text: str, tmp_path: Path) -> None:
    with pytest.raises(BadInput):
        read_profile(written(tmp_path, text), device="g")


def test_measured_operators_keep_their_time_and_others_get_the_factor_of_their_kind() -> None:
    # MatMul was measured 3 times as slow as its peak: one sample and two imagined ones at the same mean agree.
    cluster = Cluster((GPU,))
    costs = Fitted((Profile("g", {"/a/MatMul": 3e-3}, source=Source.MEASURED),)).costs(three(), cluster)
    assert costs.seconds[:, 0].tolist() == [pytest.approx(3e-3), pytest.approx(6e-3), pytest.approx(12e-3)]
    assert costs.sources[:, 0].tolist() == [Source.MEASURED, Source.ANALYTIC, Source.ANALYTIC]


def test_a_kind_with_many_samples_has_a_factor_of_its_own() -> None:
    build = GraphBuilder()
    for v in range(40):
        build.operator(f"m{v}", kind="MatMul" if v < 38 else "Add", flops=1e9)
    graph = build.build()
    analytic = np.full(40, 1e-3)
    measured = np.where(np.arange(40) < 38, 2e-3, 8e-3)
    found = calibrate(graph, analytic, measured, "g")
    overall = math.exp((38 * math.log(2) + 2 * math.log(8)) / 40)
    assert found.overall == pytest.approx(overall)
    assert found.factors["MatMul"] == pytest.approx(math.exp((38 * math.log(2) + 2 * math.log(overall)) / 40))
    assert found.factors["Add"] == pytest.approx(math.exp((2 * math.log(8) + 2 * math.log(overall)) / 4))
    assert found.samples == 40


def test_a_perfect_model_has_no_error_left() -> None:
    found = calibrate(three(), np.array([1.0, 2.0, 4.0]), np.array([1.0, 2.0, 4.0]), "g")
    assert (found.relative_error, found.overall) == (pytest.approx(0.0), pytest.approx(1.0))


def test_a_profile_for_a_device_that_is_not_there_is_refused() -> None:
    with pytest.raises(BadInput, match="no device is called, or is of model or kind, 'npu'"):
        Fitted((Profile("npu", {"x": 1.0}),)).costs(three(), Cluster((GPU,)))
