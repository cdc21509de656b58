"""Every solver that is not learned gives the answers that it gave before: same problem, seed and evaluations.

`STEAD_REWRITE=1 pytest tests/golden` writes `replays/` anew, only ever in a commit that says why an answer changes.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stead
from stead import Budget, Constraints, Infeasible, Latency, Placement, Problem, Throughput, testing
from stead.problem import Priority
from stead.solvers import solver
from stead.solvers.registry import REGISTRY
from stead.workloads import demo_graph, parse, synthetic

REPLAYS = Path(__file__).parent / "replays"
SEED, EVALUATIONS = 7, 300
# Solvers with options that lead elsewhere than their defaults.
VARIANTS = (
    "ideals replicas=2",
    "search streams=1",
    "heft insertion=false",
    "chunks rounds=2",
    "local-search starts=2",
)
# Programs of many operators take seconds each; these replay on the tiny problems alone.
PROGRAMS = {"prefix-mip", "throughput-mip", "latency-mip", "latency-cp", "mincut"}
MOST_OPERATORS = 16
# Packages of others (HiGHS, CP-SAT, METIS, Mt-KaHyPar) promise the same answer only in the same release.
ENGINES = ("highspy", "ortools", "pymetis", "mtkahypar")
ENGINE_SOLVERS = {"auto", "metis", "mtkahypar", *PROGRAMS}
WHY = "an answer changes only in a commit that says why, with STEAD_REWRITE=1 pytest tests/golden"
Record = dict[str, Any]


def problem_of(graph: stead.Graph, devices: str, objective: Latency | Throughput) -> Problem:
    cluster, _ = stead.cluster_from(devices)
    return Problem(graph, cluster, stead.Roofline().costs(graph, cluster), objective=objective)


def with_room(problem: Problem, share: float) -> Problem:
    """The same problem where every device has room for so much of what the whole graph needs on one."""
    whole = stead.simulate(problem, Placement(problem, np.zeros(len(problem.graph), dtype=np.uint8)))
    room = int(share * whole.peak_bytes[0])
    for device in problem.cluster.names:
        problem = problem.with_memory(device, room)
    return problem


def kept_apart() -> Problem:
    """Pins, forbids and colocation at once."""
    graph = synthetic("branches")
    first, second, third, *_, last = graph.operator_names
    problem = problem_of(graph, "2x 3090 + 3060", Latency())
    names = problem.cluster.names
    limits = Constraints(pin=((first, names[2]),), forbid=((last, names[0]),), colocate=((second, third),))
    return problem.with_constraints(limits)


PROBLEMS: dict[str, Callable[[], Problem]] = {
    "towers-latency": testing.two_towers,
    "diamond-sequential": lambda: testing.diamond(Latency(execution="sequential")),
    "chain-throughput": lambda: testing.chain3(Throughput()),
    "layered-latency": lambda: problem_of(
        synthetic("layered", operators=60, width=8, seed=3), "2x 3090 + 3060", Latency()
    ),
    "layered-tight": lambda: with_room(
        problem_of(synthetic("layered", operators=60, width=8, seed=3), "2x 3090 + 3060", Latency()), 0.7
    ),
    "branches-constrained": kept_apart,
    "demo-latency": lambda: problem_of(demo_graph(), "3090,3060", Latency()),
    "demo-throughput": lambda: problem_of(demo_graph(), "3090,3060", Throughput()),
    "fork-join-priority": lambda: problem_of(
        synthetic("fork-join", operators=50, branches=4, seed=1),
        "3090,3060",
        Latency(policy=Priority(), order="policy"),
    ),
    "series-parallel-sequential": lambda: problem_of(
        synthetic("series-parallel", operators=60, seed=2), "3090,3060,cpu", Latency(execution="sequential")
    ),
    "small-offload": lambda: problem_of(
        synthetic("fork-join", operators=14, branches=3, depth=2, seed=5),
        "3060 + cpu",
        Latency(execution="offload"),
    ),
    "fork-join-offload": lambda: problem_of(
        synthetic("fork-join", operators=40, branches=4, seed=5),
        "2x 3060 + cpu",
        Latency(execution="offload"),
    ),
    "resnet-50-duplex": lambda: problem_of(
        parse("resnet-50").graph(), "2x 3090 + 3060", Throughput(load="duplex")
    ),
    "transformer-training-sum": lambda: problem_of(
        synthetic("transformer", operators=120, training=True), "2x 3090 + 3060", Throughput()
    ),
    "inception-training-latency": lambda: problem_of(
        synthetic("inception", operators=90, training=True), "3090,3060", Latency()
    ),
    "inception-gpipe": lambda: problem_of(
        synthetic("inception", operators=60), "3090,3060", Throughput(microbatches=4)
    ),
    "transformer-training-1f1b": lambda: problem_of(
        synthetic("transformer", operators=60, training=True),
        "2x 3090 + 3060",
        Throughput(microbatches=3, schedule="1f1b"),
    ),
    "demo-too-large": lambda: with_room(problem_of(demo_graph(), "3090,3060", Latency()), 0.25),
}


def digest(*parts: object) -> str:
    """Twelve digits that change with any of the parts; of arrays shape and values count, not how wide a number is."""
    taken = hashlib.sha256()
    for part in parts:
        if isinstance(part, np.ndarray):
            wide = np.ascontiguousarray(part, dtype=np.float64 if part.dtype.kind == "f" else np.int64)
            taken.update(f"{part.shape}".encode() + wide.tobytes())
        else:
            taken.update(repr(part).encode())
        taken.update(b"|")
    return taken.hexdigest()[:12]


def order_of(placement: Placement) -> str:
    order = placement.order
    if order is None:
        return ""
    if isinstance(order, Priority):
        return f"{order.name} {digest(order.position, order.transfer_position)}"
    return f"{order.name} {digest(order.order, order.sends)}"


def trace_of(problem: Problem, placement: Placement) -> str:
    """Everything that the simulator says about a placement."""
    trace = stead.simulate(problem, placement)
    devices = (trace.compute_seconds, trace.received_seconds, trace.sent_seconds, trace.busy_seconds)
    ticks = () if trace.timeline is None else (trace.start_ticks, trace.finish_ticks)
    return digest(trace.policy, trace.objective_ticks, trace.peak_bytes, trace.limit_bytes, *devices, *ticks)


def record_of(problem: Problem, name: str) -> Record:
    """What a solver answers, in a form that a file keeps."""
    base, *options = name.split()
    chosen = solver(base, **dict(option.split("=") for option in options))
    if (why := chosen.unsupported(problem)) is not None:
        return {"unsupported": why}
    try:
        solution = chosen.solve(problem, Budget(evaluations=EVALUATIONS), SEED)
    except Infeasible as error:
        return {"infeasible": str(error), "proved": error.proved}
    return {
        "objective_seconds": solution.objective_seconds.hex(),
        "bound_seconds": solution.bound_seconds.hex(),
        "scope": solution.scope,
        "devices": digest(solution.placement.devices),
        "order": order_of(solution.placement),
        "replicas": [list(group) for group in solution.placement.replicas],
        "evaluations": solution.evaluations,
        "stopped_by": solution.stopped_by,
        "trace": trace_of(problem, solution.placement),
    }


def engines() -> dict[str, str]:
    """Releases of what answers for others."""
    found = {"machine": platform.machine()}
    for package in ENGINES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = "absent"
    return found


def replayed(problem: Problem, names: list[str]) -> list[str]:
    """The names of the solvers that replay on a problem."""
    small = len(problem.graph) <= MOST_OPERATORS
    return [name for name in names if small or name not in PROGRAMS]


def held(name: str, before: Record, same_engines: bool) -> Record:
    """The fields of a record that must come again; of other releases of an engine only what was proved."""
    if name not in ENGINE_SOLVERS or same_engines:
        return before
    proved = "objective_seconds" in before and before["objective_seconds"] == before["bound_seconds"]
    return {key: before[key] for key in ("objective_seconds", "scope")} if proved else {}


def said(value: object) -> str:
    """A field as people read it."""
    return (
        f"{value} ({float.fromhex(value):.9g})" if isinstance(value, str) and "0x" in value else repr(value)
    )


def changes(problem: str, name: str, before: Record, after: Record) -> list[str]:
    """One line for every field that is not what it was."""
    return [
        f"{problem}, {name}: {field} was {said(was)}, is {said(after.get(field))}"
        for field, was in before.items()
        if after.get(field) != was
    ]


@pytest.mark.parametrize("name", PROBLEMS)
def test_solvers_answer_as_they_did(name: str) -> None:
    path, problem = REPLAYS / f"{name}.json", PROBLEMS[name]()
    kept = json.loads(path.read_text()) if path.exists() else {"engines": {}, "problem": "", "solvers": {}}
    if os.environ.get("STEAD_REWRITE"):
        names = dict.fromkeys([*kept["solvers"], *own_solvers(), *VARIANTS])
        records = {one: record_of(problem, one) for one in replayed(problem, list(names))}
        kept = {"engines": engines(), "problem": problem.fingerprint, "solvers": records}
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps(kept, indent=1) + "\n")
    same = kept["engines"] == engines()
    changed = [] if kept["problem"] == problem.fingerprint else [f"{name}: the problem itself is another one"]
    for one, before in kept["solvers"].items():
        must = held(one, before, same)
        changed += changes(name, one, must, record_of(problem, one)) if must else []
    if changed:
        pytest.fail("\n".join([*changed, WHY]), pytrace=False)


def own_solvers() -> list[str]:
    """Solvers of this package that are not learned."""
    return [one for one, known in REGISTRY.items() if known.kind != "learned"]


def test_every_solver_that_is_not_learned_is_replayed() -> None:
    kept = {path.stem: json.loads(path.read_text())["solvers"] for path in sorted(REPLAYS.glob("*.json"))}
    assert set(kept) == set(PROBLEMS)
    seen = {type(solver(name.split()[0])) for records in kept.values() for name in records}
    assert [one for one in own_solvers() if type(solver(one)) not in seen] == []
    answered = {name for records in kept.values() for name, record in records.items() if "trace" in record}
    assert [name for records in kept.values() for name in records if name not in answered] == []
