"""Networks whose opinions walks follow, asked zero-shot on families that they have never seen, beside their controls.

    python experiments/walk/networks.py [--gdp FILE] [--placeto FILE]    resumable; results/networks.json
    python experiments/walk/networks.py --fine-tune 160                  GNMT-8 of 80 steps, asked once and fine-tuned
    python experiments/walk/networks.py --fine-tune 160 --second         RNNLM-8 of 200 steps
    python experiments/walk/networks.py --validate                       both on unseen made-up problems, beside zero
    python experiments/walk/networks.py --decoders                       whole answers, walks or the paper's decoder
    python experiments/walk/networks.py --tables                         results/networks.md from what there is

What the policy itself reaches: best of 16 walks that follow its opinions, no rule and no construction beside them.
Controls: an untrained network, whose opinions are zero, so that these are 16 walks of list scheduling (with the CPU
that the network takes); the same network with the weights of its last layer in random order; 16 walks by learned rules.
"""

from __future__ import annotations

import argparse
import math
import time
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from run import VALIDATED, Cells, fill, mean_ratio, timed
from suite import CLUSTERS, Case, own_cases, zoo_cases

from stead.errors import Infeasible
from stead.learn.gdp.method import GDP
from stead.learn.gdp.method import SHIPPED_WALK as GDP_FILE
from stead.learn.ground.torch_state import one_thread
from stead.learn.placeto.method import SHIPPED_WALK as PLACETO_FILE
from stead.learn.placeto.method import Placeto
from stead.learn.walk.made_problems import made_problem
from stead.learn.walk.method import Walk
from stead.learn.walk.opinion_loop import opinions_of
from stead.learn.walk.opinion_solver import OpinionSolver
from stead.learn.walk.opinions import OpinedGrounds, walk_by_opinions
from stead.learn.walk.walk_plans import WALKS
from stead.learn.walk.walk_training import PLAN_SCOPE
from stead.placing.loading import load
from stead.problem import Latency, Problem
from stead.solvers import Budget
from stead.solvers.build.list_scheduling import Heft
from stead.solvers.rules.settle import started

RESULTS = Path(__file__).resolve().parent / "results"
ROWS = {
    "gdp": "`gdp`, decoder=walk", "gdp shuffled": "control: its last layer in random order",
    "placeto": "`placeto`, decoder=walk", "placeto shuffled": "control: its last layer in random order",
    "zero": "control: opinions of zero (list scheduling, 16 walks)", "walk": "`walk`: 16 walks by learned rules",
}  # fmt: skip
DECODED = {
    "gdp devices": ("`gdp`, decoder=devices", GDP(decoder="devices", polish=False, threads=1)),
    "gdp walk": ("`gdp`, decoder=walk", GDP(decoder="walk", polish=False, threads=1)),
    "placeto episodes": ("`placeto`, decoder=episodes", Placeto(decoder="episodes", threads=1)),
    "placeto walk": ("`placeto`, decoder=walk", Placeto(decoder="walk", threads=1)),
}
PAGES = ("experiments/walk/README.md", "docs/learned/gdp.md", "docs/learned/placeto.md")
HUGE = {  # by the name of results and of tables: what it is called, the model
    "fine-tuning": ("GNMT-8, 80 steps", "zoo:gnmt-8?phase=train,steps=80"),
    "fine-tuning, second graph": ("RNNLM-8, 200 steps", "zoo:rnnlm-8?phase=train,steps=200"),
}
TUNED_SAMPLES = 8
SOME = 100  # of the problems that policies are validated on
PARTS = ("recurrent", "others", "own random families")


def asked(solver: OpinionSolver[Any], problem: Problem) -> dict[str, Any]:
    """What walks by the opinions of a network find, with the CPU of the network; nothing else is in the pool."""
    begin = time.process_time()
    search = started(Walk(), problem, Budget(), 0)
    with one_thread():
        grouping, inputs = solver.method.inputs(problem)
        opinions = opinions_of(solver.network, inputs)
        search.evaluations += solver.method.seen(inputs).evaluations
    grounds = OpinedGrounds(problem, grouping.group)
    try:
        walk_by_opinions(search, grounds, opinions, name="opinions", walks=WALKS, threads=1)
        seconds = search.solution().objective_seconds
    except Infeasible:
        seconds = None
    return {"seconds": seconds, "cpu": time.process_time() - begin, "evaluations": search.evaluations}


