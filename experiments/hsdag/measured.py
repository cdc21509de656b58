"""HSDAG on OpenVINO with measured rewards: python -m experiments.hsdag.measured [--quick] [MODEL ...]

Inception-v3, ResNet-50 and BERT as OpenVINO IR on two unlike devices of this machine: one core with all instructions it
has, another core whose kernels may use less (`--on`). Placements run as sub-models in a process per device; what
OpenVINO fuses into one kernel is placed as one. The rows are those of experiments/measured_rows.py; models that are in
the results are not measured again.
"""

from __future__ import annotations

import argparse
from functools import partial
from pathlib import Path

from experiments.hsdag.ir_models import IR_MODELS, save_ir
from experiments.measured_rows import add_effort, effort_of, run
from stead.costs import Roofline
from stead.learn.hsdag.method import HSDAG
from stead.problem import Latency, Problem
from stead.run.believed import data_sheet
from stead.run.executor import Executor
from stead.run.openvino.executor import OpenVinoExecutor
from stead.run.session import workers_on

HERE = Path(__file__).parent


def opened(name: str, folder: Path, on: str) -> tuple[Executor, Problem]:
    """A model that runs, and what is believed of it."""
    folder.mkdir(parents=True, exist_ok=True)
    made = folder / f"{name}.xml"
    executor = OpenVinoExecutor(made if made.exists() else save_ir(name, folder), workers_on(on))
    graph, cluster = executor.as_kernels(), data_sheet(executor.workers)
    return executor, Problem(graph, cluster, Roofline().costs(graph, cluster), objective=Latency())


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", default=[], help=f"of {', '.join(IR_MODELS)}; all if absent")
    parser.add_argument("--quick", action="store_true", help="ResNet-50 alone with few measurements, about 3 minutes")
    parser.add_argument("--on", default="core 0 + core 1 @ sse41", help="two workers, as `stead run --on` takes them")
    parser.add_argument("--ir", type=Path, default=HERE / "results" / "quick" / "ir", help="where the models are kept")
    add_effort(parser)
    given = parser.parse_args()
    names = given.models or (IR_MODELS[:1] if given.quick else IR_MODELS)
    cells = {name: partial(opened, name, given.ir, given.on) for name in names}
    folder = HERE / "results" / ("quick" if given.quick else "measured")
    page = "" if given.quick else "docs/learned/hsdag.md"
    print(run("HSDAG with measured rewards", folder, cells, {"HSDAG": HSDAG()}, effort_of(given), given.on, page))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
