"""The truth table: what is made of records, and placements of every kind."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from stead import Placement
from stead.run.predict import predict
from stead.run.profile import take_timings
from stead.testing import two_towers
from stead.testing.executors import SimulatedExecutor

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.skipif(not (ROOT / "experiments").is_dir(), reason="needs the experiments beside the tests")
sys.path.insert(0, str(ROOT))


def record(name: str, predicted: float, measured: float, *, passed: bool = True) -> dict[str, object]:
    found = {
        "min": measured, "median": 1.1 * measured, "iqr": 0.022 * measured, "insufficient": False, "bursts": 5,
        "discarded": 1,
    }  # fmt: skip
    return {
        "name": name, "objective": "latency", "predicted": {"seconds": predicted}, "measured": found, "gain": None,
        "numerics": {"pass": passed}, "timing_mode": "fifo", "ratio": measured / predicted, "verdict": "",
        "contention": {"load_average": 0.5},
    }  # fmt: skip


def test_errors_and_order_come_from_records_that_count() -> None:
    from experiments.truth.tables import markdown, summary

    records = [record("a", 1.0, 1.1), record("b", 2.0, 2.0), record("c", 3.0, 3.3), record("d", 9.0, 1.0, passed=False)]
    cell = {"model": "net", "executor": "torch", "records": records, "host": {"": "a machine", "cores:": 2}}
    row = summary(cell)
    assert row["placements"] == 3
    assert row["error_min"] == pytest.approx(0.1)
    assert row["error_min_max"] == pytest.approx(0.1)
    assert row["error_median"] == pytest.approx(0.21)
    assert row["spearman"] == 1.0
    assert row["right_pairs"] == (3, 3)
    assert row["range"] == pytest.approx(3.0)
    shown = markdown([cell])
    assert "| net | torch (fifo) | 3 of 4 | 10.0%, 10.0% | 21.0% | 1.00 | 1.00 (3) | 3 of 3 |" in shown
    assert shown.rstrip().endswith("| - | 0.5 | 4 of 24 |")
    named = {**cell, "workers": ["b", "c"], "records": [*records, record("auto", 1.5, 1.6)]}
    assert summary(named)["fastest_gain"] == pytest.approx(2.0 / 1.6)


def test_cells_of_different_machines_are_never_under_one_name() -> None:
    from experiments.truth.tables import markdown

    records = [record(name, 1.0, 1.0) for name in "abc"]
    cells = [
        {"model": model, "executor": "torch", "records": records, "host": {"": machine}}
        for model, machine in (("net", "one"), ("other", "another"), ("third", "one"))
    ]
    first, second = markdown(cells).split("Measured on ")[1:]
    assert first.startswith("one; 2 cells.")
    assert second.startswith("another; 1 cells.")
    assert "| net |" in first
    assert "| third |" in first
    assert "| other |" in second


def test_results_of_another_machine_are_not_taken_for_those_of_this_one() -> None:
    pytest.importorskip("torch")
    from experiments.truth.run import is_done_here

    here = {"": "mine", "cores:": 2, "memory:": "8 GiB", "on": "2030-01-02"}
    mine = {"complete": True, "host": {"": "mine", "cores:": 2, "on": "2030-01-01"}}
    assert is_done_here(mine, here)
    assert not is_done_here({**mine, "complete": False}, here)
    assert not is_done_here({**mine, "host": {"": "other", "cores:": 2}}, here)
    assert not is_done_here({"complete": True}, here)


def test_a_page_is_filled_between_its_marks(tmp_path: Path) -> None:
    from experiments.truth.tables import fill, marks

    page, (begin, end) = tmp_path / "page.md", marks("experiments.truth")
    page.write_text(f"before\n{begin}\nold\n{end}\nafter\n")
    assert not fill(page, "other", *marks("experiments.truth", "results-elsewhere"))
    assert fill(page, "new", begin, end)
    assert page.read_text() == f"before\n{begin}\n\nnew\n{end}\nafter\n"
    page.write_text("no marks")
    assert not fill(page, "new", begin, end)
    assert begin in (ROOT / "docs/concepts/how-true.md").read_text()


def test_there_are_placements_of_every_kind() -> None:
    from experiments.truth.placements import halves, placements

    problem = two_towers()
    assert halves(problem).tolist() == [0, 0, 1, 1, 1]
    made = placements(problem, seconds=0.5)
    found, missing = made.found, made.missing
    assert made.stages is not None or "stages" in missing
    assert {"d0", "d1", "halves", "heft"} <= set(found)
    assert {"auto", "stages", "perturbed auto"} <= {*found, *missing}
    arrays = [one.devices.tobytes() for one in found.values()]
    assert len(np.unique(arrays)) >= len(arrays) - 1  # an order of its own may tell two apart


def test_models_are_as_many_as_the_page_promises() -> None:
    from experiments.truth.models import SUBJECTS
    from stead.workloads import parse

    assert len(SUBJECTS) >= 6
    assert sum(one.is_training for one in SUBJECTS) == 2
    assert all(parse(one.zoo) for one in SUBJECTS)


def test_what_was_timed_is_kept_and_predicts_again(tmp_path: Path) -> None:
    from experiments.truth.kept import RUNS, Kept

    problem = two_towers()
    split = Placement(problem, [0, 1, 0, 1, 0])
    executor = SimulatedExecutor(problem)
    timings = take_timings(executor, repeats=3, bursts=2)
    kept = Kept.of(problem, problem.cluster, timings, [Placement(problem, [0, 1, 1, 0, 0])], {"split": split})
    kept.time_again(executor)
    kept.save(tmp_path / "kept")
    again = Kept.read(tmp_path / "kept")
    assert [len(one[0].seconds) for one in again.profiles] == [6, RUNS]
    cell = {"crossings": {}, "records": [record("split", 1.0, 15.0)]}
    (told,) = again.predicted_again(cell)["records"]
    found, _ = kept.now()
    assert told["predicted"]["seconds"] == predict(found, split).seconds == pytest.approx(7.5, rel=0.05)
    assert told["ratio"] == 15.0 / told["predicted"]["seconds"]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # of the way OpenVINO takes a module
def test_files_of_openvino_have_the_sizes_of_the_model(tmp_path: Path) -> None:
    ov = pytest.importorskip("openvino")
    pytest.importorskip("torch")
    from experiments.truth.models import Subject, openvino_file

    small = "zoo:bert-base?batch=1,layers=1,width=32,inner=64,heads=2,length=8,vocabulary=50"
    model = ov.Core().read_model(openvino_file(Subject("small", small), tmp_path))
    assert [list(one.shape) for one in model.inputs] == [[1, 8]]
