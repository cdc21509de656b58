"""Train the policy that comes with the package, and hold families out to see what transfers.

    python experiments/pretrain/run.py train [--hold-out FAMILY] [-o FILE] [--updates 50] [--seed 0] [--most-minutes 5]
    python experiments/pretrain/run.py table [--only PART] [--seeds 3] [--most-minutes 5]
    python experiments/pretrain/run.py size

`train` goes on from its checkpoint; run it again until it says that it is done. `table` asks the policy trained without
a family about graphs of that family, larger than any in training and on another cluster, and keeps what it has in
results/transfer.json; results/README.md has the table and the checks. `size` times one pass over 50,000 operators.
"""

from __future__ import annotations

import argparse
import json
import math
import resource
import statistics
import sys
import time
from collections.abc import Callable
from functools import partial
from itertools import product
from pathlib import Path

import numpy as np
import torch
from data import FAMILIES, rows_without
from suite import EXPERTS, GDP12, Instance, equal, rule_seconds
from training import trained
from transfer import Cell, Cells, told

from stead.learn.gdp.method import GDP, SHIPPED, nearest
from stead.learn.gdp.network import GraphInputs, GraphPlacer
from stead.learn.ground.ablation import varied
from stead.learn.ground.one_shot import OneShot
from stead.learn.ground.policy import NetworkPolicy
from stead.learn.ground.task import Start
from stead.learn.ground.torch_state import one_thread
from stead.placing.loading import load
from stead.problem import Latency, Problem
from stead.sim import simulate_many
from stead.sim.bounds import best_bound
from stead.solvers import Budget, solver

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "results"
CELLS = RESULTS / "transfer.json"
OPTIONS = varied(
    GDP(),
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
PASSES = 7  # that are timed
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


def seconds_of(problem: Problem, placements: np.ndarray) -> np.ndarray:  # type: ignore[type-arg]
    """Seconds of rows; inf where they do not fit."""
    scores = simulate_many(problem, placements, threads=1)
    return np.where(scores.feasible, scores.seconds, np.inf)


def learnt(options: GDP, problem: Problem, known: dict[str, float], seed: int) -> OneShot[GraphInputs]:
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
    """One pass of the policy that never saw the family; the cut that it sees; a network that learnt nothing."""
    problem, policy = one.problem(), NetworkPolicy.load(policy_file(family), GDP)
    begin = time.process_time()
    proposal = policy.propose(problem, ASKED, seed)
    spent = time.process_time() - begin
    seconds = seconds_of(problem, proposal.placements)
    random = NetworkPolicy(policy.method, policy.method.network(2, seed + 1000), 2)
    blind = seconds_of(problem, random.propose(problem, ASKED, seed).placements)
    grouping, inputs = policy.method.inputs(problem)
    cut = seconds_of(problem, grouping.lift(nearest(inputs)[None]))
    return {
        "greedy": float(seconds[0]), "best": float(seconds.min()), "cpu_seconds": spent, "cut": float(cut[0]),
        "untrained_greedy": float(blind[0]), "untrained_best": float(blind.min()),
    }  # fmt: skip


def packaged(family: str, one: Instance, seed: int) -> Cell:
    """The policy of the package, which saw smaller graphs of the family."""
    problem = one.problem()
    seconds = seconds_of(problem, NetworkPolicy.load(SHIPPED, GDP).propose(problem, ASKED, seed).placements)
    return {"greedy": float(seconds[0]), "best": float(seconds.min())}


def tuned(family: str, one: Instance, seed: int, *, scratch: bool = False) -> Cell:
    """Fifty updates from the policy, or from random weights."""
    problem = one.problem()
    known = rule_seconds(problem, ("expert", "single"))
    start = {name: seconds for name, seconds in known.items() if math.isfinite(seconds)}
    path = "" if scratch else str(policy_file(family))
    options = varied(OPTIONS, imitation=0, copies="", samples=SAMPLES, policy=path)
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
    "rules": ruled, "package": packaged, "zero-shot": asked, "fine-tuned": tuned, "scratch": from_scratch,
    "search": searched,
}  # fmt: skip


def policy_file(family: str) -> Path:
    """The policy that never saw a family."""
    return RESULTS / f"without-{family.replace(' ', '-')}.safetensors"


