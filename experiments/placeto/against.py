"""Placeto asked about graphs it has not seen, against training on each of them and against ColocRL, in evaluations.

    python experiments/placeto/against.py [--seeds 5]

One policy per seed learns from eight graphs like Inception (family `branches`, 4 equal devices, 60 updates, rewards
alone) and is asked about three others. On each of these Placeto also trains by itself, and so does ColocRL; both have
their controls at learning rate 0. All simulations count, starts and constructions too; what learners were given to
begin with is not their own. Cells are kept in results/against; pages get the table.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]
from cells import climbed, learner, problem, ruled, single_ms  # noqa: E402
from comparison import Cells, bound, median_of, spread  # noqa: E402
from pages import fill  # noqa: E402

from stead.learn.colocrl.method import ColocRL  # noqa: E402
from stead.learn.ground.task import Start  # noqa: E402
from stead.learn.ground.torch_state import load_network, network_arrays, one_thread  # noqa: E402
from stead.learn.placeto.method import Placeto  # noqa: E402
from stead.problem import Problem  # noqa: E402

METHOD = Placeto(policy="", updates=60)
TRAINED_ON, TESTED_ON = range(1, 9), range(101, 104)
OWN_EVALUATIONS, RECURRENT_EVALUATIONS = 6000, 500
LEARNERS: Mapping[str, tuple[Any, int]] = {
    "Placeto, trained on the graph": (METHOD, OWN_EVALUATIONS),
    "the same at learning rate 0": (replace(METHOD, learning_rate=0.0), OWN_EVALUATIONS),
    "ColocRL, trained on the graph": (ColocRL(), RECURRENT_EVALUATIONS),
    "ColocRL at learning rate 0": (ColocRL(learning_rate=0.0), RECURRENT_EVALUATIONS),
}
PAGES = ("experiments/placeto/README.md", "docs/learned/placeto.md")


def made(seed: int) -> Problem:
    """A graph of the family, judged as plans are."""
    return problem("branches", 4, seed=seed)


def asked(seed: int) -> dict[str, Any]:
    """Train on eight graphs and ask about the others, before and after; seconds and evaluations of each."""
    with one_thread():
        own = learner(METHOD, [made(n) for n in TRAINED_ON], seed)
        before = network_arrays(own.network)
        while own.version < METHOD.updates:
            own.update()
        after = network_arrays(own.network)
        found: dict[str, Any] = {"training": own.evaluations}
        for name, arrays in (("untrained", before), ("trained", after)):
            for n in TESTED_ON:
                other = learner(METHOD, [made(n)], seed)
                load_network(other.network, arrays)
                _, seconds = other.evaluated(other.tasks[0])
                found[f"{name} {n}"] = {"seconds": seconds, "evaluations": other.tasks[0].scorer.evaluations}
    return found


def trained(method: Any, graph: int, evaluations: int, seed: int) -> dict[str, Any]:
    """Learn on one graph; the best of its own after each update, and the evaluations until then."""
    given = made(graph)
    with one_thread():
        own = method.learner([given], seed, [replace(Start.of(given), limit=evaluations)])
        trail = []
        while own.evaluations + own.evaluations_per_update <= evaluations:
            own.update()
            trail.append((own.evaluations, own.tasks[0].scorer.best_seconds))
    falls = [one for n, one in enumerate(trail) if n == 0 or one[1] < trail[n - 1][1]]
    return {"seconds": trail[-1][1], "evaluations": trail[-1][0], "trail": falls}


def until(rows: Sequence[Mapping[str, Any]], goals: Sequence[float]) -> str:
    """Evaluations until a run is as good as its goal, median; how many came there."""
    found = [next((n for n, s in row["trail"] if s <= goal), math.inf) for row, goal in zip(rows, goals, strict=True)]
    come = sum(n < math.inf for n in found)
    middle = sorted(found)[len(found) // 2]
    return f"{middle:,} ({come} of {len(found)})" if middle < math.inf else f"never ({come} of {len(found)} came there)"


def main() -> None:
    """Compute what is missing, then fill the pages."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=5)
    seeds = range(parser.parse_args().seeds)
    cells = Cells(HERE / "results" / "against")
    policies = [cells.get(f"asked | {seed}", partial(asked, seed)) for seed in seeds]
    lines = [
        "| graph, 4 devices | who | run time / one device | evaluations | evaluations until as good as asked once |",
        "|---|---|---:|---:|---:|",
    ]
    for n in TESTED_ON:
        given = made(n)
        single = 1e-3 * single_ms(given)
        for name, label in (("trained", "Placeto, asked once"), ("untrained", "the same, untrained")):
            rows = [policy[f"{name} {n}"] for policy in policies]
            count = f"{median_of(rows, 'evaluations')[0]:,.0f}"
            graph = f"branches {n}, {len(given.graph)} operators"
            lines.append(f"| {graph} | {label} | {spread(rows, single)} | {count} | |")
        goals = [policy[f"trained {n}"]["seconds"] for policy in policies]
        for label, (method, evaluations) in LEARNERS.items():
            key = f"{n} | {label} | {evaluations}"
            work = partial(trained, method, n, evaluations)
            rows = [cells.get(f"{key} | {seed}", partial(work, seed)) for seed in seeds]
            count = f"{median_of(rows, 'evaluations')[0]:,.0f}"
            lines.append(f"| | {label} | {spread(rows, single)} | {count} | {until(rows, goals)} |")
        hills = [cells.get(f"{n} | climb | {seed}", partial(climbed, given, seed, evaluations=500)) for seed in seeds]
        lines.append(f"| | hill climbing | {spread(hills, 1e3 * single, 'best')} | 500 | |")
        lines.append(f"| | `heft` | {ruled(given, 'heft') / single:.3f} | | |")
        lines.append(f"| | bound | {bound(given)['seconds'] / single:.3f} | | |")
    spent = median_of(policies, "training")[0]
    lines += ["", f"Training on the eight graphs took {spent:,.0f} evaluations (median of {len(seeds)} seeds)."]
    print("\n".join(lines))
    for page in PAGES:
        fill(page, "in evaluations", lines)


if __name__ == "__main__":
    main()
