"""Whole blocks: the problem in which only what runtimes load as one is placed as one.

A unit is a repeated block with its caches, its backward pass and its updates, or a module outside of all blocks
(embedding, norm, head). The experts of a block are a unit of their own, which loaders can put elsewhere.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from stead.coarsen.colocation import colocate_units
from stead.coarsen.grouping import Grouping
from stead.errors import BadInput
from stead.graph import Graph
from stead.graph.paths import EXPERTS, block_paths, is_expert, layer_names, module_paths
from stead.problem import Problem
from stead.sim import Bound
from stead.solvers.solution import Solution

BLOCKS = "whole blocks"
EXPERT_GROUPS = "whole groups of experts"


def is_language_model(graph: Graph) -> bool:
    """Whether a graph looks words up and has several blocks with attention in them.

    >>> from stead.workloads.demo import demo_graph
    >>> is_language_model(demo_graph())
    True
    """
    modules = module_paths(graph)
    looks_up = (
        any("embedding" in kind.lower() for kind in dict.fromkeys(graph.kinds)) or "token_embd" in modules
    )
    if not looks_up:
        return False
    blocks = block_paths(modules)
    kinds = {kind for kind in dict.fromkeys(graph.kinds) if _attends(kind)}
    places = dict.fromkeys(zip(blocks, modules, graph.kinds, strict=True))  # each once: calls of a module are many
    attending = {
        block for block, path, kind in places if block and (kind in kinds or _attends(path.removeprefix(block)))
    }
    return len(attending) > 1


def _attends(text: str) -> bool:
    lowered = text.lower()
    return "attention" in lowered or "attn" in lowered


def whole_blocks(problem: Problem) -> Problem:
    """The same problem with the operators of every block bound to one device.

    Operators of a block that may not run on the same devices (pins, kinds that a device lacks) stay apart.
    """
    graph = problem.graph
    if not any(graph.modules):
        raise BadInput(
            f"{graph.name or 'the graph'} says nothing about modules, so it has no blocks to keep whole"
        )
    return colocate_units(graph, names=_units(problem)).colocated(problem)


def experts_together(problem: Problem) -> Problem:
    """The same problem with the experts of every block bound to one device; itself where there are none.

    A mixture whose experts lie here and there cannot be said in a rule that a loader understands.
    """
    marks = [name if EXPERTS in name.split() else "" for name in _units(problem)]
    if not any(marks):
        return problem
    number = {mark: n for n, mark in enumerate(dict.fromkeys(mark for mark in marks if mark))}
    group = [number[mark] if mark else len(number) + v for v, mark in enumerate(marks)]
    return Grouping(problem.graph, group).colocated(problem)


def _units(problem: Problem) -> list[str]:  # [operator]
    """The unit of every operator by name; empty for operators in no module."""
    modules = module_paths(problem.graph)
    names = [
        f"{layer} {EXPERTS}" if layer and is_expert(path.removeprefix(layer)) else layer
        for layer, path in zip(layer_names(modules), modules, strict=True)
    ]
    rights = np.unique(problem.allowed, axis=0, return_inverse=True)[1].reshape(-1).tolist()
    if len(set(rights)) == 1:
        return names
    return [f"{name} {right}" if name else "" for name, right in zip(names, rights, strict=True)]


def said_of_all(solution: Solution, *, bound: Bound, units: str) -> Solution:
    """A solution for bound units, said of a problem without them.

    What was proved holds for such units only, unless a bound over all placements is as good.
    """
    if bound.seconds >= solution.bound_seconds and not solution.scope:
        return solution.with_bound(bound.seconds, bound.name)
    if solution.bound_seconds > 0:
        solution = replace(solution, scope=f"{solution.scope} of {units}" if solution.scope else units)
    return solution.with_bound(bound.seconds, bound.name)
