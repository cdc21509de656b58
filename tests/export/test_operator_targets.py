"""OpenVINO, ONNX Runtime and ONNX: exports of any placement, checked by running them."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from larger_ir import LARGER, save_larger

sys.path.insert(0, str(Path(__file__).parents[1] / "run"))
from small_files import IR_MODELS, save_ir, save_onnx

from stead.errors import BadInput
from stead.export.base import Exporter
from stead.export.check_process import write_files
from stead.export.onnx_devices import OnnxDevices
from stead.export.openvino import RELATIVE, OpenVino, openvino_names
from stead.export.openvino_check import compared_before_softmax, show_logits
from stead.export.ort import Ort
from stead.placing.loading import load
from stead.placing.place import place_problem
from stead.plan import Plan
from stead.problem import Latency, Problem, Throughput
from stead.solvers import Budget
from stead.testing.exporters import ExporterContract, plan_of

DEVICES = "2x 3090+cpu"
RANDOM = 40 if os.environ.get("STEAD_SLOW") else 3
MADE = 3  # by solvers


def placements(problem: Problem, random: int) -> list[Plan]:
    """Plans at random, and those of solvers."""
    rows = [np.random.default_rng(seed).integers(0, 3, problem.unit_count)[problem.units] for seed in range(random)]
    plans = [plan_of(problem, row.tolist()) for row in rows]
    for solver, goal in (("heft", Latency()), ("auto", Latency()), ("auto", Throughput())):
        question = problem.with_objective(goal)
        plans.append(place_problem(question, solver=solver, budget=Budget(evaluations=50), baselines=False))
    return plans


class TestOpenVino(ExporterContract):
    @pytest.fixture
    def exporter(self) -> Exporter:
        return OpenVino()


class TestOrt(ExporterContract):
    @pytest.fixture
    def exporter(self) -> Exporter:
        return Ort()


class TestOnnxDevices(ExporterContract):
    @pytest.fixture
    def exporter(self) -> Exporter:
        return OnnxDevices()


@pytest.mark.parametrize("name", IR_MODELS)
def test_openvino_runs_every_layer_where_it_was_planned(name: str, tmp_path: Path) -> None:
    file = save_ir(name, tmp_path)
    exporter = OpenVino(model=str(file))
    problem = load(file, DEVICES).problem(Latency())
    plans = placements(problem, RANDOM)
    assert len(plans) == RANDOM + MADE
    for plan in plans:
        verdict = exporter.verify(plan)
        assert verdict.outputs.result == "passed", verdict
        assert verdict.placed.result == "passed", verdict


@pytest.mark.parametrize("name", IR_MODELS)
def test_stages_of_openvino_give_what_the_whole_gives(name: str, tmp_path: Path) -> None:
    file = save_ir(name, tmp_path)
    problem = load(file, DEVICES).problem(Throughput())
    exporter = OpenVino(model=str(file), stages=True)
    for plan in placements(problem, RANDOM)[: RANDOM - 2]:
        verdict = exporter.verify(plan)
        assert verdict.outputs.result == "passed", verdict
        assert re.search(r"those of \d+ stages by ", verdict.outputs.detail), verdict
    table = json.loads(str(exporter.export(plan).files["stages.json"]))
    names, used = openvino_names(problem.cluster), set(plan.placement.devices.tolist())
    assert {one["device"] for one in table["stages"]} <= {names[d] for d in used}
    assert "chain = Chain()" in exporter.export(plan).load
    assert "stages.json" not in OpenVino(model=str(file)).export(plan).files


@pytest.mark.slow
@pytest.mark.parametrize("name", LARGER)
def test_larger_models_of_openvino_run_as_planned(name: str, tmp_path: Path) -> None:
    file = save_larger(name, tmp_path)
    exporter = OpenVino(model=str(file), stages=True)
    for plan in placements(load(file, DEVICES).problem(Latency()), 2):
        verdict = exporter.verify(plan)
        assert (verdict.outputs.result, verdict.placed.result) == ("passed", "passed"), verdict


def test_stages_that_give_something_else_fail(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    pytest.importorskip("openvino")
    file = save_ir("branching", tmp_path)
    problem = load(file, DEVICES).problem(Latency())
    told = {"difference": 0.0, "relative": None, "plugins": {"GPU.0": "CPU"}, "layers": 3, "submodels": 1,
            "ran": ["CPU"], "stages": 2, "chained": 0.3}  # fmt: skip
    monkeypatch.setattr("stead.export.openvino.told_by", lambda *_: told)
    assert OpenVino(model=str(file)).verify(plan_of(problem, [0] * len(problem.graph))).outputs.result == "failed"


def test_openvino_files_name_every_layer_and_load_by_themselves(tmp_path: Path) -> None:
    ov = pytest.importorskip("openvino")
    file = save_ir("branching", tmp_path)
    problem = load(file, "cpu").problem(Latency())
    bundle = OpenVino(model=str(file)).export(plan_of(problem, [0] * len(problem.graph)))
    assert sorted(bundle.files) == ["affinity.json", "load.py", "model.bin", "model.xml"]
    folder = tmp_path / "out"
    folder.mkdir()
    write_files(bundle, folder)
    layers = {op.get_friendly_name() for op in ov.Core().read_model(folder / "model.xml").get_ops()}
    assert set(json.loads((folder / "affinity.json").read_text())) == layers
    program = 'from load import load; print(list(load().get_property("EXECUTION_DEVICES")))'
    told = subprocess.run([sys.executable, "-c", program], cwd=folder, capture_output=True, text=True, check=True)
    assert told.stdout == "['CPU']\n"


def test_a_signal_after_a_verification_by_openvino_finds_the_process_as_it_was(tmp_path: Path) -> None:
    file = save_ir("residual", tmp_path)
    problem = load(file, DEVICES).problem(Latency())
    halves = [min(2 * v // len(problem.graph), 1) for v in range(len(problem.graph))]
    assert not OpenVino(model=str(file)).verify(plan_of(problem, halves)).failed
    seen: list[int] = []
    before = signal.signal(signal.SIGALRM, lambda number, _: seen.append(number))
    try:
        signal.raise_signal(signal.SIGALRM)  # it ended the process while HETERO was compiled in this one
    finally:
        signal.signal(signal.SIGALRM, before)
    assert seen == [signal.SIGALRM]


def test_a_softmax_that_rounding_decides_is_compared_by_what_it_reads_and_no_other() -> None:
    large, small = (np.array([[size, size, 0.5 * size]], dtype=np.float32) for size in (1e6, 100.0))
    rounded = np.nextafter(large, np.float32(np.inf))  # one bit: the softmax of it is another
    found = compared_before_softmax([rounded], [large])
    assert found is not None
    assert 0 < found < RELATIVE
    assert compared_before_softmax([large * np.float32(1.001)], [large]) > RELATIVE  # type: ignore[operator]
    assert compared_before_softmax([small + np.float32(1)], [small]) is None
    assert compared_before_softmax([rounded, small], [large, small]) is None
    assert compared_before_softmax([large * np.float32(np.inf)], [large * np.float32(np.inf)]) is None


def test_a_result_that_rounding_decides_is_told_to_be_one(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    pytest.importorskip("openvino")
    file = save_ir("branching", tmp_path)
    exporter, problem = OpenVino(model=str(file)), load(file, "2x 3090+cpu").problem(Latency())
    plan = plan_of(problem, [0] * len(problem.graph))
    told = {"difference": 0.3, "plugins": {"GPU.0": "CPU"}, "layers": 3, "submodels": 1, "ran": ["CPU"]}
    for relative, result, word in ((None, "failed", "by 3.0e-01 at most"), (1e-7, "passed", "rounding alone"),
                                   (1e-3, "failed", "1.0e-03 of its largest value")):  # fmt: skip
        monkeypatch.setattr(
            "stead.export.openvino.told_by", lambda *_, answer={**told, "relative": relative}: answer
        )
        outputs = exporter.verify(plan).outputs
        assert (outputs.result, word in outputs.detail) == (result, True), outputs


def test_logits_are_what_the_softmax_of_a_result_reads() -> None:
    ov = pytest.importorskip("openvino")
    ops = ov.opset13
    x = ops.parameter([2, 4], np.float32, name="x")
    doubled = ops.add(x, x)
    chosen = ops.unsqueeze(ops.softmax(doubled, 1), ops.constant(np.array([0])))
    model, other = ov.Model([chosen], [x], "softmax"), ov.Model([doubled], [x], "sum")
    given = np.arange(8, dtype=np.float32).reshape(2, 4)
    assert not show_logits(other)
    assert show_logits(model)
    assert np.array_equal(ov.compile_model(model, "CPU")([given])[0], 2 * given)


@pytest.mark.slow
def test_a_net_of_equal_weights_passes_by_its_logits(tmp_path: Path) -> None:
    ov, onnx = pytest.importorskip("openvino"), pytest.importorskip("onnx")
    net = Path(onnx.__file__).parent / "backend/test/data/light/light_squeezenet.onnx"
    if not net.is_file():
        pytest.skip("this version of onnx does not bring its test models along")
    file = tmp_path / "net.xml"
    ov.save_model(ov.convert_model(net), file, compress_to_fp16=False)
    problem = load(file, "2x 3090+cpu").problem(Latency())
    row = np.random.default_rng(0).integers(0, 3, len(problem.graph)).tolist()
    verdict = OpenVino(model=str(file)).verify(plan_of(problem, row))
    assert (verdict.outputs.result, verdict.placed.result) == ("passed", "passed"), verdict


def test_devices_have_the_names_that_openvino_knows_them_by() -> None:
    assert openvino_names(load_cluster("2x 3090+cpu")) == ["GPU.0", "GPU.1", "CPU"]
    assert openvino_names(load_cluster("3090+cpu")) == ["GPU", "CPU"]


def load_cluster(text: str):  # type: ignore[no-untyped-def]
    from stead.cluster import cluster_from

    return cluster_from(text)[0]


def test_a_chain_of_sub_models_gives_what_the_whole_gives(tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    file = save_onnx(tmp_path)
    problem = load(file, DEVICES).problem(Latency())
    for plan in placements(problem, RANDOM):
        verdict = Ort(model=str(file)).verify(plan)
        assert verdict.outputs.result == "passed", verdict
        assert "0.0e+00" in verdict.outputs.detail
        assert verdict.placed.result == "passed", verdict
    on_cpu = load(file, "cpu").problem(Latency())
    verdict = Ort(model=str(file)).verify(plan_of(on_cpu, [0] * len(on_cpu.graph)))
    assert "one session: honoured" in verdict.placed.detail


def test_a_chain_says_which_provider_and_device_every_sub_model_needs(tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    file = save_onnx(tmp_path)
    problem = load(file, "3090+cpu").problem(Latency())
    row = [int(name in ("soft", "mul")) for name in problem.graph.operator_names]
    bundle = Ort(model=str(file)).export(plan_of(problem, row))
    table = json.loads(str(bundle.files["pipeline.json"]))
    assert {(one["provider"], one["device"]) for one in table["segments"]} == {
        ("CUDAExecutionProvider", "3090"), ("CPUExecutionProvider", "cpu"),
    }  # fmt: skip
    assert table["session"]["session.layer_assignment_settings"] == "cpu(stead.0.); gpu(stead.1.)"
    assert table["results"] == ["y", "r2"]
    assert {"annotated.onnx", "pipeline.json", "run.py", "seg_0.onnx"} <= set(bundle.files)
    assert bundle.load.endswith('results = chain({"x": array})')


def test_the_chain_runs_by_the_script_that_comes_with_it(tmp_path: Path) -> None:
    ort = pytest.importorskip("onnxruntime")
    file = save_onnx(tmp_path)
    problem = load(file, "cpu").problem(Latency())
    bundle = Ort(model=str(file)).export(plan_of(problem, [0] * len(problem.graph)))
    for name, content in bundle.files.items():
        (tmp_path / name).write_bytes(content.encode() if isinstance(content, str) else content)
    space: dict[str, object] = {"__file__": str(tmp_path / "run.py"), "__name__": "run"}
    exec(compile(str(bundle.files["run.py"]), "run.py", "exec"), space)
    x = np.random.default_rng(0).standard_normal((1, 4, 12, 12), dtype=np.float32)
    got = space["Chain"]()({"x": x})  # type: ignore[operator]
    wanted = ort.InferenceSession(file, providers=["CPUExecutionProvider"]).run(["y", "r2"], {"x": x})
    assert np.allclose(got["y"], wanted[0], atol=1e-6)
    assert np.allclose(got["r2"], wanted[1], atol=1e-6)


def test_device_configurations_pass_the_checker_and_load(tmp_path: Path) -> None:
    onnx = pytest.importorskip("onnx")
    pytest.importorskip("onnxruntime")
    file = save_onnx(tmp_path)
    problem = load(file, DEVICES).problem(Latency())
    for plan in placements(problem, RANDOM):
        verdict = OnnxDevices(model=str(file)).verify(plan)
        assert (verdict.outputs.result, verdict.placed.result) == ("passed", "passed"), verdict
    model = onnx.load_from_string(OnnxDevices(model=str(file)).export(plan).files["model.onnx"])
    assert model.ir_version == 11
    assert list(model.configuration[0].device) == ["3090:0", "3090:1", "cpu"]
    node = next(node for node in model.graph.node if node.name == "soft")
    where = int(plan.placement.devices[problem.graph.index("soft")])
    assert list(node.device_configurations[0].sharding_spec[0].device) == [where]
    assert {one.key: one.value for one in node.metadata_props}["stead.device"] == problem.cluster.names[where]


def test_a_file_that_the_plan_was_not_made_of_is_refused(tmp_path: Path) -> None:
    pytest.importorskip("openvino")
    made, other = save_ir("residual", tmp_path), save_ir("attention", tmp_path)
    problem = load(made, "cpu").problem(Latency())
    plan = plan_of(problem, [0] * len(problem.graph))
    with pytest.raises(BadInput, match="is not what the plan was made of: the plan has no"):
        OpenVino(model=str(other)).export(plan)
    with pytest.raises(BadInput, match=r"give its file as the option model=FILE\.xml"):
        OpenVino().export(plan)
    assert OpenVino().verify(plan).outputs.result == "not checkable here"
    with pytest.raises(BadInput, match="not nodes of an ONNX file"):
        Ort(model=str(made)).export(plan)
