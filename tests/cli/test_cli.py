"""The command line as scripts and people meet it: documents, tables, errors, exit codes."""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

import stead
from stead.cli.main import exit_code
from stead.graph import GraphBuilder
from stead.readers import write_graph
from stead.workloads.demo import demo_graph

KEYS = {
    "solver", "objective", "objective_seconds", "bound_seconds", "gap", "feasible", "elapsed_seconds", "evaluations",
    "placement", "devices", "baselines", "labels",
}  # fmt: skip


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of one's own with the demo graph in it."""
    monkeypatch.chdir(tmp_path)
    write_graph(tmp_path / "demo.json", demo_graph())
    return tmp_path


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = exit_code(list(arguments))
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def document(capsys: pytest.CaptureFixture[str], *arguments: str) -> Any:
    code, out, err = run(capsys, *arguments)
    assert code == 0, err
    return json.loads(out)


def place(*more: str) -> list[str]:
    return ["place", "demo.json", "--devices", "3090,3060", "--evaluations", "200", *more]


def test_the_module_runs_like_the_command() -> None:
    done = subprocess.run([sys.executable, "-m", "stead", "--version"], capture_output=True, text=True)
    assert done.returncode == 0
    assert done.stdout.strip() == stead.__version__


def test_demo_shows_a_plan_its_gap_and_baselines(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "demo")
    assert code == 0
    assert "> plan" in out
    assert "proved optimal, gap 0.0 %" in out
    assert "hf-sequential" in out
    assert "does not fit: needs" in out
    assert (here / "report.html").read_text().startswith("<!doctype html>")
    assert json.loads((here / "plan.json").read_text())["format"] == "stead.plan"


