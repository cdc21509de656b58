"""stead export, verify and targets, and stead place --target, as scripts and people meet them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from stead.cli.main import exit_code
from stead.export import Answer, Verification
from stead.export.vllm import Vllm
from stead.plan import Plan
from stead.readers import write_graph
from stead.testing import tiny_layers
from stead.testing.exporters import plan_of
from stead.workloads.demo import demo_graph

SCATTERED = [0, 1, 1, 0, 0, 1, 1, 0, 0, 0, 0]  # of tiny_layers: embed, 4 x (attention, mlp), norm, head


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of one's own with plans of four layers: in a row, and here and there."""
    monkeypatch.chdir(tmp_path)
    plan_of(tiny_layers(), [0] * 5 + [1] * 6).save("plan.json")
    plan_of(tiny_layers(), SCATTERED).save("scattered.json")
    return tmp_path


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = exit_code(list(arguments))
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_a_target_of_text_prints_it_and_nothing_else(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capsys, "export", "plan.json", "--to", "vllm")
    assert (code, err) == (0, "")
    assert out == (
        "env VLLM_PP_LAYER_PARTITION=2,2 CUDA_VISIBLE_DEVICES=0,1 vllm serve 'tiny layers' --pipeline-parallel-size 2\n"
    )


def test_what_cannot_be_expressed_is_refused_by_name_before_anything_is_written(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, err = run(capsys, "export", "scattered.json", "--to", "vllm", "-o", "out")
    assert (code, out) == (2, "")
    assert "layers" in err
    assert "the layers of a device must follow each other" in err
    assert "--legalize" in err
    assert not (here / "out").exists()


def test_legalize_moves_and_says_what_and_at_which_cost(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capsys, "export", "scattered.json", "--to", "vllm", "-o", "out", "--legalize")
    assert code == 0
    assert "stead: moved layer" in err
    assert "moving takes it from 21.0 s to 11.0 s (-47.6 %)" in err  # four crossings of 2.5 s less: all on d0
    assert "wrote 4 files to out" in out
    placed = Plan.load(here / "out" / "plan.json")
    assert placed.provenance["target"]["name"] == "vllm"
    assert run(capsys, "export", "out/plan.json", "--to", "vllm")[0] == 0


def test_verify_answers_three_questions_and_ends_with_four_where_one_fails(
    here: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    code, out, _ = run(capsys, "verify", "plan.json", "--to", "vllm")
    assert code == 0
    assert "everything where planned" in out
    assert "not checkable here" in out
    yes, no = Answer("passed", "seen"), Answer("failed", "layer 3 is elsewhere")
    monkeypatch.setattr(Vllm, "verify", lambda self, plan: Verification(yes, no, yes))
    code, out, _ = run(capsys, "verify", "plan.json", "--to", "vllm", "--json")
    assert code == 4
    assert json.loads(out)["placed"] == {"result": "failed", "detail": "layer 3 is elsewhere"}


def test_targets_are_listed(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "targets", "--json")
    assert code == 0
    assert {"name", "does", "granularity", "checked"} == set(json.loads(out)[0])


def test_place_for_a_target_gives_a_plan_that_exports_as_it_is(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_graph(here / "demo.json", demo_graph())
    code, out, err = run(
        capsys, "place", "demo.json", "-d", "3090,3060,cpu", "-g", "throughput", "--evaluations", "300",
        "--target", "vllm",
    )  # fmt: skip
    assert code == 0, err
    assert " target   vllm" in out
    code, out, err = run(capsys, "export", "plan.json", "--to", "vllm")
    assert (code, err) == (0, "")
    first, second = out.split()[1].removeprefix("VLLM_PP_LAYER_PARTITION=").split(",")
    assert int(first) + int(second) == 24


def test_a_target_decides_what_stays_whole(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_graph(here / "demo.json", demo_graph())
    code, _, err = run(
        capsys, "place", "demo.json", "-d", "3090", "--target", "vllm", "--granularity", "operator"
    )
    assert code == 2
    assert "leave --granularity out" in err


def test_what_moves_after_the_search_is_said_in_the_plan(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_graph(here / "demo.json", demo_graph())
    code, out, _ = run(
        capsys, "place", "demo.json", "-d", "3090,4090", "-g", "throughput", "--target", "vllm",
        "--solver", "round-robin", "-o", "moved.json",
    )  # fmt: skip
    assert code == 0
    assert " target   vllm; moved after the search: " in out
    assert "the layers of a device must follow each other" in out
    assert Plan.load(here / "moved.json").provenance["target"]["moves"] > 0
    assert run(capsys, "export", "moved.json", "--to", "vllm")[0] == 0
