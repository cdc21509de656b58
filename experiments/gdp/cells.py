"""What is measured: every function makes one cell, plain data that says how a method did on a graph.

Learning is counted in CPU seconds of this process, from the first construction on. Rivals that only know limits of wall
time get as much of it as so many CPU seconds take on a busy machine.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from suite import EXPERTS, GDP12, Instance, equal, rule_seconds, unlimited_single_seconds
from tables import geometric

from stead.learn.gdp.method import GDP, SHIPPED
from stead.learn.gdp.network import SHARP
from stead.learn.ground.ablation import varied
from stead.learn.ground.losses import Linear
from stead.learn.ground.one_shot import OneShot
from stead.learn.ground.policy import NetworkPolicy
from stead.learn.ground.priorities import MIDDLE
from stead.learn.ground.task import Start, Task
from stead.learn.ground.torch_state import load_network, one_thread
from stead.learn.hdp.method import HDP
from stead.placing.loading import load
from stead.problem import Latency, Placement, Problem
from stead.sim import simulate_many
from stead.sim.bounds import best_bound
from stead.solvers import Budget, solver
from stead.solvers.search.search import ScheduleSearch, schedule_of
from stead.solvers.search_state import Search
from stead.testing import two_towers

Cell = dict[str, Any]
RULES = ("single", "metis", "heft", "multilevel", "chunks")
ONE = GDP(policy="", threads=1, polish=False)
ORDERS = ("priorities", "devices only", "ranks only", "random priorities")  # what GDP decides besides devices
VARIANTS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {  # options of GDP, and of its training
    "whole": ({}, {}),
    "without attention": ({"attention": False}, {}),
    "without superposition": ({"superposition": False}, {}),
    "operators instead of units": ({"actions": "operator"}, {}),
    "without elites": ({}, {"elite_weight": 0.0}),
    "elites however slow": ({}, {"elite_band": Linear(1e9, 1e9)}),
    "PPO weight 1": ({}, {"policy_weight": 1.0}),
    "last network instead of the best": ({}, {"keep_greedy": False}),
    "without imitation": ({"imitation": 0}, {}),
}
BATCH = (  # of the ablations: three families, trained together
    "zoo:rnnlm-2?steps=10,phase=train", "zoo:transformer-xl-2?phase=train", "zoo:wavenet-2x18?phase=train",
)  # fmt: skip
BLIND_SAMPLES = 64
TUNED = 50  # updates of fine-tuning
TIMED_PASSES = 15
# graph, options, value over a single device that is to be reached, largest seconds
REFERENCES: dict[str, tuple[str, dict[str, Any], float, float]] = {
    "RNNLM-2 from scratch": ("RNNLM-2", {"imitation": 0}, 0.70, 120.0),
    "RNNLM-2 after the expert": ("RNNLM-2", {"copies": "expert"}, 0.615, 120.0),
    "Inception-v3 from scratch": ("Inception-v3", {"imitation": 0}, 0.85, 60.0),
    "GNMT-4 from scratch": ("GNMT-4", {"imitation": 0}, 0.64, 120.0),
}  # fmt: skip


def wall_seconds(seconds: float) -> float:
    """As many seconds of wall time as so many of CPU time take on a busy machine, tried out just before."""
    wall, cpu = time.monotonic(), time.process_time()
    while time.process_time() - cpu < 0.2:
        pass
    return seconds * max(1.0, (time.monotonic() - wall) / 0.2)


def warm_up() -> None:
    """What torch does once in a process belongs to no cell."""
    with one_thread():
        begun(varied(ONE, imitation=1), two_towers(), 0).update()


def named(name: str) -> Instance:
    return next(one for one in GDP12 if one.name == name)


def polished(placement: Placement, seconds: float, seed: int) -> float:
    """What local search makes of a placement in so many seconds."""
    search = Search(placement.problem, Budget(seconds=wall_seconds(seconds)), solver="polish", seed=seed)
    search.offer(placement.devices, order=placement.order, found_by="policy")
    ScheduleSearch().improve(search, [schedule_of(placement, "policy")])
    return search.best_seconds


def begun(options: Any, problem: Problem, seed: int) -> OneShot:
    found: OneShot = options.learner([problem], seed, [Start.of(problem)])
    return found


def trained(own: OneShot, more: Callable[[], bool]) -> list[list[float]]:
    """Update while there is more to do; [evaluations, best seconds] whenever something better was drawn."""
    task, trail = own.tasks[0], list[list[float]]()
    task.scorer.own = None  # from here on
    while more():
        own.update()
        if not trail or task.scorer.best_seconds < trail[-1][1]:
            trail.append([own.evaluations, task.scorer.best_seconds])
    return [step for step in trail if math.isfinite(step[1])]


def preferred(own: OneShot, task: Task) -> NDArray[np.uint8]:
    """The row that the network prefers which training keeps."""
    load_network(own.module, own.policy_arrays())
    return own.greedy(task)


def copied_seconds(own: OneShot, task: Task) -> float:
    if task.target is None:
        return task.scorer.best_seconds
    copied = own.rows(task, torch.from_numpy(task.target[None]))
    return float(task.scorer.score(copied, by=task.copied).seconds[0])


def fix_order(own: OneShot, *, random: bool) -> None:
    """Priorities that are not learnt: every class equally likely, or always the middle one."""
    for one in own.network.ordering.parameters():
        one.requires_grad_(False)
    head = own.network.ordering.head
    head.weight.zero_()
    head.bias.zero_()
    if not random:
        head.bias[MIDDLE] = 100.0 / SHARP


def gdp_one(instance: Instance, order: str, seed: int, seconds: float) -> Cell:
    """Train on one graph; constructions, greedy, best sample and polish apart."""
    problem = instance.problem()
    begin = time.process_time()
    with one_thread():
        own = begun(varied(ONE, priorities=order != "devices only"), problem, seed)
        if order in ("ranks only", "random priorities"):
            fix_order(own, random=order == "random priorities")
        task = own.tasks[0]
        copied = copied_seconds(own, task)
        setup = time.process_time() - begin
        trail = trained(own, lambda: time.process_time() - begin < seconds)
        sampled = task.scorer.best_seconds
        greedy = preferred(own, task)
        found = float(task.scorer.score(greedy[None, :]).seconds[0])
    spent = time.process_time() - begin
    best, value = greedy, found
    if task.elites.rows:
        best = own.rows(task, torch.from_numpy(task.elites.rows[0][None, :]))[0]
        value = task.elites.seconds[0]
    after = polished(task.scorer.placement(best), seconds / 2, seed)
    return {
        "units": task.grouping.count, "copied": copied, "greedy": found,
        "greedy_devices": len(np.unique(greedy[: task.grouping.count])), "sampled": sampled, "best": value,
        "polished": min(value, after), "setup_cpu_seconds": setup, "cpu_seconds": spent,
        "all_cpu_seconds": time.process_time() - begin, "updates": own.version, "evaluations": own.evaluations,
        "alarms": own.alarm.raised, "trail": trail,
    }  # fmt: skip


def hdp(instance: Instance, seed: int, seconds: float, *, polish: bool = True) -> Cell:
    """HDP with the seconds of learning, then with polish; its answer is never worse than expert and single devices."""
    problem = instance.problem()
    begin = time.process_time()
    with one_thread():
        start = Start.of(problem)
        own = HDP(threads=1).learner([problem], seed, [start])
        trail = trained(own, lambda: time.process_time() - begin < seconds)
    task, spent = own.tasks[0], time.process_time() - begin
    rows = [Placement(problem, start.best)] if start.best is not None else []
    values = [min(start.known.values())] if rows else []
    if task.scorer.own is not None:
        rows.append(task.scorer.placed(task.scorer.own))
        values.append(task.scorer.best_seconds)
    answer = min(values, default=math.inf)
    after = polished(rows[values.index(answer)], seconds / 2, seed) if rows and polish else math.inf
    return {
        "sampled": task.scorer.best_seconds, "value": answer, "polished": min(answer, after), "cpu_seconds": spent,
        "updates": own.version, "evaluations": own.evaluations, "trail": trail,
    }  # fmt: skip


def rival(name: str, instance: Instance, seed: int, seconds: float) -> Cell:
    """Another solver with the seconds of learning and polish together."""
    problem = instance.problem()
    begin = time.process_time()
    found = solver(name).solve(problem, Budget(seconds=wall_seconds(1.5 * seconds)), seed)
    return {
        "value": found.objective_seconds, "evaluations": found.evaluations, "cpu_seconds": time.process_time() - begin,
    }  # fmt: skip


def tuned(instance: Instance, seed: int, *, scratch: bool) -> Cell:
    """The policy of the package or random weights: asked once, then updated; constructions play no part."""
    problem = instance.problem()
    same: dict[str, Any] = NetworkPolicy.load(SHIPPED, GDP).method.network_options()
    given = {"policy": "" if scratch else str(SHIPPED), "imitation": 0, "copies": "", "threads": 1}
    options = varied(GDP(), **same, **given)
    with one_thread():
        begin = time.process_time()
        own = options.learner([problem], seed, [Start(Start.of(problem).known, None)])
        zero = float(own.tasks[0].scorer.score(own.greedy(own.tasks[0])[None, :]).seconds[0])
        asked = time.process_time() - begin
        trail = trained(own, lambda: own.version < TUNED)
        spent = time.process_time() - begin
    first = [[1, zero]] if math.isfinite(zero) else []
    return {
        "zero_shot": zero, "fine_tuned": min(zero, own.tasks[0].scorer.best_seconds), "zero_shot_cpu_seconds": asked,
        "cpu_seconds": spent, "trail": [*first, *trail],
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


def together(seed: int, seconds: float) -> Cell:
    """One policy for all twelve graphs, with the seconds of twelve that are trained alone."""
    problems = [one.problem() for one in GDP12]
    begin = time.process_time()
    with one_thread():
        own = varied(ONE, level="unit").learner(problems, seed, [Start.of(problem) for problem in problems])
        for task in own.tasks:
            task.scorer.own = None
        while time.process_time() - begin < seconds * len(problems):
            own.update()
        sampled = {one.name: task.scorer.best_seconds for one, task in zip(GDP12, own.tasks, strict=True)}
        load_network(own.module, own.policy_arrays())
        greedy = {
            one.name: float(task.scorer.score(own.greedy(task)[None, :]).seconds[0])
            for one, task in zip(GDP12, own.tasks, strict=True)
        }
        best = {one.name: task.elites.seconds[0] for one, task in zip(GDP12, own.tasks, strict=True)}
    return {
        "greedy": greedy, "sampled": sampled, "best": best, "updates": own.version,
        "cpu_seconds": time.process_time() - begin,
    }  # fmt: skip


def ablation(instance: Instance, name: str, seed: int, seconds: float) -> Cell:
    """One graph without one part."""
    problem, (options, training) = instance.problem(), VARIANTS[name]
    begin = time.process_time()
    with one_thread():
        own = begun(varied(ONE, **options), problem, seed)
        own.training = replace(own.training, **training)
        task = own.tasks[0]
        trained(own, lambda: time.process_time() - begin < seconds)
        sampled = task.scorer.best_seconds
        greedy = float(task.scorer.score(preferred(own, task)[None, :]).seconds[0])
    return {
        "greedy": greedy, "sampled": sampled, "updates": own.version, "evaluations": own.evaluations,
        "cpu_seconds": time.process_time() - begin,
    }  # fmt: skip


def batch_ablation(name: str, seed: int, updates: int) -> Cell:
    """Batch training without one part; mean of greedy seconds over the expert's."""
    problems = [load(model, equal(2)).problem(Latency()) for model in BATCH]
    options = varied(
        ONE, priorities=False, level="unit", samples=64, imitation=updates // 2, copies="expert", **VARIANTS[name][0]
    )  # fmt: skip
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


