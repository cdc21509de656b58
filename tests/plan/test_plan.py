"""Plans: the file users keep, in which nothing can be changed unseen."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stead.cli.main import exit_code
from stead.errors import BadInput
from stead.placing.place import place_problem
from stead.plan import Baseline, Plan, checksums, fields, rows, writing
from stead.problem import (
    Constraints,
    Latency,
    Objective,
    Order,
    Placement,
    Priority,
    ProgramOrder,
    Throughput,
)
from stead.report import explain, summary
from stead.sim import simulate
from stead.solvers import Budget, Improvement, Solution
from stead.solvers.solution import StoppedBy
from stead.testing import two_towers

OLD = Path(__file__).parents[1] / "data" / "plan-v1.json"
OLD_SHARED = Path(__file__).parents[1] / "data" / "plan-v1-replicas.json"
SHARED = Path(__file__).parents[3] / "shared" / "data" / "repro" / "plans"


def plan_for(objective: Objective | None = None, **options: object) -> Plan:
    return place_problem(two_towers(objective), budget=Budget(evaluations=500), **options)  # type: ignore[arg-type]


@pytest.fixture(params=["readable", "packed"])
def layout(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Both layouts of a file, whatever the size of the graph."""
    if request.param == "packed":
        monkeypatch.setattr(writing, "PACKED_FROM", 0)
    return str(request.param)


def saved(plan: Plan, path: Path) -> dict[str, Any]:
    plan.save(path)
    data: dict[str, Any] = json.loads(path.read_text())
    return data


def refusal(path: Path) -> str:
    with pytest.raises(BadInput) as caught:
        Plan.load(path)
    told = str(caught.value)
    assert told.startswith(str(path))
    assert told.isprintable()
    return told


@pytest.mark.parametrize(
    "objective",
    [
        Latency(),
        Latency(policy=Priority()),
        Latency(policy=Priority([4, 3, 2, 1, 0])),
        Latency(policy=ProgramOrder([1, 0, 3, 2, 4])),
        Latency(execution="sequential"),
        Throughput("overlap"),
        Throughput(microbatches=2),
    ],
)
def test_a_plan_read_back_is_the_plan(objective: Objective, layout: str, tmp_path: Path) -> None:
    plan = plan_for(objective)
    plan.save(tmp_path / "plan.json")
    again = Plan.load(tmp_path / "plan.json")
    assert (again.placement, again.problem.fingerprint) == (plan.placement, plan.problem.fingerprint)
    assert replace(again.solution, placement=plan.placement) == plan.solution
    assert again.trace.objective_seconds == plan.solution.objective_seconds
    assert [replace(rule, placement=None) for rule in again.baselines] == [
        replace(rule, placement=None) for rule in plan.baselines
    ]
    assert again.provenance == plan.provenance


@pytest.mark.parametrize(
    "order",
    [
        Priority([1, 0, 2, 3, 4]),
        Priority([1, 0, 2, 3, 4], [4, 3, 2, 1, 0]),
        ProgramOrder([1, 0, 2, 3, 4]),
        ProgramOrder(),
    ],
)
def test_the_order_of_a_plan_survives(order: Order, layout: str, tmp_path: Path) -> None:
    problem = two_towers()
    placement = Placement(problem, [0, 0, 0, 1, 0], order)
    value = simulate(problem, placement).objective_seconds
    rules = (Baseline("ordered", value, placement=placement),)
    Plan(problem, Solution(placement, value, solver="given"), rules).save(tmp_path / "plan.json")
    read = Plan.load(tmp_path / "plan.json")
    assert read.placement == placement == read.baselines[0].placement
    assert read.solution.objective_seconds == value
    assert not read.solution.notes


def test_the_order_of_transfers_survives(layout: str, tmp_path: Path) -> None:
    problem = two_towers()
    sends = [0, 2, 5 + 2 * 2 + 1, 1, 3, 5 + 3 * 2 + 1, 4]  # l2 and r2 are sent to d1, where the head is
    placement = Placement(problem, [0, 0, 0, 0, 1], ProgramOrder(sends, sends=True))
    value = simulate(problem, placement).objective_seconds
    Plan(problem, Solution(placement, value)).save(tmp_path / "plan.json")
    assert Plan.load(tmp_path / "plan.json").placement == placement


