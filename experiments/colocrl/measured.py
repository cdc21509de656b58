"""ColocRL with measured rewards: python -m experiments.colocrl.measured [--quick] [MODEL ...]

A training step of an RNNLM-like and of an Inception-like model, on two workers of this machine that run operators of
torch, any of them anywhere (`--on`). The rows are those of experiments/measured_rows.py; models that are in the results
are not measured again.
"""

from __future__ import annotations

import argparse
from functools import partial
from pathlib import Path

from experiments.measured_rows import add_effort, effort_of, run
from stead.learn.colocrl.method import ColocRL
from stead.problem import Latency, Problem
from stead.run.believed import believed_problem
from stead.run.executor import Executor
from stead.run.session import opened, workers_on

HERE = Path(__file__).parent
MODELS = {
    "RNNLM-like": "zoo:rnnlm-2?steps=6,batch=16,hidden=256,vocabulary=2000,phase=train,update=sgd",
    "Inception-like": "zoo:amoebanet?batch=4,side=64,repeats=1,width=48,phase=train,update=sgd",
}


def running(zoo: str, on: str) -> tuple[Executor, Problem]:
    """A training step that runs, and what is believed of it."""
    executor = opened(zoo, workers_on(on))
    return executor, believed_problem(executor, Latency())


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", default=[], help=f"of {', '.join(MODELS)}; all if absent")
    parser.add_argument("--quick", action="store_true", help="the first with few measurements, about 2 minutes")
    parser.add_argument("--on", default="core 0 + core 1 @ sse41", help="two workers, as `stead run --on` takes them")
    add_effort(parser)
    given = parser.parse_args()
    names = given.models or (list(MODELS)[:1] if given.quick else list(MODELS))
    cells = {name: partial(running, MODELS[name], given.on) for name in names}
    folder = HERE / "results" / ("quick" if given.quick else "measured")
    page = "" if given.quick else "docs/learned/colocrl.md"
    print(run("ColocRL with measured rewards", folder, cells, {"ColocRL": ColocRL()}, effort_of(given), given.on, page))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