def test_place_prints_one_document_with_the_promised_keys(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    answer = document(capsys, *place("--objective", "throughput", "--json"))
    assert set(answer) >= KEYS
    assert len(answer["placement"]) == len(demo_graph())
    assert set(answer["placement"].values()) <= set(answer["devices"])
    assert answer["labels"]["objective_seconds"]["source"] == "analytic"
    assert all(
        (one["objective_seconds"] is None) == (one["reason"] is not None) for one in answer["baselines"]
    )


def test_without_an_objective_both_are_solved_and_written(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    answer = document(capsys, *place("--json"))
    assert set(answer) == {"latency", "throughput"}
    written = {path for one in answer.values() for path in one["written"]}
    assert written in ({"plan.json"}, {"plan.latency.json", "plan.throughput.json"})
    assert all((here / path).exists() for path in written)


def test_pins_forbids_and_colocation_are_kept(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first, second, last = (
        demo_graph().operator_names[0],
        demo_graph().operator_names[1],
        demo_graph().operator_names[-1],
    )
    answer = document(
        capsys, *place("-g", "latency", "--json", "--pin", f"{first}=3060", "--forbid", f"{last}=3060",
                       "--colocate", f"{first},{second}"),
    )  # fmt: skip
    placed = answer["placement"]
    assert (placed[first], placed[second]) == ("3060", "3060")
    assert placed[last] == "3090"


def test_explain_tells_why_an_operator_is_where_it_is(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(capsys, *place("-g", "latency"))[0] == 0
    name = demo_graph().operator_names[5]
    (report,) = document(capsys, "explain", "plan.json", name, "--json")
    assert report["device"] in ("3090", "3060")
    assert {one["reason"] for one in report["alternatives"]} >= {"here"}
    code, out, _ = run(capsys, "explain", "plan.json", name)
    assert code == 0
    assert "whole plan" in out or "does not work" in out


def test_report_writes_a_page(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(capsys, *place("-g", "latency"))[0] == 0
    assert run(capsys, "report", "plan.json", "-o", "page.html")[0] == 0
    assert "<svg" in (here / "page.html").read_text()


def test_simulate_scores_a_given_placement_and_writes_a_trace(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(capsys, *place("-g", "latency", "-o", "mine.json"))[0] == 0
    plan = json.loads((here / "mine.json").read_text())
    answer = document(
        capsys, "simulate", "demo.json", "-d", "3090,3060", "-p", "mine.json", "--trace", "t.json", "--json"
    )
    assert answer["objective_seconds"] == plan["objective_seconds"]
    events = json.loads((here / "t.json").read_text())["traceEvents"]
    assert all(event["dur"] >= 0 for event in events if event["ph"] == "X")


def test_simulate_of_an_overfull_device_ends_with_three(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, _ = run(capsys, "simulate", "demo.json", "-d", "3090,3060", "-p", "3060")
    assert code == 3
    assert "3060 is short by" in out


def test_doctor_counts_and_tells_what_devices_can_do(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    answer = document(capsys, "doctor", "demo.json", "-d", "3090,3060", "--json")
    assert answer["operators"] == len(demo_graph())
    assert [one["supported"] for one in answer["supports"]] == [len(demo_graph())] * 2
    code, out, _ = run(capsys, "doctor", "demo.json")
    assert code == 0
    assert "GFLOP" in out


def test_an_old_name_of_a_solver_is_told_once_and_printed_anew(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, err = run(capsys, *place("-g", "latency", "--set", "start=round_robin", "--json"))
    assert (code, err.count("\n")) == (0, 1)
    assert "stead: note: solver 'round_robin' is now called 'round-robin'\n" in err
    assert "round_robin" not in out
    code, out, _ = run(capsys, *place("-g", "latency", "--solver", "fit_memory", "--json"))
    assert (code, json.loads(out)["solver"]) == (0, "fit-memory")


@pytest.mark.parametrize("verb", ["solvers", "devices", "formats"])
def test_lists_come_as_text_and_as_json(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert len(document(capsys, verb, "--json")) > 1
    assert run(capsys, verb)[1].count("\n") > 1


def test_devices_shows_how_a_description_is_understood(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "devices", "2x A100-80GB + cpu")
    assert code == 0
    assert "A100 SXM4 80 GB" in out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["place", "missing.json", "-d", "3090"], "no such file"),
        (["place", "demo.json"], "add --devices"),
        (["place", "demo.json", "-d", "A100"], "may be any of"),
        (["place", "demo.json", "-d", "306"], "no device"),
        (["place", "demo.json", "-d", "3090", "-g", "speed"], "latency or throughput"),
        (["place", "demo.json", "-d", "3090,3060", "--solver", "autoo"], "did you mean 'auto'"),
        (["place", "demo.json", "-d", "3090,3060", "--set", "patience"], "--set needs OPTION=VALUE"),
        (["place", "demo.json", "-d", "3090,3060", "--pin", "x"], "--pin needs NAME=DEVICE"),
        (["place", "demo.json", "-d", "3090,3060", "--pin", "nothing=3090"], "no operator or module fits"),
        (["place", "demo.json", "-d", "3090,3060", "--pin", "*=4090"], "no device '4090'"),
        (
            ["place", "demo.json", "-d", "3090,3060", "-g", "latency", "--dispatch", "lifo"],
            "no --dispatch",
        ),
        (
            ["place", "demo.json", "-d", "3090,3060", "-g", "latency", "--execution", "magic"],
            "execution is one of",
        ),
        (
            ["place", "demo.json", "-d", "3090,3060", "-g", "throughput", "--microbatches", "0"],
            "microbatches must lie",
        ),
        (["place", "demo.json", "-d", "3090,3060", "--time-limit", "nan"], "time limit"),
        (["explain", "demo.json"], "is not a plan"),
        (["simulate", "demo.json", "-d", "3090,3060", "-p", "demo.json"], "placement"),
    ],
)
def test_bad_input_is_one_line_and_two(
    arguments: list[str], message: str, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, err = run(capsys, *arguments)
    assert (code, out) == (2, "")
    assert message in err
    assert "Traceback" not in err
    assert err.count("\n") == 1


@pytest.mark.parametrize("arguments", [["place"], ["plaec"], ["place", "demo.json", "--nonsense"]])
def test_bad_usage_is_two(arguments: list[str], here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(capsys, *arguments)[0] == 2


def test_infeasible_is_three_with_fixes(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capsys, "place", "demo.json", "-d", "3060", "-g", "latency", "--json")
    assert code == 3
    answer = json.loads(out)
    assert answer["feasible"] is False
    assert any("more on 3060" in fix for fix in answer["fixes"])
    assert any("allow the cpu" in fix for fix in answer["fixes"])
    assert "infeasible" in err
    assert not (here / "plan.json").exists()


def test_contradicting_pins_are_infeasible_with_the_pin_to_drop(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    name = demo_graph().operator_names[0]
    code, _, err = run(capsys, *place("-g", "latency", "--pin", f"{name}=3090", "--pin", f"{name}=3060"))
    assert code == 3
    assert f"fix: drop --pin {name}=3090" in err


def test_an_internal_error_is_one_with_one_line(
    here: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise RuntimeError("boom")

    monkeypatch.setattr("stead.placing.loading.read", broken)
    code, _, err = run(capsys, *place())
    assert code == 1
    assert "internal error: RuntimeError: boom" in err
    assert "Traceback" not in err


@pytest.mark.parametrize(
    "error",
    [
        MemoryError("std::bad_alloc"),
        RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes"),
        OSError(12, "Cannot allocate memory"),
    ],
)
def test_too_little_memory_is_no_internal_error(
    error: Exception, here: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr("stead.placing.loading.read", broken)
    code, _, err = run(capsys, *place())
    assert code == 1
    assert err.startswith("stead: out of memory: ")
    assert "report it" not in err


def test_help_is_light_and_leaves_experts_out(capsys: pytest.CaptureFixture[str]) -> None:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(
        [sys.executable, "-m", "stead.cli", "--help"],
        capture_output=True,
        text=True,
        check=True,
        env=dict(os.environ),
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    commands = [
        line.split()[0] for line in done.stdout.splitlines() if line.startswith("  ") and line.split()
    ]
    assert "place" in commands
    assert "simulate" not in commands
    # About 0.15 s on the machines this was written on; a framework sneaking in costs a second or more.
    assert after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime < 1.0


def _cpu_seconds(process: int) -> float:
    """That a running process has used."""
    numbers = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(numbers[11]) + int(numbers[12])) / os.sysconf("SC_CLK_TCK")


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks at CPU seconds under /proc")
def test_an_interrupt_still_writes_the_best_plan(here: Path) -> None:
    build = GraphBuilder("wide")
    sources = [build.operator(f"s{i}", flops=1e9) for i in range(300)]
    tensors = [build.tensor(source, size_bytes=1000) for source in sources]
    for i in range(300):
        build.operator(f"t{i}", reads=[tensors[i], tensors[(i * 7 + 3) % 300]], flops=1e9)
    write_graph(here / "wide.json", build.build())
    # Nothing but the interrupt ends this search before its limit of ten minutes.
    started = subprocess.Popen(
        [sys.executable, "-m", "stead.cli", "place", "wide.json", "-d", "2x 3090 + 2x 3060", "-g", "latency", "--json",
         "--time-limit", "600", "--set", "patience=1000000000"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=here,
    )  # fmt: skip
    while _cpu_seconds(started.pid) < 3.0:  # it has begun to search by then, however busy the machine is
        time.sleep(0.1)
    started.send_signal(signal.SIGINT)
    out, err = started.communicate(timeout=120)
    assert started.returncode == 0, err
    answer = json.loads(out)
    assert answer["interrupted"]
    assert (here / "plan.json").exists()


def test_granularity_is_an_option_of_place_and_is_told(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = ("place", "demo.json", "-d", "3090,3060", "-g", "latency", "--evaluations", "500")
    code, out, _ = run(capsys, *given, "--granularity", "block")
    assert code == 0
    lines = out.splitlines()
    assert lines[0].startswith(" layers   3090: ")  # the first thing that is said
    assert " blocks   whole, as asked for" in lines
    assert not any("except" in text for text in lines)
    code, out, _ = run(capsys, *given, "--granularity", "operator", "--json")
    assert code == 0
    assert json.loads(out)["granularity"] is None
    code, _, err = run(capsys, *given, "--granularity", "layer")
    assert code == 2
    assert "granularity is one of auto, block, operator, got 'layer'" in err


def test_verbose_shows_every_phase_of_the_search(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    command = ["place", "zoo:transformer?operators=40", "-d", "3090,3060", "-g", "latency", "--evaluations", "60", "-v"]
    assert exit_code(command) == 0
    lines = capsys.readouterr().out.splitlines()
    (first,) = (n for n, line in enumerate(lines) if line.startswith(" phase "))
    assert lines[first + 2].startswith(" simple rules")
    assert any(line.startswith(" annealing") and "not run: only for" in line for line in lines)
    assert exit_code([*command, "--json"]) == 0
    phases = json.loads(capsys.readouterr().out)["phases"]
    assert [one["name"] for one in phases][:3] == ["simple rules", "bounds", "start"]
    assert exit_code([*command[:-1], "--json"]) == 0
    assert "phases" not in json.loads(capsys.readouterr().out)
