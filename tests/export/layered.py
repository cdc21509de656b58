"""Language models of a few layers on a CPU and some cards, and random plans of their layers."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from stead.export.layer_stack import BEFORE, stack_of
from stead.plan import Plan
from stead.problem import Problem
from stead.testing import tiny_layers
from stead.testing.exporters import plan_of


def layered(layers: int, cards: int, *, host: bool = True, experts: bool = False) -> Problem:
    """A tiny model on a CPU (device 0, if there is one) and cards."""
    plain = tiny_layers(layers, cards + host, experts=experts)
    first, *rest = plain.cluster.devices
    devices = (replace(first, kind="cpu") if host else first, *rest)
    return Problem(plain.graph, replace(plain.cluster, devices=devices), plain.costs, objective=plain.objective)


def drawn_counts(random: np.random.Generator, items: int, parts: int, *, empty: bool) -> list[int]:
    """So many whole numbers that sum to `items`; zeros among them only if they may be empty."""
    if not empty:
        cuts = np.sort(random.choice(np.arange(1, items), parts - 1, replace=False))
    else:
        cuts = np.sort(random.integers(0, items + 1, parts - 1))
    return np.diff([0, *cuts.tolist(), items]).tolist()


def plan_by_layers(problem: Problem, devices: list[int], *, before: int, experts: dict[int, int] | None = None) -> Plan:
    """The plan with layer n on devices[n], the head on the last of them and some experts elsewhere."""
    stack = stack_of(problem.graph)
    row = [before if p == BEFORE else devices[min(p, len(devices) - 1)] for p in stack.position.tolist()]
    for v, p in enumerate(stack.position.tolist()):
        if stack.expert[v] and p in (experts or {}):
            row[v] = (experts or {})[p]
    return plan_of(problem, row)
