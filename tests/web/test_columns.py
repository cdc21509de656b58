"""The view format: what is written is read back bit for bit."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stead.errors import BadInput
from stead.placing.place import place_problem
from stead.problem import Latency, Placement, Throughput
from stead.report.columns import Column, View, array_column, names_column
from stead.report.plan_view import view
from stead.report.slices import CRITICAL, highest, run_of
from stead.sim import simulate
from stead.sim.memory import SplitCurve
from stead.solvers import Budget
from stead.testing import diamond, two_towers

HOSTILE = ["</script>", "<img src=x onerror=alert(1)>", "a\u2028b", "x" * 10_000, "", "\u202eabc", "a\nb\0c", "\ud800"]


@given(st.lists(st.integers(0, 2**32 - 1), max_size=50), st.lists(st.text(max_size=20), max_size=9))
def test_columns_come_back_as_they_were(numbers: list[int], names: list[str]) -> None:
    given_numbers = np.array(numbers, dtype=np.uint32)
    columns = {
        "u4": array_column("u4", given_numbers),
        "d4": array_column("d4", given_numbers),
        "u1": array_column("u1", given_numbers % 256),
        "f4": array_column("f4", given_numbers.astype(np.float32)),
        "names": names_column(names),
    }
    data = View({"graph": "g"}, columns).as_bytes()
    read = View.from_bytes(data)
    assert read.header == {"graph": "g"}
    for name in ("u4", "d4", "u1", "f4"):
        assert np.array_equal(read[name], columns[name].values)
    assert read["names"] == columns["names"].values
    assert read.as_bytes() == data


def test_hostile_names_take_one_line_each() -> None:
    shown = names_column(HOSTILE).values
    assert len(Column.read("utf8", names_column(HOSTILE).stored().tobytes()).values) == len(HOSTILE)
    assert all(name.isprintable() and len(name) <= 240 for name in shown)


def test_every_column_starts_at_a_multiple_of_four() -> None:
    plan = place_problem(diamond(), budget=Budget(evaluations=50))
    data = view(plan).as_bytes()
    assert int.from_bytes(data[:4], "little") % 4 == 0
    header = json.loads(data[4 : 4 + int.from_bytes(data[:4], "little")])
    assert header["view"] == 1
    assert all(offset % 4 == 0 for offset, _, _ in header["columns"].values())


def test_halves_of_characters_in_a_header_come_back() -> None:
    data = View({"file": "a\udcff"}, {}).as_bytes()
    assert View.from_bytes(data).header["file"] == "a\udcff"


@pytest.mark.parametrize("data", [b"", b"\x10\0\0\0{}"])
def test_a_view_that_is_cut_off_is_refused(data: bytes) -> None:
    with pytest.raises(BadInput, match="ends before its header"):
        View.from_bytes(data)


def test_a_view_of_another_version_is_refused() -> None:
    with pytest.raises(BadInput, match="version 9, and version 1 is read"):
        View.from_bytes(b'\x0c\0\0\0{"view": 9} ')


def test_slices_are_those_of_the_time_line() -> None:
    problem = two_towers()
    plan = place_problem(problem, budget=Budget(evaluations=200))
    shown, timeline = view(plan), plan.trace.timeline
    assert timeline is not None
    unit = shown.header["unit_ticks"]
    begin, end = shown["start"].astype(np.int64), shown["start"].astype(np.int64) + shown["dur"]
    assert np.array_equal(begin, timeline.start_ticks[shown["op"]] // unit)
    assert np.array_equal(end, timeline.finish_ticks[shown["op"]] // unit)
    assert np.array_equal(shown["dev"], plan.placement.devices[shown["op"]])
    critical = {step.index for step in timeline.critical_path() if step.kind == "operator"}
    assert set(shown["op"][(shown["flags"] & CRITICAL) > 0].tolist()) == critical


@pytest.mark.parametrize(
    "objective",
    [
        Latency(),
        Latency(execution="sequential"),
        Throughput(),
        Throughput(microbatches=3),
        Throughput(microbatches=2, schedule="1f1b"),
    ],
)
def test_every_objective_has_a_view_that_covers_every_operator(objective: Latency | Throughput) -> None:
    plan = place_problem(two_towers(objective), budget=Budget(evaluations=100))
    shown = View.from_bytes(view(plan).as_bytes())
    assert set(shown["op"].tolist()) == set(range(5))
    assert shown.header["timed"] == (plan.trace.timeline is not None)
    assert ("micro" in shown.columns) == (isinstance(objective, Throughput) and objective.microbatches is not None)
    for d in range(2):
        if f"m{d}at" in shown.columns:
            total = shown[f"m{d}weights"] + shown[f"m{d}kv"] + shown[f"m{d}act"]
            assert total.max() == plan.trace.peak_bytes[d]


def test_without_a_time_line_a_device_shows_its_operators_in_a_row() -> None:
    problem = two_towers(Throughput())
    run = run_of(place_problem(problem, budget=Budget(evaluations=100)))
    for d in range(2):
        own = run.devices == d
        assert run.finish_ticks[own].max(initial=0) == (run.finish_ticks - run.start_ticks)[own].sum()


def test_of_many_steps_of_memory_the_highest_of_each_bunch_stay() -> None:
    total = np.array([1, 9, 2, 3, 8, 4], dtype=np.int64)
    curve = SplitCurve(np.arange(6), total, total * 0, total * 0)
    assert highest(curve, 2).tolist() == [1, 4]


def test_a_memory_split_sums_to_the_curve() -> None:
    problem = diamond()
    trace = simulate(problem, Placement(problem, [0, 1, 1, 0]))
    for name in problem.cluster.names:
        whole, split = trace.memory_curve(name), trace.memory_split(name)
        assert np.array_equal(whole.at, split.at)
        assert np.array_equal(whole.bytes, split.bytes)
