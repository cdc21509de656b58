"""`stead zoo`: what can be placed by name."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from stead.cli.main import exit_code
from stead.cli.zoo import zoo
from stead.errors import BadInput
from stead.workloads import names, synthetic


def test_every_model_has_a_line_with_its_figures(capsys: pytest.CaptureFixture[str]) -> None:
    assert zoo() == 0
    lines = {line.split()[0]: line.split() for line in capsys.readouterr().out.splitlines() if line.strip()}
    assert set(names()) <= set(lines)
    assert lines["inception-v3"][1:3] == ["23.8", "313"]
    assert "-" not in [cell for name in names() for cell in lines[name]]


def test_a_family_shows_its_options(capsys: pytest.CaptureFixture[str]) -> None:
    assert zoo("zoo:gnmt-8?batch=3") == 0
    shown = capsys.readouterr().out
    assert "gnmt: translation" in shown
    assert "  steps       40       1 to 1048576\n" in shown
    assert "rnnlm" not in shown


@pytest.mark.parametrize(
    ("name", "option"), [("LSTM_grid", "operators   1000"), ("cifar10", "training  true")]
)
def test_a_synthetic_family_shows_its_options(
    name: str, option: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert zoo(name) == 0
    assert f"  {option}\n" in capsys.readouterr().out


def test_scripts_get_everything(capsys: pytest.CaptureFixture[str]) -> None:
    assert zoo(json=True) == 0
    document = json.loads(capsys.readouterr().out)
    families = {family["name"]: family for family in document["families"]}
    assert families["gnmt"]["options"]["steps"] == 40
    assert families["gnmt"]["models"]["gnmt-8"]["training"]["operators"] > 20_000
    assert "lstm-grid" in [family["name"] for family in document["synthetic"]]


def test_an_unknown_name_is_told() -> None:
    with pytest.raises(BadInput, match="no 'gmnt' in the zoo; did you mean"):
        zoo("gmnt")


def test_the_zoo_is_a_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code(["zoo", "bert"]) == 0
    assert "bert-base" in capsys.readouterr().out


def test_options_of_the_command_line_reach_the_model(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["doctor", "zoo:lstm-grid?operators=5000", "--phase", "train", "--batch", "8", "--json"]
    assert exit_code([*words, "--read", "layers=2", "--read", "operators=400"]) == 0
    found = json.loads(capsys.readouterr().out)
    wanted = synthetic("lstm-grid", operators=400, layers=2, batch=8, training=True)
    assert (found["operators"], found["flops"]) == (len(wanted), wanted.flops.sum())


def test_a_model_of_the_zoo_can_be_placed(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    plan = tmp_path / "plan.json"
    words = [
        "place",
        "zoo:bert-base",
        "--phase",
        "infer",
        "--context",
        "128",
        "-d",
        "2x Tesla P100 PCIe 16 GB",
    ]
    assert exit_code([*words, "-g", "latency", "--evaluations", "50", "-o", str(plan)]) == 0
    shown = capsys.readouterr()
    assert "205 operators" in shown.out
    assert "bert-base of the zoo, inference: layers 12" in shown.out + shown.err
    assert json.loads(plan.read_text())["repro"]["model"] == "zoo:bert-base"


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["zoo:gmnt-8"], "no 'gmnt-8' in the zoo; did you mean 'gnmt-8'"),
        (["zoo:gnmt-8", "--read", "batchs=3"], "gnmt has no option 'batchs'; did you mean 'batch'?"),
        (["zoo:gnmt-8", "--read", "text=3"], "gnmt has no option 'text'"),
        (["zoo:gnmt-8", "--batch", "0"], "gnmt: batch must be 1 to 1048576; got 0"),
        (["zoo:gnmt-8", "--phase", "decode"], "phase is infer or train, got 'decode'"),
        (["zoo:resnet-50", "--context", "7"], "resnet has no option 'context'"),
        (["zoo:lstm-grid", "--context", "7"], "family 'lstm-grid' has no option 'context'"),
    ],
)
def test_what_is_wrong_is_one_line_and_exit_code_2(
    words: list[str], complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert exit_code(["doctor", *words]) == 2
    said = capsys.readouterr().err
    assert complaint in said
    assert said.count("\n") == 1


def test_without_torch_the_extra_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("stead.workloads.graph_cache.torch_version", lambda: "")
    assert exit_code(["doctor", "zoo:gnmt-8", "--batch", "3"]) == 2
    assert 'needs torch: pip install "stead[torch]"' in capsys.readouterr().err
