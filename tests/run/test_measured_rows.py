"""The comparison that experiments with measured rewards share, with a machine that is only simulated."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from stead.testing import two_towers
from stead.testing.executors import SimulatedExecutor

sys.path.insert(0, str(Path(__file__).parents[2]))
pytest.importorskip("torch")
experiments = pytest.importorskip("experiments.measured_rows", reason="experiments are not beside the tests")
EFFORT = experiments.Effort(
    bursts=1, repeats=2, tune_measurements=4, learned_measurements=6, updates=1, seeds=1, evaluations=20
)


@pytest.fixture(scope="module")
def told() -> list[dict[str, object]]:
    from stead.learn.colocrl.method import ColocRL

    problem = two_towers()
    with SimulatedExecutor(problem) as executor:
        known = experiments.profiled(executor, problem, EFFORT)
        listed = experiments.rows(executor, known, {"ColocRL": ColocRL()}, EFFORT)
        return list(experiments.compared(executor, listed, EFFORT))


def test_every_way_to_place_a_model_is_measured_in_turns(told: list[dict[str, object]]) -> None:
    names = [str(one["row"]) for one in told]
    assert names[-2:] == ["ColocRL, simulated, seed 0", "ColocRL, measured, seed 0"]
    assert {"greedy", "min-cut", "auto", "tune"} < set(names)
    assert [one["runs"] for one in told] == [2] * len(told)
    assert next(one for one in told if one["row"] == "auto")["measured_ms"] == pytest.approx(7500.0)


def test_what_was_run_to_find_a_placement_is_counted(told: list[dict[str, object]]) -> None:
    spent = {str(one["row"]): (one["measurements"], one["simulations"]) for one in told}
    assert spent["greedy"] == (0, 0)
    assert 0 < int(str(spent["tune"][0])) <= EFFORT.tune_measurements
    assert 0 < int(str(spent["ColocRL, measured, seed 0"][0])) <= EFFORT.learned_measurements
    assert int(str(spent["ColocRL, simulated, seed 0"][1])) > 0


def test_a_start_that_was_never_beaten_is_called_that(told: list[dict[str, object]]) -> None:
    rows = [dict(one) for one in told]
    rows[-1]["is_its_start"] = True
    text = experiments.table({"models": {"towers": {"rows": rows}}})
    assert "| towers | ColocRL, measured, seed 0 (its start) |" in text
    rows[0]["measured_ms"], rows[0]["numerics"] = None, {"passed": False}
    assert "no time: wrong results" in experiments.table({"models": {"towers": {"rows": rows}}})


def test_rows_with_one_placement_have_its_times_in_common(told: list[dict[str, object]]) -> None:
    alike: dict[object, set[object]] = {}
    for one in told:
        alike.setdefault(one["placement"], set()).add(one["measured_ms"])
    assert len(alike) < len(told)
    assert all(len(times) == 1 for times in alike.values())


def test_seeds_are_summed_up_beside_the_better_of_two_that_need_no_learning() -> None:
    def row(name: str, ms: float | None, **facts: object) -> dict[str, object]:
        return {"row": name, "measured_ms": ms, "measurements": 0, **facts}

    rows = [row("min-cut", 10.0), row("tune", 8.0, measurements=9)]
    seeds = [(8.4, True), (8.0, False), (None, False), (8.8, False)]
    rows += [
        row(f"L, measured, seed {seed}", ms, measurements=20 + seed, is_its_start=start)
        for seed, (ms, start) in enumerate(seeds)
    ]
    lines = experiments.summary({"models": {"towers": {"rows": rows}}}).splitlines()[2:]
    assert lines == [
        "| towers | min-cut | 10.0 | 1.250 |  |  |",
        "| towers | tune | 8.0 | 1.000 | 9 |  |",
        "| towers | L, measured | 8.4 (8.0 to 8.8) | 1.050 (1.000 to 1.100) | 20 to 23 | 1 of 4 |",
    ]


def test_what_another_machine_or_other_workers_measured_is_measured_again() -> None:
    here = experiments.this_machine().cpu_name
    assert experiments.is_known({"processor": here, "on": "core 0 + core 1"}, "core 0 + core 1")
    assert not experiments.is_known({"processor": here, "on": "core 0 + core 1"}, "core 0 + core 1 @ bf16")
    assert not experiments.is_known({"processor": f"not {here}", "on": "core 0"}, "core 0")
    assert not experiments.is_known(None, "core 0")
