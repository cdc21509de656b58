"""Does the policy of the package help `auto`? The same seconds, with its proposal as one more start and without.

    python experiments/pretrain/start.py [--budgets 1,5,30] [--seeds 3] [--only GNMT] [--out FOLDER]

Cells are written when they are done and not computed again; the two ways take turns, so that a busy machine is busy for
both. Asking the policy counts against its seconds, loading PyTorch does not.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "gdp"))

from comparison import Cells, bound, solved
from suite import GDP12, Instance

from stead.learn.gdp.method import SHIPPED
from stead.solvers import solver

HERE = Path(__file__).resolve().parent
WAYS: dict[str, dict[str, Any]] = {"auto": {}, "auto from gdp": {"start": "gdp"}}
LONG_SECONDS = 10.0  # budgets above get one seed


def main() -> None:
    """Compute what is missing, then print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--budgets", default="1,5,30")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--only", default="")
    parser.add_argument("--out", type=Path, default=HERE / "results" / "start")
    given = parser.parse_args()
    cells, budgets = Cells(given.out), [float(part) for part in given.budgets.split(",")]
    assert SHIPPED.exists(), "the package has no policy of gdp"
    solver("gdp")  # loads PyTorch
    for instance in GDP12:
        if given.only in instance.name:
            _compute(cells, instance, budgets, given.seeds)
    print(table(cells, budgets))


def _compute(cells: Cells, instance: Instance, budgets: list[float], seeds: int) -> None:
    problem = instance.problem()
    cells.get(f"{instance.name} | bound", partial(bound, problem))
    for seconds in budgets:
        for seed in range(seeds if seconds < LONG_SECONDS else 1):
            for name, options in WAYS.items():
                way = partial(solved, "auto", problem, seed=seed, seconds=seconds, **options)
                cells.get(f"{instance.name} | {name} | {seconds:g} | {seed}", way)


def table(cells: Cells, budgets: list[float]) -> str:
    """Medians over the bound, and how the two ways compare."""
    heads = [f"{name}, {seconds:g} s" for seconds in budgets for name in WAYS]
    lines = ["| graph | " + " | ".join(heads) + " |", "|---|" + "---:|" * len(heads)]
    ratios: dict[float, list[float]] = {seconds: [] for seconds in budgets}
    for instance in GDP12:
        least = cells.cells.get(f"{instance.name} | bound")
        if least is None:
            continue
        row = [instance.name]
        for seconds in budgets:
            pair = [_median(cells, f"{instance.name} | {name} | {seconds:g} | ") for name in WAYS]
            row += ["" if one is None else f"{one / least['seconds']:.4f}" for one in pair]
            if pair[0] is not None and pair[1] is not None:
                ratios[seconds].append(pair[1] / pair[0])
        lines.append("| " + " | ".join(row) + " |")
    for seconds, found in ratios.items():
        if found:
            ahead, behind = sum(r < 0.999 for r in found), sum(r > 1.001 for r in found)
            lines.append(
                f"\n{seconds:g} s: from gdp over alone {statistics.geometric_mean(found):.4f} in the mean; "
                f"more than 0.1 % ahead on {ahead}, behind on {behind} of {len(found)} graphs."
            )
    return "\n".join(lines)


def _median(cells: Cells, prefix: str) -> float | None:
    found: list[Any] = [cell["seconds"] for key, cell in cells.cells.items() if key.startswith(prefix)]
    return statistics.median(found) if found else None


if __name__ == "__main__":
    main()
