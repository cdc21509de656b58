"""The bound by chains of calls before the judge: brute force over all placements of hostile little offloaded problems.

`STEAD_FUZZ=2000 pytest tests/judge -k calls` tries that many problems.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
import pytest
from brute import Truth
from problems import drawn
from test_judge import FIRST_SEED, FUZZ, hostile

from stead.errors import Infeasible
from stead.problem import Latency
from stead.problem.ticks import TICKS_PER_SECOND
from stead.sim import call_chain_bound, lower_bounds
from stead.sim.bounds import _Table, heaviest_path
from stead.sim.call_chain_bound import call_chain_ticks, call_runs_ticks

PARTS = 4


def is_offloaded(seed: int) -> bool:
    """Whether the problem of a seed is one of calls, which is quicker to find out than the truth about it."""
    try:
        objective = drawn(seed).objective
    except Infeasible:
        return False
    return isinstance(objective, Latency) and objective.execution == "offload"


def judged(part: int) -> Iterator[tuple[int, Truth]]:
    """Seeds and truths of problems that have a solution."""
    wanted, seed = (FUZZ or 80) // PARTS, 3 * FIRST_SEED + part * 1_000_000
    while wanted:
        seed += 1
        known = hostile(seed) if is_offloaded(seed) else None
        if known is not None and known.optimum < math.inf:
            wanted -= 1
            yield seed, known


@pytest.mark.parametrize("part", range(PARTS))
def test_no_chain_of_calls_takes_longer_than_a_run(part, monkeypatch):
    """Along the heaviest path, as `lower_bounds` has it, and along paths, chains, prices and lengths that are drawn."""
    found = []
    for seed, known in judged(part):
        problem, most = known.problem, round(known.optimum * TICKS_PER_SECOND)
        said = [(bound.name, round(bound.seconds * TICKS_PER_SECOND)) for bound in lower_bounds(problem)]
        held = _Table.of(problem).weight_bytes
        for draw in range(3):
            rng = np.random.default_rng([seed, draw])
            path = heaviest_path(problem, rng.random(len(problem.graph)))
            said.append((f"path {path.tolist()}", call_chain_ticks(problem, path)))
            chain = path[rng.random(len(path)) < 0.8]
            monkeypatch.setattr(call_chain_bound, "LONGEST", draw + 1)
            prices = tuple(rng.choice((0.0, 0.3, 1.0, 4.0, 50.0), size=2))
            runs = call_runs_ticks(problem, chain, held, prices=prices)
            said.append((f"runs {chain.tolist()} of {draw + 1}, prices {prices}", runs))
        found += [f"seed {seed}, {problem}: {name} says {ticks} of {most}" for name, ticks in said if ticks > most]
    assert not found, "\n".join(found)


def test_chains_of_calls_are_the_best_bound_at_times():
    """A bound that never rises would pass every other test."""
    best = 0
    for _, known in (one for part in range(PARTS) for one in judged(part)):
        named = {bound.name: bound.seconds for bound in lower_bounds(known.problem)}
        best += named.pop("chain of calls") > max(named.values())
    assert best
