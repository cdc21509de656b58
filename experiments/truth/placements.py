"""Placements to hold against a clock: simple ones, random ones, those of rules, and those of stead."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from stead import Placement, Problem, SteadError, Throughput, place_problem
from stead.costs import Costs
from stead.solvers import Budget, solver

RULES = 1  # of the simple rules, the best one beside heft
RANDOM = 4


@dataclass
class Made:
    """Placements by name, each once, and why others are missing; `stages` is the one for throughput."""

    found: dict[str, Placement] = field(default_factory=dict)
    missing: dict[str, str] = field(default_factory=dict)
    stages: Placement | None = None


def placements(problem: Problem, *, seconds: float, seed: int = 0) -> Made:
    """Placements of every kind."""
    made = Made()
    found, missing = made.found, made.missing

    def add(name: str, one: Placement) -> None:
        if not any(np.array_equal(one.devices, other.devices) and one.order == other.order for other in found.values()):
            found[name] = one
        else:
            same = next(key for key, other in found.items() if np.array_equal(one.devices, other.devices))
            missing[name] = f"the same as {same}"

    count, devices = len(problem.graph), len(problem.cluster)
    for d, name in enumerate(problem.cluster.names):
        add(name, Placement(problem, np.full(count, d)))
    add("halves", Placement(problem, together(problem, halves(problem))))
    random = np.random.default_rng(seed)
    for number in range(RANDOM):
        add(f"random {number + 1}", Placement(problem, together(problem, random.integers(0, devices, count))))
    add("heft", solver("heft").solve(problem, Budget(seconds), seed).placement)
    plan = place_problem(problem, budget=Budget(seconds), seed=seed)
    add("auto", plan.placement)
    if problem.native.carries:  # what it is worth that plans know who carries
        add("auto, links carry", place_problem(links_carry(problem), budget=Budget(seconds), seed=seed).placement)
    rules = sorted(
        (rule for rule in plan.baselines if rule.objective_seconds is not None and rule.placement is not None),
        key=lambda rule: rule.objective_seconds or 0.0,
    )
    for rule in [rule for rule in rules if not rule.name.startswith(("single", "heft"))][:RULES]:
        assert rule.placement is not None
        add(f"rule {rule.name}", rule.placement)
    add("perturbed auto", perturbed(problem, plan.placement, random))
    try:
        pipe = solver("linear-dp").solve(problem.with_objective(Throughput()), Budget(seconds), seed)  # convex stages
        made.stages = Placement(problem, pipe.placement.devices)
        add("stages", made.stages)
    except SteadError as error:
        missing["stages"] = str(error)
    return made


def halves(problem: Problem) -> NDArray[np.int64]:
    """The first half of the work, in the order of the graph, on the first device; in as many parts as devices."""
    work = np.cumsum(problem.costs.seconds[:, 0])
    share = (work - problem.costs.seconds[:, 0] / 2) / max(float(work[-1]), 1e-12)
    return np.minimum((share * len(problem.cluster)).astype(np.int64), len(problem.cluster) - 1)


def perturbed(problem: Problem, placement: Placement, random: np.random.Generator) -> Placement:
    """The same with a tenth of the operators elsewhere."""
    devices = placement.devices.astype(np.int64)
    moved = random.random(len(devices)) < 0.1
    devices[moved] = random.integers(0, len(problem.cluster), int(moved.sum()))
    return Placement(problem, together(problem, devices))


def links_carry(problem: Problem) -> Problem:
    """The same question as if links carried tensors while devices compute."""
    links = tuple(replace(link, carried_by="link") for link in problem.cluster.links)
    cluster, costs = replace(problem.cluster, links=links), problem.costs
    made = Costs(problem.graph, cluster, costs.seconds, sources=costs.sources)
    return Problem(problem.graph, cluster, made, objective=problem.objective)


def together(problem: Problem, devices: NDArray[np.int64]) -> NDArray[np.int64]:
    """The same with operators that belong together on the device of the first of them."""
    groups, first = np.unique(problem.graph.colocation, return_index=True)
    home = dict(zip(groups.tolist(), devices[first].tolist(), strict=True))
    own = zip(problem.graph.colocation.tolist(), devices.tolist(), strict=True)
    return np.array([d if group < 0 else home[group] for group, d in own])
