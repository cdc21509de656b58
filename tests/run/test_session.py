"""From names to measurements: workers, plans, profiles, and the commands as a newcomer gives them."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from stead import BadInput, Device, Placement, Plan, Problem, Solution
from stead.cli.main import exit_code
from stead.cluster import Cluster
from stead.costs import Fitted
from stead.plan import provenance
from stead.run import session
from stead.run.executor import Numerics, Worker
from stead.run.profile import machine_profile, take_timings
from stead.sim import simulate
from stead.testing import chain3, two_towers
from stead.testing.executors import SimulatedExecutor

SPLIT = [0, 1, 0, 1, 0]


def plan_of(problem: Problem, devices: list[int]) -> Plan:
    placement = Placement(problem, devices)
    value = simulate(problem, placement).objective_seconds
    solution = Solution(placement, value, solver="given")
    return Plan(problem, solution, (), provenance(model="zoo:towers", devices="", seed=0))


@pytest.fixture
def simulated(monkeypatch: pytest.MonkeyPatch) -> Problem:
    """A machine whose truth is that of two towers, in the place of worker processes."""
    problem = two_towers()
    workers = tuple(Worker(name, (d,)) for d, name in enumerate(problem.cluster.names))
    monkeypatch.setattr(session, "workers_on", lambda text: workers)
    monkeypatch.setattr(session, "opened", lambda *given, **named: SimulatedExecutor(problem))
    return problem


def test_plans_are_measured_with_the_predictions_of_plan_and_profile(simulated: Problem) -> None:
    executor = SimulatedExecutor(simulated)
    profile = machine_profile(executor, take_timings(executor), simulated.cluster)
    plans = [plan_of(simulated, SPLIT), plan_of(simulated, [0] * 5)]
    split, alone = session.measure_plans(plans, names=["split", "alone"], profile=profile)
    assert split.also_predicted["plan"].seconds == 7.5
    assert split.also_predicted["profile, overlapped"].costs == "measured"
    assert split.predicted.charge == "per_tensor"
    assert split.measured.seconds is not None
    assert split.measured.seconds.median_seconds == 7.5
    assert alone.ratio == 1.0
    assert split.alternatives.threads is not None


def test_a_plan_for_other_devices_or_another_model_is_refused(simulated: Problem) -> None:
    other = chain3()
    with pytest.raises(BadInput, match="made from another graph than zoo:towers gives"):
        session.measure_plans([plan_of(other, [0, 0, 0])], names=["other"])
    plans = [plan_of(simulated, SPLIT), plan_of(other, [0, 0, 0])]
    with pytest.raises(BadInput, match="is about another model than the plans before it"):
        session.measure_plans(plans, names=["one", "other"])
    lone = Cluster(simulated.cluster.devices[:1])
    costs = Fitted(()).costs(simulated.graph, lone)
    single = Problem(simulated.graph, lone, costs)
    with pytest.raises(BadInput, match="a plan for 1 devices"):
        session.measure_plans([plan_of(single, [0] * 5)], names=["single"])


def test_a_profile_of_other_devices_is_refused(simulated: Problem) -> None:
    executor = SimulatedExecutor(simulated)
    profile = machine_profile(executor, take_timings(executor), simulated.cluster)
    with pytest.raises(BadInput, match="the profile does not know core 7; it has d0, d1"):
        session.profiled_problem(simulated, profile, (Worker("d0", (0,)), Worker("core 7", (7,))))
    swapped = session.profiled_problem(simulated, profile, (Worker("d1", (1,)), Worker("d0", (0,))))
    assert swapped.cluster.names == ("d1", "d0")
    assert np.array_equal(swapped.costs.seconds[:, 0], simulated.costs.seconds[:, 1])


def test_devices_of_a_measured_machine_say_which_workers_they_are() -> None:
    problem = two_towers()
    named = tuple(
        Device(device.name, kind="cpu", alias={"stead": text})
        for device, text in zip(problem.cluster, ("core 0", "core 1 @ sse41"), strict=True)
    )
    cluster = Cluster(named, problem.cluster.links)
    own = Problem(problem.graph, cluster, Fitted(()).costs(problem.graph, cluster))
    assert session.workers_of(plan_of(own, SPLIT)) == "core 0 + core 1 @ sse41"
    assert session.workers_of(plan_of(problem, SPLIT)) == "this-machine"


def test_measure_prints_one_line_per_plan_and_writes_records(
    simulated: Problem, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    plan_of(simulated, SPLIT).save("plan.json")
    assert exit_code(["measure", "plan.json", "-o", "record.json"]) == 0
    said = capsys.readouterr().out
    assert said.splitlines()[2].split() == ["plan", "7.50", "7.50", "7.50", "7.50", "6/0", "1.00", "1.20x", "same"]
    assert max(map(len, said.splitlines())) <= 100
    (record,) = json.loads((tmp_path / "record.json").read_text())
    assert record["timing_mode"] == "simulated"


def test_measure_prints_no_gain_of_wrong_results_and_fails(
    simulated: Problem, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(SimulatedExecutor, "check", lambda self, placement: Numerics(1.0, 1.0, 0.0))
    plan_of(simulated, SPLIT).save("plan.json")
    assert exit_code(["measure", "plan.json"]) == 1
    said = capsys.readouterr()
    assert "WRONG" in said.out
    assert "1.20x" not in said.out
    assert "its time means nothing" in said.err


def test_options_of_measuring_need_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code(["devices", "-o", "machine.toml"]) == 2
    assert "--on, --hosts and -o belong to --measure" in capsys.readouterr().err
    assert exit_code(["devices", "3090", "--measure"]) == 2
    assert "times this machine, not '3090'" in capsys.readouterr().err
    assert exit_code(["profile", "zoo:resnet-50", "-o", "costs.toml"]) == 2
    assert "profiles are JSON" in capsys.readouterr().err
    assert exit_code(["profile", "zoo:resnet-50", "--on", "core x"]) == 2
