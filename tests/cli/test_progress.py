"""The live line: what it says, where it is drawn and where it is not."""

from __future__ import annotations

import io

import pytest
from terminals import Terminal

from stead import clock
from stead.cli.progress import ERASE, Progress
from stead.solvers import Improvement


def test_the_line_has_incumbent_bound_gap_member_and_the_time_that_is_left() -> None:
    times = iter([0.0, 10.0, 30.0])
    with clock.read_from(lambda: next(times)):
        progress = Progress()
        progress.search(40.0)  # at 10 s: until 50 s
        progress.doing("search, round 3")
        progress.improved(Improvement(1.0, 7, 2.0, 1.5))
        assert progress.line() == "2.00 s  bound 1.50 s  gap 25.0 %  search, round 3  20 s left  Ctrl-C keeps the best"


def test_the_line_draws_how_the_gap_fell(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stderr", Terminal())
    progress = Progress()
    for value in (2.0, 2.0, 1.6, 1.5):
        progress.improved(Improvement(1.0, 7, value, 1.5))
        progress._draw()
    assert "gap 0.0 %  ██▃▁" in progress.line()


def test_before_there_is_a_plan_the_line_says_what_is_read() -> None:
    progress = Progress()
    progress.doing("reading model.onnx")
    assert progress.line() == "reading model.onnx"


def test_the_line_is_drawn_while_nothing_happens_and_wiped_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr("sys.stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr("stead.cli.progress.PATIENCE_SECONDS", 0.001)
    monkeypatch.setattr("stead.cli.progress.INTERVAL_SECONDS", 0.001)
    with Progress() as progress:
        progress.doing("bounds")
        while terminal.getvalue().count("bounds") < 3:
            pass
    assert terminal.getvalue().endswith(ERASE)


def test_a_terminal_without_unicode_gets_plain_letters(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal("ascii")
    monkeypatch.setattr("sys.stderr", terminal)
    progress = Progress()
    progress.doing("reading modèle.onnx")
    progress.improved(Improvement(1.0, 7, 2e-6))
    progress._draw()
    assert terminal.getvalue().isascii()


@pytest.mark.parametrize("term", ["dumb", None])
def test_pipes_and_dumb_terminals_get_nothing(monkeypatch: pytest.MonkeyPatch, term: str | None) -> None:
    stream = Terminal() if term else io.StringIO()
    monkeypatch.setattr("sys.stderr", stream)
    monkeypatch.setenv("TERM", term or "xterm")
    with Progress() as progress:
        progress.improved(Improvement(1.0, 7, 2.0))
        assert not progress._thread.is_alive()
    assert stream.getvalue() == ""
