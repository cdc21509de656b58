"""What is run: one function per kind of cell, and the list of all cells."""

from __future__ import annotations

import re
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from ir_models import IR_MODELS
from suite import GRAPHS, HERE, SEQUENTIAL, mixed, plain, resnet50, resnet50_ir

from stead.costs import Costs
from stead.learn.ground.ablation import varied
from stead.learn.ground.policy import NetworkPolicy
from stead.learn.ground.solver import Patience, train_policy
from stead.learn.ground.task import Start
from stead.learn.ground.torch_state import one_thread
from stead.learn.ground.training_run import Run
from stead.learn.hsdag.coarsening import coarsened
from stead.learn.hsdag.method import HSDAG
from stead.learn.hsdag.published import Misplacing, PublishedLoop
from stead.problem import Problem
from stead.sim import simulate_many
from stead.solvers import Budget, solver

TESTS = {  # checks that are tests: file, and words of which a test has one in its name
    "H2 placements by name": ("learn/test_hsdag_models.py", "by_name"),
    "H3 min-cut against brute force": ("solvers/test_mincut.py", "two_devices"),
    "H4 charging every edge is wrong": ("solvers/test_mincut.py", "paid_once"),
    "H6 three devices against brute force": ("solvers/test_mincut.py", "three_devices or exchanges"),
    "H8 determinism": ("learn/test_hsdag.py", "both_ways or another_process or same_bits or same_seed"),
    "H11 never worse than one device": ("learn/test_hsdag.py", "one_device"),
    "H15 masks and memory": (
        "learn/test_hsdag.py",
        "forbidden or fits or fit_teach or common_device or memory",
    ),
    "H16 50,000 nodes": ("learn/test_hsdag.py", "fifty_thousand"),
}
SEEDS = 10
MISPLACED_SEEDS = 5  # of the published loop with operators out of order
OPTIONS = {  # off by default
    "iterative": varied(HSDAG(), iterative=True),
    "walks of 8 steps": varied(HSDAG(), walks=8),
    "patience of 5 updates": HSDAG(patience=5),
}
MEASURED = 10  # placements that are measured at the end
ERROR = 0.2  # standard deviation of the logarithm of what the simulator's seconds are wrong by there