def test_the_trail_of_the_search_survives(layout: str, tmp_path: Path) -> None:
    steps = (Improvement(0.25, 1, 9.0, 0.0, "single"), Improvement(0.5, 3, 7.5, 7.5, "search"))
    plan = plan_for()
    plan = replace(plan, solution=replace(plan.solution, trail=steps, elapsed_seconds=0.75))
    data = saved(plan, tmp_path / "plan.json")
    assert data["trail"] == [[1, 9.0, 0.0, "single"], [3, 7.5, 7.5, "search"]]
    assert data["repro"]["trail_seconds"] == [0.25, 0.5]
    read = Plan.load(tmp_path / "plan.json").solution
    assert (read.trail, read.elapsed_seconds) == (steps, 0.75)


def test_the_same_question_gives_the_same_bytes_but_for_the_times(layout: str, tmp_path: Path) -> None:
    texts = []
    for name in ("a.json", "b.json"):
        plan_for().save(tmp_path / name)
        before, _, after = (tmp_path / name).read_text().partition('\n "repro": {')
        texts.append(before + after[after.index("\n },") :])
    assert texts[0] == texts[1]


def test_constraints_survive(tmp_path: Path) -> None:
    constraints = Constraints(pin=(("head", "d1"),), colocate=(("l1", "l2"),))
    place_problem(two_towers().with_constraints(constraints)).save(tmp_path / "plan.json")
    assert Plan.load(tmp_path / "plan.json").problem.constraints == constraints


def test_a_small_plan_has_one_operator_per_line(tmp_path: Path) -> None:
    plan_for().save(tmp_path / "plan.json")
    lines = (tmp_path / "plan.json").read_text().splitlines()
    assert '    {"name": "l2", "reads": ["l1"], "outputs": [{"bytes": 4}]},' in lines
    assert max(map(len, lines)) < 250


def test_a_file_that_was_indented_anew_still_fits(tmp_path: Path) -> None:
    data = saved(plan_for(), tmp_path / "plan.json")
    (tmp_path / "plan.json").write_text(json.dumps(data, indent=4, sort_keys=True))
    assert Plan.load(tmp_path / "plan.json").solution.objective_seconds == 7.5


# What was changed


EDITS: dict[str, Callable[[dict[str, Any]], object]] = {
    "objective_seconds": lambda data: data.update(objective_seconds=7.0),
    "bound_seconds": lambda data: data.update(bound_seconds=7.25),
    "bound_name": lambda data: data.update(bound_name="magic"),
    "gap": lambda data: data.update(gap=0.5),
    "scope": lambda data: data.update(scope="stages"),
    "solver": lambda data: data.update(solver="other"),
    "seed": lambda data: data.update(seed=1),
    "evaluations": lambda data: data.update(evaluations=10**6),
    "interrupted": lambda data: data.update(interrupted=True),
    "notes": lambda data: data["notes"].append("all is well"),
    "trail": lambda data: data["trail"].clear(),
    "placement": lambda data: data["placement"].update(r1="d0", r2="d0"),
    "order": lambda data: data.update(order={"policy": "priority", "position": [0] * 5, "transfer_position": None}),
    "replicas": lambda data: data.update(replicas=[["d0", "d1"]]),
    "baselines": lambda data: data["baselines"][0].update(objective_seconds=99.0),
    "hashes": lambda data: data["hashes"].update(graph="0" * 16),
    "objective": lambda data: data["objective"].update(policy="priority"),
    "problem.graph": lambda data: data["problem"]["graph"].update(name="other"),
    "problem.cluster": lambda data: data["problem"]["cluster"]["devices"][0].update(memory_bytes=1),
    "problem.costs": lambda data: data["problem"]["costs"]["seconds"]["d0"].__setitem__(0, 1e-9),
    "problem.constraints": lambda data: data["problem"]["constraints"]["pin"].append(["l1", "d0"]),
    "repro": lambda data: data["repro"].update(model="other"),
    "version": lambda data: data.update(version=1),
}


