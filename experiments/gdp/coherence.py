"""What GDP's samples gain when units do not roll their dice alone: shared noise, and refinement segment by segment.

    python experiments/gdp/coherence.py [--seeds 3] [--evaluations 200]

GDP draws the device of every unit independently of all others, so that a sample cuts tensors where its mean does not.
Three ways to draw from the same probabilities, each unit with the same odds as before in the first two:

    one noise per layer       units that use the same weights (steps of one layer), and those behind them, share theirs
    one noise per segment     eighths of the order share theirs
    segment by segment        the best sample so far, one eighth of it drawn anew: refinement, one segment at a time

Noise is that of the Gumbel trick: a device is the largest log p + noise, and who shares noise moves together. Two
graphs on four equal devices, equal evaluations, starts included; `copied` after ten updates that copy constructions,
frozen; `not learnt` by random weights; `learnt` from rewards alone. Cells are kept in results/coherence; the lab book
gets the table.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
from comparison import Cells, bound, reference_cluster, solved, spread  # noqa: E402
from controls import ONE, Row, taught  # noqa: E402
from pages import fill  # noqa: E402

from stead import Problem  # noqa: E402
from stead.costs import Roofline  # noqa: E402
from stead.learn.gdp.network import chosen  # noqa: E402
from stead.learn.ground.ablation import varied  # noqa: E402
from stead.learn.ground.one_shot import OneShot  # noqa: E402
from stead.problem import Latency  # noqa: E402
from stead.workloads.synthetic import synthetic  # noqa: E402

SEGMENTS = 8
GRAPHS: dict[str, dict[str, int]] = {
    "lstm-grid": {"layers": 4, "steps": 10}, "inception": {"operators": 300, "seed": 1},
}  # fmt: skip
Sample = Callable[..., tuple[Tensor, Tensor]]


def layers(own: OneShot[Any], problem: Problem) -> NDArray[np.int64]:  # [unit]
    """The first weight that each unit uses; units without any belong to the one before them."""
    graph, unit_of = problem.graph, own.tasks[0].grouping.group
    users = np.diff(graph.weight_user_first)
    found = np.full(own.tasks[0].grouping.count, np.iinfo(np.int64).max)
    np.minimum.at(found, unit_of[graph.weight_users], np.repeat(np.arange(len(users)), users))
    for unit in range(1, len(found)):
        if found[unit] == np.iinfo(np.int64).max:
            found[unit] = found[unit - 1]
    return np.unique(found, return_inverse=True)[1].astype(np.int64)


def segments(own: OneShot[Any], problem: Problem) -> NDArray[np.int64]:  # [unit]
    """Which eighth of the order each unit lies in."""
    count = own.tasks[0].grouping.count
    return np.arange(count) * SEGMENTS // count


def alone(own: OneShot[Any], problem: Problem) -> None:
    """As GDP draws."""


def shared(groups: Callable[[OneShot[Any], Problem], NDArray[np.int64]], own: OneShot[Any], problem: Problem) -> None:
    """Units of a group share their noise; classes of priorities are drawn as before."""
    group = torch.from_numpy(groups(own, problem))
    before: Sample = own.network.sample

    def sample(
        inputs: Any, samples: int, generator: torch.Generator, *, greedy: bool = False
    ) -> tuple[Tensor, Tensor]:
        actions, _ = before(inputs, samples, generator, greedy=greedy)
        with torch.no_grad():
            tables = own.network.tables(inputs)
            units, devices = tables[0].shape
            noise = -torch.log(-torch.log(torch.rand(samples, int(group.max()) + 1, devices, generator=generator)))
            drawn = (tables[0] + noise[:, group]).argmax(dim=2)
            actions[int(greedy) :, :units] = drawn[int(greedy) :]
        return actions, likelihood(tables, actions)

    own.network.sample = sample


def refined(own: OneShot[Any], problem: Problem) -> None:
    """Every sample is the best so far with one segment drawn anew."""
    segment = torch.from_numpy(segments(own, problem))
    before: Sample = own.network.sample

    def sample(
        inputs: Any, samples: int, generator: torch.Generator, *, greedy: bool = False
    ) -> tuple[Tensor, Tensor]:
        actions, total = before(inputs, samples, generator, greedy=greedy)
        elites = own.tasks[0].elites.rows
        if not elites:
            return actions, total
        best, units = torch.from_numpy(elites[0]), len(segment)
        redrawn = torch.randint(SEGMENTS, (samples, 1), generator=generator) == segment[None]
        for first in range(0, actions.shape[1], units):  # devices, then classes
            part = slice(first, first + units)
            kept = torch.where(redrawn, actions[:, part], best[None, part])
            actions[int(greedy) :, part] = kept[int(greedy) :]
        with torch.no_grad():
            return actions, likelihood(own.network.tables(inputs), actions)

    own.network.sample = sample


def likelihood(tables: list[Tensor], actions: Tensor) -> Tensor:  # [S]
    """log p as if units were independent, which is what GDP learns from."""
    parts = torch.split(actions, len(tables[0]), dim=1)
    return torch.stack([chosen(log_p, part).sum(dim=1) for log_p, part in zip(tables, parts, strict=True)]).sum(dim=0)


WAYS: dict[str, Callable[[OneShot[Any], Problem], None]] = {
    "independent": alone, "one noise per layer": partial(shared, layers),
    "one noise per segment": partial(shared, segments), "segment by segment": refined,
}  # fmt: skip
ROWS = {
    **{f"copied, {name}": Row(ONE, frozen=True, prepare=way) for name, way in WAYS.items()},
    **{
        f"not learnt, {name}": Row(varied(ONE, imitation=0, learning_rate=0.0), prepare=way)
        for name, way in WAYS.items()
    },
    **{f"learnt, {name}": Row(varied(ONE, imitation=0), prepare=way) for name, way in WAYS.items()},
}


def main() -> None:
    """Compute what is missing, then fill the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--evaluations", type=int, default=200)
    given = parser.parse_args()
    cells, cluster = Cells(HERE / "results" / "coherence"), reference_cluster(4)
    table: dict[str, list[str]] = {}
    sizes = {}
    for name, options in GRAPHS.items():
        graph = synthetic(name, training=True, **options)
        problem = Problem(graph, cluster, Roofline().costs(graph, cluster), objective=Latency())
        sizes[name], single = len(graph), solved("single", problem)["seconds"]
        for label, row in ROWS.items():
            work = partial(taught, replace(row), problem, evaluations=given.evaluations)
            key = f"{name} | {label} | {given.evaluations}"
            found = [cells.get(f"{key} | {seed}", partial(work, seed=seed)) for seed in range(given.seeds)]
            table.setdefault(label, []).append(spread(found, single))
            if label == next(iter(ROWS)):
                table.setdefault("starts", []).append(f"{min(one['starts'] for one in found) / single:.3f}")
        table.setdefault("bound", []).append(f"{bound(problem)['seconds'] / single:.3f}")
    lines = ["| run time / one device | " + " | ".join(f"{name}, {sizes[name]} operators" for name in GRAPHS) + " |"]
    lines.append("|---|" + "---:|" * len(GRAPHS))
    lines += [f"| {label} | {' | '.join(table[label])} |" for label in ("starts", *ROWS, "bound")]
    print("\n".join(lines))
    fill("experiments/gdp/README.md", "coherence", lines)


if __name__ == "__main__":
    main()
