"""Ways to place one model, all measured in turns: what experiments with measured rewards share.

    first only, second only   the whole model on one device
    greedy                    every operator where it can finish first (etf), by profiled costs
    min-cut                   optimal where one device works at a time, by profiled costs; of inference alone
    auto                      stead's plan from profiled costs, never measured on the way
    tune                      `stead tune`: place, measure, correct, place again
    LEARNER, simulated        learns in the simulator with profiled costs; its best placement by simulated time
    LEARNER, measured         learns from measured time alone; its best placement by measured time

All rows are measured again at the end, taking turns, and the fastest run of each counts: other programs only slow runs
down. A row whose results differ from those of one device has no time. Best on an otherwise idle machine.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from experiments.pages import fill
from stead.cluster.machine import this_machine
from stead.errors import SteadError
from stead.learn.ground.reward import Evaluator
from stead.learn.ground.solver import Learns
from stead.learn.ground.task import Start
from stead.learn.ground.torch_state import one_thread
from stead.placing.recost import recosted, with_seconds
from stead.problem import Latency, Placement, Problem
from stead.run.crossing_times import links_in_place
from stead.run.executor import Executor, Numerics
from stead.run.measured_reward import MeasuredReward
from stead.run.profile import take_timings
from stead.run.trials import key_of
from stead.run.tune import tune
from stead.sim import simulate, simulate_many
from stead.solvers import Budget, solver


@dataclass(frozen=True, slots=True)
class Effort:
    """How much is measured."""

    bursts: int  # of a profile, and rounds of the last comparison
    repeats: int
    tune_measurements: int
    learned_measurements: int  # of every seed
    updates: int  # at most, of every seed
    seeds: int
    evaluations: int = 4_000  # of the simulator, by every plan that is made


FULL = Effort(bursts=6, repeats=6, tune_measurements=20, learned_measurements=200, updates=60, seeds=3)
QUICK = Effort(bursts=2, repeats=3, tune_measurements=8, learned_measurements=20, updates=2, seeds=1)


def add_effort(parser: argparse.ArgumentParser) -> None:
    """Options for less than all that a whole run measures."""
    parser.add_argument("--seeds", type=int, default=0, help=f"of every learner; {FULL.seeds} if not given")
    parser.add_argument(
        "--measurements", type=int, default=0, help=f"of every seed; {FULL.learned_measurements} if not given"
    )
    parser.add_argument("--updates", type=int, default=0, help=f"of every seed, at most; {FULL.updates} if not given")
    parser.add_argument("--rounds", type=int, default=0, help=f"of the last comparison; {FULL.bursts} if not given")
    parser.add_argument("--repeats", type=int, default=0, help=f"runs of every round; {FULL.repeats} if not given")


def effort_of(given: argparse.Namespace) -> Effort:
    """What the options ask for."""
    asked = {
        "seeds": given.seeds, "learned_measurements": given.measurements, "updates": given.updates,
        "bursts": given.rounds, "repeats": given.repeats,
    }  # fmt: skip
    return replace(QUICK if given.quick else FULL, **{name: number for name, number in asked.items() if number})


@dataclass(frozen=True, slots=True)
class Row:
    """One way to place a model."""

    name: str
    placement: Placement
    measurements: int = 0  # that were needed to find it
    simulations: int = 0
    facts: dict[str, Any] = field(default_factory=dict)


def profiled(executor: Executor, believed: Problem, effort: Effort) -> Problem:
    """The same question with operators and crossings as they are measured now."""
    timings = take_timings(executor, repeats=effort.repeats, bursts=effort.bursts)
    cluster = links_in_place(executor, timings, believed.cluster).cluster
    seconds = np.stack([one.operators for one in timings], axis=1)
    return with_seconds(recosted(believed, cluster), seconds)


def rows(executor: Executor, problem: Problem, learners: dict[str, Learns], effort: Effort) -> list[Row]:
    """Every way to place the model; `problem` has profiled costs."""
    count = len(problem.graph)
    found = [
        Row(f"{name} only", Placement(problem, np.full(count, d))) for d, name in enumerate(problem.cluster.names)
    ]
    found.append(Row("greedy", solver("etf").solve(problem, Budget(), 0).placement))
    found += _cut(problem)
    planned = solver("auto").solve(problem, Budget(None, effort.evaluations), 0)
    found.append(Row("auto", planned.placement, simulations=planned.evaluations))
    tuned = tune(
        problem, measure=executor, measurements=effort.tune_measurements, evaluations=effort.evaluations,
        time_limit=None,
    )  # fmt: skip
    found.append(Row("tune", Placement(problem, tuned.plan.placement.devices), tuned.measurements))
    for name, learner in learners.items():
        _say(f"{name} in the simulator")
        found += [in_simulator(problem, name, learner, effort, seed) for seed in range(effort.seeds)]
        for seed in range(effort.seeds):
            _say(f"{name} on the clock, seed {seed}")
            found.append(on_the_clock(executor, problem, name, learner, effort, seed))
    _say(f"comparing {len(found)} rows")
    return found


def _cut(problem: Problem) -> list[Row]:
    in_turn = problem.with_objective(Latency(execution="sequential"))
    try:
        cut = solver("mincut").solve(in_turn, Budget(30.0), 0)
    except SteadError:  # it takes no training graphs
        return []
    return [Row("min-cut", Placement(problem, cut.placement.devices))]


class _Counted:
    """The simulator as a judge that remembers the best row."""

    def __init__(self, problem: Problem) -> None:
        self.problem, self.count, self.best, self.seconds = problem, 0, None, math.inf

    def __call__(self, placements: Any) -> Any:
        scores = simulate_many(self.problem, placements)
        seconds = np.where(scores.feasible, scores.seconds, math.inf)
        self.count += len(placements)
        first = int(np.argmin(seconds))
        if seconds[first] < self.seconds:
            self.best, self.seconds = np.array(placements[first]), float(seconds[first])
        return seconds


def in_simulator(problem: Problem, name: str, learner: Learns, effort: Effort, seed: int) -> Row:
    """The best placement that a policy drew while it learnt in the simulator."""
    judge = _Counted(problem)
    trained(learner, problem, judge, effort.updates, seed, lambda: False)
    return Row(f"{name}, simulated, seed {seed}", Placement(problem, judge.best), simulations=judge.count)


def on_the_clock(
    executor: Executor, problem: Problem, name: str, learner: Learns, effort: Effort, seed: int
) -> Row:
    """The best placement that a policy drew while it learnt from measured time; its start is said where it is that."""
    reward = MeasuredReward(executor, problem, limit=effort.learned_measurements, seed=seed)
    start = trained(learner, problem, reward, effort.updates, seed, lambda: reward.trials.left < 1)
    timed = [trial for trial in reward.trials.known.values() if trial.counts]
    best = min(timed, key=lambda trial: trial.seconds)
    given = start.best is not None and np.array_equal(best.placement.devices, start.best)
    facts = {"is_its_start": bool(given), "best_start_ms": 1e3 * min(start.known.values(), default=math.nan)}
    return Row(
        f"{name}, measured, seed {seed}", Placement(problem, best.placement.devices), reward.trials.count, facts=facts
    )


def trained(
    learner: Learns, problem: Problem, judge: Evaluator, updates: int, seed: int, is_over: Callable[[], bool]
) -> Start:
    """Let a method learn one problem; what it was given to begin with."""
    with one_thread():
        start = Start.of(problem, judge)
        learning = learner.learner([problem], seed, [start], evaluate=judge)
        for _ in range(updates):
            if is_over():
                break
            learning.update()
    return start


def compared(executor: Executor, listed: Sequence[Row], effort: Effort) -> list[dict[str, Any]]:
    """All rows measured in turns; those that came to the same placement have its times in common."""
    different = {key_of(row.placement): row.placement for row in listed}
    seconds: dict[str, list[float]] = {key: [] for key in different}
    lost = dict.fromkeys(different, 0)
    modes: dict[str, str] = {}
    for _ in range(effort.bursts):
        for key, placement in different.items():
            burst = executor.burst(placement, runs=effort.repeats)
            seconds[key] += burst.seconds
            lost[key] += bool(burst.lost)
            modes[key] = burst.timing_mode
    verdicts = {key: executor.check(placement) for key, placement in different.items()}
    keys = [key_of(row.placement) for row in listed]
    return [
        _told(row, verdicts[key], seconds[key], lost[key], modes[key]) | {"placement": key}
        for row, key in zip(listed, keys, strict=True)
    ]


def _told(row: Row, verdict: Numerics, seconds: Sequence[float], lost: int, mode: str) -> dict[str, Any]:
    counts = verdict.passed and len(seconds) > 0
    return {
        "row": row.name,
        "predicted_ms": 1e3 * simulate(row.placement.problem, row.placement).objective_seconds,
        "measured_ms": 1e3 * min(seconds) if counts else None,
        "median_ms": 1e3 * float(np.median(seconds)) if counts else None,
        "middle_half_ms": (1e3 * np.percentile(seconds, [25, 75])).tolist() if counts else None,
        "runs": len(seconds), "lost": lost, "timing_mode": mode,
        "on_second": int((row.placement.devices == 1).sum()), "operators": len(row.placement.devices),
        "measurements": row.measurements, "simulations": row.simulations, **row.facts,
        "numerics": {"relative": verdict.relative, "tolerance": verdict.tolerance, "passed": verdict.passed},
    }  # fmt: skip


def table(results: dict[str, Any]) -> str:
    """The rows of all models as text."""
    lines = [
        "| model | row | predicted ms | measured ms, fastest (median) | against the better device "
        "| operators on the second | measurements |",
        "|---|---|---:|---:|---:|---:|---:|",
    ]
    for model, own in results["models"].items():
        alone = min(one["measured_ms"] or math.inf for one in own["rows"] if one["row"].endswith(" only"))
        for one in own["rows"]:
            taken = one["measured_ms"]
            why = "lost" if one["numerics"]["passed"] else "wrong results"
            told = f"{taken:.2f} ({one['median_ms']:.2f})" if taken else f"no time: {why}"
            ratio = f"{alone / taken:.2f}x" if taken and math.isfinite(alone) else ""
            name = f"{one['row']} (its start)" if one.get("is_its_start") else one["row"]
            lines.append(
                f"| {model} | {name} | {one['predicted_ms']:.2f} | {told} | {ratio} "
                f"| {one['on_second']} of {one['operators']} | {one['measurements'] or ''} |"
            )
    return "\n".join(lines)


def summary(results: dict[str, Any]) -> str:
    """One line per way of placing: fastest runs, medians (least to largest) over seeds, beside the better of two."""
    lines = [
        "| model | row | measured ms, fastest run | by the better of min-cut and tune | measurements of a seed "
        "| seeds that end with their start |",
        "|---|---|---:|---:|---:|---:|",
    ]
    for model, own in results["models"].items():
        grouped: dict[str, list[dict[str, Any]]] = {}
        for one in own["rows"]:
            grouped.setdefault(one["row"].partition(", seed ")[0], []).append(one)
        mark = min(one["measured_ms"] or math.inf for name in ("min-cut", "tune") for one in grouped.get(name, []))
        for name, seeds in grouped.items():
            timed = sorted(one["measured_ms"] for one in seeds if one["measured_ms"])
            spent = sorted({one["measurements"] for one in seeds})
            starts = sum(bool(one.get("is_its_start")) for one in seeds)
            lines.append(
                f"| {model} | {name} | {_middle(timed, '.1f')} | {_middle([one / mark for one in timed], '.3f')} "
                f"| {' to '.join(map(str, dict.fromkeys((spent[0], spent[-1])))) if spent[-1] else ''} "
                f"| {f'{starts} of {len(seeds)}' if 'is_its_start' in seeds[0] else ''} |"
            )
    return "\n".join(lines)


def _middle(values: Sequence[float], form: str) -> str:
    """The median, with the least and the largest where there are several."""
    if not values:
        return "no time"
    told = f"{float(np.median(values)):{form}}"
    return told if len(values) == 1 else f"{told} ({values[0]:{form}} to {values[-1]:{form}})"


def noise(rows: Sequence[dict[str, Any]]) -> float:
    """How far apart the middle half of the runs of a row lies, by their median: the median over rows."""
    spreads = [
        (one["middle_half_ms"][1] - one["middle_half_ms"][0]) / one["median_ms"] for one in rows if one["measured_ms"]
    ]
    return float(np.median(spreads))


def said_of(results: dict[str, Any]) -> str:
    """Where and with how much effort the rows were measured."""
    lines = []
    for model, own in results["models"].items():
        effort = Effort(**own["effort"])
        modes = ", ".join(sorted({one["timing_mode"] for one in own["rows"]}))
        lines.append(
            f"- {model}: {own['processor']}, {own['date']}, `{own['on']}`, {modes}, {effort.bursts} rounds of "
            f"{effort.repeats} runs of every placement, whose middle half lies {noise(own['rows']):.0%} apart; "
            f"learners with {effort.seeds} seed(s) of at most {effort.learned_measurements} measurements and "
            f"{effort.updates} updates; {own['seconds'] / 60:.1f} minutes."
        )
    return "\n".join(lines)


def is_known(cell: dict[str, Any] | None, on: str) -> bool:
    """Whether a model was measured on such workers of such a processor."""
    return cell is not None and (cell["processor"], cell["on"]) == (this_machine().cpu_name, on)


def run(
    title: str, folder: Path, cells: dict[str, Callable[[], tuple[Executor, Problem]]], learners: dict[str, Learns],
    effort: Effort, on: str, page: str = "",
) -> str:  # fmt: skip
    """Measure every cell that is not in `folder` yet, write results after each, and give the table.

    `page` has marks that the short table is put between.
    """
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "measured.json"
    results: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {"models": {}}
    for name, opened in cells.items():
        if is_known(results["models"].get(name), on):
            continue
        began = time.monotonic()
        _say(f"{name}: starting")
        executor, believed = opened()
        with executor:
            _say(f"{name}: profiling {len(executor.graph)} operators")
            problem = profiled(executor, believed, effort)
            _say(f"{name}: placing and measuring")
            told = compared(executor, rows(executor, problem, learners, effort), effort)
            results["models"][name] = {
                "rows": told, "on": on, "date": time.strftime("%Y-%m-%d", time.gmtime()),
                "load_average": os.getloadavg()[0], "effort": asdict(effort),
                "processor": this_machine().cpu_name, "seconds": time.monotonic() - began,
            }  # fmt: skip
        path.write_text(json.dumps(results, indent=1, default=str) + "\n", encoding="utf-8")
    text = f"{summary(results)}\n\n{said_of(results)}\n\n## All rows\n\n{table(results)}"
    (folder / "README.md").write_text(f"# {title}\n\n{text}\n", encoding="utf-8")
    if page:
        fill(page, "measured rewards", [summary(results), "", said_of(results)])
    return text


def _say(text: str) -> None:
    print(f"[{time.strftime('%H:%M:%S')}, load {os.getloadavg()[0]:.1f}] {text}", flush=True)