def shuffled(solver: OpinionSolver[Any]) -> None:
    """The weights of the last layer in random order."""
    order = np.random.default_rng(1)
    with torch.no_grad():
        for weight in (solver.network.say.weight, solver.network.say.bias):
            flat = weight.flatten().numpy().copy()
            weight.copy_(torch.from_numpy(order.permutation(flat)).view_as(weight))


def judged(case: Case, files: dict[str, Path]) -> dict[str, Any]:
    """One problem by everybody."""
    problem = case.problem
    _ = problem.native  # what all share is not timed
    row: dict[str, Any] = {"part": case.part, "family": case.family, "operators": len(problem.graph)}
    row["heft"] = timed(lambda: Heft().solve(problem, Budget()))
    row["walk"] = timed(lambda: Walk(walks=WALKS, threads=1).solve(problem, Budget()))
    row["zero"] = timed(lambda: Walk(policy="zero", walks=WALKS, threads=1).solve(problem, Budget()))
    for name, method in (("gdp", GDP(threads=1)), ("placeto", Placeto(threads=1))):
        for mixed in (False, True):
            solver = method.opinions(files[name])
            assert solver is not None
            if mixed:
                shuffled(solver)
            row[f"{name} shuffled" if mixed else name] = asked(solver, problem)
    return row


def decoded(case: Case) -> dict[str, Any]:
    """Whole answers of the policies of the package, baselines and constructions that they are given among them."""
    problem = case.problem
    _ = problem.native
    row: dict[str, Any] = {"part": case.part, "heft": timed(lambda: Heft().solve(problem, Budget()))}
    for key, (_, solver) in DECODED.items():
        row[key] = timed(partial(solver.solve, problem, Budget()))
    return row


def validate(files: dict[str, Path]) -> None:
    """Best of 16 walks by opinions over those with opinions of zero, on made-up problems that nothing has seen."""
    gains: dict[str, list[float]] = {name: [] for name in files}
    for seed in VALIDATED[:SOME]:
        problem = made_problem(seed, PLAN_SCOPE).problem
        listed = Walk(policy="zero", walks=WALKS, threads=1)
        zero = timed(lambda problem=problem, listed=listed: listed.solve(problem, Budget()))["seconds"]
        for name, method in (("gdp", GDP(threads=1)), ("placeto", Placeto(threads=1))):
            solver = method.opinions(files[name])
            assert solver is not None
            found = asked(solver, problem)["seconds"]
            if found is not None and zero is not None:
                gains[name].append(math.log(found / zero))
    for name, own in gains.items():
        error = np.std(own) / math.sqrt(len(own))
        print(f"{name}: {math.exp(np.mean(own)):.4f} of zero opinions, +- {error:.4f}, {len(own)} problems")


TUNED = {
    "heft": "the heft family", "zero": "control: opinions of zero, 16 walks",
    "asked": "`gdp`, decoder=walk, asked once", "tuned": "fine-tuned",
    "frozen": "control: the same at learning rate 0", "scratch": "no policy",
}  # fmt: skip
ONCE = ("heft", "zero", "asked")  # which no seed changes


def tuned(cells: Cells, model: str, updates: int, path: Path, seeds: int) -> None:
    """A held-out graph of more than 50,000 operators: asked once, fine-tuned, and the same without a policy."""
    problem = load(model, CLUSTERS["4 equal"]).problem(Latency())
    _ = problem.native
    asked_once = GDP(policy=str(path), polish=False, threads=1, samples=TUNED_SAMPLES, decoder="walk")
    after = replace(asked_once, fine_tune=updates)
    solvers: dict[str, Any] = {
        "heft": Heft(), "zero": Walk(policy="zero", walks=WALKS, threads=1), "asked": asked_once, "tuned": after,
        "frozen": replace(after, learning_rate=0.0), "scratch": replace(asked_once, policy="", updates=updates),
    }  # fmt: skip
    cells.get("graph", lambda: {"operators": len(problem.graph), "updates": updates})
    for seed in range(seeds):
        for name, solver in solvers.items():
            if seed == 0 or name not in ONCE:
                work = partial(solver.solve, problem, Budget(), seed)
                cells.get(f"{name} | {seed}", partial(timed, work))