def learned(
    problem: Problem, options: HSDAG, seeds: range, evaluations: int = 500, *, misplaced: bool = False
) -> list[dict[str, Any]]:
    """Best sample and preferred placement of every seed, after so many placements; or with operators out of order."""
    found = []
    for seed in seeds:
        begin = time.process_time()
        with one_thread():
            own = varied(options, threads=1).learner([problem], seed, [Start.of(problem)])
            task, patience = own.tasks[0], Patience(options.patience)
            if misplaced:
                task.scorer = Misplacing(problem, task.grouping, threads=1)
            for _ in range(evaluations // own.evaluations_per_update):
                own.update()
                if patience.ends(task):
                    break
            spent, scored = time.process_time() - begin, task.scorer
            row = {"seed": seed, "best": scored.best_seconds * 1e3, "simulated": scored.evaluations}
            row["hits"] = scored.hits
            row["greedy"] = float(scored.score(own.greedy(task)[None, :]).seconds[0]) * 1e3
        row["cpu_seconds"] = spent
        row["updates"] = own.version
        if isinstance(own, PublishedLoop):
            row["groups"] = np.bincount(own.counts).tolist()
            row["rejected"] = own.rejected / len(own.counts)
            row["evaluation_groups"] = len(np.unique(own.groups(task)))
        found.append(row)
    return found


def chunks(problem: Problem, seeds: range, evaluations: int = 500) -> list[dict[str, Any]]:
    """Best of random placements in 2 to 8 runs of the topological order."""
    found, count = [], len(problem.graph)
    for seed in seeds:
        rng = np.random.default_rng(seed)
        rows = np.empty((evaluations, count), dtype=np.uint8)
        for row in rows:
            cuts = np.sort(rng.choice(np.arange(1, count), int(rng.integers(1, 8)), replace=False))
            label = np.searchsorted(cuts, np.arange(count), side="right")
            row[:] = rng.integers(len(problem.cluster), size=len(cuts) + 1)[label]
        found.append({"seed": seed, "best": float(simulate_many(problem, rows).seconds.min()) * 1e3})
    return found


def measured_last(problem: Problem, seeds: range) -> list[dict[str, Any]]:
    """What the simulator likes best, and the fastest of its favourites, where it is wrong about every operator."""
    found = []
    for seed in seeds:
        factor = np.exp(ERROR * np.random.default_rng((seed, 1)).standard_normal(problem.costs.seconds.shape))
        given = problem.costs
        costs = Costs(
            problem.graph, problem.cluster, given.seconds * factor, tensor_seconds=given.tensor_seconds
        )
        real = Problem(problem.graph, problem.cluster, costs, objective=SEQUENTIAL)
        with one_thread():
            own = HSDAG(threads=1).learner([problem], seed, [Start.of(problem)])
            for _ in range(HSDAG().updates):
                own.update()
        timed = own.tasks[0].scorer.final_measure(
            lambda rows, real=real: simulate_many(real, rows).seconds, MEASURED
        )
        liked = min(timed, key=lambda one: one.simulated_seconds)
        found.append(
            {
                "seed": seed,
                "liked": liked.seconds * 1e3,
                "best": timed[0].seconds * 1e3,
                "exact": solver("mincut").solve(real, Budget(), 0).objective_seconds * 1e3,
            }
        )
    return found


def rivals(problem: Problem, cpu_seconds: float) -> dict[str, Any]:
    """What does not learn; searches get the CPU seconds that learning took."""
    found: dict[str, Any] = {}
    names = [f"single:{name}" for name in problem.cluster.names]
    for name in [*names, "greedy-support", "heft", "climb", "auto", "mincut"]:
        own = solver(name)
        if own.unsupported(problem) is not None:
            continue
        begin = time.process_time()
        solution = own.solve(problem, Budget(seconds=cpu_seconds), 0)
        found[name] = {
            "ms": solution.objective_seconds * 1e3,
            "bound": solution.bound_seconds * 1e3,
            "cpu_seconds": time.process_time() - begin,
        }
    return found


def table_cell(make: Callable[[], Problem], seeds: range) -> dict[str, Any]:
    problem = make()
    rows = learned(problem, HSDAG(), seeds)
    return {
        "operators": len(problem.graph),
        "coarsening": coarsened(problem, "lossless", most=2048)[1],
        "learned": rows,
        "rate 0": learned(problem, HSDAG(learning_rate=0.0), seeds),
        "rivals": rivals(problem, statistics.median(row["cpu_seconds"] for row in rows)),
    }


def transfer(seed: int, updates: int) -> dict[str, Any]:
    """Train on two of the three models, place the third without training."""
    found = {}
    for held in IR_MODELS:
        problems = [mixed(name) for name in IR_MODELS if name != held]
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "p.safetensors"
            train_policy(HSDAG(), problems, ["a", "b"], Run(file, updates), seed=seed)
            policy = NetworkPolicy.load(file, HSDAG)
        unseen = mixed(held)
        fresh = NetworkPolicy(HSDAG(), HSDAG().network(2, seed), 2)
        row = {}
        for name, one in (("trained", policy), ("untrained", fresh)):
            proposal = one.propose(unseen, 65, seed)
            seconds = simulate_many(unseen, proposal.placements).seconds * 1e3
            row[name] = {"greedy": float(seconds[0]), "best of 64": float(seconds[1:].min())}
        singles = [float(total) * 1e3 for total in unseen.costs.seconds.sum(axis=0)]
        exact = solver("mincut").solve(unseen, Budget(), 0).objective_seconds * 1e3
        found[held] = {**row, "single": min(singles), "exact": exact}
    return found


def tested(file: str, words: str) -> dict[str, Any]:
    """Passed and failed tests of a file."""
    command = [sys.executable, "-m", "pytest", "-o", "addopts=-q", "-p", "no:cacheprovider", "-k", words]
    begin = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
    run = subprocess.run(
        [*command, f"tests/{file}"], cwd=HERE.parents[1], capture_output=True, text=True, check=False
    )
    counted = {
        what: int(number) for number, what in re.findall(r"(\d+) (passed|failed|error|skipped)", run.stdout)
    }
    spent = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - begin
    return {**counted, "exit_code": run.returncode, "cpu_seconds": spent}


def cells(quick: bool) -> dict[str, Callable[[], Any]]:
    many = range(2 if quick else SEEDS)
    work: dict[str, Callable[[], Any]] = {}
    for graph, make in GRAPHS.items():
        for features in ("cost", "structure"):
            for grouping in ("learned", "none"):
                for rate in (-1.0, 0.0):
                    options = varied(HSDAG(learning_rate=rate), features=features, grouping=grouping)
                    name = f"ablation {graph} {features} {grouping} {'0' if rate == 0 else 'lr'}"
                    work[name] = lambda make=make, options=options: learned(make(), options, many)
        work[f"chunks {graph}"] = lambda make=make: chunks(make(), many)
        for encoder in ("gat", "gin"):
            options = varied(HSDAG(), encoder=encoder)
            work[f"encoder {graph} {encoder}"] = lambda make=make, options=options: learned(
                make(), options, many
            )
        for name, options in OPTIONS.items():
            for rate in (-1.0, 0.0):
                own = varied(options, learning_rate=rate)
                work[f"option {graph} {name} {'0' if rate == 0 else 'lr'}"] = lambda make=make, own=own: (
                    learned(make(), own, many)
                )
        work[f"measured last {graph}"] = lambda make=make: measured_last(make(), many)
    for name in IR_MODELS:
        for kind, made in (("plain", plain), ("mixed", mixed)):
            work[f"table {name} {kind}"] = lambda made=made, name=name: table_cell(lambda: made(name), many)
    work["long"] = lambda: learned(resnet50(), HSDAG(), many, 400 if quick else 2000)
    work["devices 3"] = lambda: learned(resnet50("f32 mixed third"), HSDAG(), many)
    amount = 100 if quick else 500
    for name, options in (
        ("lr", HSDAG(variant="faithful")),
        ("0", HSDAG(variant="faithful", learning_rate=0.0)),
        ("index order", HSDAG(variant="faithful")),
    ):
        seeds = range(MISPLACED_SEEDS) if name == "index order" and not quick else many
        work[f"published {name}"] = lambda options=options, seeds=seeds, wrong=name == "index order": learned(
            resnet50_ir(), options, seeds, amount, misplaced=wrong
        )
    for name, (file, words) in TESTS.items():
        work[f"tests {name.split()[0]} {name.split()[1]}"] = lambda file=file, words=words: tested(
            file, words
        )
    work["transfer"] = lambda: transfer(0, 5 if quick else 100)
    return work
