"""Profiles: timings with error bars, their file, and what costs are made of them."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from stead import BadInput, Latency, RunFailed, load, write_graph
from stead.cli.main import exit_code
from stead.costs import (
    ErrorBar,
    Fitted,
    Profile,
    Source,
    read_machine_profile,
    read_profile,
    write_machine_profile,
    write_profile,
)
from stead.printing.look import PLAIN
from stead.run.profile import Timings, machine_profile, profile_text, take_timings, unsteady
from stead.testing import two_towers
from stead.testing.executors import SimulatedExecutor


def test_operators_have_their_median_over_the_faster_half_of_the_runs() -> None:
    seconds = np.array([[1.0, 2.0], [1.2, 2.0], [9.0, 2.0], [1.1, 8.0]])  # totals 3, 3.2, 11, 9.1
    timings = Timings("core 0", seconds)
    assert timings.operators.tolist() == [1.1, 2.0]
    assert timings.total.minimum_seconds == 3.0


def test_timings_find_the_truth_under_noise() -> None:
    problem = two_towers()
    first, second = take_timings(SimulatedExecutor(problem, noise=0.05, seed=1))
    assert first.seconds.shape == (36, 5)
    assert first.operators == pytest.approx(problem.costs.seconds[:, 0], rel=0.08)
    assert second.operators == pytest.approx(problem.costs.seconds[:, 1], rel=0.08)
    assert not unsteady([first, second])


def test_runs_that_spread_too_much_are_said_to() -> None:
    totals = np.linspace(1.0, 1.5, 9)[:, None]
    (said,) = unsteady([Timings("core 1", totals)])
    assert said.startswith("unsteady: runs on core 1 spread by 20% of their median, more than 10%")


def test_too_few_runs_are_no_profile() -> None:
    class Losing(SimulatedExecutor):
        def profile(self, worker: int, *, repeats: int) -> np.ndarray:
            return super().profile(worker, repeats=repeats)[:0]

    with pytest.raises(RunFailed, match="insufficient: only 0 of 36 runs on d0"):
        take_timings(Losing(two_towers()))


def profiled(path: Path) -> SimulatedExecutor:
    problem = two_towers()
    executor = SimulatedExecutor(problem)
    made = {"model": "two towers", "timing_mode": "simulated"}
    profile = machine_profile(executor, take_timings(executor), problem.cluster, made=made)
    write_machine_profile(profile, path)
    return executor


def test_a_machine_profile_reads_back_as_it_was(tmp_path: Path) -> None:
    executor = profiled(tmp_path / "costs.json")
    back = read_machine_profile(tmp_path / "costs.json")
    assert back.cluster.fingerprint == executor.truth.cluster.fingerprint
    assert [one.device for one in back.profiles] == ["d0", "d1"]
    assert back.profiles[0].total == ErrorBar(36, 9.0, 9.0, 9.0, 0.0)
    assert back.profiles[0].error_bars["l1"] == ErrorBar(36, 2.0, 2.0, 2.0, 0.0)
    assert back.made["timing_mode"] == "simulated"
    costs = Fitted(back.profiles).costs(executor.graph, back.cluster)
    assert np.array_equal(costs.seconds, executor.truth.costs.seconds)
    assert costs.source == Source.MEASURED


def test_one_device_of_a_machine_can_be_asked_for(tmp_path: Path) -> None:
    profiled(tmp_path / "costs.json")
    assert read_profile(tmp_path / "costs.json", device="d1").by_name["l1"] == 2.0
    with pytest.raises(BadInput, match=r"measured d0, d1, not 'gpu'; leave @gpu out"):
        read_profile(tmp_path / "costs.json", device="gpu")


def test_files_of_one_device_are_read_as_before(tmp_path: Path) -> None:
    write_profile(Profile("gpu", {"a": 1.0}, samples={"a": 3}, source=Source.MEASURED), tmp_path / "old.json")
    assert json.loads((tmp_path / "old.json").read_text())["version"] == 1
    assert read_profile(tmp_path / "old.json", device="gpu").by_name == {"a": 1.0}
    with pytest.raises(BadInput, match="a profile of one device; give it as FILE@DEVICE"):
        read_machine_profile(tmp_path / "old.json")


def test_a_profile_alone_brings_devices_and_costs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    executor = profiled(tmp_path / "costs.json")
    write_graph(tmp_path / "net.json", executor.graph)
    assert exit_code(["place", "net.json", "--profile", "costs.json", "-g", "latency", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["objective_seconds"] == 7.5
    assert found["labels"]["objective_seconds"]["source"] == "measured"
    assert exit_code(["simulate", "net.json", "--profile", "costs.json", "-p", "d0", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["objective_seconds"] == 9.0


def test_a_profile_is_a_description_of_devices(tmp_path: Path) -> None:
    executor = profiled(tmp_path / "costs.json")
    loaded = load(executor.graph, tmp_path / "costs.json")
    assert loaded.problem(Latency()).cluster == executor.truth.cluster


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"devices": 3}, "devices must map"),
        ({"devices": {"d0": {"operators": {"a": "long"}}}}, "needs a number"),
        ({"devices": {"d9": {"operators": {"a": 1.0}}}}, "'d9' was measured but is no device of the machine"),
        ({"devices": {"d0": {"operators": {"a": 1}, "error_bars": {"a": [1]}}}}, "needs .n, minimum"),
        ({"machine": None}, "machine"),
        ({"links": [1]}, "link 1: needs from, to"),
        ({"made": 3}, "made must be a table"),
    ],
)
def test_damaged_machine_profiles_are_one_clear_line(tmp_path: Path, change: dict[str, object], said: str) -> None:
    profiled(tmp_path / "costs.json")
    data = json.loads((tmp_path / "costs.json").read_text()) | change
    (tmp_path / "costs.json").write_text(json.dumps(data))
    with pytest.raises(BadInput, match=said):
        read_machine_profile(tmp_path / "costs.json")


def test_the_table_shows_totals_and_slowest_kinds_within_80_columns() -> None:
    problem = two_towers()
    executor = SimulatedExecutor(problem)
    profile = machine_profile(executor, take_timings(executor), problem.cluster)
    lines = profile_text(profile, executor.graph, PLAIN)
    assert max(map(len, lines)) <= 80
    assert lines[2].split()[:3] == ["d0", "36", "9.00"]
