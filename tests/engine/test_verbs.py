"""place, bench, train, tune on engines: a worker killed in the middle changes nothing, a killed coordinator goes on."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fleets import KINDS, dask_cluster, needs, started, victim

from stead.bench import jobs_of, run_jobs, suite_named
from stead.bench.runner import Journal
from stead.cli.leased import PLACEHOLDER, run_leased, show_leased
from stead.cli.main import exit_code
from stead.engine import Engine, opened_engine
from stead.placing.loading import load
from stead.problem import objective_from

MODEL = ["zoo:lstm-grid?operators=100", "--devices", "3090,3060", "--objective", "latency"]
CLOCKS = {"cpu_seconds", "wall_seconds", "load_cpu_seconds", "memory_bytes", "trail"}  # differ from run to run


def cells(engine: Engine | None, journal: Journal) -> list[dict[str, Any]]:
    """What a small benchmark says, clocks apart."""
    suite = suite_named("smoke").only(["*lstm*"], [])
    jobs = jobs_of(suite, solvers=["heft", "auto"], evaluations=200)[:3]
    records = run_jobs(jobs, journal, engine=engine)
    return [{key: value for key, value in one.items() if key not in CLOCKS} for one in records]


@pytest.fixture(scope="module")
def alone() -> list[dict[str, Any]]:
    """What the benchmark says without an engine."""
    return cells(None, Journal(None, resume=False))


@pytest.mark.parametrize("kind", KINDS)
def test_a_benchmark_says_the_same_when_a_worker_is_killed(kind: str, alone: list[dict[str, Any]]) -> None:
    assert [one["status"] for one in alone] == ["ok"] * 3
    with started(kind, 2) as engine, victim(engine):
        assert cells(engine, Journal(None, resume=False)) == alone


@pytest.mark.parametrize("kind", KINDS)
def test_a_policy_is_the_same_when_a_worker_is_killed(kind: str, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    from stead.learn.colocrl.method import ColocRL
    from stead.learn.ground.solver import train_policy
    from stead.learn.ground.training_run import Run

    goal, files = objective_from("latency"), [tmp_path / "0", tmp_path / "1"]
    problems = [load(f"zoo:lstm-grid?operators={count}", "3090,3060").problem(goal) for count in (40, 50)]
    train_policy(ColocRL(hidden=16, graphs_per_step=2), problems, ["a", "b"], Run(files[0], 4))
    with started(kind, 2) as engine, victim(engine):
        train_policy(ColocRL(hidden=16, graphs_per_step=2), problems, ["a", "b"], Run(files[1], 4), engine=engine)
    assert files[0].read_bytes() == files[1].read_bytes()


def test_a_killed_place_goes_on_from_its_journal_to_the_same_plan(tmp_path: Path) -> None:
    asked = ["place", *MODEL, "--evaluations", "3000", "--time-limit", "600", "--engine", "local:2"]
    whole, again, journal = tmp_path / "whole.json", tmp_path / "again.json", tmp_path / "j.jsonl"
    command = [*asked, "-o", str(again), "--journal", str(journal)]
    _killed(command, lambda: journal.exists() and journal.read_text().count('"task"') >= 3)
    begun = journal.read_text().splitlines()
    assert not again.exists()
    assert exit_code(command) == 0
    lines = journal.read_text().splitlines()
    assert lines[: len(begun) - 1] == begun[:-1]
    assert len(lines) == 1 + 3 * 2  # a header, three rounds of two tasks, and none of them twice
    assert exit_code([*asked, "-o", str(whole)]) == 0
    assert _lasting(whole) == _lasting(again)


def test_a_killed_benchmark_goes_on_from_its_file(tmp_path: Path) -> None:
    log = tmp_path / "b.jsonl"
    asked = ["bench", "--only", "*lstm*", "--solvers", "heft,auto", "--evaluations", "200", "--engine", "local:2"]
    _killed([*asked, "--json", str(log)], lambda: log.exists() and log.read_text().count('"run"') >= 1)
    first = [line for line in log.read_text().splitlines() if '"run"' in line]
    assert exit_code([*asked, "--resume", str(log)]) == 0
    last = [line for line in log.read_text().splitlines() if '"run"' in line]
    assert last[: len(first)] == first
    keys = [tuple(json.loads(line)[key] for key in ("instance", "solver", "seed")) for line in last]
    assert len(keys) == len(set(keys)) > len(first)


def test_a_killed_training_goes_on_from_its_checkpoint_to_the_same_policy(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    asked = ["train", "colocrl", "--set", "hidden=16", "--set", "graphs_per_step=2", "--every", "1", "--updates", "12"]
    asked += [part for count in (40, 50) for part in ("--graphs", f"zoo:lstm-grid?operators={count}")]
    asked += ["--devices", "3090,3060"]
    spread = [*asked, "--engine", "local:2"]
    output, kept = tmp_path / "p.safetensors", tmp_path / "p.checkpoint.safetensors"
    _killed([*spread, "-o", str(output)], kept.exists)
    assert not output.exists()
    assert exit_code([*spread, "-o", str(output), "--resume"]) == 0
    assert exit_code([*asked, "-o", str(tmp_path / "whole.safetensors")]) == 0
    assert output.read_bytes() == (tmp_path / "whole.safetensors").read_bytes()


@pytest.mark.parametrize("kind", KINDS)
def test_tune_leases_a_machine_and_survives_the_death_of_its_worker(
    kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    needs(kind)
    runtime = pytest.importorskip("openvino")
    sys.path.insert(0, str(Path(__file__).parents[1] / "run"))
    from small_files import residual_ir

    runtime.save_model(residual_ir(), tmp_path / "net.xml")
    output = tmp_path / "plan.json"
    few = ["--measurements", "3", "--evaluations", "50", "--json"]
    if kind == "dask":
        with dask_cluster(1) as address, opened_engine(address) as engine, victim(engine):
            assert exit_code(["tune", str(tmp_path / "net.xml"), "-o", str(output), *few, "--engine", address]) == 0
    else:  # workers of this machine belong to the command that starts them: what it calls is called here
        with started(kind, 1) as engine, victim(engine):
            asked = ["tune", str(tmp_path / "net.xml"), "-o", f"{PLACEHOLDER}/{output.name}", *few]
            assert show_leased(run_leased(engine, asked, {}), output) == 0
    assert json.loads(capsys.readouterr().out)["objective"] == "latency"
    assert output.exists()


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["--solver", "heft", "--engine", "local:1"], "solver heft is not spread over an engine; only auto is"),
        (["--journal", "x"], "--journal keeps what tasks of an --engine found; name one"),
        (["--engine", "spark"], "--engine is local, local:N, dask://host:port"),
    ],
)
def test_what_makes_no_sense_is_told_in_one_line(
    given: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert exit_code(["place", *MODEL, *given]) == 2
    complaint = capsys.readouterr().err.strip().splitlines()
    assert said in complaint[-1]


def _killed(command: list[str], ready: Callable[[], bool]) -> None:
    """Begin a command and kill it once something holds."""
    process = subprocess.Popen(
        [sys.executable, "-m", "stead", *command], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    end = time.monotonic() + 60
    while not ready():
        assert time.monotonic() < end
        assert process.poll() is None, "it ended before it could be killed"
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.wait(10)


def _lasting(path: Path) -> dict[str, Any]:
    """A plan without what differs from run to run."""
    document: dict[str, Any] = json.loads(path.read_text())
    return {key: value for key, value in document.items() if key not in ("repro", "checksums")}
