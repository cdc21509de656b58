"""Curves over batch and context."""

from __future__ import annotations

from dataclasses import replace

import pytest

import stead
from stead.placing.size_curves import AMOUNTS, is_readable, size_curves, sizes_of


@pytest.fixture(scope="module")
def plan() -> stead.Plan:
    return stead.place("zoo:inception-v3", "3090,3060", evaluations=20)


def test_points_are_those_of_the_model_at_that_size(plan: stead.Plan) -> None:
    (curve,) = size_curves(plan, cpu_seconds=30.0)  # a net for pictures has no context
    assert (curve["what"], curve["amounts"]) == ("batch", [1, 2, 4, 8, 16, 32, 64])
    assert curve["seconds"][5] == plan.solution.objective_seconds  # its own batch is 32
    assert curve["seconds"] == sorted(curve["seconds"])


def test_what_does_not_fit_has_no_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(AMOUNTS, "batch", (1, 8, 64))
    small = stead.place("zoo:inception-v3", "3090 600MB", evaluations=20)
    (curve,) = size_curves(small, cpu_seconds=30.0)
    assert [value is None for value in curve["seconds"]] == [False, False, True]


def test_a_plan_that_does_not_say_what_it_was_read_from_has_none(plan: stead.Plan) -> None:
    assert is_readable(plan, zoo_only=True)
    nameless = replace(plan, provenance={})
    assert size_curves(nameless, cpu_seconds=30.0) == []
    elsewhere = replace(plan, provenance={"source": {"model": "/nowhere/net.onnx"}})
    assert not is_readable(elsewhere)


def test_a_net_unrolled_over_time_has_no_curve_over_context(plan: stead.Plan) -> None:
    """Its placement says nothing of further steps, and reading hundreds of them takes minutes."""
    unrolled = replace(plan, provenance={"source": {"model": "zoo:gnmt-8"}})
    assert (sizes_of(unrolled), sizes_of(plan)) == (["batch"], ["batch", "context"])
