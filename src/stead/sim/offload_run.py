"""Offload runs: what is called on which accelerator, and when; the native core scores them alike.

Letters: v operator, t tensor, p its producer, d device; `on[v]` is the device of v.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stead.problem import Problem
from stead.problem.in_ticks import IMPOSSIBLE, READ, WRITE, Tables
from stead.sim.timeline import NO_CAUSE, Timeline, transfers_from_rows


@dataclass
class Call:
    """Operators that begin and end together: a piece of an accelerator, or one operator of a host device."""

    device: int
    piece: int
    operators: list[int]
    inputs: list[int]  # tensors from outside
    outputs: list[int]  # tensors with a reader outside
    start: int = 0
    finish: int = IMPOSSIBLE  # until it has run
    cause: int = NO_CAUSE  # a tensor, or -1 - u for operator u of the call before it on its device

    def ticks(self, tables: Tables) -> tuple[int, int, int]:
        """What it spends on copying in, computing and copying out."""
        return (
            sum(tables.host_ticks(READ, t, self.device) for t in self.inputs),
            sum(tables.duration[v][self.device] for v in self.operators),
            sum(tables.host_ticks(WRITE, t, self.device) for t in self.outputs),
        )


def pieces(tables: Tables, on: Sequence[int]) -> list[int]:  # [operator]
    """How often, at most, a path to v had left the device of v and come back."""
    runs = [[0] * tables.devices for _ in on]  # [operator][device]; maximal runs of a device on a path to v
    for v, own in enumerate(runs):
        for p in (tables.producer[t] for t in tables.inputs[v]):
            for d in range(tables.devices):
                enters = on[v] == d != on[p]
                own[d] = max(own[d], runs[p][d] + enters)
        own[on[v]] = max(own[on[v]], 1)
    return [own[d] - 1 for own, d in zip(runs, on, strict=True)]


def cut_into_calls(tables: Tables, on: Sequence[int]) -> list[Call]:  # [operator]
    """The call of every operator."""
    members: dict[tuple[int, int], list[int]] = {}
    for v, piece in enumerate(pieces(tables, on)):
        members.setdefault((on[v], v if tables.is_host[on[v]] else piece), []).append(v)
    calls: dict[int, Call] = {}
    for (d, piece), own in members.items():
        inside = set(own)
        inputs = {t for v in own for t in tables.inputs[v] if tables.producer[t] not in inside}
        outputs = [t for v in own for t in tables.outputs[v] if not inside.issuperset(tables.readers[t])]
        calls |= dict.fromkeys(own, Call(d, piece, own, sorted(inputs), outputs))
    return [calls[v] for v in range(len(on))]


def offload(tables: Tables, on: Sequence[int], *, published: bool = False) -> list[Call] | None:  # [operator]
    """Every piece of an accelerator as one call: copy in, compute, copy out (Tarnawski et al. 2020).

    Host devices run each operator as soon as its inputs are there, on unlimited cores. Pieces of an
    accelerator run one after another, or with `published` as if each had an accelerator of its own. None if
    calls wait for each other in a circle.
    """
    of_operator = cut_into_calls(tables, on)
    calls = list({id(call): call for call in of_operator}.values())
    at = {(call.device, call.piece): call for call in calls}
    waiting = calls
    while waiting:
        blocked = []
        for call in waiting:
            serial = not published and not tables.is_host[call.device] and call.piece > 0
            before = [at[call.device, call.piece - 1]] if serial else []
            sources = [of_operator[tables.producer[t]] for t in call.inputs]
            if any(other.finish == IMPOSSIBLE for other in [*sources, *before]):
                blocked.append(call)
                continue
            call.start = max((other.finish for other in [*sources, *before]), default=0)
            call.finish = call.start + sum(call.ticks(tables))
            reasons = [*call.inputs, *(-1 - other.operators[0] for other in before)]
            for other, reason in reversed(list(zip([*sources, *before], reasons, strict=True))):
                if other.finish == call.start:
                    call.cause = reason  # the lowest tensor stays
        if len(blocked) == len(waiting):
            return None
        waiting = blocked
    return of_operator


def offload_timeline(problem: Problem, devices: NDArray[np.uint8], calls: Sequence[Call]) -> Timeline:
    """All operators of a call have its times; copies are part of calls, not transfers."""
    start = np.array([call.start for call in calls], dtype=np.int64)
    return Timeline(
        problem=problem,
        devices=devices,
        execution="offload",
        start_ticks=start,
        finish_ticks=np.array([call.finish for call in calls], dtype=np.int64),
        order=np.argsort(start, kind="stable").astype(np.int32),
        cause=np.array([call.cause for call in calls], dtype=np.int32),
        transfers=transfers_from_rows(np.zeros((0, 6), dtype=np.int64)),
    )


def spent_in_calls(tables: Tables, calls: Sequence[Call]) -> NDArray[np.int64]:
    """[compute | received | sent | busy, device] ticks: a device is busy while it copies, too."""
    spent = np.zeros((4, tables.devices), dtype=np.int64)
    for call in {id(call): call for call in calls}.values():
        copy_in, compute, copy_out = call.ticks(tables)
        spent[:, call.device] += (compute, copy_in, copy_out, copy_in + compute + copy_out)
    return spent
