"""tune from wrong costs: how near does it come to the plan of the truth, and with how many measurements?

    python experiments/tune/run.py [--out experiments/tune/results/results.json] [--quick]

The truth is a problem of its own in the simulator, measured with 3 % noise that only ever slows down. What is believed
is wrong in one of two ways. Prints the table of README.md; three minutes of one core. Draws that are in the results are
not computed again: remove the file to begin anew.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from stead import Budget, Costs, Infeasible, Latency, Placement, Problem, Solver, load, simulate, solver
from stead.placing.recost import with_seconds
from stead.run.noise import bars_of, shrunk
from stead.run.trials import Trials
from stead.run.tune import tune
from stead.testing.executors import SimulatedExecutor

MODELS = ("inception-v3", "transformer-xl-2", "gnmt-2", "wavenet-2x18", "t5-small")
HERE, ELSEWHERE = "2080ti,3060", "3090,3080"  # devices of the truth, and of another machine's data sheet
WRONG = {"two factors": HERE, "other machine": ELSEWHERE}
SIGMA, NOISE = 0.35, 0.03
MEASUREMENTS, EVALUATIONS, REPEATS = 20, 2000, 6
RUNS = 5  # of a measurement
FOLDER = Path(__file__).resolve().parent


def truth_of(believed: Problem, seed: int) -> Problem:
    """A machine whose devices differ from what is believed by a factor each, and one per kind of operator."""
    rng = np.random.default_rng((seed, 1))
    kinds = list(dict.fromkeys(believed.graph.kinds))
    row = [kinds.index(kind) for kind in believed.graph.kinds]
    count = len(believed.cluster)
    logs = rng.normal(0, SIGMA, count) + rng.normal(0, SIGMA, (len(kinds), count))[row]
    costs = Costs(believed.graph, believed.cluster, believed.costs.seconds * np.exp(logs))
    return Problem(believed.graph, believed.cluster, costs)


def planned(problem: Problem, by: Solver | None = None) -> Placement:
    """What auto finds with as many evaluations as tune has for every plan."""
    return (by or solver("auto")).solve(problem, Budget(None, EVALUATIONS), 0).placement


def random_best(problem: Problem, executor: SimulatedExecutor, seed: int) -> Placement:
    """The best measured of single devices and random placements, with as many measurements as tune has."""
    trials, rng = Trials(executor, problem, limit=MEASUREMENTS), np.random.default_rng((seed, 2))
    found = []
    for n in range(MEASUREMENTS):
        if trials.left < 1:
            break
        devices = np.full(len(problem.graph), n) if n < len(problem.cluster) else _random(problem, rng)
        placement = Placement(problem, devices)
        found.append((trials.measure(placement).seconds, n, placement))
    return min(found)[2]


def _random(problem: Problem, rng: np.random.Generator) -> np.ndarray[Any, Any]:
    """Every operator where a random half of its neighbours is: blocks of random length."""
    cuts = np.sort(rng.integers(0, len(problem.graph), rng.integers(1, 12)))
    block = np.searchsorted(cuts, np.arange(len(problem.graph)), side="right")
    return rng.integers(0, len(problem.cluster), len(cuts) + 1)[block]


def profiled(believed: Problem, executor: SimulatedExecutor) -> Placement:
    """The plan from a profile of every operator on every device."""
    repeats = [executor.profile(d, repeats=REPEATS) for d in range(len(believed.cluster))]
    return planned(with_seconds(believed, shrunk(believed.graph, bars_of(repeats)).seconds))


def cell(model: str, wrong: str, seed: int) -> dict[str, Any]:
    """One draw: true seconds of every plan, by those of the plan of the truth."""
    truth = truth_of(load(f"zoo:{model}", HERE).problem(Latency()), seed)
    believed = load(f"zoo:{model}", WRONG[wrong]).problem(Latency())
    begin = time.process_time()

    def true_seconds(placement: Placement) -> float:
        own = Placement(truth, placement.devices, placement.order)
        return simulate(truth, own).objective_seconds

    def executor() -> SimulatedExecutor:
        return SimulatedExecutor(truth, noise=NOISE, seed=seed)

    best = true_seconds(planned(truth))
    machine = executor()

    def whole(placement: Placement) -> float:
        """As a user's own function: nothing is told of single operators."""
        return min(machine.burst(placement, runs=RUNS).seconds)

    tuned = tune(believed, measure=whole, measurements=MEASUREMENTS, time_limit=None, evaluations=EVALUATIONS)
    singles = [true_seconds(Placement(truth, [d] * len(truth.graph))) for d in range(len(truth.cluster))]
    ratios = {
        "tune": true_seconds(tuned.plan.placement),
        "place": true_seconds(planned(believed)),
        "random": true_seconds(random_best(believed, executor(), seed)),
        "profile": true_seconds(profiled(believed, executor())),
        "one device": min(singles),
    }
    return {
        "model": model, "wrong": wrong, "seed": seed, "truth_seconds": best,
        "ratios": {name: seconds / best for name, seconds in ratios.items()},
        "measurements": tuned.measurements, "stopped_by": tuned.stopped_by,
        "prior_error": tuned.calibrated.prior_error, "error": tuned.calibrated.error,
        "cpu_seconds": time.process_time() - begin,
    }  # fmt: skip


def table(rows: list[dict[str, Any]]) -> list[str]:
    """Medians over draws, one line per model and way of being wrong."""
    columns = ("one device", "random", "place", "profile", "tune")
    lines = [
        f"| costs wrong by | model | {' | '.join(columns)} | worst tune | measurements | off before | off after |",
        f"|---|---|{'---:|' * (len(columns) + 4)}",
    ]
    for wrong in WRONG:
        for model in MODELS:
            own = [row for row in rows if (row["model"], row["wrong"]) == (model, wrong)]
            if not own:
                continue
            values = [median(row["ratios"][name] for row in own) for name in columns]
            worst = max(row["ratios"]["tune"] for row in own)
            count = median(row["measurements"] for row in own)
            errors = [math.expm1(median(row[name] for row in own)) for name in ("prior_error", "error")]
            lines.append(
                f"| {wrong} | {model} | {' | '.join(f'{value:.3f}' for value in values)} | {worst:.3f} | {count:g} | "
                f"{100 * errors[0]:.0f} % | {100 * errors[1]:.1f} % |"
            )
    return lines


def main() -> None:
    """Compute all draws and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=FOLDER / "results" / "results.json")
    parser.add_argument("--quick", action="store_true", help="one draw of two models")
    given = parser.parse_args()
    rows = json.loads(given.out.read_text()) if given.out.exists() and not given.quick else []
    done = {(row["wrong"], row["model"], row["seed"]) for row in rows}
    for wrong in WRONG:
        for model in MODELS[:2] if given.quick else MODELS:
            for seed in range(1 if given.quick else 3):
                if (wrong, model, seed) in done:
                    continue
                try:
                    rows.append(cell(model, wrong, seed))
                except Infeasible as error:
                    print(f"{model}: {error}")
                    continue
                if not given.quick:
                    given.out.parent.mkdir(parents=True, exist_ok=True)
                    given.out.write_text(json.dumps(rows, indent=1) + "\n")
    print("\n".join(table(rows)))
    within = [row for row in rows if row["ratios"]["tune"] <= 1.03]
    print(f"\nwithin 3 % in {len(within)} of {len(rows)} draws; {sum(row['cpu_seconds'] for row in rows):.0f} CPU s")


if __name__ == "__main__":
    main()
