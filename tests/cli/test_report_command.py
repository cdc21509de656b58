"""stead report: pages of one plan and of two, figures, and what it refuses."""

from __future__ import annotations

import importlib.util
import json
import re
import shutil
from pathlib import Path

import pytest

from stead.cli.main import exit_code
from stead.placing.place import place_problem
from stead.plan import Plan
from stead.problem import Placement
from stead.sim import simulate
from stead.solvers import Budget, Solution
from stead.testing import chain3, two_towers


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    problem = two_towers()
    place_problem(problem, budget=Budget(evaluations=100)).save("a.json")
    alone = Placement(problem, [0] * 5)
    Plan(problem, Solution(alone, simulate(problem, alone).objective_seconds)).save("b.json")
    place_problem(chain3(), budget=Budget(evaluations=50)).save("chain.json")
    return tmp_path


def test_two_plans_of_one_model_share_a_page(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code(["report", "a.json", "b.json", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"written": "report.html"}
    text = (here / "report.html").read_text()
    assert 'data-view="a.json"' in text
    assert 'data-view="b.json"' in text


def test_four_plans_share_a_page_and_files_of_one_name_are_told_apart(here: Path) -> None:
    (here / "old").mkdir()
    shutil.copy("b.json", "old/a.json")
    assert exit_code(["report", "a.json", "b.json", "old/a.json", "b.json"]) == 0
    text = (here / "report.html").read_text()
    assert re.findall(r'data-view="([^"]*)"', text) == ["a.json", "b.json", "old/a.json", "b.json"]


def test_a_fifth_plan_is_refused(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code(["report", "a.json", *["b.json"] * 4]) == 2
    assert "5 plans do not fit one page; give at most 4" in capsys.readouterr().err


def test_plans_of_different_models_are_not_compared(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code(["report", "a.json", "chain.json"]) == 2
    assert "a.json and chain.json are plans of different models" in capsys.readouterr().err
    assert not (here / "report.html").exists()


def test_a_figure_shows_one_plan(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code(["report", "a.json", "b.json", "--figure", "gantt"]) == 2
    assert "a figure shows one plan" in capsys.readouterr().err


@pytest.mark.skipif(importlib.util.find_spec("matplotlib") is None, reason="needs matplotlib: pip install stead[plot]")
def test_a_figure_is_written_as_a_file_for_papers(here: Path) -> None:
    assert exit_code(["report", "a.json", "--figure", "gantt", "-o", "gantt.pdf"]) == 0
    assert (here / "gantt.pdf").read_bytes().startswith(b"%PDF")
