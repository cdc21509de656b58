"""The experiment on measured rewards, with the double of an executor."""

from __future__ import annotations

import importlib.util
import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest

from stead.run.profile import take_timings
from stead.testing import two_towers
from stead.testing.executors import SimulatedExecutor


@pytest.fixture(scope="module")
def measured() -> ModuleType:
    pytest.importorskip("torch")
    path = Path(__file__).parents[2] / "experiments" / "hsdag" / "measured.py"
    spec = importlib.util.spec_from_file_location("hsdag_measured", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)

    sys.modules["hsdag_measured"] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


def test_every_row_is_measured_and_the_towers_are_split(measured: ModuleType) -> None:
    executor = SimulatedExecutor(two_towers())
    problem = measured.profiled(executor.graph, take_timings(executor, repeats=2, bursts=1))
    effort = replace(measured.QUICK, evaluations=50)
    listed = measured.rows(executor, problem, effort)
    found = measured.compared(executor, listed, effort)
    names = ["CPU only", "other only", "greedy", "min-cut", "tune", "HSDAG"]
    assert [one["row"] for one in found] == names
    by_name = {one["row"]: one["measured_ms"] for one in found}
    assert by_name["CPU only"] == by_name["other only"] == 9000.0
    assert by_name["tune"] == by_name["HSDAG"] == 7500.0
    text = measured.table({"models": {"towers": {"rows": found}}})
    assert "| towers | tune | " in text
    assert "1.20x" in text
