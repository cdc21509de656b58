"""Train the policy that comes with the package, and hold families out to see what transfers.

    python experiments/pretrain/run.py train [--hold-out FAMILY] [-o FILE] [--updates 400] [--seed 0] [--most-minutes 5]
    python experiments/pretrain/run.py table [--most-minutes 5]

`train` goes on from its checkpoint; run it again until it says that it is done. `table` asks each hold-out policy about
its family in the sizes of suite gdp12, row by row, and keeps what it has in results/transfer.json.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
from data import FAMILIES, rows_without
from suite import EXPERTS, GDP12, rule_seconds

from stead.learn.gdp import GDP
from stead.learn.policy import NetworkPolicy
from stead.learn.runs import Run, Trainee, progress_line
from stead.learn.solver import Start, train_policy
from stead.learn.state import one_thread
from stead.learn.trainer import Learner, Metrics
from stead.problem import Problem
from stead.sim import simulate_many
from stead.solvers import Budget, solver

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "results"
OPTIONS = GDP(
    policy="",
    level="unit",
    positions=False,
    imitation=900,
    samples=64,
    copies="expert,expert:time",
    threads=1,
    priorities=False,
)  # without positions: forty time steps are to look like the ten it was trained on
EVERY = 25  # updates between checkpoints
TUNED = 50  # updates of fine-tuning
ASKED = 64  # samples of zero-shot
TESTS = {  # held-out families and their graphs in gdp12; one policy per family of the suite would take an hour
    "gnmt": ("GNMT-2", "GNMT-4", "GNMT-8"),
    "transformer-xl": ("Transformer-XL-2", "Transformer-XL-4", "Transformer-XL-8"),
}


class OutOfTimeError(Exception):
    """The minutes of this call are over."""


def train(hold_out: str, output: Path, updates: int, seed: int, most_minutes: float) -> bool:
    """Train until done or out of time; True when done."""
    begin = time.monotonic()
    rows = rows_without(hold_out)
    problems = [row.problem() for row in rows]

    def report(metrics: Metrics, trainee: Trainee) -> None:
        spent = time.monotonic() - begin
        if metrics.update % EVERY == 0:
            print(progress_line(metrics, trainee, spent), flush=True)
        if metrics.update % EVERY == 1 and spent > 60 * most_minutes:
            raise OutOfTimeError

    run = Run(output, updates, resume=True, every=EVERY)
    try:
        train_policy(OPTIONS, problems, [row.name for row in rows], run, seed=seed, report=report)
    except OutOfTimeError:
        print(f"out of time; run it again to go on with {output}")
        return False
    print(f"wrote {output}")
    return True


def seconds_of(problem: Problem, placements: np.ndarray) -> np.ndarray:  # type: ignore[type-arg]
    """Seconds of rows; inf where they do not fit."""
    scores = simulate_many(problem, placements, threads=1)
    return np.where(scores.feasible, scores.seconds, np.inf)


def learnt(options: GDP, problem: Problem, known: dict[str, float], seed: int) -> Learner:
    """Fifty updates without any placement to begin with: what is found is found by the policy."""
    with one_thread():
        own = options.learner([problem], seed, [Start(known, None)])
        while own.version < TUNED:
            own.update()
        own.tasks[0].greedy_seconds = float(
            own.tasks[0].scorer.score(own.greedy(own.tasks[0])[None, :]).seconds[0]
        )
    return own


def asked(family: str, name: str, seed: int) -> dict[str, Any]:
    """The zero-shot part of a row; values are seconds."""
    problem = test_problem(name)
    known = rule_seconds(problem, (*EXPERTS, "single", "heft"))
    policy = NetworkPolicy.load(policy_file(family), GDP)
    begin = time.process_time()
    proposal = policy.propose(problem, ASKED, seed)
    spent = time.process_time() - begin
    seconds = seconds_of(problem, proposal.placements)
    random = NetworkPolicy(policy.method, policy.method.network(2, seed + 1000), 2)
    blind = seconds_of(problem, random.propose(problem, ASKED, seed).placements)
    return {
        "family": family, "graph": name, "seed": seed, "operators": len(problem.graph),
        "expert": min(known[one] for one in EXPERTS), "single": known["single"], "heft": known["heft"],
        "zero_shot_greedy": float(seconds[0]), "zero_shot_best_of_64": float(seconds.min()),
        "zero_shot_cpu_seconds": spent, "untrained_best_of_64": float(blind.min()),
    }  # fmt: skip


def tuned(family: str, name: str, seed: int) -> dict[str, Any]:
    """The part of a row that trains: fifty updates from the policy, the same from scratch, and search."""
    problem, path = test_problem(name), policy_file(family)
    known = rule_seconds(problem, ("expert", "single"))
    start = {one: seconds for one, seconds in known.items() if math.isfinite(seconds)}
    method = NetworkPolicy.load(path, GDP).method
    same: dict[str, Any] = {**method.network_options(), "imitation": 0, "copies": "", "threads": 1}
    begin = time.process_time()
    own = learnt(GDP(**same, policy=str(path), samples=256), problem, start, seed)
    spent = time.process_time() - begin
    scratch = learnt(GDP(**same, policy="", samples=256), problem, start, seed)
    searched = solver("search").solve(problem, Budget(evaluations=own.evaluations), seed)
    return {
        "fine_tuned_greedy": own.tasks[0].greedy_seconds, "fine_tuned_best": own.tasks[0].scorer.best_seconds,
        "fine_tuned_cpu_seconds": spent, "evaluations": own.evaluations,
        "scratch_greedy": scratch.tasks[0].greedy_seconds, "scratch_best": scratch.tasks[0].scorer.best_seconds,
        "search_at_equal_evaluations": searched.objective_seconds,
    }  # fmt: skip


def test_problem(name: str) -> Problem:
    """A graph of gdp12, with its memory limits."""
    return next(one for one in GDP12 if one.name == name).problem()


def policy_file(family: str) -> Path:
    """The policy that never saw a family."""
    return RESULTS / f"without-{family}.safetensors"


def table(most_minutes: float, seed: int, zero_shot_only: bool) -> None:
    """Fill the table, row by row, and print it."""
    begin, kept = time.monotonic(), RESULTS / "transfer.json"
    found: dict[str, dict[str, Any]] = json.loads(kept.read_text()) if kept.exists() else {}
    for part, needs in ((asked, "zero_shot_greedy"), (tuned, "fine_tuned_best")):
        if zero_shot_only and part is tuned:
            break
        for family, name in [(family, name) for family, names in TESTS.items() for name in names]:
            row = found.setdefault(f"{name}, seed {seed}", {})
            if needs in row:
                continue
            if not policy_file(family).exists():
                print(f"no policy without {family} yet: python {sys.argv[0]} train --hold-out {family}")
                continue
            if time.monotonic() - begin > 60 * most_minutes:
                print("out of time; run it again to go on")
                break
            row.update(part(family, name, seed))
            kept.write_text(json.dumps(found, indent=1))
    print(told([row for row in found.values() if row]))


COLUMNS = {
    "zero-shot greedy": "zero_shot_greedy", "best of 64": "zero_shot_best_of_64",
    "untrained, best of 64": "untrained_best_of_64",
    "fine-tuned greedy": "fine_tuned_greedy", "fine-tuned best": "fine_tuned_best", "scratch best": "scratch_best",
    "heft": "heft", "search": "search_at_equal_evaluations",
}  # fmt: skip


def told(rows: list[dict[str, Any]]) -> str:
    """Seconds over those of the expert, as Markdown; below 1 is faster."""
    lines = [f"| graph | {' | '.join(COLUMNS)} |", f"|---|{'---:|' * len(COLUMNS)}"]
    for row in rows:
        ratios = [row[key] / row["expert"] if key in row else None for key in COLUMNS.values()]
        values = ["" if one is None else f"{one:.3f}" if math.isfinite(one) else "no room" for one in ratios]
        lines.append(f"| {row['graph']} | {' | '.join(values)} |")
    for name, key in (("zero-shot greedy", "zero_shot_greedy"), ("fine-tuned best", "fine_tuned_best")):
        values = [row[key] / row["expert"] for row in rows if key in row]
        if values and all(map(math.isfinite, values)):
            lines.append(
                f"\ngeometric mean of {name}: {math.exp(sum(map(math.log, values)) / len(values)):.3f}"
            )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=["train", "table"])
    parser.add_argument("--hold-out", default="", choices=["", *FAMILIES])
    parser.add_argument("-o", "--output", type=Path)
    parser.add_argument("--updates", type=int, default=400)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--most-minutes", type=float, default=5.0)
    parser.add_argument(
        "--zero-shot-only", action="store_true", help="of the table: ask the policies, train nothing"
    )
    given = parser.parse_args()
    RESULTS.mkdir(exist_ok=True)
    if given.what == "table":
        table(given.most_minutes, given.seed, given.zero_shot_only)
        return
    name = f"without-{given.hold_out}" if given.hold_out else "gdp"
    output = given.output or RESULTS / f"{name}.safetensors"
    if not train(given.hold_out, output, given.updates, given.seed, given.most_minutes):
        raise SystemExit(3)


if __name__ == "__main__":
    main()
