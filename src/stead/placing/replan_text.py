"""What `replan` found, as text: the ways that were weighed, and every move with its layers."""

from __future__ import annotations

from collections.abc import Iterable

from stead.cluster.quantities import format_bytes, format_seconds
from stead.graph.paths import layer_names, module_paths
from stead.placing.replan import Replanned, Way
from stead.placing.weight_moves import LOADED_AGAIN, Move
from stead.printing.look import PLAIN, Look
from stead.printing.table import Column, in_bytes, in_seconds, table
from stead.problem import Problem
from stead.report.layers import ranges

STORAGE = "loaded again"
MOST_RANGES = 4
MOST_NAMES = 4


def replanned_lines(found: Replanned, look: Look = PLAIN) -> list[str]:
    """Which ways there are, which one pays, and what has to be moved for it."""
    lines = [*_ways(found, look), ""]
    problem, moves = found.plan.problem, found.chosen.moving.moves
    if moves:
        lines += [*_moves(problem, moves, look), ""]
    return [*lines, *verdict(found)]


def verdict(found: Replanned) -> list[str]:
    """What to do, in a sentence or two."""
    chosen, steps = found.chosen, found.steps
    if not chosen.moving.moves:
        return ["nothing has to be moved"]
    told = f"moves {format_bytes(chosen.moving.bytes)} in {format_seconds(chosen.moving.seconds)}"
    if found.stay is None:
        return [f"{told}; what was loaded cannot all stay where it is"]
    if chosen.moving.bytes == found.stay.moving.bytes:
        if found.free is not None and found.free.total_seconds(steps) < chosen.total_seconds(steps):
            return [f"{told}: no more than has to be; more would pay, but --keep {found.keep:g} holds it"]
        return [f"{told}: no more than has to be; nothing beyond it pays within {steps:,} steps"]
    extra = chosen.moving.seconds - found.stay.moving.seconds
    pays = f"after {_steps_to_pay(found.stay, chosen):,} steps" if extra > 0 else "at once"
    return [f"{told}; pays {pays} and saves {format_seconds(found.saved_seconds)} over {steps:,}"]


def _steps_to_pay(stay: Way, chosen: Way) -> int:
    """Steps after which what was moved beyond need has been earned."""
    gain = stay.step_seconds - chosen.step_seconds
    return 0 if gain <= 0 else int(-(-(chosen.moving.seconds - stay.moving.seconds) // gain))


def _ways(found: Replanned, look: Look) -> list[str]:
    named = [("what was loaded stays", found.stay), ("placed as if new", found.free)]
    if found.chosen.found_by == "between":
        named.append(("between the two", found.chosen))
    ways = [(name, way) for name, way in named if way is not None]
    step = in_seconds(max(found.before_seconds, *(way.step_seconds for _, way in ways)))
    moving = in_seconds(max(way.moving.seconds for _, way in ways))
    size = in_bytes(max(way.moving.bytes for _, way in ways))
    columns = [
        Column("way"), Column("step", step.unit, right=True), Column("moves", size.unit, right=True),
        Column("in", moving.unit, right=True), Column("stays", right=True), Column(""),
    ]  # fmt: skip
    rows = [["before", step(found.before_seconds), "", "", "", ""]]
    rows += [
        [
            name, step(way.step_seconds), size(way.moving.bytes), moving(way.moving.seconds),
            f"{way.moving.kept_share:.0%}", "chosen" if way is found.chosen else "",
        ]
        for name, way in ways
    ]  # fmt: skip
    return table(columns, rows, look)


def _moves(problem: Problem, moves: Iterable[Move], look: Look) -> list[str]:
    listed = sorted(moves, key=lambda move: -move.bytes)
    size, seconds = in_bytes(max(move.bytes for move in listed)), in_seconds(max(move.seconds for move in listed))
    columns = [
        Column("from"), Column("to"), Column("weights of"), Column("size", size.unit, right=True),
        Column("takes", seconds.unit, right=True),
    ]  # fmt: skip
    names = problem.cluster.names
    layers = layer_names(module_paths(problem.graph))
    rows = [
        [
            STORAGE if move.source == LOADED_AGAIN else names[move.source], names[move.target],
            what_moves(problem, move, layers), size(move.bytes), seconds(move.seconds),
        ]
        for move in listed
    ]  # fmt: skip
    return table(columns, rows, look)


def what_moves(problem: Problem, move: Move, layers: list[str]) -> str:
    """The layers whose weights move, in a few words."""
    graph = problem.graph
    users = {
        int(v)
        for weight in move.weights
        for v in graph.weight_users[graph.weight_user_first[weight] : graph.weight_user_first[weight + 1]]
    }
    numbered: dict[str, set[int]] = {}
    for layer in dict.fromkeys(layers[v] or graph.operator_names[v] for v in sorted(users)):
        above, _, last = layer.rpartition(".")
        if above and last.isdigit():
            numbered.setdefault(above.rpartition(".")[2], set()).add(int(last))
        else:
            numbered.setdefault(layer, set())
    told = [f"{name} {ranges(sorted(found), MOST_RANGES)}" if found else name for name, found in numbered.items()]
    return ", ".join(told if len(told) <= MOST_NAMES else [*told[:MOST_NAMES], f"… ({len(told)} in all)"])
