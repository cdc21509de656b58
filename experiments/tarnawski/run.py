"""Every published input of Tarnawski et al. 2020 again: optimum, gap, time, memory, and each baseline beside it.

    python experiments/tarnawski/run.py FOLDER [--out experiments/tarnawski/results] [--only NAME]
                                        [--seconds 15] [--proof-seconds 60] [--seed 0]

FOLDER holds throughput-inputs/, latency-inputs/ and human-experts/ as published. Every solver runs in a process of its
own, so that CPU seconds and peak memory are its own; memory is counted above what was there before solving. Values are
milliseconds per sample or per step, as in the files. Nothing here is compared by wall-clock time.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import stead
from stead import Budget, Latency, Problem, Throughput, simulate
from stead.errors import Infeasible, SteadError
from stead.placing.loading import load
from stead.problem import Objective, Placement
from stead.readers import MsrFiddle, read_split
from stead.solvers import solver

THROUGHPUT = (
    "ideals",
    "linear-dp",
    "prefix-mip",
    "anneal",
    "throughput-mip",
    "pipedream",
    "local-search",
    "metis",
)
LATENCY = ("latency-mip", "offload-linear", "greedy-offload", "max-load-split")


def objective_of(path: Path) -> Objective:
    """What the folder of an input says it is for."""
    return Latency(execution="offload") if "latency-inputs" in path.parts else Throughput()


def problem_of(path: Path) -> Problem:
    """The problem of an input, with the devices of the file."""
    return load(str(path), None).problem(objective_of(path))


def peak_bytes() -> int:
    """The most memory this process ever had."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def solve(path: Path, name: str, seconds: float, seed: int) -> dict[str, Any]:
    """One solver on one input, in this process."""
    problem = problem_of(path)
    problem.native  # noqa: B018  what reading costs is not the solver's
    chosen = solver(name)
    row: dict[str, Any] = {"input": str(path), "solver": name, "seed": seed}
    reason = chosen.unsupported(problem)
    if reason is not None:
        return row | {"reason": reason}
    before, begin = peak_bytes(), time.process_time()
    try:
        found = chosen.solve(problem, Budget(seconds=seconds), seed)
    except (Infeasible, SteadError) as error:
        return row | {"reason": str(error), "cpu_seconds": time.process_time() - begin}
    return row | {
        "value_ms": found.objective_seconds * 1e3,
        "bound_ms": found.bound_seconds * 1e3,
        "bound_name": found.bound_name,
        "scope": found.scope,
        "gap": found.gap,
        "cpu_seconds": time.process_time() - begin,
        "peak_bytes": peak_bytes() - before,
        "notes": list(found.notes),
    }


def in_a_process(path: Path, name: str, seconds: float, seed: int) -> dict[str, Any]:
    """The same in a process of its own."""
    command = [
        sys.executable,
        __file__,
        str(path),
        "--one",
        name,
        "--seconds",
        str(seconds),
        "--seed",
        str(seed),
    ]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    if run.returncode:
        reason = run.stderr.strip().splitlines()[-1] if run.stderr.strip() else f"exit code {run.returncode}"
        return {"input": str(path), "solver": name, "reason": reason}
    row: dict[str, Any] = json.loads(run.stdout)
    return row


def given_splits(path: Path, folder: Path) -> list[dict[str, Any]]:
    """All on one device, and the expert's split where there is one."""
    problem = problem_of(path)
    rows = []
    firsts = {device.kind: d for d, device in reversed(list(enumerate(problem.cluster)))}
    placements = {f"all on one {kind}": [d] * len(problem.graph) for kind, d in sorted(firsts.items())}
    expert = folder / "human-experts" / f"{path.stem}_expert.json"
    if not expert.exists():
        expert = folder / "human-experts" / f"{path.stem.replace('training', 'inference')}_expert.json"
    if expert.exists() and "LayerGraphs" in path.parts:
        try:
            split = read_split(expert, MsrFiddle().read(path))
            placements["expert"] = Placement.from_names(problem, split).devices.tolist()
        except SteadError as error:  # made for more accelerators than the input has
            rows.append({"input": str(path), "solver": "expert", "reason": str(error).partition(": ")[2]})
    for name, devices in placements.items():
        trace = simulate(problem, Placement(problem, devices))
        rows.append(
            {
                "input": str(path),
                "solver": name,
                "value_ms": trace.objective_seconds * 1e3,
                "fits": trace.feasible,
            }
        )
    return rows


