"""stead train walk: rules from problems that are made up or from graphs of one's own, without torch."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from stead.cli.main import exit_code
from stead.learn.walk import walk_training
from stead.learn.walk.made_problems import Scope
from stead.learn.walk.walk_training import Member, Recipe

GRAPH = "zoo:lstm-grid?layers=2,steps=3,phase=train"


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Two rules, few problems."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(walk_training, "MEMBERS", (Member(30, 60), Member(30, 60)))
    monkeypatch.setattr(walk_training, "PLAN_SCOPE", Scope(least=30, most=60))
    monkeypatch.setattr(Recipe, "__init__", _few(Recipe.__init__))


def _few(build):  # type: ignore[no-untyped-def]
    small = {"least_planned": 1, "most_looked_at": 6, "most_looked_at_large": 0}
    return lambda self, *given, **more: build(self, *given, **{**more, **small})


def test_rules_are_trained_on_made_up_problems_and_used(capsys: pytest.CaptureFixture[str]) -> None:
    train = ["train", "walk", "--problems", "3", "--updates", "1", "--set", "policy=zero", "-o", "w.safetensors"]
    assert exit_code([*train, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["policy"], found["rules"], found["walks"]) == ("w.safetensors", 2, 32)
    assert found["trained_walks"] == 2 * 32 * 3
    place = ["place", GRAPH, "--devices", "2x 3090", "--objective", "latency", "--solver", "walk", "--json"]
    assert exit_code([*place, "--policy", "w.safetensors"]) == 0
    assert json.loads(capsys.readouterr().out)["solver"] == "walk"


def test_a_run_goes_on_from_where_it_was(capsys: pytest.CaptureFixture[str]) -> None:
    train = ["train", "walk", "--problems", "3", "--updates", "1", "--set", "policy=zero"]
    assert exit_code([*train, "-o", "a.safetensors"]) == 0
    assert "learned from 192 walks" in capsys.readouterr().out
    whole = Path("a.safetensors").read_bytes()
    Path("a.safetensors").unlink()
    assert exit_code([*train, "-o", "a.safetensors", "--resume"]) == 0
    assert Path("a.safetensors").read_bytes() == whole


def test_graphs_of_ones_own_carry_the_policy_of_the_package_on(capsys: pytest.CaptureFixture[str]) -> None:
    train = ["train", "walk", "--graphs", GRAPH, "--devices", "2x 3090", "--updates", "1", "-o", "own.safetensors"]
    assert exit_code(train) == 0
    assert "1 of your graphs" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (["walk"], "give one of them"),
        (["walk", "--problems", "3", "--graphs", GRAPH, "--devices", "2x 3090"], "give one of them"),
        (["walk", "--problems", "-3"], "give one of them"),
        (["walk", "--problems", "3", "--updates", "-1"], "updates must not be negative"),
        (["search"], "does not learn"),
    ],
)
def test_what_makes_no_sense_is_one_line(wrong: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code(["train", *wrong]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert len(error.strip().splitlines()) == 1
