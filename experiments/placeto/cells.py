"""What is measured: one function per kind of cell, each of which takes seconds to a minute and returns plain numbers.

Times of placements are milliseconds of one step as the simulator says; `cpu` is CPU seconds of this process.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from stead.cluster import Cluster, Device, link_all
from stead.costs import Roofline
from stead.errors import Infeasible
from stead.learn.colocrl.method import ColocRL
from stead.learn.ground.ablation import varied
from stead.learn.ground.collapse_alarm import collapsed
from stead.learn.ground.reward import Values
from stead.learn.ground.task import Start
from stead.learn.ground.torch_state import load_network, network_arrays, one_thread
from stead.learn.placeto.episodes import Walk
from stead.learn.placeto.learner import PlacetoLearner
from stead.learn.placeto.method import Placeto, sampled
from stead.learn.placeto.timed import TimedScorer
from stead.problem import Fifo, Latency, Policy, Problem
from stead.problem import PlacetoDispatch as Published
from stead.sim import simulate_many
from stead.sim.bounds import best_bound
from stead.solvers import Budget, solver
from stead.solvers.search.climb import Climb
from stead.workloads.synthetic import synthetic

Numbers = dict[str, Any]
FAMILIES = ("enas-cnn", "enas-rnn", "nmt")
ABLATIONS: dict[str, dict[str, Any]] = {
    "none": {},
    "simple aggregator": {"messages": False},
    "simple partitioner": {"split": False},
    "no peers": {"peers": False},
    "one-hot head": {"one_hot": True},
    "sum pooling": {"sum_pooling": True},
    "random traversal": {"traversal": "random"},
    "no start times": {"start_times": False},
    "REINFORCE": {"algorithm": "reinforce"},
}
TRAINED_ON, TESTED_ON, FIRST_TEST = 8, 8, 1000  # graphs of a family, and the number of the first held-out one
HELD_OUT = range(1000, 1003)  # graphs that are also trained on one by one; the first of them with all seeds
GROUPS = {"enas-cnn": 256, "enas-rnn": 256, "nmt": 64}  # at most; joined time steps or branches leave nothing to gain
CHAIN = 48  # operators of the chain that shows why the judge matters


# Problems


def cluster(devices: int, *, memory_bytes: int = 2**40, launch_seconds: float = 5.7e-6) -> Cluster:
    """Equal devices of 4.6 TFLOP/s and 500 GB/s; links of 7.6 GB/s and 25 us."""
    names = [f"g{d}" for d in range(devices)]
    made = tuple(
        Device(
            name,
            memory_bytes=memory_bytes,
            flops_per_second={"fp32": 4.6e12},
            bytes_per_second=500e9,
            launch_seconds=launch_seconds,
        )
        for name in names
    )
    return Cluster(made, link_all(names, bytes_per_second=7.6e9, latency_seconds=25e-6, gap_seconds=25e-6))


def problem(
    family: str, devices: int, *, judge: str = "fifo", memory_bytes: int = 2**40, **options: Any
) -> Problem:
    """A graph of a family; the published simulator pays for launches by itself."""
    policy: Policy = Published() if judge == "placeto" else Fifo()
    launch = 0.0 if judge == "placeto" else 5.7e-6
    devices_ = cluster(devices, memory_bytes=memory_bytes, launch_seconds=launch)
    graph = synthetic(family, **options)
    costs = Roofline().costs(graph, devices_)
    return Problem(graph, devices_, costs, objective=Latency(policy=policy))


def single_ms(given: Problem) -> float:
    """One device, memory aside."""
    rows = np.repeat(np.arange(len(given.cluster), dtype=np.uint8)[:, None], len(given.graph), axis=1)
    return float(1e3 * simulate_many(given, rows, memory="off").seconds.min())


# Training


def learner(options: Placeto, problems: Sequence[Problem], seed: int) -> PlacetoLearner:
    """Ready for the first update."""
    return options.learner(problems, seed, [Start.of(one) for one in problems])


def per_graph(options: Placeto, given: Problem, seed: int, *, evaluations: int | None = None) -> Numbers:
    """Train on one graph; what was seen, what the policy prefers, what it cost."""
    begin = time.process_time()
    with one_thread():
        own = learner(options, [given], seed)
        task, trail, means, spent = own.tasks[0], [], [], np.zeros(3)
        while own.version < options.updates if evaluations is None else own.evaluations < evaluations:
            told = own.update()
            spent += (told.network_seconds, told.simulator_seconds, told.other_seconds)
            trail.append((told.evaluations, 1e3 * task.scorer.best_seconds))
            means.append(told.mean)
        cpu, trained = time.process_time() - begin, own.evaluations
        row, greedy = own.evaluated(task)
        end = own.swept_once(task)
        task.greedy_seconds, task.greedy_devices = greedy, len(np.unique(row))
    best = trail[-1][1]
    return {
        "single": single_ms(given),
        "best": best,
        "argmax": 1e3 * greedy,
        "argmax_devices": task.greedy_devices,
        "argmax_end": 1e3 * end[1],
        "mean_of_last_10": float(np.mean(means[-10:])) * 1e3 * task.reward.reference_seconds,
        "feasible": bool(np.isfinite(best)),
        "collapsed": collapsed(task),
        "alarms": own.alarm.raised,
        "updates": own.version,
        "evaluations": trained,
        "until_1_percent": next(n for n, value in trail if value <= 1.01 * best),
        "cpu": cpu,
        "simulator_share": float(spent[1] / spent.sum()),
    }


def random_search(options: Placeto, given: Problem, evaluations: int, seed: int) -> float:
    """Best of as many placements of the same groups, each drawn evenly."""
    grouping, inputs = options.inputs(given)
    rng, best = np.random.default_rng(seed), np.inf
    for begin in range(0, evaluations, 4096):
        noise = rng.random((min(4096, evaluations - begin), *inputs.allowed.shape))
        rows = np.where(inputs.allowed, noise, -1.0).argmax(axis=2).astype(np.uint8)
        scores = simulate_many(given, grouping.lift(rows))
        best = min(best, float(np.where(scores.feasible, scores.seconds, np.inf).min()))
    return 1e3 * best


def climbed(
    given: Problem, seed: int, *, evaluations: int | None = None, seconds: float | None = None
) -> Numbers:
    """Hill climbing on units with the same number of simulations, or for as long."""
    begin = time.process_time()
    found = Climb(patience=10**9).solve(given, Budget(evaluations=evaluations, seconds=seconds), seed)
    return {
        "best": 1e3 * found.objective_seconds,
        "evaluations": found.evaluations,
        "cpu": time.process_time() - begin,
    }


def heuristics(given: Problem) -> Numbers:
    """Milliseconds of everything that does not learn; None where it does not fit or does not apply."""
    found: Numbers = {"single": single_ms(given), "bound": 1e3 * best_bound(given).seconds}
    for name in ("expert", "metis", "heft", "m-etf", "search"):
        begin = time.process_time()
        try:
            chosen = solver(name)
            if chosen.unsupported(given) is not None:
                found[name] = None
                continue
            solution = chosen.solve(given, Budget(), 0)
            found[name] = 1e3 * solution.objective_seconds
            found[f"{name} cpu"] = time.process_time() - begin
        except (Infeasible, ImportError):
            found[name] = None
    return found


def colocrl(given: Problem, evaluations: int, seed: int) -> Numbers:
    """The recurrent policy with as many simulations."""
    begin = time.process_time()
    with one_thread():
        own = ColocRL().learner([given], seed, [Start.of(given)])
        trail = []
        while own.evaluations + 9 <= evaluations and own.version < 600:
            told = own.update()
            trail.append((told.evaluations, 1e3 * own.tasks[0].scorer.best_seconds))
    best = trail[-1][1]
    return {
        "best": best,
        "evaluations": own.evaluations,
        "until_1_percent": next(n for n, value in trail if value <= 1.01 * best),
        "cpu": time.process_time() - begin,
    }


# Kinds of cells


def learn_one(model: dict[str, Any], options: dict[str, Any], seed: int, controls: bool = False) -> Numbers:
    """Per-graph training; with `controls` learning rate 0, random search and hill climbing at equal simulations."""
    given, chosen = problem(**model), varied(Placeto(), **options)
    found = per_graph(chosen, given, seed)
    if controls:
        count = found["evaluations"]
        blind = per_graph(replace(chosen, learning_rate=0.0), given, seed, evaluations=count)
        found["rate_0"] = {name: blind[name] for name in ("best", "argmax", "mean_of_last_10", "cpu")}
        found["random"] = random_search(chosen, given, count, seed)
        found["climb"] = climbed(given, seed, evaluations=count)
        found["climb_5100"] = climbed(given, seed, evaluations=5100)
    return found


def equal_seconds(model: dict[str, Any], seconds: float, seed: int) -> Numbers:
    """Random search and hill climbing for as many seconds as training took."""
    given = problem(**model)
    end, count, best = time.process_time() + seconds, 0, np.inf
    while time.process_time() < end:
        count += 65_536
        best = min(best, random_search(Placeto(), given, 65_536, seed + count))
    return {"random": best, "random_evaluations": count, "climb": climbed(given, seed, seconds=seconds)}


def zero_shot(
    train: list[dict[str, Any]], test: dict[str, list[dict[str, Any]]], options: dict[str, Any], seed: int
) -> Numbers:
    """Train on some graphs, place others without training on them; ratios to one device, untrained ones beside."""
    begin = time.process_time()
    chosen = varied(Placeto(), **options)
    with one_thread():
        own = learner(chosen, [problem(**model) for model in train], seed)
        untrained = network_arrays(own.network)
        while own.version < chosen.updates:
            own.update()
        weights, cpu = network_arrays(own.network), time.process_time() - begin
        found: Numbers = {"cpu": cpu, "evaluations": own.evaluations, "train": fingerprints(train)}
        for name, models in test.items():
            found[name] = [placed(problem(**model), chosen, weights, untrained, seed) for model in models]
            found[f"{name} test"] = fingerprints(models)
    return found


def placed(given: Problem, options: Placeto, weights: Any, untrained: Any, seed: int) -> Numbers:
    """What a policy makes of a graph it has not seen, as shares of one device.

    "best of 4" begins on the single device and at random, "all starts" also at contiguous blocks and list scheduling,
    and "best of 64" goes on from there by sampled episodes.
    """
    single = 1e-3 * single_ms(given)
    found: Numbers = {"single": 1e3 * single}
    for name, arrays in (("untrained ", untrained), ("", weights)):
        own = learner(options, [given], seed)
        task = own.tasks[0]
        load_network(own.network, arrays)
        found[f"{name}argmax"] = own.swept_once(task)[1] / single
        found[f"{name}best of 4"] = own.evaluated(task)[1] / single
        found[f"{name}all starts"] = min(
            found[f"{name}best of 4"], own.evaluated(task, constructed=True)[1] / single
        )
        found[f"{name}evaluations"] = task.scorer.evaluations
    sampled(own, 64, seed)
    found["best of 64"] = task.scorer.best_seconds / single
    found["starts"] = float(task.scorer.score(own.known[0], by=own.known_by[0]).seconds.min()) / single
    found["random"] = random_search(options, given, 600, seed) / (1e3 * single)
    found["climb"] = climbed(given, seed, evaluations=5100)["best"] / (1e3 * single)
    found["heft"] = ruled(given, "heft") / single
    return found


def ruled(given: Problem, name: str) -> float:
    """Seconds of a construction; inf where it finds nothing that fits."""
    try:
        return solver(name).solve(given, Budget(), 0).objective_seconds
    except Infeasible:
        return np.inf


def fingerprints(models: list[dict[str, Any]]) -> list[str]:
    """Which problems they are."""
    return [problem(**model).fingerprint for model in models]


def sanity(goal: str, variant: str, seed: int, updates: int) -> Numbers:
    """A made-up cost on the towers: everything on the last device, or the fewest cut edges. 1 is the optimum.

    The worst end of argmax sweeps from random placements counts, for the published variant from the one it is trained
    from. The shared head does not know devices by name: for "last" the last device is faster, so that it can be told.
    """
    given = problem("towers", 2, judge="fifo" if variant == "corrected" and goal == "last" else "placeto")
    if goal == "last" and variant == "corrected":
        given = faster_last(given)
    with one_thread():
        own = Placeto(variant, updates=updates).learner([given], seed, [Start.of(given)])
        task = own.tasks[0]
        task.scorer = MadeUp(given, task.grouping, task.inputs)
        task.scorer.goal = goal
        own.walks[0] = Walk(task, own.observation)
        for _ in range(updates):
            own.update()
        starts = own._starts(0, np.random.default_rng(seed))[: 1 if variant == "faithful" else 4]
        greedy = np.ones(len(starts), dtype=bool)
        found = own.walks[0].run(own.network, starts, torch.Generator(), greedy=greedy, sweeps=3, keep=False)
        return {"end": float(found.seconds.max()), "start": float(task.scorer.score(starts, by="start").seconds.min())}


class MadeUp(TimedScorer):
    """Costs that are not run times; 1 at best. Groups start when they do."""

    goal = "last"

    def _simulated(self, rows: NDArray[np.uint8]) -> list[Values]:
        if self.goal == "last":
            cost = 1.0 + (rows != len(self.problem.cluster) - 1).mean(axis=1)
        else:
            edges = self.problem.graph.edges
            cost = 1.0 + (rows[:, edges[:, 0]] != rows[:, edges[:, 1]]).mean(axis=1)
        return [(float(value), 0.0, float(value), 0) for value in cost]

    def _run(self, rows: NDArray[np.uint8], keys: Sequence[bytes]) -> list[Values]:
        super()._run(rows, keys)
        return self._simulated(rows)


def faster_last(given: Problem) -> Problem:
    """The same with a last device of twice the speed."""
    first, last = given.cluster.devices
    rates = {"fp32": 9.2e12}
    faster = replace(last, flops_per_second=rates)
    unequal = replace(given.cluster, devices=(first, faster))
    return Problem(given.graph, unequal, Roofline().costs(given.graph, unequal), objective=given.objective)


def exploit(judge: str, seed: int, updates: int) -> Numbers:
    """A chain of 1 us operators on 8 devices: spreading it never pays, but the published simulator says it does."""
    from stead.graph import GraphBuilder

    build, last = GraphBuilder("chain"), None
    for n in range(CHAIN):
        made = build.operator(f"v{n}", reads=() if last is None else (last,), flops=4.6e6)
        last = build.tensor(made, size_bytes=76)
    graph = build.build()
    devices = cluster(8, launch_seconds=0.0 if judge == "placeto" else 5.7e-6)
    policy: Policy = Published() if judge == "placeto" else Fifo()
    given = Problem(graph, devices, Roofline().costs(graph, devices), objective=Latency(policy=policy))
    found = per_graph(Placeto(updates=updates), given, seed)
    found["groups"] = Placeto().inputs(given)[0].count
    found["round_robin"] = 1e3 * float(
        simulate_many(given, (np.arange(CHAIN) % 8).astype(np.uint8)[None, :]).seconds[0]
    )
    return found


def product(seed: int, updates: int) -> Numbers:
    """Placeto with polish against hill climbing with as many simulations, judged by fifo."""
    given = problem("branches", 4)
    begin = time.process_time()
    found = Placeto(policy="", updates=updates, polish=True).solve(given, Budget(), seed)
    baselines = [
        solver(name).solve(given, Budget(), 0).objective_seconds for name in ("single", "expert", "balanced")
    ]
    return {
        "polished": 1e3 * found.objective_seconds,
        "evaluations": found.evaluations,
        "cpu": time.process_time() - begin,
        "found_by": found.found_by,
        "best_baseline": 1e3 * min(baselines),
        "climb": climbed(given, seed, evaluations=found.evaluations),
        "search": heuristics(given)["search"],
    }


def memory(seed: int, updates: int) -> Numbers:
    """The graph of 50 operators as it trains, on devices that cannot hold all of it."""
    ample = problem("branches", 4, training=True)
    zeros = np.zeros((1, len(ample.graph)), dtype=np.uint8)
    peak = int(simulate_many(ample, zeros, memory="peak").peak_bytes[0, 0])
    given = problem("branches", 4, training=True, memory_bytes=int(0.7 * peak))
    found = per_graph(Placeto(updates=updates), given, seed)
    solution = Placeto(policy="", updates=2).solve(given, Budget(), seed)
    row = solution.placement.devices[None, :]
    found["returned_fits"] = bool(simulate_many(given, row).feasible[0])
    return found


def speed(groups: int) -> Numbers:
    """CPU seconds of one update, and the simulator's share."""
    blocks = {50: 5, 256: 26}[groups]
    given = problem("branches", 4, blocks=blocks)
    with one_thread():
        own = learner(Placeto(groups=256), [given], 0)
        own.update()
        count = 4 if groups == 50 else 1
        begin = time.process_time()
        told = [own.update() for _ in range(count)]
        cpu = (time.process_time() - begin) / count
    total = sum(one.network_seconds + one.simulator_seconds + one.other_seconds for one in told)
    share = sum(one.simulator_seconds for one in told) / total
    return {"groups": own.tasks[0].grouping.count, "cpu": cpu, "simulator_share": share}


