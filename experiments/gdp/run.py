"""GDP on the graphs of its paper: tables against expert, METIS, search and the bound, and the checks that follow.

    python experiments/gdp/run.py [--quick] [--only PART] [--seeds 3] [--seconds 30] [--most-minutes 1000]

Parts: rules, gdp, rivals, hdp, zero-shot, pretrained, ablations, zero-rate, reference. Every cell is kept in
results/cells.json as soon as it is done and is skipped when the command is given again; results/README.md has the
tables. The process keeps to one core; learning uses --seconds of CPU time, polish gets half as much on top, rivals as
much as both together. Limits of wall time are stretched by what a busy machine takes.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from suite import EXPERTS, GDP12, Instance, equal, rule_seconds, unlimited_single_seconds
from tables import geometric, told

from stead.errors import Infeasible, SteadError
from stead.learn.gdp import GDP, SHIPPED
from stead.learn.policy import NetworkPolicy
from stead.learn.solver import Start
from stead.learn.state import one_thread
from stead.learn.trainer import Learner
from stead.loading import load
from stead.problem import Latency, Placement, Problem
from stead.sim import simulate_many
from stead.sim.bounds import best_bound
from stead.solvers import Budget, solver
from stead.solvers.base import REGISTRY, Search
from stead.solvers.search import LocalSearch, schedule_of

RESULTS = Path(__file__).resolve().parent / "results"
RULES = ("single", "metis", "heft", "multilevel", "chunks")
RIVALS = ("search", "auto")
ONE = GDP(policy="", threads=1, polish=False)
ABLATIONS: dict[str, dict[str, Any]] = {
    "whole": {}, "without attention": {"attention": False}, "without superposition": {"superposition": False},
}  # fmt: skip
BATCH = (  # of the ablations: three families, trained together
    "zoo:rnnlm-2?steps=10,phase=train", "zoo:transformer-xl-2?phase=train", "zoo:wavenet-2x18?phase=train",
)  # fmt: skip
BLIND = ("RNNLM-2", "GNMT-2", "Inception-v3")  # on which learning is compared with learning rate 0
BLIND_UPDATES, BLIND_SAMPLES = 40, 64
REFERENCES = {  # graph, options, value over a single device that is to be reached, largest seconds
    "RNNLM-2 from scratch": ("RNNLM-2", {"imitation": 0}, 0.70, 120.0),
    "RNNLM-2 after the expert": ("RNNLM-2", {"copies": "expert"}, 0.615, 120.0),
    "Inception-v3 from scratch": ("Inception-v3", {"imitation": 0}, 0.85, 60.0),
    "GNMT-4 from scratch": ("GNMT-4", {"imitation": 0}, 0.64, 120.0),
}  # fmt: skip
Cell = dict[str, Any]


def wall_seconds(seconds: float) -> float:
    """As many seconds of wall time as so many of CPU time take on a busy machine, tried out just before."""
    wall, cpu = time.monotonic(), time.process_time()
    while time.process_time() - cpu < 0.2:
        pass
    return seconds * max(1.0, (time.monotonic() - wall) / 0.2)


def polished(problem: Problem, devices: np.ndarray, seconds: float, seed: int) -> float:  # type: ignore[type-arg]
    """What local search makes of a placement in so many seconds."""
    search = Search(problem, Budget(seconds=wall_seconds(seconds)), solver="polish", seed=seed)
    search.offer(devices, found_by="policy")
    start = schedule_of(Placement(problem, devices), "policy")
    LocalSearch().improve(search, [start])
    return search.best_seconds


def begun(options: GDP, problem: Problem, seed: int) -> Learner:
    return options.learner([problem], seed, [Start.of(problem)])


def gdp_one(instance: Instance, seed: int, seconds: float) -> Cell:
    """Train on one graph; constructions, greedy, best sample and polish apart."""
    problem = instance.problem()
    begin = time.process_time()
    with one_thread():
        own = begun(ONE, problem, seed)
        task = own.tasks[0]
        copied = task.scorer.best_seconds
        if task.target is not None:
            copied = float(task.scorer.score(own.rows(task, torch.from_numpy(task.target[None]))).seconds[0])
        task.scorer.best, task.scorer.best_seconds = None, math.inf  # from here on: what the policy finds
        setup = time.process_time() - begin
        while time.process_time() - begin < seconds:
            own.update()
        greedy = own.greedy(task)
        found = float(task.scorer.score(greedy[None, :]).seconds[0])
    spent = time.process_time() - begin
    best = task.elites.rows[0] if task.elites.rows else greedy
    after = polished(problem, task.grouping.lift(best), seconds / 2, seed)
    return {
        "units": task.grouping.count, "copied": copied, "greedy": found, "greedy_devices": len(np.unique(greedy)),
        "sampled": task.scorer.best_seconds, "best": min(task.elites.seconds, default=found), "polished": after,
        "kept_greedy": own.kept_ratio * task.reward.reference_seconds, "setup_cpu_seconds": setup,
        "cpu_seconds": spent, "all_cpu_seconds": time.process_time() - begin, "updates": own.version,
        "evaluations": own.evaluations, "alarms": own.alarms,
    }  # fmt: skip


def rival(name: str, instance: Instance, seed: int, seconds: float) -> Cell:
    """Another solver with the seconds of learning and polish together."""
    problem = instance.problem()
    begin = time.process_time()
    found = solver(name).solve(problem, Budget(seconds=wall_seconds(1.5 * seconds)), seed)
    return {
        "value": found.objective_seconds, "evaluations": found.evaluations, "cpu_seconds": time.process_time() - begin,
    }  # fmt: skip


def hdp(instance: Instance, seed: int, seconds: float) -> Cell:
    """HDP with the seconds of learning, then with polish."""
    problem = instance.problem()
    begin = time.process_time()
    found = solver("hdp", polish=False).solve(problem, Budget(seconds=wall_seconds(seconds)), seed)
    spent = time.process_time() - begin
    return {
        "value": found.objective_seconds, "evaluations": found.evaluations, "cpu_seconds": spent,
        "polished": polished(problem, found.placement.devices, seconds / 2, seed),
        "trail": [[step.evaluations, step.objective_seconds] for step in found.trail],
    }  # fmt: skip


def pretrained(instance: Instance, seed: int) -> Cell:
    """The policy of the package: asked once, then fine-tuned; constructions play no part."""
    problem = instance.problem()
    with one_thread():
        begin = time.process_time()
        same: dict[str, Any] = NetworkPolicy.load(SHIPPED, GDP).method.network_options()
        options = GDP(**same, policy=str(SHIPPED), imitation=0, copies="", threads=1)
        own = options.learner([problem], seed, [Start(Start.of(problem).known, None)])
        task, trail = own.tasks[0], []
        zero = float(task.scorer.score(own.greedy(task)[None, :]).seconds[0])
        trail.append([own.evaluations, zero])
        asked = time.process_time() - begin
        while own.version < 50:
            own.update()
            trail.append([own.evaluations, task.scorer.best_seconds])
        spent = time.process_time() - begin
    return {
        "zero_shot": zero, "fine_tuned": task.scorer.best_seconds, "zero_shot_cpu_seconds": asked, "cpu_seconds": spent,
        "trail": trail,
    }  # fmt: skip


def zero_shot(instance: Instance) -> Cell:
    """The policy of the package asked once, beside a network that learnt nothing."""
    problem, own = instance.problem(), NetworkPolicy.load(SHIPPED, GDP)
    blind = NetworkPolicy(own.method, own.method.network(2, 1000), 2)
    found = []
    for policy in (own, blind):
        scores = simulate_many(problem, policy.propose(problem, 64, 0).placements, threads=1)
        found.append(np.where(scores.feasible, scores.seconds, np.inf))
    return {
        "greedy": float(found[0][0]), "best_of_64": float(found[0].min()),
        "untrained_best_of_64": float(found[1].min()),
    }  # fmt: skip


def ablation(name: str, seed: int, updates: int) -> Cell:
    """Batch training without one part; mean of greedy seconds over the expert's."""
    problems = [load(model, equal(2)).problem(Latency()) for model in BATCH]
    options = replace(
        ONE, level="unit", samples=64, imitation=updates // 2, copies="expert", **ABLATIONS[name]
    )
    with one_thread():
        own = options.learner(problems, seed, [Start.of(problem) for problem in problems])
        begin = time.process_time()
        while own.version < updates:
            own.update()
        spent = time.process_time() - begin
        greedy = [float(task.scorer.score(own.greedy(task)[None, :]).seconds[0]) for task in own.tasks]
    ratios = [seconds / task.known["expert"] for seconds, task in zip(greedy, own.tasks, strict=True)]
    best = [task.scorer.best_seconds / task.known["expert"] for task in own.tasks]
    return {"greedy": geometric(ratios), "best": geometric(best), "cpu_seconds": spent, "updates": updates}


