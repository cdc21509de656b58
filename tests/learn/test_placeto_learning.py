"""What Placeto learns, at full size: minutes each, so with STEAD_SLOW=1 alone."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")
sys.path.insert(0, str(Path(__file__).parents[2] / "experiments" / "placeto"))

import cells

pytestmark = pytest.mark.skipif(os.environ.get("STEAD_SLOW") != "1", reason="takes minutes; set STEAD_SLOW=1")
INCEPTION = {"family": "branches", "devices": 4, "judge": "placeto"}
TOWERS = {"family": "towers", "devices": 2, "judge": "placeto"}


@pytest.mark.parametrize("variant", ["corrected", "faithful"])
@pytest.mark.parametrize(("goal", "updates"), [("last", 60), ("cut", 100)])
def test_made_up_costs_are_solved_exactly(goal: str, updates: int, variant: str) -> None:  # P9
    found = [cells.sanity(goal, variant, seed, updates)["end"] for seed in range(3)]
    assert found == [1.0] * 3


def test_towers_are_told_apart() -> None:  # P10
    found = [cells.learn_one(TOWERS, {"updates": 200}, seed) for seed in range(5)]
    assert sum(one["argmax"] <= 0.72 for one in found) >= 4, found
    assert max(one["best"] for one in found) <= 0.684


def test_the_corrected_variant_does_not_collapse() -> None:  # P11
    found = [cells.learn_one(INCEPTION, {"updates": 100}, seed) for seed in range(5)]
    assert max(one["argmax"] for one in found) <= 11.0, found
    assert min(one["argmax_devices"] for one in found) >= 2
    assert np.median([one["best"] for one in found]) <= 9.6
    assert not any(one["alarms"] for one in found)


@pytest.fixture(scope="module")
def shots() -> list[dict[str, Any]]:
    """Trained on eight graphs, asked about others, three times."""

    def graphs(first: int, count: int, devices: int = 4) -> list[dict[str, Any]]:
        return [{**INCEPTION, "devices": devices, "seed": first + n} for n in range(count)]

    test = {"same": graphs(101, 8), "2 devices": graphs(101, 4, 2), "8 devices": graphs(101, 4, 8)}
    return [cells.zero_shot(graphs(1, 8), test, {"updates": 100}, seed) for seed in range(3)]


def mean(shot: dict[str, Any], test: str, key: str) -> float:
    return float(np.mean([one[key] for one in shot[test]]))


def test_a_policy_places_graphs_it_has_not_seen(shots: list[dict[str, Any]]) -> None:  # P13
    for shot in shots:
        assert not set(shot["train"]) & set(shot["same test"])
        assert mean(shot, "same", "argmax") <= 0.88
        assert mean(shot, "same", "untrained argmax") >= 1.05
        assert max(one["best of 4"] for one in shot["same"]) <= 1.05


@pytest.mark.parametrize("test", ["2 devices", "8 devices"])
def test_a_policy_takes_other_numbers_of_devices(shots: list[dict[str, Any]], test: str) -> None:  # P14
    assert all(mean(shot, test, "best of 4") <= 0.95 for shot in shots)


def test_with_polish_it_is_as_good_as_hill_climbing() -> None:  # P15
    found = [cells.product(seed, 25) for seed in range(5)]
    assert sum(one["polished"] <= min(9.3, one["climb"]["best"]) for one in found) >= 4, found
    assert all(one["polished"] <= one["best_baseline"] for one in found)


def test_a_chain_stays_on_one_device_where_latency_counts() -> None:  # P16
    assert cells.exploit("fifo", 0, 50)["argmax_devices"] == 1
