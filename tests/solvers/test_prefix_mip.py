"""Contiguous stages by integer program: the published optima, the definition, and what stops it."""

from __future__ import annotations

import math

import pytest
from small_pipelines import (
    LOADS,
    NO_DATA,
    SLOW,
    best_by_definition,
    from_instance,
    published,
    random_instance,
    reference,
)

from stead.errors import BadInput, Infeasible
from stead.problem import Throughput
from stead.solvers import Budget, Solver
from stead.solvers.exact.prefix_mip import PrefixMip
from stead.testing import chain3, diamond
from stead.testing.contracts import SolverContract

QUICK = ["LayerGraphs/bert24_inference", "LayerGraphs/bert24_training", "LayerGraphs/gnmt_inference"]
OPTIMA = [
    (name, key, optimum)
    for name, known in reference()["throughput"].items()
    for key, optimum in known["optimum_acyclic_stages"].items()
]


class TestPrefixMip(SolverContract):
    @pytest.fixture(params=["cp-sat", "highs"])
    def solver(self, request) -> Solver:
        return PrefixMip(engine=request.param)


def check_optimum(name, key, optimum_ms):
    load, _, scale = key.replace("forward_max_plus_backward_max", "fwbw").partition("_costs_x")
    solution = PrefixMip().solve(published(name, load=load, cost_scale=float(scale or 1)), Budget())
    assert solution.objective_seconds * 1e3 == pytest.approx(optimum_ms, rel=1e-6)
    assert solution.gap == 0
    assert solution.scope == "contiguous stages"


@NO_DATA
@pytest.mark.parametrize(("name", "key", "optimum"), [one for one in OPTIMA if one[0] in QUICK])
def test_a_small_published_input_has_the_known_optimum_and_it_is_proved(name, key, optimum):
    check_optimum(name, key, optimum)


@NO_DATA
@SLOW
@pytest.mark.parametrize(("name", "key", "optimum"), [one for one in OPTIMA if one[0] not in QUICK])
def test_a_published_input_has_the_known_optimum_and_it_is_proved(name, key, optimum):
    check_optimum(name, key, optimum)


@NO_DATA
def test_presolve_does_not_lose_the_optimum_of_resnet50():
    # With all of presolve, CP-SAT 9.15 calls this program infeasible, or 128.07 ms optimal.
    check_optimum("OperatorGraphs/resnet50_inference", "sum", 124.348849774)


@NO_DATA
def test_stages_do_not_wait_for_each_other_in_a_circle(tmp_path):
    problem = from_instance(reference()["tiny"]["cyclic_quotient"]["instance"], tmp_path)
    solution = PrefixMip().solve(problem, Budget())
    assert (solution.objective_seconds, solution.gap) == (6e-3, 0)


@NO_DATA
def test_a_node_without_work_stays_where_it_is_supported(tmp_path):
    problem = from_instance(reference()["tiny"]["trivial_merge"]["instance"], tmp_path)
    assert PrefixMip().solve(problem, Budget()).objective_seconds == 1.5e-3


@pytest.mark.parametrize("engine", ["cp-sat", "highs"])
@pytest.mark.parametrize("load", LOADS)
@pytest.mark.parametrize("seed", range(6))
def test_small_pipelines_have_the_optimum_of_the_definition(tmp_path, seed, load, engine):
    compare(tmp_path, seed, load, engine)


@SLOW
@pytest.mark.parametrize("engine", ["cp-sat", "highs"])
@pytest.mark.parametrize("seed", range(6, 200))
def test_many_small_pipelines_have_the_optimum_of_the_definition(tmp_path, seed, engine):
    compare(tmp_path, seed, LOADS[seed % 4], engine)


def compare(tmp_path, seed, load, engine):
    problem = from_instance(random_instance(seed, training=seed % 3 > 0), tmp_path, load=load)
    best = best_by_definition(problem, "stages")
    solver = PrefixMip(engine=engine)
    if math.isinf(best):
        with pytest.raises(Infeasible) as refusal:
            solver.solve(problem, Budget())
        assert refusal.value.short_bytes
        return
    solution = solver.solve(problem, Budget())
    assert solution.objective_seconds == best
    assert solution.bound_seconds == pytest.approx(best, rel=2e-6 if engine == "highs" else 0)


def test_with_direct_links_the_bound_is_that_of_the_cheapest_link():
    # Two devices: every split costs at least 2.5 s on both sides, so 4 s on one device is best.
    solution = PrefixMip().solve(chain3(Throughput()), Budget())
    assert (solution.objective_seconds, solution.bound_seconds) == (4.0, 4.0)


def test_a_program_beyond_the_limit_is_refused_with_its_size():
    refusal = PrefixMip(max_literals=10).unsupported(diamond(Throughput()))
    assert refusal is not None
    assert "max_literals = 10" in refusal


def test_latency_is_refused():
    assert "latency" in PrefixMip().unsupported(chain3())
    with pytest.raises(BadInput, match="latency"):
        PrefixMip().solve(chain3(), Budget())


def test_an_unknown_engine_is_refused():
    with pytest.raises(BadInput, match="engine is one of cp-sat, highs, got 'highz'; did you mean 'highs'"):
        PrefixMip(engine="highz")


@NO_DATA
def test_a_short_time_limit_gives_an_incumbent_with_a_gap():
    problem = published("OperatorGraphs/bert_L-12_training")
    solution = PrefixMip().solve(problem, Budget(seconds=1.0))
    assert 0 <= solution.gap < 1
