"""Ctrl-C and SIGTERM: the best plan so far is written, whatever is at work; files are never cut off."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from contextlib import AbstractContextManager
from pathlib import Path
from typing import NoReturn

import pytest

from stead.cli import place
from stead.cli.interrupts import heard, held_off, within
from stead.cli.main import exit_code
from stead.errors import BadInput, Infeasible

# The first line tells the test that the solver has an incumbent; nothing but the signal ends it.
ENDLESS = """
import sys
from stead.cli.main import run
from stead.solvers import Search
offered = Search.offer_many
def offer_many(self, *rest, **more):
    found = offered(self, *rest, **more)
    if self.best is not None and self.solver == "{solver}":
        print("ready", file=sys.stderr, flush=True)
        while True: pass
    return found
Search.offer_many = offer_many
run(sys.argv[1:])
"""
READING = """
import sys
from stead.placing import loading
from stead.cli.main import run
def load(*rest, **more):
    print("ready", file=sys.stderr, flush=True)
    while True: pass
loading.load = load
run(sys.argv[1:])
"""


def forever() -> NoReturn:
    """Nothing but a signal ends this; its handler runs between two steps of Python, never inside a builtin."""
    while True:
        pass


def interrupted(script: str, number: signal.Signals, here: Path, *arguments: str) -> tuple[int, str, str]:
    """(exit code, stdout, stderr) of a command that gets a signal once it says that it is ready."""
    command = [sys.executable, "-c", script, *arguments]
    child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=here)
    assert child.stderr is not None
    for line in child.stderr:
        if line == "ready\n":
            break
    child.send_signal(number)
    out, err = child.communicate(timeout=60)
    return child.returncode, out, err


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("solver", ["auto", "even"])  # `even` is a rule: then the plan is that of a rule before it
def test_a_signal_writes_the_best_plan(tmp_path: Path, number: signal.Signals, solver: str) -> None:
    code, out, err = interrupted(
        ENDLESS.format(solver=solver), number, tmp_path,
        "place", "zoo:lstm-grid?operators=40", "-d", "3090,3060", "-g", "latency", "--json",
    )  # fmt: skip
    assert code == 0, err
    assert (json.loads(out)["interrupted"], json.loads(out)["stopped_by"]) == (True, "interrupted")
    assert json.loads((tmp_path / "plan.json").read_text())["stopped_by"] == "interrupted"


@pytest.mark.parametrize(
    ("command", "said"), [("place", "interrupted before there was a plan"), ("doctor", "interrupted")]
)
def test_a_signal_while_a_model_is_read_is_one_line(tmp_path: Path, command: str, said: str) -> None:
    code, out, err = interrupted(READING, signal.SIGTERM, tmp_path, command, "zoo:gnmt-2", "-d", "3090,3060")
    assert (code, out, err.strip()) == (130, "", f"stead: {said}")


def test_an_interrupt_waits_until_a_file_is_written() -> None:
    done = False

    def write() -> None:
        nonlocal done
        with held_off():
            os.kill(os.getpid(), signal.SIGINT)
            done = True

    with pytest.raises(KeyboardInterrupt):
        write()
    assert done


def test_sigterm_is_heard_like_ctrl_c_and_only_for_a_while() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with heard(), pytest.raises(KeyboardInterrupt):
        os.kill(os.getpid(), signal.SIGTERM)
    assert signal.getsignal(signal.SIGTERM) is before


def test_what_takes_too_long_is_told() -> None:
    with pytest.raises(BadInput, match="too long"), within(0.01, BadInput("too long")):
        forever()


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_an_interrupt_of_the_report_leaves_the_plan(
    here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def stopped(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(place, "_print", stopped)
    model = "zoo:transformer?operators=40"
    code = exit_code(["place", model, "-d", "3090,3060", "-g", "latency", "--evaluations", "50"])
    assert code == 0
    assert capsys.readouterr().err == "stead: interrupted; the best plan so far is in plan.json\n"
    assert (here / "plan.json").exists()


def test_a_short_limit_of_the_search_leaves_time_to_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    given: list[float | None] = []
    whole = within

    def noted(seconds: float | None, late: Exception) -> AbstractContextManager[None]:
        given.append(seconds)
        return whole(seconds, late)

    monkeypatch.setattr("stead.cli.interrupts.within", noted)
    monkeypatch.chdir(tmp_path)
    assert exit_code(["place", "zoo:rnnlm-2", "-d", "3090,3060", "-g", "latency", "--time-limit", "0.1"]) == 0
    assert given == [10.0]
    capsys.readouterr()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize(
    ("command", "at_work"),
    [
        (["explain", "plan.json"], "stead.report.explain"),
        (["report", "plan.json"], "stead.report.page"),
        (["simulate", "zoo:transformer?operators=40", "-d", "3090,3060", "-p", "3090"], "stead.sim.simulate"),
        (["bench", "--suite", "smoke"], "stead.bench.runner._run"),
        (["train", "colocrl", "--graphs", "zoo:transformer?operators=40", "-d", "3090,3060"],
         "stead.placing.loading.load"),
        (["train", "colocrl", "--graphs", "zoo:transformer?operators=40", "-d", "3090,3060"],
         "stead.learn.ground.solver.train_policy"),
    ],
)  # fmt: skip
def test_a_signal_ends_every_other_command_with_one_line(
    here: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    command: list[str],
    at_work: str,
    number: signal.Signals,
) -> None:
    if command[0] == "train":
        pytest.importorskip("torch")
    if command[1] == "plan.json":
        model = "zoo:transformer?operators=40"
        assert exit_code(["place", model, "-d", "3090,3060", "-g", "latency", "--evaluations", "20"]) == 0
        capsys.readouterr()

    def signalled(*_: object, **__: object) -> None:
        os.kill(os.getpid(), number)
        forever()

    monkeypatch.setattr(at_work, signalled)
    code = exit_code(command)
    out, err = capsys.readouterr()
    assert (code, out, len(err.splitlines())) == (130, "", 1)
    assert err.startswith("stead: interrupted")
    assert not (here / "report.html").exists()


def test_a_look_for_fixes_that_takes_too_long_is_cut_off() -> None:
    error = Infeasible("too little memory")
    error.fixed_by(forever)
    assert place._fixes(error, 0.01) == ()
