"""HSDAG on OpenVINO with measured rewards: python -m experiments.hsdag.measured [--quick] [MODEL ...]

Inception-v3, ResNet-50 and BERT as OpenVINO IR on two unlike devices of this machine: one core with all instructions it
has, another core whose kernels may use less (`--other`). Placements run as sub-models in a process per device. Rows:

    CPU only, other only    the whole model on one device
    greedy                  every operator where it can finish first (etf), by profiled costs
    min-cut                 optimal where one device works at a time, by profiled costs
    tune                    `stead tune`: place, measure, correct, place again
    HSDAG                   learns from measured time alone

All rows are measured again at the end, taking turns, and the fastest run of each counts: other programs only slow runs
down. A row whose results differ from those of one device has no time. Best on an otherwise idle machine.
"""

from __future__ import annotations

import argparse
import json
import math
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from stead.cluster import Cluster, Device, link_all
from stead.costs import Costs, Source
from stead.graph import Graph
from stead.learn.ground.task import Start
from stead.learn.ground.torch_state import one_thread
from stead.learn.hsdag.method import HSDAG
from stead.problem import Latency, Placement, Problem
from stead.run.cores import usable_cores
from stead.run.executor import Executor, Worker
from stead.run.measured_reward import MeasuredReward
from stead.run.openvino.executor import OpenVinoExecutor
from stead.run.profile import Timings, take_timings
from stead.run.tune import tune
from stead.sim import simulate
from stead.solvers import Budget, solver
from stead.workloads.ir_models import IR_MODELS, save_ir
from stead.workloads.resnet50_measured import SEND_RATE, SEND_SECONDS

HERE = Path(__file__).parent


@dataclass(frozen=True, slots=True)
class Effort:
    """How much is measured."""

    bursts: int  # of a profile, and rounds of the last comparison
    repeats: int
    tune_measurements: int
    hsdag_measurements: int
    hsdag_updates: int
    evaluations: int = 4_000  # of the simulator, by every plan that tune makes


FULL = Effort(bursts=6, repeats=6, tune_measurements=20, hsdag_measurements=300, hsdag_updates=50)
QUICK = Effort(bursts=2, repeats=3, tune_measurements=8, hsdag_measurements=20, hsdag_updates=2)


@dataclass(frozen=True, slots=True)
class Row:
    """One way to place a model, and what it takes."""

    name: str
    placement: Placement
    measurements: int = 0  # that were needed to find it

    def measured(self, executor: Executor, seconds: Sequence[float], lost: int, mode: str) -> dict[str, Any]:
        """Everything that is known about it, as plain data."""
        verdict = executor.check(self.placement)
        predicted = simulate(self.placement.problem, self.placement).objective_seconds
        found = min(seconds, default=math.nan)
        return {
            "row": self.name,
            "predicted_ms": 1e3 * predicted,
            "measured_ms": 1e3 * found if verdict.passed and math.isfinite(found) else None,
            "median_ms": 1e3 * float(np.median(seconds)) if verdict.passed and seconds else None,
            "runs": len(seconds),
            "lost": lost,
            "timing_mode": mode,
            "on_other": int(self.placement.devices.sum()),
            "operators": len(self.placement.devices),
            "measurements": self.measurements,
            "numerics": {
                "relative": verdict.relative,
                "tolerance": verdict.tolerance,
                "passed": verdict.passed,
            },
        }


def profiled(graph: Graph, timings: Sequence[Timings]) -> Problem:
    """The question of the experiment, with costs as they were measured."""
    names = [one.device for one in timings]
    links = link_all(names, bytes_per_second=SEND_RATE, latency_seconds=SEND_SECONDS)
    cluster = Cluster(tuple(map(Device, names)), links)
    seconds = np.stack([one.operators for one in timings], axis=1)
    sources = np.full(seconds.shape, Source.MEASURED, dtype=np.uint8)
    return Problem(graph, cluster, Costs(graph, cluster, seconds, sources=sources))


def rows(executor: Executor, problem: Problem, effort: Effort, seed: int = 0) -> list[Row]:
    """Every way to place the model."""
    count = len(problem.graph)
    found = [
        Row(name, Placement(problem, np.full(count, d))) for d, name in enumerate(("CPU only", "other only"))
    ]
    greedy = solver("etf").solve(problem, Budget(), seed).placement
    in_turn = problem.with_objective(Latency(execution="sequential"))
    cut = solver("mincut").solve(in_turn, Budget(), seed).placement
    found += [Row("greedy", greedy), Row("min-cut", Placement(problem, cut.devices))]
    tuned = tune(
        problem,
        measure=executor,
        measurements=effort.tune_measurements,
        evaluations=effort.evaluations,
        time_limit=None,
        seed=seed,
    )
    found.append(Row("tune", Placement(problem, tuned.plan.placement.devices), tuned.measurements))
    return [*found, learned(executor, problem, effort, seed)]


