"""The controls of every paper: what the policy itself reaches, beside what it was given to begin with.

    python experiments/controls.py PAPER ... [--graphs NAME ...] [--seeds 3] [--evaluations 120] [--cpu-seconds 1]

PAPER is colocrl, hdp, gdp, placeto, hsdag, fair (GDP against HDP on five families, from no start and from the same
one; 120 evaluations and a CPU second unless said).
Graphs are small and synthetic, so that each paper takes minutes; all that is simulated counts, starts included. Cells
are kept in PAPER/results/controls (fair: gdp/results/fair) and are not computed again;
pages in docs/learned get the tables. Rows:

    starts                  the best rule or construction that the learner is given, as it is
    prior alone             learning rate 0: what the network draws before it has learnt anything
    zero opinions           list scheduling, best of 16 walks: what decoder=walk begins at
    walks, ...              decoder=walk: opinions that are shaken at random, and opinions that are learnt
    copy, freeze, sample    it copies its start, and then only draws
    learnt, ...             it draws and learns from rewards; what it was given does not count
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from comparison import Cells, bound, median_of, reference_cluster, solved, spread
from pages import fill

from stead import Problem
from stead.cluster import Cluster
from stead.coarsen import Grouping
from stead.costs import Roofline
from stead.learn.colocrl.method import ColocRL
from stead.learn.gdp.method import GDP
from stead.learn.ground.ablation import varied
from stead.learn.ground.one_shot import OneShot
from stead.learn.ground.placed_groups import by_most_seconds, placed_groups
from stead.learn.ground.task import Start, constructed
from stead.learn.ground.torch_state import one_thread
from stead.learn.ground.training_loop import Trainee
from stead.learn.hdp.method import HDP
from stead.learn.hsdag.method import HSDAG
from stead.learn.placeto.method import Placeto
from stead.problem import Latency
from stead.solvers import Budget
from stead.testing import two_towers
from stead.workloads.synthetic import synthetic

HERE = Path(__file__).resolve().parent
COPYING = 10  # updates that copy before a policy is frozen or learns from rewards
COPIES = "expert,expert:time,chunks,heft,cut"
CUT_COLUMNS = slice(2, 4)  # of what GDP sees of a unit on a device
RULES = ("single", "expert", "balanced", "heft")
GRAPHS: Mapping[str, Mapping[str, int]] = {
    "lstm-grid": {"layers": 2, "steps": 6}, "branches": {"seed": 101}, "transformer": {"operators": 150},
    "inception": {"operators": 150, "seed": 1}, "series-parallel": {"operators": 150, "seed": 1},
}  # fmt: skip
OF_PAPERS = ("lstm-grid", "branches")
Cell = dict[str, Any]


@dataclass(frozen=True)
class Row:
    """One way of learning or of not learning."""

    options: Any
    frozen: bool = False  # after copying, or from the beginning where nothing is copied
    prepare: Callable[[Any, Problem], None] | None = None  # what an experiment does to a learner before it starts


def problems(names: Sequence[str], *, sequential: bool = False) -> dict[str, Problem]:
    """Small training steps on two equal devices; for sequential execution inference on two unlike ones."""
    objective = Latency(execution="sequential") if sequential else Latency()
    pair = reference_cluster(2)
    if sequential:
        other = replace(pair.devices[1], flops_per_second={"fp32": 1.5e12}, launch_seconds=1e-6)
        pair = Cluster((pair.devices[0], other), pair.links)
    found = {}
    for name in names:
        graph = synthetic(name, training=not sequential, **GRAPHS[name])
        found[name] = Problem(graph, pair, Roofline().costs(graph, pair), objective=objective)
    return found


def taught(
    row: Row, problem: Problem, *, seed: int, evaluations: int | None = None, cpu_seconds: float | None = None
) -> Cell:
    """Learn until a limit; what the network drew and what it began with, apart. The CPU counts from the start."""
    begin = time.process_time()
    with one_thread():
        start = Start.of(problem)
        best = start.best if row.prepare is None else None  # where two learners are compared, both copy one thing
        own: Trainee = row.options.learner([problem], seed, [replace(start, best=best, limit=evaluations)])
        if row.prepare is not None:
            row.prepare(own, problem)
        task = own.tasks[0]
        copying = getattr(getattr(own, "training", None), "imitation", 0)
        while (
            evaluations is None or task.scorer.evaluations + own.evaluations_per_update <= evaluations
        ) and (cpu_seconds is None or time.process_time() - begin < cpu_seconds):
            if row.frozen and own.version == copying:
                own.training = replace(own.training, learning_rate=0.0)
            own.update()
            if own.version > 20 * (evaluations or 10**9):
                break  # it draws the same for ever
    given = task.scorer.start
    starts = min([*start.known.values(), math.inf if given is None else given.seconds])
    return {
        "seconds": task.scorer.best_seconds, "starts": starts, "start": "" if given is None else given.by,
        "evaluations": task.scorer.evaluations, "updates": own.version,
    }  # fmt: skip


def without_cut(own: OneShot[Any], problem: Problem) -> None:
    """GDP does not see the best cut."""
    own.tasks[0].inputs.beside[:, :, CUT_COLUMNS] = 0.0


def hdp_from_heft(own: OneShot[Any], problem: Problem) -> None:
    """HDP copies list scheduling, groups and devices, with as many updates as GDP."""
    task = own.tasks[0]
    found, spent = constructed(problem, "heft", Budget())
    task.scorer.charge(spent)
    if found is None:
        return
    rules = placed_groups(problem, most=own.network.groups)
    labels = np.zeros(task.grouping.count, dtype=np.int64)
    labels[task.inputs.items] = rules.group
    devices = np.zeros(own.network.groups, dtype=np.int64)
    devices[: rules.count] = by_most_seconds(problem, Grouping(problem.graph, rules.group), found.placement.devices)
    task.target, task.copied = np.concatenate([labels, devices]), "heft"
    row = own.rows(task, torch.from_numpy(task.target[None, :]))
    task.elites.offer(task.target[None, :], task.scorer.score(row, by="heft").seconds)
    own.training = replace(own.training, imitation=COPYING)


COLOCRL, SMALL_HDP = ColocRL(hidden=64), HDP(hidden=64, groups=16)
ONE = varied(GDP(policy="", threads=1, polish=False, samples=8, imitation=COPYING), copies=COPIES)
WALKS = Placeto(policy="", episodes=4, updates=12)
PAPERS: Mapping[str, Mapping[str, Row]] = {
    "colocrl": {
        "prior alone": Row(replace(COLOCRL, learning_rate=0.0)),
        "learnt, with the prior": Row(COLOCRL),
        "no prior, learning rate 0": Row(varied(COLOCRL, follow=0.0, learning_rate=0.0)),
        "learnt, without the prior": Row(varied(COLOCRL, follow=0.0)),
        "copy, freeze, sample": Row(replace(COLOCRL, imitation=COPYING), frozen=True),
        "learnt, after copying": Row(replace(COLOCRL, imitation=COPYING)),
        "walks, learning rate 0": Row(replace(COLOCRL, decoder="walk", learning_rate=0.0)),
        "walks, learnt": Row(replace(COLOCRL, decoder="walk")),
    },
    "hdp": {
        "prior alone": Row(replace(SMALL_HDP, learning_rate=0.0)),
        "learnt, with the prior": Row(SMALL_HDP),
        "no prior, learning rate 0": Row(varied(SMALL_HDP, follow=0.0, init="random", learning_rate=0.0)),
        "learnt, without the prior": Row(varied(SMALL_HDP, follow=0.0, init="random")),
    },
    "gdp": {
        "copy, freeze, sample": Row(ONE, frozen=True),
        "learnt, after copying": Row(ONE),
        "no copy, learning rate 0": Row(varied(ONE, imitation=0, learning_rate=0.0)),
        "learnt, without copying": Row(varied(ONE, imitation=0)),
        "learnt, without copying or the cut": Row(varied(ONE, imitation=0), prepare=without_cut),
    },
    "placeto": {
        "prior alone": Row(replace(WALKS, learning_rate=0.0)),
        "learnt": Row(WALKS),
        "copy, freeze, sample": Row(varied(replace(WALKS, imitation=3), led=4), frozen=True),
        "learnt, after copying": Row(varied(replace(WALKS, imitation=3), led=4)),
    },
    "hsdag": {
        "prior alone": Row(HSDAG(learning_rate=0.0)),
        "learnt": Row(HSDAG()),
    },
}
FAIR: Mapping[str, Row] = {
    "gdp, no start": Row(varied(ONE, imitation=0), prepare=without_cut),
    "hdp, no start": Row(varied(HDP(hidden=64), init="random", follow=0.0)),
    "gdp, copies heft": Row(varied(ONE, copies="heft"), prepare=without_cut),
    "hdp, copies heft": Row(varied(HDP(hidden=64), follow=0.0), prepare=hdp_from_heft),
}


def run(paper: str, given: argparse.Namespace) -> str:
    """The table of a paper, whose cells are computed if they are not there."""
    cells = Cells(HERE / paper / "results" / "controls")
    most = (given.evaluations or 120) * (8 if paper == "placeto" else 1)  # a step of a walk is an evaluation
    lines = [f"### {paper}, {most} evaluations, {given.seeds} seeds\n"]
    graphs = problems(given.graphs or OF_PAPERS, sequential=paper == "hsdag")
    lines += ["| run time / best single device | " + " | ".join(graphs) + " |", "|---|" + "---:|" * len(graphs)]
    table: dict[str, list[str]] = {}
    rival = "climb" if paper == "hsdag" else "search"  # which is for dataflow alone
    for name, problem in graphs.items():
        single = solved("single", problem)["seconds"]
        rows: dict[str, list[Cell]] = {
            rule: [cells.get(f"{name} | {rule} | 0", partial(solved, rule, problem))] for rule in RULES
        }
        for label, row in PAPERS[paper].items():
            rows[label] = [
                cells.get(
                    f"{name} | {label} | {most} | {seed}", partial(taught, row, problem, seed=seed, evaluations=most)
                )
                for seed in range(given.seeds)
            ]
        walks = [label for label in PAPERS[paper] if label.startswith("walks, ")]
        least = min((one for label in PAPERS[paper] for one in rows[label]), key=lambda one: one["starts"])
        rows["starts"] = [{"seconds": least["starts"]}]
        rows[f"{rival}, same evaluations"] = [
            cells.get(
                f"{name} | {rival} | {most} | {seed}", partial(solved, rival, problem, seed=seed, evaluations=most)
            )
            for seed in range(given.seeds)
        ]
        if walks:
            listed = partial(solved, "walk", problem, policy="zero", threads=1)
            rows["zero opinions"] = [cells.get(f"{name} | zero opinions | 0", listed)]
            spent = median_of(rows[walks[-1]], "cpu_seconds")[0]
            rows[f"{rival}, CPU of the learnt walks"] = [
                cells.get(
                    f"{name} | {rival}, CPU of the learnt walks | {most} | {seed}",
                    partial(solved, rival, problem, seed=seed, seconds=spent, threads=1),
                )
                for seed in range(given.seeds)
            ]
        rows["bound"] = [cells.get(f"{name} | bound | 0", partial(bound, problem))]
        beside = ("zero opinions", f"{rival}, CPU of the learnt walks") if walks else ()
        for label in ("starts", *PAPERS[paper], *beside, *RULES[1:], f"{rival}, same evaluations", "bound"):
            table.setdefault(label, []).append(spread(rows[label], single))
    lines += [f"| {label} | {' | '.join(row)} |" for label, row in table.items()]
    fill(f"docs/learned/{paper}.md", "controls", lines[1:])
    return "\n".join(lines) + "\n"


def fair(given: argparse.Namespace) -> str:
    """GDP against HDP from the same start or from none, at equal evaluations and at equal CPU seconds."""
    cells = Cells(HERE / "gdp" / "results" / "fair")
    evaluations, cpu_seconds = given.evaluations or 120, given.cpu_seconds or 1.0
    limits: dict[str, dict[str, Any]] = {
        f"{evaluations} evaluations": {"evaluations": evaluations},
        f"{cpu_seconds:g} CPU s": {"cpu_seconds": cpu_seconds},
    }
    for row in FAIR.values():  # what torch does once in a process belongs to no cell
        taught(row, two_towers(), seed=0, evaluations=40)
    graphs, seeds = problems(given.graphs or tuple(GRAPHS)), range(max(5, given.seeds))
    lines = [f"| run time / best single device, {len(seeds)} seeds | heft | bound | {' | '.join(FAIR)} |"]
    lines.append("|---|---:|---:|" + "---:|" * len(FAIR))
    found: dict[tuple[str, str, str], list[Cell]] = {}
    for name, problem in graphs.items():
        single = solved("single", problem)["seconds"]
        beside = [solved("heft", problem)["seconds"] / single, bound(problem)["seconds"] / single]
        for limit, options in limits.items():
            shown = [f"{one:.3f}" for one in beside]
            for label, row in FAIR.items():
                work = partial(taught, row, problem, **options)
                own = [cells.get(f"{name} | {label} | {limit} | {s}", partial(work, seed=s)) for s in seeds]
                found[label, name, limit] = own
                shown.append(spread(own, single))
            lines.append(f"| {name}, {len(problem.graph)} operators, {limit} | {' | '.join(shown)} |")
    for start in ("no start", "copies heft"):
        won = [
            (a["seconds"] < b["seconds"], a["seconds"] > b["seconds"])
            for name in graphs
            for limit in limits
            for a, b in zip(found[f"gdp, {start}", name, limit], found[f"hdp, {start}", name, limit], strict=True)
        ]
        ratio = [
            median_of(found[f"gdp, {start}", name, limit])[0] / median_of(found[f"hdp, {start}", name, limit])[0]
            for name in graphs
            for limit in limits
        ]
        mean = math.exp(sum(map(math.log, ratio)) / len(ratio))
        ahead, behind = (sum(one[n] for one in won) for n in range(2))
        lines.append(f"\n{start}: GDP ahead of HDP on {ahead}, behind on {behind} of {len(won)} runs; "
                     f"medians of GDP over those of HDP {mean:.3f} in the geometric mean.")  # fmt: skip
    fill("docs/learned/gdp.md", "GDP against HDP", lines)
    return "\n".join(lines) + "\n"


def main() -> None:
    """Compute what is missing, then print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("papers", nargs="+", choices=[*PAPERS, "fair"])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--graphs", nargs="+", choices=list(GRAPHS))
    parser.add_argument("--evaluations", type=int)
    parser.add_argument("--cpu-seconds", type=float)
    given = parser.parse_args()
    for paper in given.papers:
        print(fair(given) if paper == "fair" else run(paper, given), flush=True)


if __name__ == "__main__":
    main()
