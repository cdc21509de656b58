"""GDP's samples: who shares noise moves together, with the odds of the network; `faithful` draws each unit alone."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")
sys.path.insert(0, str(Path(__file__).parent))
from small import grid, pair  # noqa: E402

from stead.coarsen import Grouping  # noqa: E402
from stead.errors import BadInput  # noqa: E402
from stead.graph import GraphBuilder  # noqa: E402
from stead.learn.gdp.coherence import drawn_together, layers, segments, shared_by  # noqa: E402
from stead.learn.gdp.method import GDP  # noqa: E402
from stead.solvers import Budget  # noqa: E402


def test_each_unit_has_the_odds_of_the_network_and_units_of_a_group_move_together() -> None:
    odds = torch.tensor([[0.7, 0.2, 0.1], [0.7, 0.2, 0.1], [0.1, 0.1, 0.8]])
    group = torch.tensor([0, 0, 1])
    drawn = drawn_together(odds.log(), group, 20_000, torch.Generator().manual_seed(0))
    for unit in range(3):
        share = np.bincount(drawn[:, unit].numpy(), minlength=3) / len(drawn)
        assert share == pytest.approx(odds[unit].numpy(), abs=0.015)
    assert bool((drawn[:, 0] == drawn[:, 1]).all())
    both = float(((drawn[:, 0] == 0) & (drawn[:, 2] == 2)).float().mean())
    assert both == pytest.approx(0.7 * 0.8, abs=0.015)  # groups are independent of each other


def test_a_device_that_is_forbidden_is_never_drawn() -> None:
    log_p = torch.tensor([[0.0, -torch.inf], [-torch.inf, 0.0]])
    drawn = drawn_together(log_p, torch.tensor([0, 0]), 500, torch.Generator().manual_seed(1))
    assert drawn.unique(dim=0).tolist() == [[0, 1]]


def test_units_belong_to_the_first_weight_they_use_or_to_the_unit_before_them() -> None:
    build = GraphBuilder()
    own = {name: build.operator(name) for name in ("input", "a0", "b0", "a1", "relu", "b1")}
    build.weight("wa", size_bytes=4, users=(own["a0"], own["a1"]))
    build.weight("wb", size_bytes=4, users=(own["b0"], own["b1"]))
    graph = build.build()
    units = Grouping(graph, range(len(graph)))
    found = dict(zip(graph.operator_names, layers(graph, units).tolist(), strict=True))
    assert found["a0"] == found["a1"] == found["relu"]
    assert found["b0"] == found["b1"]
    assert len({found["input"], found["a0"], found["b0"]}) == 3
    assert segments(16).tolist() == [n // 2 for n in range(16)]


def test_samples_take_the_ways_to_draw_in_turn() -> None:
    problem = grid(pair(devices=4), steps=4)
    method = GDP(policy="")
    units, inputs = method.inputs(problem)
    assert [way is None for way in inputs.shared] == [True, False, False]
    network = method.network(4, 0)
    actions, log_p = network.sample(inputs, 30, torch.Generator().manual_seed(0), greedy=True)
    devices = actions[:, : units.count].numpy()
    likely, _ = network.sample(inputs, 1, torch.Generator(), greedy=True)
    assert np.array_equal(devices[0], likely[0, : units.count].numpy())
    crossed = [np.mean([len(np.unique(row[eighth == n])) for row in rows for n in range(8)])
               for eighth in [segments(units.count)] for rows in (devices[3::3], devices[2::3])]  # fmt: skip
    assert crossed[1] < crossed[0] - 0.5  # those of a segment are on fewer devices than those that draw alone
    assert bool(torch.isfinite(log_p).all())


def test_faithful_draws_every_unit_alone_and_an_option_says_otherwise() -> None:
    problem = grid(pair(), steps=2)
    assert GDP(policy="", variant="faithful").inputs(problem)[1].shared == (None,)
    assert GDP(policy="", noise="alone").inputs(problem)[1].shared == (None,)
    assert len(shared_by("layers", problem.graph, GDP(policy="").inputs(problem)[0])) == 1
    with pytest.raises(BadInput, match="noise"):
        GDP(noise="loud")


def test_the_option_reaches_the_policy_that_comes_with_the_package() -> None:
    problem = grid(pair(), steps=3)
    found = [GDP(noise=noise, polish=False).solve(problem, Budget(), 0) for noise in ("alone", "layers")]
    assert found[0].evaluations > found[1].evaluations  # samples that are the same are simulated once
