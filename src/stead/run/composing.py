"""Puts a latency together from the processor time of its parts, where waiting cannot be measured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from stead.errors import RunFailed
from stead.run.instructions import Program, Send, Wait


def composed_seconds(program: Program, nanoseconds: Mapping[int, Sequence[int]]) -> float:
    """The latency of a step whose instructions, [worker][instruction], take so long and wait only for each other."""
    at = dict.fromkeys(program.active, 0)
    clock = dict.fromkeys(program.active, 0)
    sent: dict[int, int] = {}
    while True:
        moved = False
        for w in program.active:
            instructions = program.workers[w].instructions
            while at[w] < len(instructions):
                one = instructions[at[w]]
                if isinstance(one, Wait):
                    if one.crossing not in sent:
                        break
                    clock[w] = max(clock[w], sent[one.crossing])
                    if one.lands:
                        clock[w] += nanoseconds[w][at[w]]
                else:
                    clock[w] += nanoseconds[w][at[w]]
                if isinstance(one, Send):
                    sent[one.crossing] = clock[w]
                at[w] += 1
                moved = True
        if all(at[w] == len(program.workers[w].instructions) for w in program.active):
            return max(clock.values(), default=0) / 1e9
        if not moved:
            raise RunFailed("workers wait for each other in a circle")
