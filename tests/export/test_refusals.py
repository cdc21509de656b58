"""What a target cannot honour is refused by name, with the reason, before anything is written."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from layered import layered, plan_by_layers

sys.path.insert(0, str(Path(__file__).parents[1] / "run"))
from small_files import save_ir, save_onnx

from stead.cli.main import exit_code
from stead.cluster import Cluster
from stead.errors import BadInput
from stead.export import exporter
from stead.export.targets import TARGETS
from stead.graph import GraphBuilder
from stead.placing.loading import load
from stead.plan import Plan
from stead.problem import Latency, Placement, Problem, Throughput
from stead.sim import simulate
from stead.solvers import Solution
from stead.testing import chain3, tiny_layers
from stead.testing.exporters import plan_of

SCATTERED = [0, 1, 1, 0, 0, 1, 1, 0, 0, 0, 0]  # of tiny_layers: embed, 4 x (attention, mlp), norm, head
IN_A_ROW = "the layers of a device must follow each other"


def back_and_forth() -> Plan:
    """Three operators of torch, the last of which is on the device of the first."""
    build = GraphBuilder("net")
    x = build.tensor(build.operator("first", kind="aten.linear", flops=1), size_bytes=4)
    y = build.tensor(build.operator("second", kind="aten.relu", reads=(x,), flops=1), size_bytes=4)
    build.operator("third", kind="aten.linear", reads=(y,), flops=1)
    return plan_of(load(build.build(), "2x 3090").problem(Latency()), [0, 1, 0])


def on_a_device_of_kind(kind: str, file: Path, name: str) -> Plan:
    """One operator on a second device of a kind, all others on a card."""
    problem = load(file, "2x 3090").problem(Latency())
    first, second = problem.cluster.devices
    cluster = replace(problem.cluster, devices=(first, replace(second, kind=kind)))
    other = Problem(problem.graph, cluster, problem.costs)
    return plan_of(other, [int(one == name) for one in problem.graph.operator_names])


def unhonourable(target: str, folder: Path) -> tuple[Plan, dict[str, str], str]:
    """A plan, options of the target, and what the refusal says: operators, and why."""
    if target == "hf":
        return plan_of(tiny_layers(), [0, 0, 1, *[0] * 6, 1, 1]), {}, r"layers\.0 \(1 operator\).*is loaded as one"
    if target == "torch":
        return back_and_forth(), {}, r"\"third\" \(1 operator\) from .* to .*: a stage reads from stages before it only"
    if target == "openvino":
        file = save_ir("residual", folder)
        said = r"\"relu1\" \(1 operator\) from .*: OpenVINO has no plugin for 3090:1 of kind fpga"
        return on_a_device_of_kind("fpga", file, "relu1"), {"model": str(file)}, said
    if target in ("ort", "onnx"):
        file = save_onnx(folder)
        if target == "ort":
            said = r"\"soft\" \(1 operator\).*: ONNX Runtime has no provider that is known for 3090:1 of kind fpga"
            return on_a_device_of_kind("fpga", file, "soft"), {"model": str(file)}, said
        return shared_stage(), {"model": str(file)}, "are not nodes of an ONNX file|share a stage"
    if target == "llama":
        middle = plan_by_layers(layered(4, 1), [1, 0, 0, 1], before=0)
        return middle, {}, r"layers 0,3, head \(6 operators\).*the layers on the CPU must be the first"
    if target == "trace":
        plan = plan_of(tiny_layers(objective=Throughput()), [0] * 11)
        return plan, {}, "a full pipeline has no time line; plan with --microbatches or for latency"
    return plan_of(tiny_layers(), SCATTERED), {}, rf"layer.* \(\d+ operators?\) from d. to d.: {IN_A_ROW}"


PICTURES = ("dot", "model-explorer")  # show every plan as it is


@pytest.mark.parametrize("target", [name for name in TARGETS if name not in PICTURES])
def test_what_cannot_be_honoured_is_refused_by_name_and_nothing_is_written(
    target: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    plan, options, why = unhonourable(target, tmp_path)
    with pytest.raises(BadInput, match=why):
        exporter(target, **options).export(plan)
    plan.save("plan.json")
    words = [word for key, value in options.items() for word in ("--set", f"{key}={value}")]
    before = sorted(tmp_path.iterdir())
    assert exit_code(["export", "plan.json", "--to", target, *words, "-o", "out"]) == 2
    told = capsys.readouterr()
    assert told.out == ""
    assert len(told.err.strip().splitlines()) == 1
    assert sorted(tmp_path.iterdir()) == before


@pytest.mark.parametrize("target", ["hf", "llama", "vllm", "megatron", "torchtitan", "deepspeed"])
def test_a_block_in_two_places_is_refused_with_the_operators_that_are_elsewhere(
    target: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    problem = tiny_layers()
    row = [0, 0, 0, 1, 0, 0, 0, 1, 1, 1, 1]  # attention of layer 1 away from its mlp, which takes as long
    plan_of(problem, row).save("plan.json")
    assert exit_code(["export", "plan.json", "--to", target, "-o", "out"]) == 2
    told = capsys.readouterr()
    split = '"model.layers.1.self_attn" of layer 1 (1 operator) from d1 to d0: a layer stays whole'
    if target == "hf":  # where copies to the second device count as well
        split = '"model.layers.1.mlp" of model.layers.1 (1 operator) from d0 to d1: model.layers.1 is loaded as one'
    assert split in told.err, told.err
    assert told.out == ""
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("target", PICTURES)
def test_a_picture_shows_every_plan_as_it_is(target: str) -> None:
    plan = plan_of(tiny_layers(), SCATTERED)
    view = exporter(target)
    assert view.project(plan).is_same
    assert view.verify(plan).placed.result == "passed"


def shared_stage() -> Plan:
    """A pipeline whose second stage is shared by two equal devices."""
    plain = tiny_layers(4, 3, objective=Throughput())
    placement = Placement(plain, np.array([0] * 5 + [1] * 6), replicas=[(1, 2)])
    return Plan(plain, Solution(placement, simulate(plain, placement).objective_seconds, solver="given"))


@pytest.mark.parametrize("target", ["hf", "llama", "vllm", "megatron", "torchtitan", "deepspeed"])
def test_devices_that_share_a_stage_are_refused_with_its_operators(target: str) -> None:
    with pytest.raises(BadInput, match=r'd1 and d2 share a stage .*, "model\.layers\.2\.self_attn" and 5 more'):
        exporter(target).export(shared_stage())


def test_a_plan_for_ort_leaves_out_devices_without_a_provider_and_legalizes_what_is_there(tmp_path: Path) -> None:
    pytest.importorskip("onnx")
    plan = on_a_device_of_kind("fpga", save_onnx(tmp_path), "soft")
    target = exporter("ort")
    assert target.constraints(plan.problem.graph, plan.problem.cluster).forbid == (("*", "3090:1"),)
    assert target.project(plan).placement.devices.tolist() == [0] * len(plan.problem.graph)
    named = plan.problem.cluster.as_dict()
    named["devices"][1]["alias"] = {"ort": "VitisAIExecutionProvider"}  # type: ignore[index]
    known = Problem(plan.problem.graph, Cluster.from_dict(named), plan.problem.costs)
    assert target.project(plan_of(known, plan.placement.devices.tolist())).is_same


def test_a_model_without_layers_is_no_plan_for_loaders_of_layers() -> None:
    plan = plan_of(chain3(), [0, 0, 1])
    for target in ("llama", "vllm", "megatron", "torchtitan", "deepspeed"):
        with pytest.raises(BadInput, match="is no language model with repeated blocks"):
            exporter(target).export(plan)