def family_memory(family: str, seeds: Sequence[int]) -> int:
    """Translation models: so much memory that one device is too small for a third of the graphs."""
    if family != "nmt":
        return 2**40
    peaks = []
    for seed in seeds:
        given = problem(family, 1, seed=seed)
        zeros = np.zeros((1, len(given.graph)), dtype=np.uint8)
        peaks.append(int(simulate_many(given, zeros, memory="peak").peak_bytes[0, 0]))
    return int(np.quantile(peaks, 2 / 3))


def held_out(name: str, numbers: Sequence[int]) -> list[dict[str, Any]]:
    """Graphs of a family on 4 devices."""
    room = family_memory(name, [*range(TRAINED_ON), *range(FIRST_TEST, FIRST_TEST + TESTED_ON)])
    return [{"family": name, "devices": 4, "seed": n, "memory_bytes": room} for n in numbers]


def family(name: str, seed: int, train: int, test: int, options: dict[str, Any]) -> Numbers:
    """Train on one family, place held-out graphs."""
    models = held_out(name, range(train))
    tests = held_out(name, range(FIRST_TEST, FIRST_TEST + test))
    return zero_shot(models, {name: tests}, {**options, "groups": GROUPS[name]}, seed)


def on_held_out(name: str, graph: int, seed: int, options: dict[str, Any], evaluations: int) -> Numbers:
    """Train on one of the held-out graphs alone; colocrl may simulate so often, not at all for 0."""
    (model,) = held_out(name, [graph])
    found = learn_one(model, {"groups": GROUPS[name], **options}, seed, controls=True)
    found["heft"] = 1e3 * ruled(problem(**model), "heft")
    if evaluations:
        found["colocrl"] = colocrl(problem(**model), evaluations, seed)
    return found
