"""Holds the planned memory of device maps against the ledger of virtual devices, for prompts and for steps.

    python experiments/exports/memory.py                          # six architectures, 8 and 96 tokens
    python experiments/exports/memory.py --models gpt2 --tokens 32
    python experiments/exports/memory.py --phase decode --tokens 96 --models llama,gpt2,mixtral,qwen3
    python experiments/exports/memory.py --random 5               # maps at random, with both meanings of "cpu"
    python experiments/exports/memory.py --models t5 --alive      # also what is alive at the peak, planned and used

Each model is planned for two accelerators and a CPU and loaded by transformers three times: on accelerators without
limits, which gives the ledger; where the first has its planned peak (and the room that the plan sets aside beside it),
which has to work; and where it has 5 % less than that peak. All in one process, with what `stead verify` runs. Random
maps are loaded and run within their planned peak and that room.
"""

from __future__ import annotations

import argparse
import re
import sys
import tempfile
import warnings
from contextlib import suppress
from importlib import import_module
from logging import CRITICAL
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "tests" / "export"))
from hf_models import NAMES
from hf_models import main as write_models
from test_hf_device_maps import devices_for, limited, scattered

from stead.export.check_process import write_files
from stead.export.hf import MEANINGS, HuggingFaceMap
from stead.export.hf_check import Check
from stead.export.hf_verify import job_of, limit_of
from stead.export.placing import place_for
from stead.plan import Plan
from stead.problem import Latency

HEAD = """
| model | tokens | planned peak, bytes | room beside it | ledger | of peak and room | at the peak | 5 % less |
|---|---|---|---|---|---|---|---|"""
RANDOM_HEAD = """
| model | tokens | "cpu" means | random maps | fit into peak and room | ledger by peak and room |
|---|---|---|---|---|---|"""


def main() -> None:
    """Print a line for each model and length."""
    parser = argparse.ArgumentParser(description="Planned memory of device maps beside what is used.")
    parser.add_argument("--models", default=",".join(NAMES), help="separated by commas")
    parser.add_argument("--tokens", default="8,96", help="lengths of prompts, separated by commas")
    parser.add_argument("--phase", default="prefill", choices=("prefill", "decode"), help="a prompt, or one more token")
    parser.add_argument("--random", type=int, default=0, metavar="N", help="N maps at random of each model instead")
    parser.add_argument("--alive", action="store_true", help="also print what is alive at the peak, planned and used")
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    import_module("transformers").logging.set_verbosity(CRITICAL)
    names = given.models.split(",")
    print(RANDOM_HEAD if given.random else HEAD)
    with tempfile.TemporaryDirectory(prefix="stead-memory-") as work:
        write_models(work, *names)
        for name in names:
            for tokens in map(int, given.tokens.split(",")):
                if given.random:
                    for means in MEANINGS:
                        print(random_row(Path(work), name, tokens, means, given.random), flush=True)
                    continue
                print(row(Path(work), name, tokens, given.phase, alive=given.alive), flush=True)


def row(folder: Path, name: str, tokens: int, phase: str, *, alive: bool = False) -> str:
    """A line of the table; with `alive` also what the plan and the ledger hold at their peaks."""
    target = HuggingFaceMap(model=str(folder / name))
    shares = (0.6, 0.35) if tokens < 32 else (1.0, 0.5)  # of the weights; room for long prompts
    shares = (0.9, 0.5) if phase == "decode" else shares
    devices = devices_for(folder, name, shares=shares, tokens=tokens, phase=phase)
    plan = place_for(target, devices, objective=Latency(), solver="series")
    peak = int(plan.trace.peak_bytes[0])
    room = limit_of(limited(plan, peak).problem.cluster.devices[0]) - peak
    with tempfile.TemporaryDirectory(prefix="stead-memory-") as work:
        write_files(target.export(plan), Path(work))
        ledger, _ = run(target, plan, work, None)
        _, fits = run(target, plan, work, peak + room)
        _, full = run(target, plan, work, int(0.95 * peak) + room)
        at_peak = _at_peak(target, plan, work, ledger) if alive else ""
    cells = (name, tokens, f"{peak:,}", f"{room:,}", f"{ledger:,}", f"{ledger / (peak + room):.3f}", fits, full)
    return f"| {' | '.join(map(str, cells))} |{at_peak}"


def _at_peak(target: HuggingFaceMap, plan: Plan, work: str, ledger: int) -> str:
    """What the plan holds on its first device when that holds most, and what was alive there when most was used."""
    peak = plan.trace.blocks_at_peak("big")
    kinds = f"weights and caches {peak.weights_bytes:,}, room of operators {peak.workspace_bytes:,}"
    planned = [f"{one.name} ({one.kind}) {one.size_bytes:,}" for one in peak.blocks if one.kind != "weights"]
    check = Check(job_of(target, plan, work, Path(target.model)))
    with suppress(Exception):  # one byte less than was used is refused at the peak itself
        check.peaks(check.inputs(), [ledger - 1, None])
    assert check.devices.refused is not None
    used = [f"{what} {size:,}" for what, size in check.devices.refused.alive]
    return f"\nplanned: {kinds}; {'; '.join(planned)}\nused: {'; '.join(used)}"


def random_row(folder: Path, name: str, tokens: int, means: str, count: int) -> str:
    """A line of the table of random maps."""
    target = HuggingFaceMap(model=str(folder / name), cpu_means=means)
    problem = target.charged(devices_for(folder, name, shares=(9.0, 9.0), tokens=tokens).problem(Latency()))
    fitting, shares = 0, []
    for seed in range(count):
        plan = scattered(problem, seed, by_group=True)
        peak = max(1, int(plan.trace.peak_bytes[0]))
        limit = limit_of(limited(plan, peak).problem.cluster.devices[0])
        with tempfile.TemporaryDirectory(prefix="stead-memory-") as work:
            write_files(target.export(plan), Path(work))
            ledger, said = run(target, plan, work, limit)
        fitting += said == "fits"
        shares.append(ledger / limit)
    spread = f"{min(shares):.2f} to {max(shares):.2f}"
    return f"| {name} | {tokens} | {means} | {count} | {fitting} of {count} | {spread} |"


def run(target: HuggingFaceMap, plan: Plan, work: str, limit: int | None) -> tuple[int, str]:
    """The most bytes on the first accelerator, and what came of a run within a limit."""
    check = Check(job_of(target, plan, work, Path(target.model)))
    try:
        return check.peaks(check.inputs(), [limit, None])[0], "fits"
    except Exception:  # packages hide that a device is full in errors of their own
        full = check.devices.refused
        if full is None:
            raise
        names = [name for name, _ in full.alive if re.search(r"\w+\.weight$", name)]
        return 0, f"out of memory: {names[0]}, ..." if names else "out of memory, no tensor named"


if __name__ == "__main__":
    main()
