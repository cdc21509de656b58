"""HSDAG, again: python experiments/hsdag/run.py [--quick] [--only WORD]

Runs what is missing under results/, one file per cell, then prints all tables and the acceptance checks with measured
values. Interrupt it whenever you like: cells that are done are not run again. `--quick` runs few seeds into a folder of
its own. Values are milliseconds of sequential latency, as the simulator says; "evaluations" counts every placement that
a method asked for, also such as it had asked for before.
"""

from __future__ import annotations

import argparse
import json
import re
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from stead.cluster import Cluster, Device, link_all
from stead.costs import Costs, Roofline
from stead.formats.graph_npz import GraphNpz
from stead.graph import Graph
from stead.learn.coarsening import chains, coarsened, published
from stead.learn.fractal import fractal_dimensions
from stead.learn.hsdag import HSDAG
from stead.learn.hsdag_published import PublishedLoop
from stead.learn.parsing import Limits, Neighbours, partitions
from stead.learn.policy import NetworkPolicy
from stead.learn.runs import Run
from stead.learn.solver import Start, train_policy
from stead.learn.state import one_thread
from stead.problem import Latency, Problem
from stead.sim import simulate_many
from stead.solvers import Budget, solver
from stead.transform import Grouping
from stead.workloads.ir_models import IR_MODELS, measured_costs
from stead.workloads.resnet50_measured import resnet50_measured

HERE = Path(__file__).parent
TESTS = {  # checks that are tests: file, and words of which a test has one in its name
    "H2 placements by name": ("learn/test_hsdag_models.py", "by_name"),
    "H3 min-cut against brute force": ("solvers/test_mincut.py", "two_devices"),
    "H4 charging every edge is wrong": ("solvers/test_mincut.py", "paid_once"),
    "H6 three devices against brute force": ("solvers/test_mincut.py", "three_devices or exchanges"),
    "H8 determinism": ("learn/test_hsdag.py", "both_ways or another_process or same_bits or same_seed"),
    "H11 never worse than one device": ("learn/test_hsdag.py", "one_device"),
    "H15 masks and memory": (
        "learn/test_hsdag.py",
        "forbidden or fits or fit_teach or common_device or memory",
    ),
    "H16 50,000 nodes": ("learn/test_hsdag.py", "fifty_thousand"),
}
SEQUENTIAL = Latency("sequential")
NAMES = ("cpu", "accelerator")
SEEDS = 10
TABLE_SEEDS = 5
SIZES = {  # IR, constants folded, published co-location, chains after folding; (nodes, edges) each
    "resnet50": ((396, 411), (178, 193), (237, 252), (39, 54)),
    "inception-v3": ((726, 762), (325, 361), (424, 460), (67, 103)),
    "bert": ((973, 1059), (419, 485), (747, 833), (110, 176)),
}
BANDS = {  # groups at levels 1, 2, 3 with uniform symmetric scores: least, median, most of 100 seeds
    "resnet50": ((51, 63, 72), (13, 18, 24), (2, 5, 7)),
    "inception-v3": ((93, 110, 125), (22, 29, 36), (4, 7, 12)),
    "bert": ((175, 193, 213), (42, 52, 62), (7, 12, 18)),
}


# Instances


def ir_graph(name: str, fold: str) -> Graph:
    return GraphNpz().read(HERE / "graphs" / f"{name}-{fold}.npz").graph


def plain(name: str) -> Problem:
    """An IR graph on a CPU and an accelerator that is better at everything large: the paper's setting."""
    graph = ir_graph(name, "constants")
    devices = (
        Device(
            "cpu", kind="cpu", flops_per_second={"fp32": 200e9}, bytes_per_second=40e9, launch_seconds=2e-6
        ),
        Device("accelerator", flops_per_second={"fp32": 4e12}, bytes_per_second=200e9, launch_seconds=20e-6),
    )
    cluster = Cluster(devices, link_all(NAMES, bytes_per_second=5e9, latency_seconds=60e-6))
    return Problem(graph, cluster, Roofline().costs(graph, cluster), objective=SEQUENTIAL)


def mixed(name: str) -> Problem:
    """The same CPU, and a device that takes half its time for what takes above 250 us there, else twice and 25 us."""
    given = plain(name)
    cpu = given.costs.seconds[:, 0]
    other = np.where(cpu > 250e-6, cpu / 2, np.where(cpu > 0, 2 * cpu + 25e-6, 0.0))
    costs = Costs(given.graph, given.cluster, np.stack([cpu, other], axis=1))
    return Problem(given.graph, given.cluster, costs, objective=SEQUENTIAL)