def zero_rate(instance: Instance, rate: float, seed: int) -> Cell:
    """Best sample of so many updates without imitation."""
    problem = instance.problem(limited=False)
    options = replace(ONE, level="unit", imitation=0, samples=BLIND_SAMPLES, learning_rate=rate)
    with one_thread():
        own = begun(options, problem, seed)
        while own.version < BLIND_UPDATES:
            own.update()
    return {"best": own.tasks[0].scorer.best_seconds, "evaluations": own.evaluations}


def reference(name: str, seed: int, share: float) -> Cell:
    """Train until a value is reached or the seconds are over; without memory limits."""
    graph, options, goal, limit = REFERENCES[name]
    problem = next(one for one in GDP12 if one.name == graph).problem(limited=False)
    single = unlimited_single_seconds(problem)
    needs_greedy = "copies" in options
    begin = time.process_time()
    with one_thread():
        own = begun(replace(ONE, level="unit", **options), problem, seed)
        task = own.tasks[0]
        task.scorer.best, task.scorer.best_seconds = None, math.inf
        greedy = math.inf
        while time.process_time() - begin < share * limit:
            own.update()
            greedy = (
                min(greedy, task.greedy_seconds / single) if own.version > own.training.imitation else greedy
            )
            if task.scorer.best_seconds <= goal * single and (not needs_greedy or greedy <= 0.627):
                break
    return {
        "best": task.scorer.best_seconds / single, "greedy": greedy, "goal": goal,
        "cpu_seconds": time.process_time() - begin,
        "evaluations": own.evaluations, "limit_seconds": share * limit,
    }  # fmt: skip