def zero_rate(instance: Instance, rate: float, seed: int, updates: int) -> Cell:
    """Best sample of so many updates without imitation."""
    problem = instance.problem(limited=False)
    options = varied(
        ONE, priorities=False, level="unit", imitation=0, samples=BLIND_SAMPLES, learning_rate=rate
    )
    with one_thread():
        own = begun(options, problem, seed)
        while own.version < updates:
            own.update()
    return {"best": own.tasks[0].scorer.best_seconds, "evaluations": own.evaluations}


def reference(name: str, seed: int, share: float) -> Cell:
    """Train until a value is reached or the seconds are over; without memory limits."""
    graph, options, goal, limit = REFERENCES[name]
    problem = named(graph).problem(limited=False)
    single = unlimited_single_seconds(problem)
    needs_greedy = "copies" in options
    begin = time.process_time()
    with one_thread():
        own = begun(varied(ONE, priorities=False, level="unit", **options), problem, seed)
        task = own.tasks[0]
        task.scorer.own = None
        greedy = math.inf
        while time.process_time() - begin < share * limit:
            own.update()
            if own.version > own.training.imitation:
                greedy = min(greedy, task.greedy_seconds / single)
            if task.scorer.best_seconds <= goal * single and (not needs_greedy or greedy <= 0.627):
                break
    return {
        "best": task.scorer.best_seconds / single, "greedy": greedy, "goal": goal,
        "cpu_seconds": time.process_time() - begin,
        "evaluations": own.evaluations, "limit_seconds": share * limit,
    }  # fmt: skip


