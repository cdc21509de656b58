"""Models of every kind on unlike workers: files, the zoo, pipelines, other transports, types and devices."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from models import SmallCNN, Transformer, seeded  # noqa: E402
from test_torch_executor import problem_of, random_placements, two_workers  # noqa: E402

import stead  # noqa: E402
from stead import Placement  # noqa: E402
from stead.cli.main import exit_code  # noqa: E402
from stead.errors import BadInput  # noqa: E402
from stead.run.cores import instruction_limit  # noqa: E402
from stead.run.torch_executor import TorchExecutor  # noqa: E402


def test_a_file_runs_with_its_weights_and_the_operators_it_is_read_with(tmp_path: Path) -> None:
    module, image = seeded(SmallCNN).eval(), torch.randn(1, 3, 12, 12)
    path = tmp_path / "cnn.pt2"
    torch.export.save(torch.export.export(module, (image,)), path)
    problem = problem_of(stead.read(path).graph)
    with TorchExecutor.of_file(path, two_workers(), oversubscribe=True, timing="normal") as executor:
        assert list(executor.graph.operator_names) == list(problem.graph.operator_names)
        for placement in random_placements(problem, 3):
            assert executor.check(placement).max_abs == 0.0
        found = executor.results(placement)["output 0"]
    with torch.no_grad():
        assert np.allclose(found, module(image).numpy(), atol=1e-6)


def test_a_pipeline_gives_a_time_between_results_and_refuses_what_is_none() -> None:
    module = torch.nn.Sequential(*(torch.nn.Linear(16, 16) for _ in range(6)))
    with TorchExecutor.of_module(
        module, (torch.randn(4, 16),), two_workers(), oversubscribe=True, timing="normal"
    ) as executor:
        problem = problem_of(executor.graph)
        count = len(problem.graph)
        burst = executor.pipeline(Placement(problem, [int(v >= count // 2) for v in range(count)]), samples=9)
        assert burst.lost or (len(burst.seconds) == 8 and burst.first_seconds > 0)
        with pytest.raises(BadInput, match="not a pipeline"):
            executor.pipeline(Placement(problem, [v % 2 for v in range(count)]), samples=4)


def test_unlike_workers_agree_within_their_tolerance() -> None:
    torch.manual_seed(1)
    tokens = torch.randint(0, 20, (2, 6))
    first, second = two_workers()
    for other, tolerance in ((replace(second, isa="SSE41"), 1e-4), (replace(second, dtype="bf16"), 2e-2)):
        with TorchExecutor.of_module(
            seeded(Transformer).eval(), (tokens,), [first, other], oversubscribe=True, timing="normal"
        ) as executor:
            assert executor.readback[1]["isa_cap"] == instruction_limit(other)
            for placement in random_placements(problem_of(executor.graph), 2):
                verdict = executor.check(placement)
                assert verdict.tolerance == tolerance
                assert verdict.passed


def test_gradients_that_are_zero_but_for_rounding_do_not_condemn_a_placement() -> None:
    """The bias of a convolution before batch normalisation: what is subtracted again has no gradient."""
    torch.manual_seed(1)
    first, second = two_workers()
    with TorchExecutor.of_module(
        seeded(SmallCNN), (torch.randn(4, 3, 12, 12),), [first, replace(second, isa="SSE41")],
        loss_fn=torch.nn.functional.cross_entropy, targets=(torch.randint(0, 10, (4,)),), update="sgd",
        oversubscribe=True, timing="normal",
    ) as executor:  # fmt: skip
        problem = problem_of(executor.graph)
        alone = [Placement(problem, [w] * len(problem.graph)) for w in (0, 1)]
        found = [executor.results(one)["gradient of first.bias"] for one in alone]
        if np.array_equal(*found):
            pytest.skip("kernels round alike on this processor")
        assert np.abs(found[0] - found[1]).max() > 1e-2 * np.abs(found[0]).max()  # noise, on either worker
        for placement in random_placements(problem, 4):
            verdict = executor.check(placement)
            assert verdict.tolerance == 1e-4
            assert verdict.passed, verdict


def test_products_that_are_large_enough_for_tiles_run_in_bf16() -> None:
    torch.manual_seed(1)
    first, second = two_workers()
    module = torch.nn.Sequential(torch.nn.Linear(256, 256), torch.nn.GELU(), torch.nn.Linear(256, 256)).eval()
    with TorchExecutor.of_module(
        module, (torch.randn(64, 256),), [first, replace(second, dtype="bf16")], oversubscribe=True, timing="normal"
    ) as executor:
        verdict = executor.check(Placement(problem_of(executor.graph), [1] * len(executor.graph)))
        assert verdict.tolerance == 2e-2
        assert 0 < verdict.relative <= 2e-2


def test_other_devices_and_pipes_carry_the_same_numbers() -> None:
    torch.manual_seed(1)
    first, second = two_workers()
    with TorchExecutor.of_module(
        seeded(SmallCNN).eval(), (torch.randn(1, 3, 8, 8),), [first, replace(second, device="cpu:0")],
        oversubscribe=True, timing="normal", piped=True,
    ) as executor:  # fmt: skip
        for placement in random_placements(problem_of(executor.graph), 4):
            assert executor.check(placement).max_abs == 0.0


def test_stead_run_prints_workers_time_and_verdict(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    module, image = seeded(SmallCNN).eval(), torch.randn(1, 3, 12, 12)
    path, plan = tmp_path / "cnn.pt2", tmp_path / "plan.json"
    torch.export.save(torch.export.export(module, (image,)), path)
    stead.place(path, "2x 3090", solver="round-robin", evaluations=10).save(plan)
    assert exit_code(["run", str(plan), "--runs", "2", "--oversubscribe", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["numerics"]["passed"]
    assert document["numerics"]["max_abs"] == 0.0
    assert len(document["devices"]) == 2
    assert document["devices"][0]["readback"]["environment"]["MALLOC_TOP_PAD_"] == "268435456"


def test_a_plan_that_cannot_be_run_is_told_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = tmp_path / "plan.json"
    stead.place(stead.testing.two_towers().graph, "2x 3090", evaluations=10).save(plan)
    assert exit_code(["run", str(plan)]) == 2
    assert "does not say what it was made from" in capsys.readouterr().err
    stead.place("zoo:lstm-grid?operators=20", "2x 3090", evaluations=10).save(plan)
    assert exit_code(["run", str(plan), "--oversubscribe"]) == 2
    assert "there is nothing to run in it" in capsys.readouterr().err
