"""The picture of a plan in block characters."""

from __future__ import annotations

import numpy as np
import pytest

from stead.plan import Plan
from stead.printing.look import Look
from stead.problem import Placement, Throughput
from stead.report import explain
from stead.report.bars import bar, coverage, picture
from stead.sim import simulate
from stead.solvers import Solution
from stead.testing import two_towers


def towers(objective: Throughput | None = None) -> Plan:
    problem = two_towers(objective) if objective else two_towers()
    placement = Placement(problem, [0, 1, 0, 1, 0])
    return Plan(problem, Solution(placement, simulate(problem, placement).objective_seconds))


def test_coverage_is_exact_in_every_cell() -> None:
    # d0 computes for 4 s, waits 2.5 s for the tensor of d1, and computes for 1 s: 7.5 s in five cells of 1.5 s.
    timeline = towers().trace.timeline
    assert timeline is not None
    assert coverage(timeline, 0, 5).tolist() == pytest.approx([1, 1, 2 / 3, 0, 2 / 3])
    assert coverage(timeline, 1, 5).tolist() == pytest.approx([1, 1, 2 / 3, 0, 0])
    assert coverage(timeline, 0, 1).tolist() == pytest.approx([5 / 7.5])


def test_only_a_whole_cell_is_full_and_only_an_idle_one_is_blank() -> None:
    assert bar(np.array([0.0, 1e-6, 0.999, 1.0])) == " ▁▇█"
    assert bar(np.array([0.0, 1e-6, 0.999, 1.0]), unicode=False) == " .%#"


def test_the_picture_has_a_bar_per_device_with_its_share_of_the_time() -> None:
    head, first, second = picture(explain(towers()), Look(60))
    assert head.split() == ["|0", "7.50", "s|", "busy", "memory"]
    assert first.split("|")[0].strip() == "d0"
    assert first.split("|")[2].split()[:2] == ["67", "%"]
    assert second.split("|")[2].split()[:2] == ["53", "%"]
    assert max(map(len, (head, first, second))) <= 60


def test_without_a_time_line_a_bar_is_as_long_as_its_load() -> None:
    lines = picture(explain(towers(Throughput())), Look(60))
    drawn = [line.split("|")[1] for line in lines[1:]]
    assert all(set(one.rstrip()) <= set("▁▂▃▄▅▆▇█") for one in drawn)


def test_a_screen_that_is_too_narrow_gets_no_picture() -> None:
    assert picture(explain(towers()), Look(60, unicode=False))[1].isascii()
    assert picture(explain(towers()), Look(40)) != []
