"""tune from another machine's data sheet, on real cores: python -m experiments.tune.on_this_machine [--quick]

Every model is placed twice: by a profile of all its operators on both workers, and by `tune` that begins with the data
sheet of two graphics cards and may run 20 bursts. Both plans, each worker alone and the plan that the wrong data sheet
gives run in turns; the fastest run of each counts. Models that are in the results are not measured again, so that a run
can be cut in pieces (--minutes).
"""

from __future__ import annotations

import argparse
import json
import os
import time
from pathlib import Path
from typing import Any

import numpy as np

from experiments.measured_rows import FULL, QUICK, Effort, Row, compared, profiled, table
from experiments.truth.models import SUBJECTS
from experiments.truth.tables import fill
from stead.cluster.machine import this_machine
from stead.problem import Latency, Placement
from stead.run.believed import believed_problem
from stead.run.session import opened, workers_on
from stead.run.tune import tune
from stead.solvers import Budget, solver

ELSEWHERE = "3090,3080"  # whose data sheet is believed at first
NAMES = ("branching CNN", "Inception-v3", "BERT-like", "RNN", "GPT-like, training")
HERE = Path(__file__).parent
BEGIN, END = "<!-- begin of on_this_machine -->", "<!-- end of on_this_machine -->"


def cell(zoo: str, on: str, effort: Effort) -> dict[str, Any]:
    """One model: what each way of placing it takes."""
    with opened(zoo, workers_on(on)) as executor:
        wrong = believed_problem(executor, Latency(), devices=ELSEWHERE)
        tuned = tune(
            wrong, measure=executor, measurements=effort.tune_measurements, evaluations=effort.evaluations,
            time_limit=None,
        )  # fmt: skip
        known = profiled(executor, believed_problem(executor, Latency()), effort)
        budget = Budget(None, effort.evaluations)
        count = len(executor.graph)
        rows = [
            *(Row(f"{one} only", Placement(known, np.full(count, d))) for d, one in enumerate(known.cluster.names)),
            Row("auto, wrong data sheet", Placement(known, solver("auto").solve(wrong, budget, 0).placement.devices)),
            Row("auto, full profile", solver("auto").solve(known, budget, 0).placement),
            Row("tune, from the wrong data sheet", tuned.plan.placement, tuned.measurements),
        ]
        return {
            "rows": compared(executor, rows, effort), "load_average": os.getloadavg()[0],
            "processor": this_machine().cpu_name, "date": time.strftime("%Y-%m-%d", time.gmtime()),
        }  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="one model with few measurements")
    parser.add_argument("--on", default="core 0 + core 1 @ sse41", help="two workers, as `stead run --on` takes them")
    parser.add_argument("--minutes", type=float, default=0, help="begin no further model after so many")
    given = parser.parse_args()
    began = time.monotonic()
    effort = QUICK if given.quick else FULL
    path = HERE / "results" / ("quick.json" if given.quick else "on_this_machine.json")
    results: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {"models": {}}
    for subject in SUBJECTS:
        known = results["models"].get(subject.name)
        here = known is not None and known["processor"] == this_machine().cpu_name
        if here or subject.name not in NAMES[: 1 if given.quick else None]:
            continue
        if given.minutes and time.monotonic() - began > 60 * given.minutes:
            continue
        print(f"[{time.strftime('%H:%M:%S')}, load {os.getloadavg()[0]:.1f}] {subject.name}", flush=True)
        results["models"][subject.name] = cell(subject.zoo, given.on, effort)
        path.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    text = f"{table(results)}\n\n{_verdict(results)}\n"
    print(text)
    if not given.quick:
        fill(HERE / "README.md", text, BEGIN, END)
    return 0


def _verdict(results: dict[str, Any]) -> str:
    """How near `tune` came to the plan of a full profile, by the fastest runs of both, and under which load."""
    ratios, loads, places = {}, [], []
    for name, own in results["models"].items():
        profile, tuned = own["rows"][-2:]
        loads.append(own["load_average"])
        places.append(f"{own['processor']}, {own['date']}")
        if profile["measured_ms"] and tuned["measured_ms"]:
            ratios[name] = tuned["measured_ms"] / profile["measured_ms"], tuned["measurements"]
    near = sum(ratio <= 1.03 for ratio, _ in ratios.values())
    told = ", ".join(f"{name} {ratio:.3f} in {count} measurements" for name, (ratio, count) in ratios.items())
    return (
        f"tune by the plan of a full profile, measured: {told}; within 3 % in {near} of {len(ratios)}. "
        f"{'; '.join(dict.fromkeys(places))}; load average at the end of a model {min(loads):.1f} to {max(loads):.1f}."
    )


if __name__ == "__main__":
    raise SystemExit(main())