# Cells


def plain(cell: Cell) -> Cell:
    """As JSON has it: what does not fit is null."""
    return {
        key: None if isinstance(value, float) and math.isinf(value) else value for key, value in cell.items()
    }


def rules(instance: Instance) -> Cell:
    problem = instance.problem()
    found = rule_seconds(problem, (*EXPERTS, *RULES))
    return {
        **found, "bound": best_bound(problem).seconds, "operators": len(problem.graph), "devices": instance.devices,
        "unlimited_single": unlimited_single_seconds(problem),
    }  # fmt: skip


def jobs(given: argparse.Namespace) -> Iterator[tuple[str, str, Callable[[], Cell]]]:
    """(part, key, what to do) of every cell; keys say all that a value depends on."""
    chosen = [one for one in GDP12 if one.quick or not given.quick]
    seconds, seeds = given.seconds, range(given.seeds)
    for one in chosen:
        yield "rules", one.name, lambda one=one: rules(one)
    for seed in seeds:
        for one in chosen:
            key = f"{one.name}, {seconds:g} s, seed {seed}"
            yield "gdp", key, lambda one=one, seed=seed: gdp_one(one, seed, seconds)
    for name in RIVALS:
        for one in chosen:
            key = f"{name}, {one.name}, {seconds:g} s, seed 0"
            yield "rivals", key, lambda one=one, name=name: rival(name, one, 0, seconds)
    if "hdp" in REGISTRY:
        for one in chosen:
            yield "hdp", f"{one.name}, {seconds:g} s, seed 0", lambda one=one: hdp(one, 0, seconds)
    if SHIPPED.exists():
        for one in chosen:
            yield "zero-shot", one.name, lambda one=one: zero_shot(one)
        for one in chosen:
            yield "pretrained", f"{one.name}, seed 0", lambda one=one: pretrained(one, 0)
    updates = 20 if given.quick else 120
    for name in ABLATIONS:
        for seed in seeds:
            key = f"{name}, {updates} updates, seed {seed}"
            yield "ablations", key, lambda name=name, seed=seed: ablation(name, seed, updates)
    for name in BLIND[: 1 if given.quick else None]:
        one = next(each for each in GDP12 if each.name == name)
        for seed in range(2 if given.quick else 5):
            for rate in (1e-3, 0.0):
                key = f"{name}, rate {rate:g}, seed {seed}"
                yield "zero-rate", key, lambda one=one, rate=rate, seed=seed: zero_rate(one, rate, seed)
    for name in () if given.quick else REFERENCES:
        for seed in range(3 if "after" in name else 1):
            key = f"{name}, {given.reference_share:g} of the seconds, seed {seed}"
            yield "reference", key, lambda name=name, seed=seed: reference(name, seed, given.reference_share)


def kept(path: Path) -> dict[str, dict[str, Cell]]:
    """The cells that are done."""
    return json.loads(path.read_text()) if path.exists() else {}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--quick", action="store_true", help="three graphs, seconds each, into results/quick.json"
    )
    parser.add_argument("--only", action="append", default=[], help="a part; may be given repeatedly")
    parser.add_argument("--seconds", type=float, default=30.0, help="of learning per graph")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument(
        "--reference-share", type=float, default=1.0, help="of the seconds of the reference runs"
    )
    parser.add_argument(
        "--most-minutes", type=float, default=1000.0, help="then stop; give the command again to go on"
    )
    given = parser.parse_args()
    if given.quick:
        given.seconds, given.seeds = min(given.seconds, 3.0), 1
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {sorted(os.sched_getaffinity(0))[-1]})
    path = RESULTS / ("quick.json" if given.quick else "cells.json")
    begin = time.monotonic()
    for part, key, work in jobs(given):
        if (given.only and part not in given.only) or key in kept(path).get(part, {}):
            continue
        if time.monotonic() - begin > 60 * given.most_minutes:
            print("out of time; give the command again to go on")
            break
        try:
            cell = plain(work())
        except (Infeasible, SteadError) as error:
            cell = {"error": str(error)}
        cells = kept(path)  # another process may have added to it meanwhile
        cells.setdefault(part, {})[key] = cell
        path.write_text(json.dumps(cells, indent=1))
        print(f"{part}: {key}: {json.dumps(cell)[:160]}", flush=True)
    cells = kept(path)
    text = told(cells)
    print(text)
    if not given.quick:
        (RESULTS / "README.md").write_text(text)


if __name__ == "__main__":
    main()
