"""Learned placement beside everything else: the same instances, the same judge, equal evaluations or equal CPU seconds.

Used by the experiments of the papers. A cell is one method on one instance with one seed; it is written to
FOLDER/results.json when it is done and is not computed again. Nothing here is compared by wall-clock time.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from pages import fill

from stead import Budget, Problem, clock
from stead.cluster import Cluster, Device, link_all
from stead.errors import SteadError
from stead.learn.ground.placed_groups import placed_groups
from stead.learn.ground.task import Start
from stead.learn.ground.torch_state import one_thread
from stead.placing.loading import load
from stead.problem import Latency
from stead.sim import simulate_many
from stead.sim.bounds import best_bound
from stead.solvers import solver

BASELINES = ("single", "expert", "balanced", "metis")
AGAIN = 4  # times the evaluations: a policy that draws the same placements for ever is stopped then


def reference_cluster(
    devices: int, *, memory_bytes: int = 2**40, bytes_per_second: float = 12e9, latency_seconds: float = 20e-6
) -> Cluster:
    """Equal devices of 4.6 TFLOP/s and 500 GB/s; links of 12 GB/s whose latency of 20 us occupies them."""
    names = [f"g{d}" for d in range(devices)]
    return Cluster(
        tuple(
            Device(
                name,
                memory_bytes=memory_bytes,
                flops_per_second={"fp32": 4.6e12},
                bytes_per_second=500e9,
                launch_seconds=5e-6,
            )
            for name in names
        ),
        link_all(
            names,
            bytes_per_second=bytes_per_second,
            latency_seconds=latency_seconds,
            gap_seconds=latency_seconds,
        ),
    )


@dataclass(frozen=True)
class Instance:
    """A model on a cluster; with `room` devices have that multiple of the fullest device of the expert."""

    name: str
    model: str
    devices: int
    room: float | None = None

    def problem(self) -> Problem:
        """The problem, within a limit of memory if the instance has one."""
        ample = load(self.model, reference_cluster(self.devices)).problem(Latency())
        if self.room is None:
            return ample
        expert = solver("expert").solve(ample, Budget(), 0).placement.devices
        peak = int(simulate_many(ample, expert[None, :], memory="peak").peak_bytes.max())
        tight = reference_cluster(self.devices, memory_bytes=int(self.room * peak))
        return load(self.model, tight).problem(Latency())


@dataclass
class Cells:
    """Results by (instance, method, seed), kept in a file."""

    folder: Path
    cells: dict[str, dict[str, Any]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        self.path = self.folder / "results.json"
        if self.path.exists():
            self.cells = json.loads(self.path.read_text())

    def get(self, key: str, compute: Callable[[], Mapping[str, Any]]) -> dict[str, Any]:
        """A cell, computed now if it is not there yet."""
        if key not in self.cells:
            begin = time.process_time()
            found = dict(compute())
            found["cpu_seconds"] = round(time.process_time() - begin, 2)
            self.cells[key] = found
            half = self.path.with_suffix(".part")
            half.write_text(json.dumps(self.cells, indent=1, sort_keys=True) + "\n")
            half.replace(self.path)
            print(f"  {key}: {found}", flush=True)
        return self.cells[key]


def learned(
    options: Any,
    problem: Problem,
    *,
    seed: int,
    evaluations: int | None = None,
    cpu_seconds: float | None = None,
) -> dict[str, Any]:
    """Train on a problem until a limit; the best sample and the greedy placement, apart, without baselines."""
    with one_thread():
        own = options.learner([problem], seed, [Start.of(problem)])
        task, begin, spent = own.tasks[0], time.process_time(), [0.0, 0.0, 0.0]
        asked_most = math.inf if evaluations is None else AGAIN * evaluations
        while (
            (evaluations is None or task.scorer.evaluations + own.evaluations_per_update <= evaluations)
            and task.scorer.evaluations + task.scorer.hits < asked_most
            and (cpu_seconds is None or time.process_time() - begin < cpu_seconds)
        ):
            metrics = own.update()
            spent[0] += metrics.network_seconds
            spent[1] += metrics.simulator_seconds
            spent[2] += metrics.other_seconds
        row = own.greedy(task)
        greedy = float(task.scorer.score(row[None, :]).seconds[0])
    return {
        "seconds": task.scorer.best_seconds,
        "greedy_seconds": greedy,
        "greedy_devices": len(np.unique(task.scorer.lifted(row[None, :]))),
        "evaluations": task.scorer.evaluations,
        "updates": own.version,
        "network_share": round(spent[0] / max(sum(spent), 1e-9), 4),
        "simulator_share": round(spent[1] / max(sum(spent), 1e-9), 4),
    }


def random_groups(problem: Problem, *, seed: int, evaluations: int) -> dict[str, Any]:
    """The best of random devices for the groups that policies place."""
    rng = np.random.default_rng(seed)
    grouping = placed_groups(problem)
    rows = rng.integers(0, len(problem.cluster), (evaluations, grouping.count)).astype(np.uint8)
    scores = simulate_many(problem, grouping.lift(rows))
    feasible = scores.feasible & np.isfinite(scores.seconds)
    best = scores.seconds[feasible].min() if feasible.any() else float("inf")
    return {"seconds": float(best), "evaluations": evaluations}


def annealed_groups(problem: Problem, *, seed: int, evaluations: int) -> dict[str, Any]:
    """Annealing over the groups that policies place, from one device: a group, a run of groups, or a swap."""
    rng = np.random.default_rng(seed)
    grouping, devices = placed_groups(problem), len(problem.cluster)
    count, row = grouping.count, np.zeros(grouping.count, dtype=np.uint8)

    def scored(rows: np.ndarray) -> float:  # type: ignore[type-arg]
        found = simulate_many(problem, grouping.lift(rows[None, :]), threads=1)
        over = np.maximum(found.over_bytes, 0).max() / max(d.usable_bytes for d in problem.cluster)
        return float(found.seconds[0] * (1 + 10 * over)) if np.isfinite(found.seconds[0]) else float("inf")

    now = best = scored(row)
    scale = now
    feasible = best if problem_fits(problem, grouping.lift(row)) else float("inf")
    for step in range(1, evaluations):
        heat = scale * 0.02 * (0.0005 / 0.02) ** (step / evaluations)
        tried, kind = row.copy(), rng.random()
        if kind < 0.5:
            tried[rng.integers(count)] = rng.integers(devices)
        elif kind < 0.8:
            begin = rng.integers(count)
            tried[begin : begin + 1 + rng.integers(max(1, count // 10))] = rng.integers(devices)
        else:
            a, b = rng.integers(count, size=2)
            tried[[a, b]] = tried[[b, a]]
        value = scored(tried)
        if value <= now or rng.random() < np.exp((now - value) / heat):
            row, now = tried, value
            if value < best:
                best = value
                if problem_fits(problem, grouping.lift(row)):
                    feasible = value
    return {"seconds": feasible, "evaluations": evaluations}


def problem_fits(problem: Problem, devices: np.ndarray) -> bool:  # type: ignore[type-arg]
    """Whether a placement keeps the limits of memory."""
    return bool(simulate_many(problem, devices[None, :], threads=1).feasible[0])


def solved(
    name: str,
    problem: Problem,
    *,
    seed: int = 0,
    evaluations: int | None = None,
    seconds: float | None = None,
    **options: Any,
) -> dict[str, Any]:
    """What a solver of stead finds within a budget; seconds are those of the processor, all threads together."""
    try:
        with clock.read_from(time.process_time):
            found = solver(name, **options).solve(problem, Budget(seconds=seconds, evaluations=evaluations), seed)
    except SteadError as error:
        return {"seconds": float("inf"), "why": str(error).splitlines()[0]}
    return {"seconds": found.objective_seconds, "evaluations": found.evaluations, "found_by": found.found_by}


def bound(problem: Problem) -> dict[str, Any]:
    """The proved lower bound."""
    found = best_bound(problem)
    return {"seconds": found.seconds, "found_by": found.name}


def median_of(rows: Sequence[Mapping[str, Any]], name: str = "seconds") -> tuple[float, float, float]:
    """(median, least, largest) of a number in some cells."""
    values = [float(row[name]) for row in rows]
    return statistics.median(values), min(values), max(values)


def spread(rows: Sequence[Mapping[str, Any]], unit: float, name: str = "seconds") -> str:
    """Median and range, in multiples of `unit`."""
    middle, low, high = (value / unit for value in median_of(rows, name))
    if not np.isfinite(middle):
        return "does not fit"
    most = f"{high:.3f}" if np.isfinite(high) else "nothing"
    return f"{middle:.3f}" if len(rows) == 1 else f"{middle:.3f} ({low:.3f} to {most})"


@dataclass(frozen=True)
class Study:
    """A learned method with its variants, on some instances, beside controls and baselines."""

    cells: Cells
    instances: Sequence[Instance]
    evaluations: Mapping[str, int]  # of every instance
    variants: Mapping[str, Any]  # options of the method; one is called "learning rate 0"
    seeds: Sequence[int]
    few: Sequence[str] = ()  # variants that get one seed
    polished: str = ""  # the variant that is also polished by local search
    matched: Sequence[str] = ()  # variants whose CPU seconds `search` is given, too
    beside: Mapping[str, tuple[str, Mapping[str, Any]]] = field(default_factory=dict)  # other solvers with options

    def run(self) -> None:
        """Compute all cells that are not there yet: what is cheap first, then one variant after another everywhere."""
        problems = [(instance, instance.problem(), self.evaluations[instance.name]) for instance in self.instances]
        for instance, problem, limit in problems:
            self._unit(instance)
            for name in BASELINES:
                self._cell(instance, name, 0, partial(solved, name, problem))
            for name, (asked, chosen) in self.beside.items():
                self._cell(instance, name, 0, partial(solved, asked, problem, **chosen))
            self._cell(instance, "bound", 0, partial(bound, problem))
            for seed in self.seeds:
                at_limit = {"seed": seed, "evaluations": limit}
                self._cell(instance, "random", seed, partial(random_groups, problem, **at_limit))
                self._cell(instance, "annealing", seed, partial(annealed_groups, problem, **at_limit))
                self._cell(instance, "search", seed, partial(solved, "search", problem, **at_limit))
        for name, options in self.variants.items():
            for instance, problem, limit in problems:
                work = partial(learned, options, problem, evaluations=limit)
                for seed in self._seeds(name):
                    self._cell(instance, name, seed, partial(work, seed=seed))
                if name in self.matched:
                    spent = median_of(self.rows(instance, name), "cpu_seconds")[0]
                    rival = partial(solved, "search", problem, seconds=spent, threads=1)
                    self._cell(instance, f"search, at most the CPU of {name}", 0, rival)
        if self.polished:
            for instance, problem, limit in problems:
                work = partial(_polished, self.variants[self.polished], problem, limit)
                self._cell(instance, f"{self.polished} + polish", 0, work)

    def rows(self, instance: Instance, name: str) -> list[dict[str, Any]]:
        """The cells of a method on an instance that are there."""
        keys = [f"{instance.name} | {name} | {seed}" for seed in range(100)]
        return [self.cells.cells[key] for key in keys if key in self.cells.cells]

    def fill(self, page: str) -> None:
        """Put the tables of all instances into a page."""
        for instance in self.instances:
            fill(page, instance.name, self.table(instance))

    def table(self, instance: Instance) -> list[str]:
        """Run times as multiples of the best single device, memory aside."""
        unit = self._unit(instance)
        lacks = ", but does not have the memory" if instance.room else ""
        most = f"{self.evaluations[instance.name]:,} evaluations"
        lines = [f"{most}; one device takes {unit * 1e3:.1f} ms{lacks}.", ""]
        lines.append("| method | best / one device | greedy / one device | devices of greedy | CPU s | seeds |")
        lines.append("|---|---|---|---|---:|---:|")
        keys = [key.split(" | ") for key in self.cells.cells]
        names = dict.fromkeys(key[1] for key in keys if key[0] == instance.name)
        for name in sorted(names, key=lambda name: median_of(self.rows(instance, name))[0]):
            rows = self.rows(instance, name)
            greedy = spread(rows, unit, "greedy_seconds") if "greedy_seconds" in rows[0] else ""
            used = "/".join(str(row["greedy_devices"]) for row in rows) if greedy else ""
            cpu = median_of(rows, "cpu_seconds")[0]
            lines.append(f"| {name} | {spread(rows, unit)} | {greedy} | {used} | {cpu:.1f} | {len(rows)} |")
        return lines

    def summary(self, titles: Mapping[str, str]) -> list[str]:
        """All instances side by side: the best of what methods find, by their names, for those that have cells."""
        heads = [f"{one.name}, {self.evaluations[one.name]:,} evaluations" for one in self.instances]
        lines = ["| | " + " | ".join(heads) + " |", "|---|" + "---|" * len(heads)]
        for name, title in titles.items():
            found = [(self.rows(one, name), self._unit(one)) for one in self.instances]
            lines.append(f"| {title} | {' | '.join(spread(rows, unit) if rows else '' for rows, unit in found)} |")
        return lines

    def _unit(self, instance: Instance) -> float:
        found = self._cell(instance, "one device, memory aside", 0, lambda: _one_device(instance))
        return float(found["seconds"])

    def _seeds(self, name: str) -> Sequence[int]:
        return self.seeds[:1] if name in self.few else self.seeds

    def _cell(
        self, instance: Instance, name: str, seed: int, compute: Callable[[], Mapping[str, Any]]
    ) -> dict[str, Any]:
        return self.cells.get(f"{instance.name} | {name} | {seed}", compute)


def _one_device(instance: Instance) -> dict[str, Any]:
    problem = Instance(instance.name, instance.model, instance.devices).problem()
    return solved("single", problem)


def _polished(options: Any, problem: Problem, evaluations: int) -> dict[str, Any]:
    """The method as a solver, with polish: half of the evaluations each."""
    updates = max(1, evaluations // 2 // (options.samples + 1))
    found = replace(options, updates=updates, polish=True).solve(problem, Budget(evaluations=evaluations), 0)
    return {
        "seconds": found.objective_seconds,
        "evaluations": found.evaluations,
        "found_by": found.found_by,
        "notes": list(found.notes)[-2:],
    }


def arguments(doc: str, folder: Path) -> argparse.Namespace:
    """What an experiment is asked for; quick results have a folder of their own."""
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", nargs="?", default="all", choices=["tables", "shown", "checks", "all"])
    parser.add_argument("--out", type=Path, default=folder)
    parser.add_argument("--quick", action="store_true")
    given = parser.parse_args()
    if given.quick:
        given.out = given.out / "quick"
    return given


def told(name: str, passed: bool, value: str) -> None:
    """One line per check."""
    print(f"{'pass' if passed else 'FAIL'}  {name}: {value}", flush=True)