def tuned_table(name: str, rows: dict[str, dict[str, Any]]) -> list[str]:
    """How far fine-tuning comes: medians over seeds, the least and the most."""
    graph = rows["graph"]
    lines = [
        f"| {name}, {graph['operators']:,} operators, {graph['updates']} updates | seeds | seconds / heft |"
        " found by | evaluations | CPU s |",
        "|---|---:|---:|---|---:|---:|",
    ]
    heft = rows["heft | 0"]["seconds"]
    for kind, title in TUNED.items():
        own = [row for key, row in rows.items() if key.startswith(f"{kind} | ")]
        if not own:
            continue
        ratios = sorted(row["seconds"] / heft for row in own)
        spread = f" ({ratios[0]:.3f} to {ratios[-1]:.3f})" if len(own) > 1 else ""
        by = ", ".join(sorted({row["found_by"].partition(", variant")[0] for row in own}))
        evaluations, cpu = (float(np.median([row[key] for row in own])) for key in ("evaluations", "cpu"))
        middle = float(np.median(ratios))
        lines.append(f"| {title} | {len(own)} | {middle:.3f}{spread} | {by} | {evaluations:,.0f} | {cpu:.0f} |")
    return lines


def table(rows: list[dict[str, Any]], titles: dict[str, str]) -> list[str]:
    """Ratios to the heft family."""
    zoo = [row for row in rows if row["part"] != PARTS[2]]
    groups = [zoo, *([row for row in rows if row["part"] == part] for part in PARTS)]
    lines = [
        f"| | all of the zoo and nmt ({len(zoo)}) | "
        + " | ".join(f"{part} ({len(own)})" for part, own in zip(PARTS, groups[1:], strict=True))
        + " | CPU ms |",
        "|---|---|---|---|---|---:|",
        f"| the heft family | 1 | 1 | 1 | 1 | {1000 * sum(row['heft']['cpu'] for row in rows) / len(rows):.0f} |",
    ]
    for key, title in titles.items():
        cells = []
        for own in groups:
            ratio, wins, losses, count = mean_ratio((row[key]["seconds"], row["heft"]["seconds"]) for row in own)
            lacking = f", {len(own) - count} do not fit" if count < len(own) else ""
            cells.append(f"{ratio:.3f} ({wins}/{losses}{lacking})")
        spent = 1000 * sum(row[key]["cpu"] for row in rows) / len(rows)
        lines.append(f"| {title} | {' | '.join(cells)} | {spent:.0f} |")
    return lines


def main() -> None:
    """Judge, and write the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gdp", type=Path, default=GDP_FILE)
    parser.add_argument("--placeto", type=Path, default=PLACETO_FILE)
    parser.add_argument("--tables", action="store_true")
    parser.add_argument("--validate", action="store_true")
    parser.add_argument("--decoders", action="store_true")
    parser.add_argument("--fine-tune", type=int, default=0, metavar="UPDATES")
    parser.add_argument("--second", action="store_true", help="fine-tune the second graph")
    parser.add_argument("--seeds", type=int, default=5, help="of fine-tuning")
    given = parser.parse_args()
    files = {"gdp": given.gdp, "placeto": given.placeto}
    if given.validate:
        validate(files)
        return
    decoders = Cells(RESULTS / "decoders.json")
    for cases in (zoo_cases, own_cases) if given.decoders else ():
        for case in cases():
            decoders.get(case.key, partial(decoded, case))
    for page in PAGES if decoders.rows else ():
        fill(page, "decoders", table(list(decoders.rows.values()), {key: one[0] for key, one in DECODED.items()}))
    if given.decoders:
        return
    for part, (name, model) in HUGE.items():
        tuning = Cells(RESULTS / f"{'_'.join(part.replace(',', '').replace('-', ' ').split())}.json")
        if given.fine_tune and given.second == part.endswith("second graph"):
            tuned(tuning, model, given.fine_tune, given.gdp, given.seeds)
        for page in PAGES[:2] if tuning.rows else ():
            fill(page, part, tuned_table(name, tuning.rows))
    if given.fine_tune:
        return
    cells = Cells(RESULTS / "networks.json")
    for cases in () if given.tables else (zoo_cases, own_cases):
        for case in cases():
            cells.get(case.key, lambda case=case: judged(case, files))
    told = ["# Networks and walks", "", "Written by `python experiments/walk/networks.py`.", ""]
    told += ["Ratios to the heft family (wins/losses).", "", *table(list(cells.rows.values()), ROWS), ""]
    (RESULTS / "networks.md").write_text("\n".join(told))
    for page in PAGES:
        fill(page, "networks and walks", table(list(cells.rows.values()), ROWS))


if __name__ == "__main__":
    main()