def learned(executor: Executor, problem: Problem, effort: Effort, seed: int) -> Row:
    """The best placement that HSDAG drew, by measured time."""
    reward = MeasuredReward(executor, problem, limit=effort.hsdag_measurements, seed=seed)
    with one_thread():
        learner = HSDAG().learner([problem], seed, [Start.of(problem, reward)], evaluate=reward)
        for _ in range(effort.hsdag_updates):
            if reward.trials.left < 1:
                break
            learner.update()
    timed = [trial for trial in reward.trials.known.values() if trial.counts]
    best = min(timed, key=lambda trial: trial.seconds)
    return Row("HSDAG", Placement(problem, best.placement.devices), reward.trials.count)


def compared(executor: Executor, listed: Sequence[Row], effort: Effort) -> list[dict[str, Any]]:
    """All rows measured in turns, the fastest run of each."""
    seconds: dict[str, list[float]] = {row.name: [] for row in listed}
    lost = dict.fromkeys(seconds, 0)
    modes: dict[str, str] = {}
    for _ in range(effort.bursts):
        for row in listed:
            burst = executor.burst(row.placement, runs=effort.repeats)
            seconds[row.name] += burst.seconds
            lost[row.name] += bool(burst.lost)
            modes[row.name] = burst.timing_mode
    return [row.measured(executor, seconds[row.name], lost[row.name], modes[row.name]) for row in listed]


def table(results: dict[str, Any]) -> str:
    """The rows of all models as text."""
    lines = [
        "| model | row | predicted ms | measured ms | against the better device | operators on other | measurements |"
    ]
    lines.append("|---|---|---|---|---|---|---|")
    for model, own in results["models"].items():
        single = min((one["measured_ms"] or math.inf for one in own["rows"][:2]), default=math.inf)
        for one in own["rows"]:
            taken = one["measured_ms"]
            told = (
                f"{taken:.2f}"
                if taken
                else "no time: " + ("lost" if one["numerics"]["passed"] else "wrong results")
            )
            ratio = f"{single / taken:.2f}x" if taken and math.isfinite(single) else ""
            lines.append(
                f"| {model} | {one['row']} | {one['predicted_ms']:.2f} | {told} | {ratio} "
                f"| {one['on_other']} of {one['operators']} | {one['measurements']} |"
            )
    return "\n".join(lines)


def workers(isa: str) -> tuple[Worker, ...]:
    """Two unlike devices: a core with everything, and one with less."""
    first, second, *_ = usable_cores()
    return (Worker("cpu", (first,)), Worker("other", (second,), isa=isa))


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("models", nargs="*", default=[], help=f"of {', '.join(IR_MODELS)}; all if absent")
    parser.add_argument(
        "--quick", action="store_true", help="ResNet-50 alone with few measurements, about 3 minutes"
    )
    parser.add_argument(
        "--other", default="AVX", help="what kernels of the second device may use: AVX or SSE41"
    )
    parser.add_argument("--ir", type=Path, help="a folder to keep the models in, so that they are made once")
    given = parser.parse_args()
    effort = QUICK if given.quick else FULL
    results: dict[str, Any] = {"other": given.other, "quick": given.quick, "models": {}}
    path = HERE / "results" / ("quick" if given.quick else "measured")
    path.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="stead-") as temporary:
        folder = given.ir or Path(temporary)
        folder.mkdir(exist_ok=True)
        for name in given.models or (("resnet50",) if given.quick else IR_MODELS):
            began = time.monotonic()
            made = folder / f"{name}.xml"
            print(f"{name}: preparing", flush=True)
            made = made if made.exists() else save_ir(name, folder)
            with OpenVinoExecutor(made, workers(given.other)) as executor:
                print(f"{name}: profiling {len(executor.graph)} operators", flush=True)
                timings = take_timings(executor, repeats=effort.repeats, bursts=effort.bursts)
                problem = profiled(executor.graph, timings)
                print(f"{name}: placing and measuring", flush=True)
                found = compared(executor, rows(executor, problem, effort), effort)
                results["models"][name] = {
                    "rows": found,
                    "facts": executor.facts,
                    "seconds": time.monotonic() - began,
                }
            (path / "measured.json").write_text(
                json.dumps(results, indent=1, default=str) + "\n", encoding="utf-8"
            )
    text = table(results)
    (path / "README.md").write_text(f"# HSDAG with measured rewards\n\n{text}\n", encoding="utf-8")
    print(text)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