def speed(instance: Instance) -> Cell:
    """CPU seconds of one pass and its gradient over all operators; shares of an update of 256 samples.

    The pass is that of the devices of 16 samples: features are computed before, priorities are left out.
    """
    problem = instance.problem()
    options = varied(ONE, priorities=False, level="operator", imitation=0, copies="")
    with one_thread():
        own = begun(options, problem, 0)
        inputs, spent = own.tasks[0].inputs, []
        actions, _ = own.network.sample(inputs, 16, torch.Generator().manual_seed(0))
        for _ in range(TIMED_PASSES):
            begin = time.process_time()
            own.network.likelihood(inputs, actions)[0].sum().backward()
            spent.append(time.process_time() - begin)
        shares = [own.update() for _ in range(2)][-1]
    return {
        "operators": len(problem.graph), "pass_cpu_seconds": statistics.median(spent),
        "fastest_pass_cpu_seconds": min(spent), "network_seconds": shares.network_seconds,
        "simulator_seconds": shares.simulator_seconds,
    }  # fmt: skip


def rules(instance: Instance) -> Cell:
    """Solvers that end by themselves, and the bound."""
    problem = instance.problem()
    found = rule_seconds(problem, (*EXPERTS, *RULES))
    return {
        **found, "bound": best_bound(problem).seconds, "operators": len(problem.graph), "devices": instance.devices,
        "unlimited_single": unlimited_single_seconds(problem),
    }  # fmt: skip
