"""Lines that are drawn anew in their place: on terminals alone, as often as one can read them."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from terminals import OURS, Terminal, in_pipe, on_terminal

from stead import clock
from stead.cli.live_block import LiveBlock
from stead.cli.train_progress import curve_lines
from stead.printing.look import PLAIN, Look

ROW = {"update": 1, "best": 2.0, "greedy": 2.0, "mean": None, "entropy": 0.5, "evaluations": 8, "alarms": 0}
ROWS = [ROW, {**ROW, "update": 2, "best": 1.5}, {**ROW, "update": 3, "best": 1.5, "greedy": 1.0, "mean": 1.25}]
BENCH = ("bench", "--only", "lstm-grid", "--solvers", "single,balanced", "--evaluations", "20")


def watched_stderr(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """A terminal in the place of stderr, for this test."""
    stream = Terminal()
    monkeypatch.setattr("sys.stderr", stream)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    return stream


def test_a_block_takes_the_place_of_the_one_before(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = watched_stderr(monkeypatch)
    block = LiveBlock(Look(), 24)
    block.draw(lambda look, room: ["a", "b"])
    block.draw(lambda look, room: ["c"], now=True)
    block.wipe()
    assert terminal.getvalue() == "a\nb\n\r\x1b[2A\x1b[Jc\n\r\x1b[1A\x1b[J"


def test_a_block_is_drawn_at_most_four_times_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = watched_stderr(monkeypatch)
    times = iter([0.0, 0.2, 0.25, 0.49])
    block = LiveBlock(Look(), 24)
    with clock.read_from(lambda: next(times)):
        for number in range(4):
            block.draw(lambda look, room, number=number: [str(number)])
    assert terminal.getvalue() == "0\n\r\x1b[1A\x1b[J2\n"


def test_a_block_never_scrolls(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = watched_stderr(monkeypatch)
    asked = []
    LiveBlock(Look(), 5).draw(lambda look, room: asked.append(room) or [*"abcdef"])
    assert (asked, terminal.getvalue()) == ([4], "a\nb\nc\nd\n")


@pytest.mark.parametrize(("name", "value"), [("TERM", "dumb"), ("NO_COLOR", "1"), ("", "")])
def test_who_wants_plain_text_gets_no_block(
    name: str, value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    watched_stderr(monkeypatch)
    assert LiveBlock.if_watched() is not None
    if name:
        monkeypatch.setenv(name, value)
    else:
        monkeypatch.setattr("sys.stderr", io.StringIO())
    assert LiveBlock.if_watched() is None


def test_curves_stand_on_one_scale_that_begins_at_the_bound() -> None:
    assert curve_lines(ROWS, {"bound": 0.0, "heft": 1.1}, 9, 2.5, PLAIN) == [
        " update 3 of 9  2.5 updates/s  entropy 0.500  8 evaluations",
        " best     1.5000  █▆▆",
        " greedy   1.0000  ██▅",
        " mean     1.2500    ▅",
        " beside  bound 0.000  heft 1.100",
    ]


def test_alarms_are_told_and_plain_letters_are_enough() -> None:
    lines = curve_lines([{**ROW, "alarms": 2, "greedy": None}], {}, 1, 1.0, Look(width=60, unicode=False))
    assert lines[0].startswith(" update 1 of 1  2 alarms  ")
    assert lines[2] == " greedy        -"
    assert "\n".join(lines).isascii()


def test_a_long_history_fits_a_narrow_terminal() -> None:
    lines = curve_lines(ROWS * 400, {"bound": 1.0}, 1200, 1.0, Look(width=40))
    assert max(map(len, lines)) <= 40


def test_a_benchmark_fills_its_table_on_a_terminal_and_tells_runs_in_pipes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setattr("stead.cli.live_block.INTERVAL_SECONDS", 0.0)
    monkeypatch.setattr("stead.bench.runner._run", lambda job, cores, memory: VALUES[job.solver])
    watched = on_terminal(*BENCH, columns=100)
    assert watched.code == 0
    drawn = [OURS.sub(b"", part).decode() for part in watched.out.split(b"\x1b[J")]
    assert len(drawn) == 4  # bound, two solvers, and the tables that stay
    assert "1 of 3 runs" in drawn[0]
    assert [text.count("000") for text in drawn[:3]] == [0, 1, 2]  # ratios 1.000 and 2.000
    assert drawn[3].startswith("stead bench --suite smoke ")
    assert "mean ratio" in drawn[3]
    assert b"\x1b[2mstead" not in watched.out  # a title has no label that could be painted
    assert "[1/3]" not in drawn[3]
    piped = in_pipe(*BENCH).out
    assert b"[3/3] " in piped
    assert b"\x1b" not in piped
    assert b"of 3 runs" not in piped


VALUES = {
    "bound": {"status": "ok", "bound_seconds": 0.5, "bound_name": "area", "operators": 30},
    "single": {"status": "ok", "value_seconds": 1.0, "bound_seconds": 0.5, "cpu_seconds": 0.1},
    "balanced": {"status": "ok", "value_seconds": 2.0, "bound_seconds": 0.5, "cpu_seconds": 0.1},
}
