"""stead tune, stead train --reward and stead demo --run, with a double in place of workers."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stead import Costs, Plan, Problem, Roofline, load
from stead.cli.main import exit_code
from stead.run.believed import data_sheet
from stead.run.executor import Numerics, Worker
from stead.testing.executors import SimulatedExecutor

MODEL = "zoo:branches"
WORKERS = (Worker("core 0", (0,)), Worker("core 1", (1,)))


class Double(SimulatedExecutor):
    """A machine whose second core is slow."""

    results = Numerics(0.0, 0.0, 0.0)

    def __init__(self, model: str) -> None:
        graph, cluster = load(model, "2x 3090").graph, data_sheet(WORKERS)
        seconds = Roofline().costs(graph, cluster).seconds * np.array([1.5, 4.0])
        super().__init__(Problem(graph, cluster, Costs(graph, cluster, seconds)), noise=0.01)
        self.workers = WORKERS

    def check(self, placement: Any) -> Numerics:
        return self.results


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[list[Double]]:
    opened: list[Double] = []

    @contextmanager
    def double(model: str, workers: Any, **_: Any) -> Iterator[Double]:
        opened.append(Double(model))
        with opened[-1] as executor:
            yield executor

    monkeypatch.setattr("stead.run.session.opened", double)
    monkeypatch.setattr("stead.run.session.workers_on", lambda text: WORKERS)
    monkeypatch.chdir(tmp_path)
    yield opened
    assert not any(one.is_open for one in opened)


def tuned(*more: str) -> int:
    return exit_code(["tune", MODEL, "--evaluations", "100", "--time-limit", "1000", *more])


def test_tuning_prints_what_every_round_believed_and_saw(machine: list[Double], capsys: Any) -> None:
    assert tuned("-o", "best.json") == 0
    out = capsys.readouterr().out
    assert "believed" in out
    assert "single:core 0" in out
    assert "wrote    best.json" in out
    assert all(len(line) <= 80 for line in out.splitlines() if "single" in line or "plan" in line.split()[:2])
    plan = Plan.load("best.json")
    assert plan.provenance["model"] == MODEL
    assert plan.provenance["tuned"]["executor"] == "simulated"
    assert [device.alias["stead"] for device in plan.problem.cluster] == ["core 0", "core 1"]


def test_tuning_for_scripts_counts_every_measurement(machine: list[Double], capsys: Any) -> None:
    assert tuned("--json", "--measurements", "6") == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["measurements"] == machine[0].bursts <= 6
    assert answer["rounds"][0][0]["name"] == "single:core 0"
    assert answer["rounds"][0][0]["measured_seconds"] > answer["rounds"][0][0]["believed_seconds"]
    assert Path("plan.json").exists()


def test_wrong_results_are_told_and_no_gain(
    machine: list[Double], monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    monkeypatch.setattr(Double, "results", Numerics(1.0, 0.5, 1e-4))
    assert tuned() == 1
    told = capsys.readouterr()
    assert "results differ from those of one worker" in told.err
    assert "gain" not in told.out


def test_another_data_sheet_can_be_believed(machine: list[Double], capsys: Any) -> None:
    assert tuned("--devices", "3090,3060", "--measurements", "8") == 0
    assert "off by" in capsys.readouterr().out
    assert tuned("--devices", "3090") == 2
    assert "describes 1 devices, but there are 2 workers" in capsys.readouterr().err


@pytest.mark.parametrize("reward", ["measured", "mixed"])
def test_training_takes_measured_rewards(machine: list[Double], reward: str, capsys: Any) -> None:
    pytest.importorskip("torch")
    train = ["train", "colocrl", "--graphs", MODEL, "--updates", "3", "--set", "hidden=16", "-o", "p.safetensors"]
    assert exit_code([*train, "--reward", reward, "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)["measured"]
    assert answer["measurements"] == machine[0].bursts > 0
    assert answer["best_seconds"] > 0
    assert Path("p.measured.jsonl").exists()
    assert exit_code([*train, "--reward", reward]) == 0
    assert "when the best was run once more" in capsys.readouterr().out


def test_rewards_that_cannot_be_are_refused(machine: list[Double], capsys: Any) -> None:
    pytest.importorskip("torch")
    train = ["train", "colocrl", "--graphs", MODEL, "--updates", "1", "-d", "2x 3090"]
    for more, said in (
        (["--reward", "mesured"], "--reward is one of simulated, measured, mixed"),
        (["--reward", "measured", "--graphs", MODEL], "measured rewards are those of one model"),
        (["--reward", "measured", "--processes", "2"], "would disturb what is measured"),
        (["--on", "this-machine"], "add --reward measured"),
    ):
        assert exit_code([*train, *more]) == 2
        assert said in capsys.readouterr().err
    assert not machine


def test_the_demo_runs_the_loop_on_two_cores(
    machine: list[Double], monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    monkeypatch.setattr("stead.cli.demo.RUN_MODEL", MODEL)
    monkeypatch.setattr("stead.cli.demo.RUN_EVALUATIONS", 100)
    monkeypatch.setattr("stead.run.cores.usable_cores", lambda: (0, 1))
    monkeypatch.setattr("importlib.util.find_spec", lambda name: object())
    assert exit_code(["demo", "--run", "-o", "out"]) == 0
    out = capsys.readouterr().out
    assert "believes the data sheet" in out
    assert "believed" in out
    assert Path("out/plan.json").exists()
    monkeypatch.setattr("stead.run.cores.usable_cores", lambda: (0,))
    assert exit_code(["demo", "--run"]) == 2
    assert "two cores" in capsys.readouterr().err
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert exit_code(["demo", "--run"]) == 2
    assert 'needs torch: pip install "stead[torch]"' in capsys.readouterr().err
