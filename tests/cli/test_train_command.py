"""stead train: a policy, its log and its curve; errors with exit code 2."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from terminals import OURS, on_terminal

from stead.cli.main import exit_code

pytest.importorskip("torch")
GRAPH = "zoo:lstm-grid?layers=2,steps=3,phase=train"
TRAIN = [
    "train",
    "colocrl",
    "--graphs",
    GRAPH,
    "--devices",
    "2x 3090",
    "--updates",
    "3",
    "--set",
    "hidden=16",
]


def test_a_policy_is_trained_and_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert exit_code([*TRAIN, "-o", "p.safetensors", "--json", "--events", "events.jsonl"]) == 0
    assert json.loads(capsys.readouterr().out)["updates"] == 3
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "events.jsonl", "p.checkpoint.safetensors", "p.jsonl", "p.safetensors", "p.svg",
    ]  # fmt: skip
    events = [json.loads(line) for line in Path("events.jsonl").read_text().splitlines()]
    kinds = [event["kind"] for event in events if event["kind"] != "heartbeat"]
    assert kinds == ["begin", "graphs", "update", "update", "update", "end"]
    place = [
        "place",
        GRAPH,
        "--devices",
        "2x 3090",
        "--objective",
        "latency",
        "--solver",
        "colocrl",
        "--json",
    ]
    assert exit_code([*place, "--policy", "p.safetensors"]) == 0
    assert json.loads(capsys.readouterr().out)["solver"] == "colocrl"


def test_a_damaged_policy_is_one_line_and_exit_code_2(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("p.safetensors").write_bytes(b"\x80\x04not a policy")
    place = ["place", GRAPH, "--devices", "2x 3090", "--solver", "colocrl", "--policy", "p.safetensors"]
    assert exit_code(place) == 2
    assert "p.safetensors is no policy" in capsys.readouterr().err


def test_a_solver_that_does_not_learn_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code(["train", "single", "--graphs", GRAPH, "--devices", "2x 3090"]) == 2
    assert "does not learn" in capsys.readouterr().err


def test_a_policy_for_some_graphs_and_devices_is_used_for_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    graphs = ["--graphs", "zoo:towers", "--graphs", "zoo:inception_like?blocks=2,seed=3"]
    train = ["train", "placeto", *graphs, "--devices", "2x 3090", "--updates", "2", "--set", "episodes=2"]
    assert exit_code([*train, "-o", "p.safetensors", "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)["graphs"]) == 2
    place = ["place", "zoo:inception_like?blocks=2,seed=5", "--devices", "3x 3090", "--objective", "latency"]
    assert exit_code([*place, "--solver", "placeto", "--policy", "p.safetensors", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["solver"] == "placeto"


def test_hsdag_is_trained_for_sequential_execution_and_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    where = ["--devices", "2x 3090", "--execution", "sequential"]
    train = ["train", "hsdag", "--graphs", GRAPH, "--updates", "2", "--set", "hidden=8", *where]
    assert exit_code([*train, "-o", "p.safetensors", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)["graphs"][0]
    assert told["best_seconds"] >= told["bound_seconds"] > 0
    place = ["place", GRAPH, *where, "--solver", "hsdag", "--policy", "p.safetensors", "--json"]
    assert exit_code([*place, "--objective", "latency"]) == 0
    assert json.loads(capsys.readouterr().out)["solver"] == "hsdag"


def test_a_negative_number_of_updates_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code(["train", "colocrl", "--graphs", GRAPH, "--devices", "2x 3090", "--updates", "-3"]) == 2
    assert capsys.readouterr().err == "stead: updates must be at least 0, got -3\n"


def test_curves_grow_on_a_terminal_and_pipes_get_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    watched = on_terminal(*TRAIN, "-o", "p.safetensors", columns=100)
    assert watched.code == 0
    last = OURS.sub(b"", watched.out.split(b"\x1b[J")[-1]).decode().splitlines()
    assert last[0].startswith(" update 3 of 3  ")
    assert [line.split()[0] for line in last[1:5]] == ["best", "greedy", "mean", "beside"]
    assert len(last[1].split()[-1]) == 3  # one block per update
    monkeypatch.setenv("NO_COLOR", "1")
    plain = on_terminal(*TRAIN, "-o", "q.safetensors", columns=100).out
    assert b"\x1b" not in plain
    assert plain.startswith(b"update 1  best ")
    resumed = [*TRAIN[:-4], "--updates", "5", *TRAIN[-2:], "--resume", "-o", "p.safetensors"]
    monkeypatch.delenv("NO_COLOR")
    last = OURS.sub(b"", on_terminal(*resumed, columns=100).out.split(b"\x1b[J")[-1]).decode().splitlines()
    assert last[0].startswith(" update 5 of 5  ")
    assert len(last[1].split()[-1]) == 5  # with those of the first run


def test_networks_whose_opinions_walks_follow_learn_from_made_up_problems(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    policy = str(tmp_path / "p.safetensors")
    train = ["train", "placeto", "--updates", "1", "-o", policy, "--set", "policy=", "--set", "episodes=2"]
    assert exit_code([*train, "--problems", "2", "--set", "decoder=walk", "--json"]) == 0
    assert [row["graph"] for row in json.loads(capsys.readouterr().out)["graphs"]] == ["made 0", "made 1"]
    assert exit_code([*train, "--problems", "2"]) == 2
    assert "makes up no problems unless decoder=walk" in capsys.readouterr().err
    assert exit_code([*train, "--problems", "2", "--set", "decoder=walk", "--graphs", "zoo:demo"]) == 2
    assert "not both" in capsys.readouterr().err
