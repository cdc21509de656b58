"""Train the policy that comes with the package, and hold families out to see what transfers.

    python experiments/pretrain/run.py train [--hold-out FAMILY] [-o FILE] [--updates 50] [--seed 0] [--most-minutes 5]
    python experiments/pretrain/run.py table [--only PART] [--seeds 3] [--most-minutes 5]

`train` goes on from its checkpoint; run it again until it says that it is done. `table` asks the policy trained without
a family about graphs of that family, larger than any in training and on another cluster, and keeps what it has in
results/transfer.json; results/README.md has the table and the checks.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from data import FAMILIES, rows_without
from suite import EXPERTS, GDP12, Instance, rule_seconds
from transfer import Cell, Cells, told

from stead.learn.gdp import GDP
from stead.learn.policy import NetworkPolicy
from stead.learn.runs import Run, Trainee, progress_line
from stead.learn.solver import Start, train_policy
from stead.learn.state import one_thread
from stead.learn.trainer import Learner, Metrics
from stead.problem import Problem
from stead.sim import simulate_many
from stead.sim.bounds import best_bound
from stead.solvers import Budget, solver

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "results"
OPTIONS = GDP(
    policy="",
    level="unit",
    positions=False,
    ordinals=False,
    imitation=900,
    samples=64,
    copies="cut",
    threads=1,
    priorities=False,
)  # without positions: forty time steps are to look like the ten it was trained on; the same for numbers of devices
EVERY = 25  # updates between checkpoints
TUNED = 50  # updates of fine-tuning
ASKED = 64  # samples of zero-shot
SAMPLES = 128  # of one update of fine-tuning
TRANSFORMERS = (
    Instance("BERT-large", "zoo:bert-large?phase=train", 4),
    Instance("GPT-2 medium", "zoo:gpt2-medium?phase=train", 4),
    Instance("T5-base", "zoo:t5-base?phase=train", 2),
)
NAMES = {  # graphs of gdp12 by the family that they belong to
    "rnnlm": "RNNLM", "gnmt": "GNMT", "transformer-xl": "Transformer-XL", "inception": "Inception",
    "wavenet": "WaveNet", "searched cells": "AmoebaNet",
}  # fmt: skip
TESTS: dict[str, tuple[Instance, ...]] = {
    **{family: tuple(one for one in GDP12 if one.name.startswith(name)) for family, name in NAMES.items()},
    "transformers": TRANSFORMERS,
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
        task = own.tasks[0]
        task.greedy_seconds = float(task.scorer.score(own.greedy(task)[None, :]).seconds[0])
    return own


def ruled(family: str, one: Instance, seed: int) -> Cell:
    """What takes no policy."""
    problem = one.problem()
    known = rule_seconds(problem, (*EXPERTS, "single", "chunks", "heft"))
    return {
        "expert": min(known[name] for name in EXPERTS), "single": known["single"], "chunks": known["chunks"],
        "heft": known["heft"], "bound": best_bound(problem).seconds, "operators": len(problem.graph),
        "devices": one.devices,
    }  # fmt: skip


def asked(family: str, one: Instance, seed: int) -> Cell:
    """One pass of the policy that never saw the family, beside a network that learnt nothing."""
    problem, policy = one.problem(), NetworkPolicy.load(policy_file(family), GDP)
    begin = time.process_time()
    proposal = policy.propose(problem, ASKED, seed)
    spent = time.process_time() - begin
    seconds = seconds_of(problem, proposal.placements)
    random = NetworkPolicy(policy.method, policy.method.network(2, seed + 1000), 2)
    blind = seconds_of(problem, random.propose(problem, ASKED, seed).placements)
    return {
        "greedy": float(seconds[0]), "best": float(seconds.min()), "cpu_seconds": spent,
        "untrained_greedy": float(blind[0]), "untrained_best": float(blind.min()),
    }  # fmt: skip


def tuned(family: str, one: Instance, seed: int, *, scratch: bool = False) -> Cell:
    """Fifty updates from the policy, or from random weights."""
    problem, path = one.problem(), policy_file(family)
    known = rule_seconds(problem, ("expert", "single"))
    start = {name: seconds for name, seconds in known.items() if math.isfinite(seconds)}
    same: dict[str, Any] = NetworkPolicy.load(path, GDP).method.network_options()
    options = GDP(
        **same, imitation=0, copies="", threads=1, samples=SAMPLES, policy="" if scratch else str(path)
    )
    begin = time.process_time()
    own = learnt(options, problem, start, seed)
    return {
        "greedy": own.tasks[0].greedy_seconds, "best": own.tasks[0].scorer.best_seconds,
        "evaluations": own.evaluations, "cpu_seconds": time.process_time() - begin,
    }  # fmt: skip


def from_scratch(family: str, one: Instance, seed: int) -> Cell:
    """The same updates from random weights."""
    return tuned(family, one, seed, scratch=True)


def searched(family: str, one: Instance, seed: int) -> Cell:
    """Local search with as many evaluations as fine-tuning may use at most."""
    begin = time.process_time()
    found = solver("search").solve(one.problem(), Budget(evaluations=TUNED * (SAMPLES + 1)), seed)
    return {"best": found.objective_seconds, "cpu_seconds": time.process_time() - begin}


PARTS: dict[str, Callable[[str, Instance, int], Cell]] = {
    "rules": ruled, "zero-shot": asked, "fine-tuned": tuned, "scratch": from_scratch, "search": searched,
}  # fmt: skip


def policy_file(family: str) -> Path:
    """The policy that never saw a family."""
    return RESULTS / f"without-{family.replace(' ', '-')}.safetensors"


def table(most_minutes: float, seeds: int, only: list[str]) -> None:
    """Compute the cells that are missing, part by part, and write the tables."""
    begin, kept = time.monotonic(), RESULTS / "transfer.json"
    cells: Cells = json.loads(kept.read_text()) if kept.exists() else {}
    for part, work in PARTS.items():
        trained = part in ("fine-tuned", "scratch")
        for seed, (family, tests) in product(range(seeds if trained else 1), TESTS.items()):
            for one in tests:
                key = f"{one.name}, seed {seed}"
                if (only and part not in only) or key in cells.setdefault(part, {}):
                    continue
                if part not in ("rules", "search") and not policy_file(family).exists():
                    print(f"no policy without {family} yet: python {sys.argv[0]} train --hold-out {family!r}")
                    continue
                if time.monotonic() - begin > 60 * most_minutes:
                    print("out of time; run it again to go on")
                    return
                cells[part][key] = work(family, one, seed)
                kept.write_text(json.dumps(cells, indent=1))
                print(f"{part}, {key}: {cells[part][key]}", flush=True)
    (RESULTS / "README.md").write_text(told(TESTS, cells))
    print(told(TESTS, cells))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=["train", "table"])
    parser.add_argument("--hold-out", default="", choices=["", *FAMILIES])
    parser.add_argument("-o", "--output", type=Path)
    parser.add_argument("--updates", type=int, default=50)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--most-minutes", type=float, default=5.0)
    parser.add_argument("--seeds", type=int, default=3, help="of fine-tuning")
    parser.add_argument("--only", action="append", default=[], choices=[*PARTS], help="a part of the table")
    given = parser.parse_args()
    RESULTS.mkdir(exist_ok=True)
    if given.what == "table":
        table(given.most_minutes, given.seeds, given.only)
        return
    output = given.output or (policy_file(given.hold_out) if given.hold_out else RESULTS / "gdp.safetensors")
    if not train(given.hold_out, output, given.updates, given.seed, given.most_minutes):
        raise SystemExit(3)


if __name__ == "__main__":
    main()
