"""When results of unlike workers are as far apart as rounding makes them, and when they are wrong."""

from __future__ import annotations

import math

import numpy as np
import pytest

from stead.run.comparing import compare
from stead.run.executor import Numerics

Sent = dict[int, tuple[str, tuple[int, ...], bytes]]


def sent(*values: float) -> Sent:
    """Results of one number each, as workers send them."""
    return {n: ("float64", (1,), np.array([value]).tobytes()) for n, value in enumerate(values)}


def test_equal_results_differ_by_nothing() -> None:
    assert compare(sent(1.0, math.nan), sent(1.0, math.nan), 0.0) == Numerics(0.0, 0.0, 0.0, 0, 2)


def test_a_difference_counts_by_the_size_of_its_result() -> None:
    verdict = compare(sent(1.0, 200.5), sent(1.0, 200.0), 1e-4)
    assert (verdict.max_abs, verdict.relative) == (0.5, 0.0025)
    assert not verdict.passed
    assert "differ from those of one worker by 0.0025 of their size, 0.0001 is allowed" in verdict.fault


@pytest.mark.parametrize(("found", "passes"), [(1.005, True), (1.009, False), (0.5, False), (math.nan, False)])
def test_what_rounding_moves_may_move_eight_times_as_far(found: float, passes: bool) -> None:
    """Another worker alone is 0.001 away, so 0.008 are allowed where 0.0001 would be."""
    assert compare(sent(1.0, found), sent(1.0, 1.0), 1e-4, [sent(1.0, 1.001)]).passed is passes


def test_a_result_that_rounding_makes_is_counted_and_not_believed() -> None:
    verdict = compare(sent(1.0, 1e-9), sent(1.0, -1e-9), 1e-4, [sent(1.0, 2e-9)])
    assert (verdict.sensitive, verdict.results, verdict.passed) == (1, 2, True)


@pytest.mark.parametrize("value", [1.0, math.nan])
def test_a_wrong_result_is_noticed_though_rounding_moves_it(value: float) -> None:
    assert not compare(sent(1.0, value), sent(1.0, -1e-9), 1e-4, [sent(1.0, 2e-9)]).passed


def test_a_stale_result_is_noticed_beside_one_that_says_nothing() -> None:
    assert not compare(sent(1.1, 1e-9), sent(1.0, -1e-9), 1e-4, [sent(1.0, 2e-9)]).passed


def test_a_step_that_is_rounding_for_the_most_part_is_not_judged() -> None:
    verdict = compare(sent(1.0, 1e-9, 1e-9), sent(1.0, -1e-9, -1e-9), 1e-4, [sent(1.0, 2e-9, 2e-9)])
    assert not verdict.passed
    assert verdict.fault == (
        "rounding alone changes 2 of 3 results beyond use: compare on workers that are alike"
    )
