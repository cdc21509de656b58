"""Verifies exports of every target with its real consumer and prints what was seen as tables.

    python experiments/exports/verified.py                    # all targets
    python experiments/exports/verified.py hf --models t5     # one target, one model
    python experiments/exports/verified.py openvino --placements 40
    python experiments/exports/verified.py --brief            # the least of everything

A row is one model: how many placements were tried, how many answers were seen to be right of each of the three
questions of `stead verify`, and the largest difference of results. "-" is what cannot be seen on this machine, which is
no pass.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

TESTS = Path(__file__).parents[2] / "tests"
sys.path[:0] = [str(TESTS / "export"), str(TESTS / "run")]
from hf_models import NAMES as HF_NAMES  # noqa: E402
from larger_ir import LARGER, save_larger  # noqa: E402
from layered import drawn_counts, layered, plan_by_layers  # noqa: E402
from small_files import IR_MODELS, save_ir, save_onnx  # noqa: E402
from torch_programs import NAMES as TORCH_NAMES  # noqa: E402

from stead.export import exporter  # noqa: E402
from stead.export.base import Exporter, Verification  # noqa: E402
from stead.export.hf import HuggingFaceMap  # noqa: E402
from stead.export.hf_modules import Modules  # noqa: E402
from stead.export.placing import for_target, place_for  # noqa: E402
from stead.placing.loading import load  # noqa: E402
from stead.plan import Plan  # noqa: E402
from stead.problem import Latency, Problem  # noqa: E402
from stead.testing import tiny_layers  # noqa: E402
from stead.testing.exporters import drawn_plans, plan_of  # noqa: E402

HEAD = """
| target | model | placements | outputs as without | largest difference | all where planned | memory within limits |
|---|---|---|---|---|---|---|"""
LAYER_TARGETS = ("llama", "vllm", "megatron", "torchtitan", "deepspeed")
VIEWS = ("trace", "dot", "model-explorer")
Case = tuple[str, Exporter, Plan]  # model or setting, target, plan


@dataclass(frozen=True, slots=True)
class Asked:
    """What is to be verified."""

    models: list[str]  # empty: all
    brief: bool  # the least of everything
    placements: int  # at random of each model file


Cases = Callable[[Path, Asked], Iterator[Case]]


def main() -> None:
    """Print a table for each target that is asked for."""
    kinds: dict[str, Cases] = {
        "hf": hf, "torch": torch, "openvino": openvino, "ort": onnx_file("ort"), "onnx": onnx_file("onnx"),
        **{name: layers_of(name) for name in LAYER_TARGETS}, **{name: view(name) for name in VIEWS},
    }  # fmt: skip
    parser = argparse.ArgumentParser(description="Verify exports with their real consumers.")
    parser.add_argument("targets", nargs="*", default=[], help=f"some of {', '.join(kinds)}; by default all")
    parser.add_argument("--models", default="", help="only these, separated by commas")
    parser.add_argument("--brief", action="store_true", help="the least of everything")
    parser.add_argument(
        "--placements", type=int, default=3, metavar="N", help="at random, of every model of openvino, ort and onnx"
    )
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    models = given.models.split(",") if given.models else []
    asked = Asked(models, given.brief, 1 if given.brief else given.placements)
    print(HEAD)
    for target in given.targets or kinds:
        with tempfile.TemporaryDirectory(prefix="stead-verified-") as work:
            rows: dict[str, list[Verification]] = {}
            for model, made, plan in kinds[target](Path(work), asked):
                if rows and model not in rows:
                    print(row(target, *rows.popitem()), flush=True)
                rows.setdefault(model, []).append(made.verify(plan))
            for model, verdicts in rows.items():
                print(row(target, model, verdicts), flush=True)


def row(target: str, model: str, verdicts: list[Verification]) -> str:
    """A line of the table; anything that failed is told below it."""
    def seen(question: str) -> str:
        answers = [getattr(one, question).result for one in verdicts]
        looked = [one for one in answers if one != "not checkable here"]
        return f"{looked.count('passed')} of {len(looked)}" if looked else "-"

    found = [float(text) for one in verdicts for text in re.findall(r"by (\d\.\de[+-]\d+)", one.outputs.detail)]
    largest = f"{max(found):.1e}" if found else "-"
    cells = (f"`{target}`", model, len(verdicts), seen("outputs"), largest, seen("placed"), seen("memory"))
    line = f"| {' | '.join(map(str, cells))} |"
    wrong = [f"\nfailed: {one}" for one in verdicts if one.failed]
    return line + "".join(wrong[:1])


def hf(work: Path, asked: Asked) -> Iterator[Case]:
    """Every architecture: planned for two accelerators and a CPU, and modules at random, on CPU and waiting there."""
    from test_hf_device_maps import devices_for

    names = [name for name in HF_NAMES if not asked.models or name in asked.models]
    script = str(TESTS / "export" / "hf_models.py")
    subprocess.run([sys.executable, script, str(work), *names], check=True, capture_output=True)
    for name in names:
        planned = HuggingFaceMap(model=str(work / name))
        yield name, planned, place_for(planned, devices_for(work, name), objective=Latency(), solver="series")
        for seed in range(0 if asked.brief else 4):
            target = HuggingFaceMap(model=str(work / name), cpu_means=("compute", "offload")[seed % 2])
            problem = target.charged(devices_for(work, name, shares=(9.0, 9.0)).problem(Latency()))
            drawn = np.random.default_rng(seed).integers(0, len(problem.cluster), len(problem.graph))
            yield name, target, plan_of(problem, drawn[Modules(problem.graph).groups].tolist())


def torch(work: Path, asked: Asked) -> Iterator[Case]:
    """Every program, trained: cut evenly into two to four processes, with both schedules."""
    names = [name for name in TORCH_NAMES if not asked.models or name in asked.models]
    script = str(TESTS / "export" / "torch_programs.py")
    subprocess.run([sys.executable, "-W", "ignore", script, str(work), *names], check=True, capture_output=True)
    cases = ((2, "gpipe"), (3, "1f1b"), (4, "gpipe"), (2, "1f1b"), (3, "gpipe"), (4, "1f1b"))
    for name in names:
        for stages, schedule in cases[: 2 if asked.brief else None]:
            file = work / f"{name}.pt2"
            target = exporter("torch", model=str(file), schedule=schedule, train=True)
            problem = load(file, f"{stages}x 3090").problem(Latency())
            even = [stages * v // len(problem.graph) for v in range(len(problem.graph))]
            yield name, target, for_target(plan_of(problem, even), target).plan


def placements(problem: Problem, random: int) -> list[Plan]:
    """Plans at random, and those of solvers."""
    from test_operator_targets import placements as drawn

    return drawn(problem, random)


def openvino(work: Path, asked: Asked) -> Iterator[Case]:
    """Models as intermediate representations, with affinities and as stages: three small ones, and three larger."""
    for name in (*IR_MODELS, *LARGER):
        left_out = asked.models and name not in asked.models
        if left_out or (asked.brief and name in LARGER):
            continue
        file = save_ir(name, work) if name in IR_MODELS else save_larger(name, work)
        for plan in placements(load(file, "2x 3090+cpu").problem(Latency()), asked.placements):
            yield name, exporter("openvino", model=str(file), stages=True), plan


def onnx_file(target: str) -> Cases:
    """A model with branches as an ONNX file."""
    def cases(work: Path, asked: Asked) -> Iterator[Case]:
        file = save_onnx(work)
        for plan in placements(load(file, "2x 3090+cpu").problem(Latency()), asked.placements):
            yield "branches", exporter(target, model=str(file)), plan

    return cases


def layers_of(target: str) -> Cases:
    """Models of 4 to 11 layers, cut anywhere; for llama.cpp with a CPU, cards without layers, and experts elsewhere."""
    def cases(work: Path, asked: Asked) -> Iterator[Case]:
        random = np.random.default_rng(0)
        for _ in range(20 if asked.brief else 400):
            layers, cards = int(random.integers(4, 12)), int(random.integers(1, 5))
            if target == "llama":
                counts = drawn_counts(random, layers + 1, cards + 1, empty=True)
                order = [0, *random.permutation(np.arange(1, cards + 1)).tolist()]
                away = {n: int(random.integers(0, cards + 1)) for n in range(layers) if random.random() < 0.3}
                problem = layered(layers, cards, experts=True)
                plan = plan_by_layers(problem, np.repeat(order, counts).tolist(), before=0, experts=away)
            else:
                counts = drawn_counts(random, layers, cards, empty=False)
                order = random.permutation(cards).tolist()
                problem = layered(layers, cards, host=False)
                plan = plan_by_layers(problem, np.repeat(order, counts).tolist(), before=order[0])
            yield "4 to 11 layers", exporter(target), plan

    return cases


def view(target: str) -> Cases:
    """Pictures of plans of a few layers."""
    def cases(work: Path, asked: Asked) -> Iterator[Case]:
        made = exporter(target)
        for name, problem in (("4 layers", tiny_layers(4, 3)), ("3 layers with experts", tiny_layers(3, experts=True))):
            for plan in drawn_plans(problem, 4 if asked.brief else 20):
                yield name, made, for_target(plan, made).plan

    return cases


if __name__ == "__main__":
    main()