def inputs(folder: Path, only: str) -> list[Path]:
    """The inputs of a folder in a fixed order."""
    found = [
        path
        for kind in ("throughput-inputs", "latency-inputs")
        for path in sorted((folder / kind).rglob("*.json"))
        if only in str(path)
    ]
    if not found:
        sys.exit(
            f"{folder} holds no throughput-inputs/ or latency-inputs/ with {only or 'anything'} in its name"
        )
    return found


def tables(rows: list[dict[str, Any]], folder: Path) -> str:
    """Markdown: one table per objective, best value first, everything relative to it."""
    text = []
    for kind, what in (("throughput-inputs", "ms per sample"), ("latency-inputs", "ms per step, offload")):
        chosen = [row for row in rows if kind in row["input"]]
        for name in dict.fromkeys(row["input"] for row in chosen):
            mine = [row for row in chosen if row["input"] == name]
            valued = [row["value_ms"] for row in mine if "value_ms" in row and row.get("fits", True)]
            best = min(valued)
            title = Path(name).relative_to(folder).with_suffix("")
            text.append(f"\n### {title} ({what})\n")
            text.append("| solver | value | relative | bound | gap | holds for | CPU s | MB |")
            text.append("|---|---|---|---|---|---|---|---|")
            text += [
                line(row, best) for row in sorted(mine, key=lambda row: row.get("value_ms", float("inf")))
            ]
    return "\n".join(text)


def line(row: dict[str, Any], best: float) -> str:
    """One row of a table."""
    if "value_ms" not in row:
        return f"| {row['solver']} | - | {row['reason']} | | | | | |"
    fits = "" if row.get("fits", True) else " (does not fit)"
    cells = [row["solver"], f"{row['value_ms']:.6f}{fits}", f"{row['value_ms'] / best:.4f}"]
    if "bound_ms" in row:
        cells += [f"{row['bound_ms']:.6f}", f"{100 * row['gap']:.3f} %", row["scope"] or "all placements"]
        cells += [f"{row['cpu_seconds']:.2f}", f"{row['peak_bytes'] / 1e6:.0f}"]
    return "| " + " | ".join(cells + [""] * (8 - len(cells))) + " |"


def totals(rows: list[dict[str, Any]]) -> str:
    """What the dynamic program costs over all throughput inputs."""
    mine = [row for row in rows if row["solver"] == "ideals" and "value_ms" in row]
    proved = sum(row["gap"] == 0 for row in mine)
    spent = sum(row["cpu_seconds"] for row in mine)
    peak = max((row["peak_bytes"] for row in mine), default=0)
    return f"`ideals`: {proved} of {len(mine)} proved, {spent:.2f} CPU s in all, at most {peak / 1e6:.0f} MB."


def main() -> None:
    """Run everything and write JSON and Markdown."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results")
    parser.add_argument("--only", default="", help="inputs whose path contains this")
    parser.add_argument("--seconds", type=float, default=15.0, help="for each solver")
    parser.add_argument("--proof-seconds", type=float, default=60.0, help="for integer programs")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--one", default="", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.one:
        print(json.dumps(solve(given.folder, given.one, given.seconds, given.seed)))
        return
    rows: list[dict[str, Any]] = []
    for path in inputs(given.folder, given.only):
        names = LATENCY if "latency-inputs" in path.parts else THROUGHPUT
        for name in names:
            seconds = given.proof_seconds if name.endswith("-mip") else given.seconds
            rows.append(in_a_process(path, name, seconds, given.seed))
            print(line(rows[-1], rows[-1].get("value_ms", 1.0)), flush=True)
        rows += given_splits(path, given.folder)
    given.out.mkdir(parents=True, exist_ok=True)
    command = (
        f"python experiments/tarnawski/run.py FOLDER --seconds {given.seconds:g} "
        f"--proof-seconds {given.proof_seconds:g} --seed {given.seed}"
    )
    head = f"# Results\n\n`{command}`, stead {stead.__version__}. {totals(rows)}\n"
    for row in rows:
        row["input"] = str(Path(row["input"]).relative_to(given.folder))
    (given.out / "results.json").write_text(json.dumps({"command": command, "rows": rows}, indent=1) + "\n")
    absolute = [row | {"input": str(given.folder / row["input"])} for row in rows]
    (given.out / "README.md").write_text(head + tables(absolute, given.folder) + "\n")
    print(head)


if __name__ == "__main__":
    main()