@pytest.mark.parametrize("field", EDITS)
def test_an_edited_field_is_refused_by_its_name(field: str, tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    data = saved(plan_for(), path)
    EDITS[field](data)
    path.write_text(json.dumps(data))
    told = refusal(path)
    assert "make the plan again with `stead place`" in told
    if field != "version":
        assert told.startswith(f"{path}: {field}: it was changed after the plan was made")


@pytest.mark.parametrize("path", [OLD, OLD_SHARED])
def test_plans_of_version_1_are_read(path: Path) -> None:
    plan = Plan.load(path)
    expected = 7.5 if path == OLD else 4.5
    assert plan.solution.objective_seconds == plan.trace.objective_seconds == expected
    if path == OLD:
        assert plan.placement.by_name() == {"l1": "d0", "r1": "d1", "l2": "d0", "r2": "d1", "head": "d0"}
        assert isinstance(plan.placement.order, Priority)
        assert len(plan.baselines) == 17
        assert plan.problem.constraints.pin == (("head", "d0"),)
    else:
        assert plan.placement.replicas == ((0, 1),)


@pytest.mark.parametrize(
    ("field", "message"),
    [
        ("objective_seconds", "bound_seconds: 7.5 is above objective_seconds, 7.0"),
        ("bound_seconds", "gap: value and bound make it 0.0333"),
        ("gap", "gap: value and bound make it 0.0, the file says 0.5"),
        ("placement", "'l1' on d0 and 'l2' on d1 must share a device"),
        ("baselines", "baselines[0].objective_seconds: the file says 99.0, the simulator finds 9.0"),
        ("hashes", "problem.graph: it was changed after the plan was made (it does not fit hashes.graph)"),
        ("objective", "objective or problem.constraints: changed after the plan was made"),
        ("problem.graph", "problem.graph: it was changed"),
        ("problem.cluster", "problem.cluster: it was changed"),
        ("problem.costs", "problem.costs: it was changed"),
        ("problem.constraints", "objective or problem.constraints: changed"),
    ],
)
def test_an_edited_plan_of_version_1_is_refused_by_its_field(field: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    data = json.loads(OLD.read_text())
    if field == "placement":
        data["placement"]["l2"] = "d1"
    else:
        EDITS[field](data)
    path.write_text(json.dumps(data))
    assert message in refusal(path)


def test_a_value_of_version_1_that_is_not_the_simulators_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    data = json.loads(OLD_SHARED.read_text())
    data["objective_seconds"], data["gap"] = 4.0, 0.75
    path.write_text(json.dumps(data))
    assert "objective_seconds: the file says 4.0, the simulator finds 4.5" in refusal(path)


def test_a_sound_plan_with_another_value_is_scored_again_and_says_so(tmp_path: Path) -> None:
    problem = two_towers()
    placement = Placement(problem, [0, 1, 0, 1, 0])  # 7.5 by hand
    rules = (Baseline("rule", 3.0, placement=placement),)
    Plan(problem, Solution(placement, 6.0, bound_seconds=5.0, bound_name="old"), rules).save(tmp_path / "plan.json")
    read = Plan.load(tmp_path / "plan.json")
    assert (read.solution.objective_seconds, read.solution.bound_seconds) == (7.5, 0.0)
    assert read.solution.notes == (
        "scored again: the file says 6.0 s, this version finds 7.5 s; its bound is left out",
    )
    assert read.baselines[0].objective_seconds == 7.5


# What is no plan


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{}", "is not a plan"),
        ("[]", "is not a plan"),
        ("", "the file is empty"),
        ("nonsense", "not JSON"),
        ('{"format": "stead.plan"}', "version: must be a whole number of at least 1, got null"),
        ('{"format": "stead.plan", "version": true}', "version: must be a whole number"),
        ('{"format": "stead.plan", "version": 1}', "solver: is missing"),
        ('{"format": "stead.plan", "version": 2}', "checksums: must be an object, got null"),
        ('{"format": "stead.plan", "version": 99}', "is a plan of version 99; this stead reads up to 2"),
        ('{"format": "stead.plan", "version": 2, "version": 2}', 'the key "version" is given twice'),
    ],
)
def test_files_that_are_no_plans_are_refused(text: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    path.write_text(text)
    assert message in refusal(path)


def resealed(data: dict[str, Any], path: Path) -> None:
    """Write a changed document with checksums that fit, as a program would that means it."""
    data["repro"].pop("checksum", None)
    data.pop("checksums", None)
    path.write_text(json.dumps(checksums.with_checksums(data)).replace("Infinity", "1e999"))


WRONG: dict[str, tuple[Callable[[dict[str, Any]], object], str]] = {
    "a negative second": (
        lambda data: data["problem"]["costs"]["seconds"]["d0"].__setitem__(0, -1.0),
        "problem.costs: seconds of operator 'l1' on d0 must be at least 0, got -1.0",
    ),
    "a text for a second": (
        lambda data: data["problem"]["costs"]["seconds"]["d1"].__setitem__(2, "2"),
        'problem.costs.seconds["d1"][2]: must be a number or null, got "2"',
    ),
    "a column too few": (
        lambda data: data["problem"]["costs"]["seconds"].pop("d1"),
        'problem.costs.seconds["d1"]: is missing',
    ),
    "a column of another device": (
        lambda data: data["problem"]["costs"]["sources"].update(d9=[0] * 5),
        'problem.costs.sources["d9"]: there is no such device',
    ),
    "a number too few": (
        lambda data: data["problem"]["costs"]["seconds"]["d0"].pop(),
        'problem.costs.seconds["d0"]: must hold 5 numbers, got 4',
    ),
    "a source that is none": (
        lambda data: data["problem"]["costs"]["sources"]["d0"].__setitem__(0, 9),
        "problem.costs.sources: must lie in 0..2, got 9",
    ),
    "a device that is none": (
        lambda data: data["placement"].update(l1="d7"),
        "placement: no device 'd7'; there are d0, d1",
    ),
    "a number for a device": (lambda data: data["placement"].update(l1=7), 'placement["l1"]: must be a name, got 7'),
    "an operator left out": (
        lambda data: data["placement"].pop("head"),
        "placement: the placement leaves out 1 of 5 operators, first 'head'",
    ),
    "a bound above the value": (
        lambda data: data.update(bound_seconds=8.0),
        "bound_seconds: 8.0 is above objective_seconds, 7.5",
    ),
    "a gap that does not fit": (
        lambda data: data.update(bound_seconds=0.0),
        "gap: value and bound make it 1.0, the file says 0.0",
    ),
    "an infinite bound": (lambda data: data.update(bound_seconds=10**399), "bound_seconds: must be a finite number"),
    "a number beyond all": (
        lambda data: data["problem"]["costs"]["seconds"]["d0"].__setitem__(0, float("inf")),
        'problem.costs.seconds["d0"][0]: must be a number or null, got Infinity',
    ),
    "an unknown field": (lambda data: data.update(sede=0), "sede: not a field of a plan; did you mean 'seed'"),
    "a field left out": (lambda data: data.pop("seed"), "seed: is missing"),
    "a memory of text": (
        lambda data: data["problem"]["cluster"]["devices"][1].update(memory_bytes="24GiB"),
        'problem.cluster.devices[1].memory_bytes: must be a whole number from 0 to 2^62, got "24GiB"',
    ),
    "a link to nowhere": (
        lambda data: data["problem"]["cluster"]["links"][0].update(target="d7"),
        "problem.cluster: link d0 -> d7: no device 'd7'",
    ),
    "an unknown policy": (
        lambda data: data["objective"].update(policy="lifo"),
        'objective.policy: must be one of fifo, priority, program_order, placeto, got "lifo"',
    ),
    "a pin of three": (
        lambda data: data["problem"]["constraints"]["pin"].append(["a", "b", "c"]),
        "problem.constraints.pin[0]: must be a pattern and a device, got 3 items",
    ),
    "an order that is none": (
        lambda data: data.update(order={"policy": "priority", "position": [0] * 5, "transfer_position": None}),
        "order: cannot be simulated: order must be a permutation, but entries 0 and 1 are both 0",
    ),
    "a baseline without devices": (
        lambda data: data["baselines"][0].update(devices=None),
        "baselines[0]: a value and devices come together or not at all",
    ),
    "a baseline on device 7": (
        lambda data: data["baselines"][0].update(devices=[7] * 5),
        "baselines[0].devices: device 7 is given, there are 2",
    ),
    "a step of text": (lambda data: data["trail"].__setitem__(0, "fast"), "trail[0]: must be a list"),
    "times of other steps": (
        lambda data: data["repro"].update(trail_seconds=[0.0] * 9),
        "repro.trail_seconds: must hold",
    ),
    "a graph with a cycle": (
        lambda data: data["problem"]["graph"]["operators"][0].update(reads=["head"]),
        "problem.graph: the graph has a cycle",
    ),
    "packed rubbish": (
        lambda data: data["problem"].update(graph={"npz": "UEsDBA=="}),
        "problem.graph: damaged: ",
    ),
    "no base64": (lambda data: data.update(placement="???"), "placement: is not base64"),
}


@pytest.mark.parametrize("what", WRONG)
def test_what_makes_no_sense_is_told_with_its_field_even_if_checksums_fit(what: str, tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    data = saved(plan_for(), path)
    change, message = WRONG[what]
    change(data)
    resealed(data, path)
    assert message in refusal(path)


def test_a_packed_row_is_unpacked_no_further_than_it_may(tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    data = saved(plan_for(), path)
    bomb = rows.as_row(np.zeros(50_000_000, dtype=np.uint8), rows.SMALL, packed=True)
    data["placement"] = bomb
    resealed(data, path)
    assert "placement: must hold 5 numbers, packed in 5 bytes" in refusal(path)
    data["placement"] = rows.as_row(np.zeros(5, dtype=np.uint8), rows.SMALL, packed=True)
    data["order"] = {"policy": "program_order", "order": bomb, "length": 10**12, "sends": True}
    resealed(data, path)
    assert "order: lists 1000000000000 items where there are 15" in refusal(path)


@pytest.mark.skipif(not SHARED.is_dir(), reason="needs the reproducers beside the project")
def test_damaged_plans_that_once_ended_in_tracebacks_are_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    paths = sorted(SHARED.glob("*.json"))
    assert paths
    for path in paths:
        assert exit_code(["explain", str(path)]) == 2
        complaint = capsys.readouterr().err
        assert complaint.count("\n") == 1
        assert "internal error" not in complaint


# Writing


def test_a_folder_that_does_not_exist_is_named(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"cannot write .*: there is no folder"):
        plan_for().save(tmp_path / "missing" / "plan.json")


def test_a_failed_write_leaves_the_old_plan_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "plan.json"
    plan_for().save(path)
    before = path.read_bytes()

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(BadInput, match="No space left on device"):
        plan_for().save(path)
    assert path.read_bytes() == before
    assert os.listdir(tmp_path) == ["plan.json"]


def test_a_plan_is_compressed_where_its_name_says_so(tmp_path: Path) -> None:
    plan_for().save(tmp_path / "plan.json.gz")
    assert (tmp_path / "plan.json.gz").read_bytes().startswith(b"\x1f\x8b")
    assert Plan.load(tmp_path / "plan.json.gz").solution.objective_seconds == 7.5


def test_every_field_of_a_solution_is_kept() -> None:
    apart = {"placement", "objective_seconds", "bound_seconds", "trail", "elapsed_seconds"}
    of_the_search = {"phases", "learning"}  # tell how it went, and not what it found
    assert set(Solution.__dataclass_fields__) == apart | of_the_search | set(fields.SOLUTION)


@pytest.mark.parametrize(("stopped_by", "shown"), [("time", True), ("finished", False)])
def test_a_plan_says_when_a_time_limit_ended_the_search(tmp_path: Path, stopped_by: StoppedBy, shown: bool) -> None:
    made = place_problem(two_towers(), budget=Budget(evaluations=50))
    plan = Plan(made.problem, replace(made.solution, stopped_by=stopped_by), made.baselines, made.provenance)
    plan.save(tmp_path / "plan.json")
    assert Plan.load(tmp_path / "plan.json").solution.stopped_by == stopped_by
    assert ("stopped by: time" in summary(explain(plan))) is shown