def resnet50(devices: str = "f32 mixed") -> Problem:
    return Problem(*resnet50_measured(devices), objective=SEQUENTIAL)


def resnet50_ir() -> Problem:
    """The measured instance with one operator per layer of the IR, constants costing nothing."""
    graph = ir_graph("resnet50", "nothing")
    return Problem(graph, *measured_costs(graph), objective=SEQUENTIAL)


GRAPHS: dict[str, Callable[[], Problem]] = {
    "resnet50-mixed": resnet50,
    "inception-v3-mixed": lambda: mixed("inception-v3"),
}


# Cells


def learned(problem: Problem, options: HSDAG, seeds: range, evaluations: int = 500) -> list[dict[str, Any]]:
    """Best sample and preferred placement of every seed, after so many placements."""
    found = []
    for seed in seeds:
        begin = time.process_time()
        with one_thread():
            own = replace(options, threads=1).learner([problem], seed, [Start.of(problem)])
            task = own.tasks[0]
            for _ in range(evaluations // own.evaluations_per_update):
                own.update()
            spent, scored = time.process_time() - begin, task.scorer
            row = {"seed": seed, "best": scored.best_seconds * 1e3, "simulated": scored.evaluations}
            row["hits"] = scored.hits
            row["greedy"] = float(scored.score(own.greedy(task)[None, :]).seconds[0]) * 1e3
        row["cpu_seconds"] = spent
        if isinstance(own, PublishedLoop):
            row["groups"] = np.bincount(own.counts).tolist()
            row["rejected"] = own.rejected / len(own.counts)
            row["evaluation_groups"] = len(np.unique(own.groups(task)))
        found.append(row)
    return found


def chunks(problem: Problem, seeds: range, evaluations: int = 500) -> list[dict[str, Any]]:
    """Best of random placements in 2 to 8 runs of the topological order."""
    found, count = [], len(problem.graph)
    for seed in seeds:
        rng = np.random.default_rng(seed)
        rows = np.empty((evaluations, count), dtype=np.uint8)
        for row in rows:
            cuts = np.sort(rng.choice(np.arange(1, count), int(rng.integers(1, 8)), replace=False))
            label = np.searchsorted(cuts, np.arange(count), side="right")
            row[:] = rng.integers(len(problem.cluster), size=len(cuts) + 1)[label]
        found.append({"seed": seed, "best": float(simulate_many(problem, rows).seconds.min()) * 1e3})
    return found


def rivals(problem: Problem, cpu_seconds: float) -> dict[str, Any]:
    """What does not learn; searches get the CPU seconds that learning took."""
    found: dict[str, Any] = {}
    names = [f"single:{name}" for name in problem.cluster.names]
    for name in [*names, "greedy_support", "heft", "climb", "auto", "mincut"]:
        own = solver(name)
        if own.unsupported(problem) is not None:
            continue
        begin = time.process_time()
        solution = own.solve(problem, Budget(seconds=cpu_seconds), 0)
        found[name] = {
            "ms": solution.objective_seconds * 1e3,
            "bound": solution.bound_seconds * 1e3,
            "cpu_seconds": time.process_time() - begin,
        }
    return found


def table_cell(make: Callable[[], Problem], seeds: range) -> dict[str, Any]:
    problem = make()
    rows = learned(problem, HSDAG(), seeds)
    return {
        "operators": len(problem.graph),
        "coarsening": coarsened(problem, "lossless", most=2048)[1],
        "learned": rows,
        "rate 0": learned(problem, HSDAG(learning_rate=0.0), seeds),
        "rivals": rivals(problem, statistics.median(row["cpu_seconds"] for row in rows)),
    }


def transfer(seed: int, updates: int) -> dict[str, Any]:
    """Train on two of the three models, place the third without training."""
    found = {}
    for held in IR_MODELS:
        problems = [mixed(name) for name in IR_MODELS if name != held]
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "p.safetensors"
            train_policy(HSDAG(), problems, ["a", "b"], Run(file, updates), seed=seed)
            policy = NetworkPolicy.load(file, HSDAG)
        unseen = mixed(held)
        fresh = NetworkPolicy(HSDAG(), HSDAG().network(2, seed), 2)
        row = {}
        for name, one in (("trained", policy), ("untrained", fresh)):
            proposal = one.propose(unseen, 65, seed)
            seconds = simulate_many(unseen, proposal.placements).seconds * 1e3
            row[name] = {"greedy": float(seconds[0]), "best of 64": float(seconds[1:].min())}
        singles = [float(total) * 1e3 for total in unseen.costs.seconds.sum(axis=0)]
        exact = solver("mincut").solve(unseen, Budget(), 0).objective_seconds * 1e3
        found[held] = {**row, "single": min(singles), "exact": exact}
    return found


def tested(file: str, words: str) -> dict[str, Any]:
    """Passed and failed tests of a file."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-k", words]
    begin = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
    run = subprocess.run(
        [*command, f"tests/{file}"], cwd=HERE.parents[1], capture_output=True, text=True, check=False
    )
    counted = {
        what: int(number) for number, what in re.findall(r"(\d+) (passed|failed|error|skipped)", run.stdout)
    } or {"passed": run.stdout.splitlines()[0].count(".")}
    spent = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - begin
    return {**counted, "exit_code": run.returncode, "cpu_seconds": spent}


def cells(quick: bool) -> dict[str, Callable[[], Any]]:
    many, few = (range(2), range(1)) if quick else (range(SEEDS), range(TABLE_SEEDS))
    work: dict[str, Callable[[], Any]] = {}
    for graph, make in GRAPHS.items():
        for features in ("cost", "structure"):
            for grouping in ("learned", "none"):
                for rate in (-1.0, 0.0):
                    options = HSDAG(features=features, grouping=grouping, learning_rate=rate)
                    name = f"ablation {graph} {features} {grouping} {'0' if rate == 0 else 'lr'}"
                    work[name] = lambda make=make, options=options: learned(make(), options, many)
        work[f"chunks {graph}"] = lambda make=make: chunks(make(), many)
        for encoder in ("gat", "gin"):
            options = HSDAG(encoder=encoder)
            work[f"encoder {graph} {encoder}"] = lambda make=make, options=options: learned(
                make(), options, many
            )
    for name in IR_MODELS:
        for kind, made in (("plain", plain), ("mixed", mixed)):
            work[f"table {name} {kind}"] = lambda made=made, name=name: table_cell(lambda: made(name), few)
    work["long"] = lambda: learned(resnet50(), HSDAG(), many, 400 if quick else 2000)
    work["devices 3"] = lambda: learned(resnet50("f32 mixed third"), HSDAG(), few)
    amount = 100 if quick else 500
    for name, options in (
        ("lr", HSDAG(variant="faithful")),
        ("0", HSDAG(variant="faithful", learning_rate=0.0)),
        ("index order", HSDAG(variant="faithful", defects=frozenset({"index_order"}))),
    ):
        seeds = range(1 if quick else 3)
        work[f"published {name}"] = lambda options=options, seeds=seeds: learned(
            resnet50_ir(), options, seeds, amount
        )
    for name, (file, words) in TESTS.items():
        work[f"tests {name.split()[0]} {name.split()[1]}"] = lambda file=file, words=words: tested(
            file, words
        )
    work["transfer"] = lambda: transfer(0, 5 if quick else 100)
    return work


# Checks


def check_sizes() -> tuple[bool, str]:
    right, told = True, []
    for name, wanted in SIZES.items():
        fine, folded = ir_graph(name, "nothing"), ir_graph(name, "constants")
        sizes = [(len(graph), len(graph.edges)) for graph in (fine, folded)]
        for graph, label in ((fine, published(fine)), (folded, chains(folded))):
            grouping = Grouping(graph, label)
            pairs = np.unique(grouping.group[graph.edges], axis=0)
            sizes.append((grouping.count, int((pairs[:, 0] != pairs[:, 1]).sum())))
        same = tuple(sizes) == wanted
        right &= same or name != "resnet50"
        told.append(
            f"{name} {' '.join(f'{n}/{e}' for n, e in sizes)}" + ("" if same else " (reference differs)")
        )
    return right, "; ".join(told)


def check_exact() -> tuple[bool, str]:
    told, right = [], True
    for devices, ms in (("f32 bf16", 38.8880), ("f32 mixed", 55.9495), ("f32 mixed third", 51.9483)):
        problem = resnet50(devices)
        begin = time.process_time()
        found = solver("mincut").solve(problem, Budget(), 0)
        spent = time.process_time() - begin
        right &= abs(found.objective_seconds * 1e3 - ms) < 1e-4 and found.gap == 0
        told.append(f"{found.objective_seconds * 1e3:.4f} in {spent * 1e3:.0f} ms")
    return right, ", ".join(told)


def check_coarsening() -> tuple[bool, str]:
    problem = resnet50()
    label = chains(problem.graph)
    made = {
        "lossless": coarsened(problem, "lossless", most=2048)[0],
        "chains": Grouping(problem.graph, label),
    }
    found = {}
    for name, grouping in made.items():
        found[name] = solver("mincut").solve(grouping.colocated(problem), Budget(), 0).objective_seconds * 1e3
    right = abs(found["lossless"] - 55.9495) < 1e-4 and abs(found["chains"] - 65.3878) < 1e-4
    told = ", ".join(f"{name} {made[name].count} groups {ms:.4f}" for name, ms in found.items())
    return right and made["chains"].is_acyclic, told


def co_located(name: str) -> tuple[int, Any]:
    graph = ir_graph(name, "nothing")
    grouping = Grouping(graph, published(graph))
    pairs = np.unique(grouping.group[graph.edges].astype(np.int64), axis=0)
    return grouping.count, pairs[pairs[:, 0] != pairs[:, 1]]


def check_bands() -> tuple[bool, str]:
    right, told = True, []
    for name, bands in BANDS.items():
        count, edges = co_located(name)
        sizes = np.array([boruvka_sizes(count, edges, seed) for seed in range(100)])
        for level, (least, median, most) in enumerate(bands):
            own = sizes[:, level]
            inside = ((own >= least) & (own <= most)).mean()
            right &= inside >= 0.95 and abs(np.median(own) - median) <= 2
            told.append(f"{name} level {level + 1}: {own.min()}/{np.median(own):.0f}/{own.max()}")
    return right, "; ".join(told)


def boruvka_sizes(count: int, edges: Any, seed: int) -> list[int]:
    rng, sizes = np.random.default_rng(seed), []
    for _ in range(3):
        near = Neighbours.of(count, edges)
        score = np.append(rng.random(len(near.pairs)), -1.0)[near.pair]
        order = np.lexsort((score, near.owner))
        picks = near.other[order[near.first[1:] - 1]]
        label = partitions(picks[None, :], Limits(np.ones((count, 1), dtype=bool), np.zeros(count), 1.0))[0]
        heads, number = np.unique(label, return_inverse=True)
        sizes.append(len(heads))
        count, edges = len(heads), number[near.pairs]
    return sizes


def check_groups() -> tuple[bool, str]:
    told, right = [], True
    for name in IR_MODELS:
        _, inputs = HSDAG().inputs(mixed(name))
        counts = [len(np.unique(HSDAG().network(2, seed).hierarchy(inputs)[0])) for seed in range(5)]
        right &= min(counts) > 1
        told.append(f"{name} {min(counts)}-{max(counts)} of {len(inputs.x)}")
    return right, "; ".join(told)


def check_fractal() -> tuple[bool, str]:
    count, edges = co_located("resnet50")
    found = fractal_dimensions(count, edges)
    path = fractal_dimensions(9, np.stack([np.arange(8), np.arange(1, 9)], axis=1))
    right = round(found.min(), 2) == 1.16 and round(found.max(), 2) == 2.06 and abs(path[0] - 1) < 1e-9
    return bool(right), f"{found.min():.2f}-{found.max():.2f}, end of a path {path[0]:.2f}"


def check_speed(rows: list[dict[str, Any]]) -> tuple[bool, str]:
    count, edges = co_located("bert")
    near = Neighbours.of(count, edges)
    limits = Limits(np.ones((count, 2), dtype=bool), np.zeros(count), 1.0, 2)
    network = HSDAG().network(2, 0)
    z, noise = torch.randn(count, 64), torch.rand(1, count, dtype=torch.float64)
    best = 1.0
    with one_thread(), torch.no_grad():
        for _ in range(10):
            begin = time.process_time()
            network._parse_graph(0, z, near, limits, noise, False)
            best = min(best, time.process_time() - begin)
    spent = statistics.median(row["cpu_seconds"] for row in rows)
    right = best <= 5e-3 and spent <= 10
    return right, f"parse of {count} nodes {best * 1e3:.1f} ms; 500 evaluations {spent:.1f} s of CPU"


def bests(rows: list[dict[str, Any]]) -> list[float]:
    return [row["best"] for row in rows]


def spread(values: list[float]) -> str:
    return f"{min(values):.2f} / {statistics.median(values):.2f} / {max(values):.2f}"


def wins(first: list[dict[str, Any]], second: list[dict[str, Any]]) -> int:
    return sum(a["best"] < b["best"] for a, b in zip(first, second, strict=True))


def checks(done: dict[str, Any]) -> list[tuple[str, bool, str]]:
    """(check, passed, measured) of all that this experiment can tell."""
    graph = "resnet50-mixed"
    own, zero = (done[f"ablation {graph} cost learned {rate}"] for rate in ("lr", "0"))
    blind, blind_zero = (done[f"ablation {graph} structure learned {rate}"] for rate in ("lr", "0"))
    medians = [statistics.median(bests(rows)) for rows in (own, zero, done[f"chunks {graph}"])]
    loop = done["published lr"]
    found = [
        ("H1 graph sizes, ResNet-50 exact", *check_sizes()),
        ("H5 exact values", *check_exact()),
        ("H7 coarsening", *check_coarsening()),
        ("H9 groups in evaluation mode > 1", *check_groups()),
        ("H9 random symmetric scores in the bands", *check_bands()),
    ]
    groups = [n for row in loop for n, times in enumerate(row["groups"]) if times]
    rejected = [row["rejected"] for row in loop]
    shows = {row["evaluation_groups"] for row in loop} == {1} and max(groups) <= 7
    shows &= all(0.25 <= share <= 0.5 for share in rejected) and all(67 <= ms <= 72 for ms in bests(loop))
    found.append(
        (
            "H10 faithful shows the defects",
            shows,
            f"groups in evaluation mode {[row['evaluation_groups'] for row in loop]}, "
            f"in training {min(groups)}-{max(groups)}; "
            f"rejected {', '.join(f'{share:.0%}' for share in rejected)}; best {spread(bests(loop))}; "
            f"learning rate 0 {spread(bests(done['published 0']))}",
        )
    )
    won = wins(own, zero)
    found += [
        (
            "H12 learning beats rate 0, cost features",
            won == len(own) and medians[1] - medians[0] >= 10 and medians[0] < medians[2],
            f"wins {won} of {len(own)}; medians {medians[0]:.2f}, rate 0 {medians[1]:.2f}, chunks {medians[2]:.2f}",
        ),
        (
            "H12 structure only, goal 9 of 10",
            wins(blind, blind_zero) >= 0.9 * len(blind),
            f"wins {wins(blind, blind_zero)} of {len(blind)}; {spread(bests(blind))}, "
            f"rate 0 {spread(bests(blind_zero))}",
        ),
        (
            "H13 distance to exact, 500 evaluations",
            medians[0] <= 57.6 and max(bests(own)) <= 58.7,
            f"{spread(bests(own))}; optimum 55.95",
        ),
        (
            "H13 distance to exact, 2,000 evaluations (400 with --quick)",
            statistics.median(bests(done["long"])) <= 56.3,
            spread(bests(done["long"])),
        ),
        ("H14 fractal dimension", *check_fractal()),
        ("H16 speed", *check_speed(own)),
        (
            "H17 ablations on two graphs",
            all(f"ablation {name} structure none 0" in done for name in GRAPHS),
            ", ".join(GRAPHS),
        ),
    ]
    for name in TESTS:
        cell = done[f"tests {name.split()[0]} {name.split()[1]}"]
        found.append(
            (
                name,
                cell["exit_code"] == 0,
                f"{cell.get('passed', 0)} tests passed, {cell.get('failed', 0)} failed",
            )
        )
    return sorted(found, key=lambda row: int(row[0].split()[0][1:]))


# Tables


def tables(done: dict[str, Any]) -> str:
    lines = ["## Ablation", "", "ms, least / median / most of the best samples after 500 evaluations.", ""]
    lines += ["| graph | features | grouping | learning | rate 0 | wins |", "|---|---|---|---|---|---|"]
    for graph in GRAPHS:
        for features in ("cost", "structure"):
            for grouping in ("learned", "none"):
                own, zero = (done[f"ablation {graph} {features} {grouping} {rate}"] for rate in ("lr", "0"))
                lines.append(
                    f"| {graph} | {features} | {grouping} | {spread(bests(own))} | {spread(bests(zero))} "
                    f"| {wins(own, zero)} of {len(own)} |"
                )
        lines.append(f"| {graph} | | random chunks | | {spread(bests(done[f'chunks {graph}']))} | |")
    lines += ["", "## Encoders", "", "| graph | gcn | gat | gin |", "|---|---|---|---|"]
    for graph in GRAPHS:
        rows = [
            done[f"ablation {graph} cost learned lr"],
            *(done[f"encoder {graph} {name}"] for name in ("gat", "gin")),
        ]
        lines.append(f"| {graph} | {' | '.join(spread(bests(own)) for own in rows)} |")
    lines += ["", "## The paper's models", ""]
    lines += ["ms; `hsdag` is the policy's own best sample after 500 evaluations, median of the seeds.", ""]
    head = "cpu | accelerator | greedy support | heft | climb | auto | min-cut (CPU s) | hsdag | preferred"
    head += " | rate 0 | CPU s"
    lines += [f"| instance | operators | {head} |", "|---" * 13 + "|"]
    for name in IR_MODELS:
        for kind in ("plain", "mixed"):
            lines.append(table_line(f"{name} {kind}", done[f"table {name} {kind}"]))
    lines += [
        "",
        "## The published loop",
        "",
        "ResNet-50 as IR of 396 layers, measured times, constants for nothing.",
        "",
    ]
    lines += [
        "| | best of 500, each seed | rejected | samples with 1, 2, 3, ... groups |",
        "|---|---|---|---|",
    ]
    for name in ("lr", "0", "index order"):
        for row in done[f"published {name}"]:
            lines.append(f"| {name} | {row['best']:.2f} | {row['rejected']:.0%} | {row['groups'][1:]} |")
    lines += ["", "## Without training on the graph", ""]
    lines += ["Trained on the other two models (mixed), one seed; ms.", ""]
    lines += [
        "| held out | trained: preferred, best of 64 | untrained | best single | exact |",
        "|---|---|---|---|---|",
    ]
    for name, row in done["transfer"].items():
        pair = [f"{row[one]['greedy']:.2f}, {row[one]['best of 64']:.2f}" for one in ("trained", "untrained")]
        lines.append(f"| {name} | {' | '.join(pair)} | {row['single']:.2f} | {row['exact']:.2f} |")
    three = done["devices 3"]
    lines += ["", f"Three devices (`f32 mixed third`, optimum 51.95): {spread(bests(three))}."]
    return "\n".join(lines)


def table_line(name: str, cell: dict[str, Any]) -> str:
    others, own = cell["rivals"], cell["learned"]
    columns = [f"single:{device}" for device in NAMES] + ["greedy_support", "heft", "climb", "auto"]
    values = [f"{others[one]['ms']:.3f}" if one in others else "" for one in columns]
    exact = f"{others['mincut']['ms']:.3f} ({others['mincut']['cpu_seconds']:.3f})"
    policy = [statistics.median(row[key] for row in own) for key in ("best", "greedy", "cpu_seconds")]
    zero = statistics.median(bests(cell["rate 0"]))
    told = [*values, exact, f"{policy[0]:.3f}", f"{policy[1]:.3f}", f"{zero:.3f}", f"{policy[2]:.1f}"]
    return f"| {name} | {cell['operators']} | {' | '.join(told)} |"


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--quick", action="store_true", help="few seeds, a minute or two, into results-quick/"
    )
    parser.add_argument("--only", default="", help="run cells whose name contains this, print nothing else")
    given = parser.parse_args()
    folder = HERE / ("results-quick" if given.quick else "results")
    folder.mkdir(exist_ok=True)
    done = {}
    for name, work in cells(given.quick).items():
        path = folder / f"{name.replace(' ', '_')}.json"
        if not path.exists() and given.only in name:
            print(f"running {name}", flush=True)
            path.write_text(json.dumps(work(), indent=1) + "\n", encoding="utf-8")
        if path.exists():
            done[name] = json.loads(path.read_text(encoding="utf-8"))
    if given.only:
        return 0
    told = checks(done)
    text = ["# Acceptance checks", "", "| check | | measured |", "|---|---|---|"]
    text += [f"| {name} | {'pass' if passed else 'FAIL'} | {measured} |" for name, passed, measured in told]
    document = "\n".join([*text, "", tables(done), ""])
    (folder / "README.md").write_text(document, encoding="utf-8")
    print(document)
    return 0 if all(passed for _, passed, _ in told) else 1


if __name__ == "__main__":
    raise SystemExit(main())