def table(most_minutes: float, seeds: int, only: list[str]) -> None:
    """Compute the cells that are missing, part by part, and write the tables."""
    begin = time.monotonic()
    for part, work in PARTS.items():
        trained = part in ("fine-tuned", "scratch")
        for seed, (family, tests) in product(range(seeds if trained else 1), TESTS.items()):
            for one in tests:
                key = f"{one.name}, seed {seed}"
                if (only and part not in only) or key in kept().get(part, {}):
                    continue
                if part in ("zero-shot", "fine-tuned") and not policy_file(family).exists():
                    print(f"no policy without {family} yet: python {sys.argv[0]} train --hold-out {family!r}")
                    continue
                if time.monotonic() - begin > 60 * most_minutes:
                    print("out of time; run it again to go on")
                    return
                cell = work(family, one, seed)
                cells = kept()
                cells.setdefault(part, {})[key] = cell
                CELLS.write_text(json.dumps(cells, indent=1) + "\n")
                print(f"{part}, {key}: {cell}", flush=True)
    (RESULTS / "README.md").write_text(told(TESTS, kept()))
    print(told(TESTS, kept()))


def kept() -> Cells:
    """The cells that are done."""
    return json.loads(CELLS.read_text()) if CELLS.exists() else {}


def size() -> None:
    """CPU seconds of one pass and of an update on large graphs, medians, and the memory of the process, as a table."""
    graphs = (
        ("LSTM grid", "zoo:lstm-grid?operators=50000,phase=train", 4),
        ("GNMT-8, 80 steps", "zoo:gnmt-8?steps=80,phase=train", 8),
    )
    passes = ("operator", False), ("operator", True), ("unit", True)  # nodes, whether with priorities
    print(
        "| graph | operators | units | features | pass on operators | the same with priorities | pass on units | "
        "update on units | asked for a placement | its time over the expert's | peak, GiB |"
    )
    print("|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|")
    for name, model, devices in graphs:
        problem = load(model, equal(devices)).problem(Latency())
        with one_thread():
            begin = time.process_time()
            varied(GDP(), level="operator").inputs(problem)
            spent = [time.process_time() - begin]
            for level, priorities in passes:
                options = varied(
                    GDP(),
                    policy="", level=level, priorities=priorities, imitation=0, copies="", threads=1
                )
                grouping, inputs = options.inputs(problem)
                spent.append(median_seconds(partial(asked_once, options.network(0, 0), inputs), PASSES))
            own = options.learner([problem], 0, [Start.of(problem)])
            spent.append(median_seconds(own.update, 3))
        begin = time.process_time()
        found = GDP(decoder="devices", polish=False, threads=1).solve(problem, Budget())
        spent.append(time.process_time() - begin)
        spent.append(found.objective_seconds / solver("expert").solve(problem, Budget()).objective_seconds)
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
        numbers = [f"{one:.2f}" for one in (*spent, peak)]
        print(f"| {name} | {len(problem.graph):,} | {grouping.count} | {' | '.join(numbers)} |", flush=True)


def asked_once(network: GraphPlacer, inputs: GraphInputs) -> None:
    """One pass, and 16 samples from what it gives."""
    network.sample(inputs, 16, torch.Generator().manual_seed(0), greedy=True)


def median_seconds(work: Callable[[], object], times: int) -> float:
    """CPU seconds."""
    spent = []
    for _ in range(times):
        begin = time.process_time()
        work()
        spent.append(time.process_time() - begin)
    return statistics.median(spent)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=["train", "table", "size"])
    parser.add_argument("--hold-out", default="", choices=["", *FAMILIES])
    parser.add_argument("-o", "--output", type=Path)
    parser.add_argument("--updates", type=int, default=50)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--most-minutes", type=float, default=5.0)
    parser.add_argument("--seeds", type=int, default=3, help="of fine-tuning")
    parser.add_argument("--only", action="append", default=[], choices=[*PARTS], help="a part of the table")
    given = parser.parse_args()
    RESULTS.mkdir(exist_ok=True)
    if given.what == "size":
        size()
        return
    if given.what == "table":
        table(given.most_minutes, given.seeds, given.only)
        return
    output = given.output or (policy_file(given.hold_out) if given.hold_out else RESULTS / "gdp.safetensors")
    done = trained(
        OPTIONS, rows_without(given.hold_out), output,
        updates=given.updates, seed=given.seed, most_minutes=given.most_minutes, every=EVERY,
    )  # fmt: skip
    raise SystemExit(0 if done else 3)


if __name__ == "__main__":
    main()
