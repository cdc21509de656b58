"""Stages for torch.distributed.pipelining: cut by a plan, run by torch over gloo, compared with the whole program."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from stead.cluster import Host
from stead.costs import Costs
from stead.errors import BadInput
from stead.export.base import Exporter
from stead.export.placing import for_target
from stead.export.torch_pipeline import TorchPipeline
from stead.export.torch_verify import _run
from stead.placing.loading import load
from stead.plan import Plan
from stead.problem import Latency, Problem
from stead.testing.exporters import ExporterContract, plan_of

pytest.importorskip("torch")
HERE = Path(__file__).parent
NAMES = ("llama", "qwen3", "gpt2", "bert", "vit", "t5", "cnn")
needs_transformers = pytest.mark.skipif(find_spec("transformers") is None, reason="transformers is not installed")


def written(folder: Path, *names: str) -> Path:
    command = [sys.executable, "-W", "ignore", str(HERE / "torch_programs.py"), str(folder), *names]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=600, env={**os.environ, "HF_HUB_OFFLINE": "1"}
    )
    assert done.returncode == 0, done.stderr
    return folder


def even(problem: Problem, stages: int) -> Plan:
    """Operators in a row, in equal parts."""
    count = len(problem.graph)
    return plan_of(problem, [stages * v // count for v in range(count)])


def problem_of(file: Path, devices: int) -> Problem:
    return load(file, f"{devices}x 3090").problem(Latency())


class TestTorchPipeline(ExporterContract):
    @pytest.fixture
    def exporter(self) -> Exporter:
        return TorchPipeline()


@needs_transformers
@pytest.mark.parametrize(
    ("name", "schedule", "stages"), [("llama", "1f1b", 2), ("cnn", "gpipe", 2), ("pair", "1f1b", 3)]
)
def test_several_processes_give_the_outputs_and_gradients_of_one(
    name: str, schedule: str, stages: int, programs: Path
) -> None:
    file = programs / f"{name}.pt2"
    exporter = TorchPipeline(model=str(file), schedule=schedule, train=True)
    plan = for_target(even(problem_of(file, stages), stages), exporter).plan
    verdict = exporter.verify(plan)
    assert verdict.outputs.result == "passed", verdict
    assert f"{stages} processes" in verdict.outputs.detail
    assert "gradients of" in verdict.outputs.detail
    assert verdict.placed.result == "passed", verdict
    assert still_running() == []


def still_running() -> list[str]:
    """Processes of a pipeline."""
    found = []
    for folder in _processes():
        try:
            words = (folder / "cmdline").read_bytes().decode(errors="replace")
        except OSError:
            continue
        parents = (f"PPid:\t{os.getpid()}\n", "PPid:\t1\n")
        if "stages[os.fork()] = rank" in words and any(one in _status(folder) for one in parents):
            found.append(words)
    return found


def _processes() -> Iterator[Path]:
    return (folder for folder in Path("/proc").iterdir() if folder.name.isdigit())


def _status(folder: Path) -> str:
    try:
        return (folder / "status").read_text()
    except OSError:
        return ""


def test_all_results_of_a_program_are_compared_and_the_loss_is_of_the_first(programs: Path) -> None:
    file = programs / "several.pt2"
    exporter = TorchPipeline(model=str(file), schedule="1f1b", train=True)
    plan = for_target(even(problem_of(file, 2), 2), exporter).plan
    given = json.loads(str(exporter.export(plan).files["stages.json"]))["stages"][-1]["outputs"]
    assert [one["shape"] for one in given] == [[2, 8], [2]]  # sum and mean
    verdict = exporter.verify(plan)
    assert verdict.outputs.result == "passed", verdict


def test_a_result_without_a_dimension_is_refused_by_name(programs: Path) -> None:
    file = programs / "number.pt2"
    plan = even(problem_of(file, 2), 2)
    exporter = TorchPipeline(model=str(file))
    with pytest.raises(BadInput, match=r"result 'mean' of the program has no dimension, so that it cannot be cut"):
        exporter.export(for_target(plan, exporter).plan)


def test_a_stage_that_fails_is_named_and_ends_the_others(programs: Path, tmp_path: Path) -> None:
    shutil.copy(programs / "cnn.pt2", tmp_path / "stage_0.pt2")
    (tmp_path / "run.py").write_text(
        "import os, time\n"
        "def main(inputs, outputs):\n"
        "    if os.environ['RANK'] == '1':\n"
        "        raise ValueError('no such weight')\n"
        "    time.sleep(200)\n"
    )
    assert _run(tmp_path, 2) == "stage 1: ValueError: no such weight"
    (tmp_path / "run.py").write_text("import nothing_of_that_name\n")
    assert _run(tmp_path, 2).startswith("before the stages began: ModuleNotFoundError: ")
    assert still_running() == []


@needs_transformers
@pytest.mark.slow
@pytest.mark.parametrize("schedule", ["gpipe", "1f1b"])
@pytest.mark.parametrize("stages", [2, 3, 4])
@pytest.mark.parametrize("name", NAMES)
def test_every_model_in_two_to_four_processes(name: str, stages: int, schedule: str, tmp_path: Path) -> None:
    file = written(tmp_path, name) / f"{name}.pt2"
    exporter = TorchPipeline(model=str(file), schedule=schedule, train=True)
    verdict = exporter.verify(for_target(even(problem_of(file, stages), stages), exporter).plan)
    assert verdict.outputs.result == "passed", verdict
    assert f"{stages} processes" in verdict.outputs.detail


def test_the_table_says_what_every_stage_takes_gives_and_holds(programs: Path) -> None:
    file = programs / "cnn.pt2"
    problem = problem_of(file, 2)
    exporter = TorchPipeline(model=str(file), train=True)
    bundle = exporter.export(for_target(even(problem, 2), exporter).plan)
    assert sorted(bundle.files) == ["run.py", "stage_0.pt2", "stage_1.pt2", "stages.json"]
    table = json.loads(str(bundle.files["stages.json"]))
    first, second = table["stages"]
    assert [(one["rank"], one["device"]) for one in (first, second)] == list(enumerate(problem.cluster.names))
    assert (table["n"], table["schedule"], table["microbatches"]) == (2, "gpipe", 4)
    assert [one["name"] for one in first["inputs"]] == ["x"]
    assert first["outputs"] == second["inputs"]
    assert len(first["outputs"]) == 2  # the running sum and the beginning, which skips everything
    assert {one["dtype"] for one in first["outputs"]} == {"fp32"}
    parts = ("first", "head", *(f"parts.{n}" for n in range(4)))
    weights = [f"{part}.{kind}" for part in parts for kind in ("weight", "bias")]
    assert sorted(first["params"] + second["params"]) == sorted(weights)
    assert "run.py" in bundle.load


def test_the_table_of_a_plan_over_hosts_says_which_host_every_rank_is_on(programs: Path) -> None:
    file = programs / "cnn.pt2"
    given = problem_of(file, 2)
    hosts = tuple(Host(f"host-{name}", (name,)) for name in given.cluster.names)
    cluster = replace(given.cluster, hosts=hosts)
    problem = Problem(given.graph, cluster, Costs(given.graph, cluster, given.costs.seconds))
    exporter = TorchPipeline(model=str(file))
    table = json.loads(str(exporter.export(for_target(even(problem, 2), exporter).plan).files["stages.json"]))
    assert [(one["rank"], one["host"]) for one in table["stages"]] == [(n, host.name) for n, host in enumerate(hosts)]


@needs_transformers
def test_a_tied_weight_is_in_every_stage_that_reads_it_and_indices_may_cross_a_cut(programs: Path) -> None:
    file = programs / "pair.pt2"
    exporter = TorchPipeline(model=str(file), train=True)
    problem = problem_of(file, 3)
    plan = even(problem, 3)
    assert exporter.project(plan).is_same  # a table at both ends holds nothing together
    table = json.loads(str(exporter.export(plan).files["stages.json"]))
    assert table["shared"] == [{"names": ["table.weight"], "stages": [0, 1, 2]}]
    crossing = {one["name"]: one for one in table["stages"][1]["inputs"]}
    assert crossing["b"] == {"name": "b", "shape": [2, 6], "dtype": "int64", "grad": False}
    assert [one["grad"] for name, one in crossing.items() if name != "b"] == [True]
    frozen = json.loads(str(TorchPipeline(model=str(file)).export(plan).files["stages.json"]))
    assert not any(one["grad"] for stage in frozen["stages"] for one in stage["inputs"] + stage["outputs"])


def test_what_would_send_backward_is_refused_by_name_and_moved_on_demand(programs: Path) -> None:
    file = programs / "cnn.pt2"
    problem = problem_of(file, 2)
    count = len(problem.graph)
    row = np.array([2 * v // count for v in range(count)])
    row[count - 1] = 0  # the head, back on the first device
    exporter = TorchPipeline(model=str(file), train=True)
    with pytest.raises(BadInput, match=r"linear.* \(1 operator\).*a stage reads from stages before it only"):
        exporter.export(plan_of(problem, row.tolist()))
    found = exporter.project(plan_of(problem, row.tolist()))
    assert found.placement.devices.tolist()[count - 1] == 1
    assert sum(move.operators for move in found.moves) == 1


@needs_transformers
def test_a_projected_plan_needs_no_second_projection(programs: Path) -> None:
    for name in ("llama", "cnn", "pair"):
        file = programs / f"{name}.pt2"
        problem = problem_of(file, 3)
        for seed in range(5):
            row = np.random.default_rng(seed).integers(0, 3, problem.unit_count)[problem.units]
            exporter = TorchPipeline(model=str(file), train=seed % 2 == 0)
            once = for_target(plan_of(problem, row.tolist()), exporter).plan
            assert exporter.project(once).is_same


def test_what_cannot_be_exported_is_told_before_anything_is_made(programs: Path, tmp_path: Path) -> None:
    problem = problem_of(programs / "cnn.pt2", 2)
    plan = even(problem, 2)
    with pytest.raises(BadInput, match=r"give the file as the option model=FILE\.pt2"):
        TorchPipeline().export(plan)
    with pytest.raises(BadInput, match="is no file"):
        TorchPipeline(model=str(tmp_path / "none.pt2")).export(plan)
    with pytest.raises(BadInput, match="is not the one that the plan was made of"):
        TorchPipeline(model=str(programs / "llama.pt2")).export(plan)
    with pytest.raises(BadInput, match="1f1b needs as many micro-batches as stages: 2, got 1"):
        TorchPipeline(model=str(programs / "cnn.pt2"), schedule="1f1b", microbatches=1).export(plan)
    with pytest.raises(BadInput, match="schedule is one of gpipe, 1f1b"):
        TorchPipeline(schedule="zigzag")
    verdict = TorchPipeline().verify(plan)
    assert verdict.outputs.result == "not checkable here"
