"""Placements device by device by integer program: every notion of contiguity, every load, every kind of link."""

from __future__ import annotations

import math
import os
import signal
import subprocess
import sys
import time

import numpy as np
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

from stead.cluster import Cluster, Device, Link
from stead.costs import Costs
from stead.errors import BadInput, Infeasible
from stead.graph import GraphBuilder
from stead.problem import Problem, Throughput
from stead.solvers import Budget, Solver
from stead.solvers.auto import Auto
from stead.solvers.exact.exhaustive import Exhaustive
from stead.solvers.exact.reduction import reduce
from stead.solvers.exact.throughput_mip import ThroughputMip
from stead.testing import chain3, tiny_cluster, two_towers
from stead.testing.contracts import SolverContract

EVERY = [(contiguity, engine) for contiguity in ("device", "any") for engine in ("best", "cp-sat", "highs")]


class TestThroughputMip(SolverContract):
    @pytest.fixture(params=EVERY, ids="-".join)
    def solver(self, request) -> Solver:
        contiguity, engine = request.param
        return ThroughputMip(contiguity=contiguity, engine=engine)


@NO_DATA
@pytest.mark.parametrize("contiguity", ["device", "any"])
def test_devices_that_are_contiguous_may_wait_for_each_other_in_a_circle(tmp_path, contiguity):
    problem = from_instance(reference()["tiny"]["cyclic_quotient"]["instance"], tmp_path)
    solution = ThroughputMip(contiguity=contiguity).solve(problem, Budget())
    assert (solution.objective_seconds, solution.gap) == (5e-3, 0)  # 6 ms for stages


@NO_DATA
@pytest.mark.parametrize("contiguity", ["device", "any"])
def test_a_node_without_work_stays_where_it_is_supported(tmp_path, contiguity):
    problem = from_instance(reference()["tiny"]["trivial_merge"]["instance"], tmp_path)
    assert ThroughputMip(contiguity=contiguity).solve(problem, Budget()).objective_seconds == 1.5e-3


@pytest.mark.parametrize("engine", ["cp-sat", "highs"])
@pytest.mark.parametrize("contiguity", ["device", "any"])
@pytest.mark.parametrize("load", LOADS)
@pytest.mark.parametrize("seed", range(4))
def test_small_pipelines_have_the_optimum_of_the_definition(tmp_path, seed, load, contiguity, engine):
    compare(tmp_path, seed, load, contiguity, engine)


@SLOW
@pytest.mark.parametrize("engine", ["cp-sat", "highs"])
@pytest.mark.parametrize("contiguity", ["device", "any"])
@pytest.mark.parametrize("seed", range(4, 200))
def test_many_small_pipelines_have_the_optimum_of_the_definition(tmp_path, seed, contiguity, engine):
    compare(tmp_path, seed, LOADS[seed % 4], contiguity, engine)


def compare(tmp_path, seed, load, contiguity, engine):
    problem = from_instance(random_instance(seed, training=seed % 3 > 0), tmp_path, load=load)
    best = best_by_definition(problem, contiguity)
    solver = ThroughputMip(contiguity=contiguity, engine=engine)
    if math.isinf(best):
        with pytest.raises(Infeasible) as refusal:
            solver.solve(problem, Budget())
        assert refusal.value.short_bytes
        return
    solution = solver.solve(problem, Budget())
    assert solution.objective_seconds == best
    assert solution.bound_seconds == pytest.approx(best, rel=2e-6 if engine == "highs" else 0)


def linked(seed: int, load: str) -> Problem:
    """Six operators on three devices whose links all differ, one of them slow, and tied weights that barely fit."""
    rng = np.random.default_rng(seed)
    build = GraphBuilder("linked")
    tensors, operators = [], []
    for v in range(6):
        reads = [t for t in tensors if rng.random() < 0.4]
        operators.append(build.operator(f"v{v}", reads=reads))
        tensors.append(build.tensor(operators[-1], size_bytes=int(rng.integers(0, 4))))
        build.weight(f"w{v}", size_bytes=10, users=operators[-1:])
    build.weight("tied", size_bytes=10, users=operators[1:4])
    names = ["d0", "d1", "d2"]
    links = tuple(
        Link(a, b, bytes_per_second=float(rng.choice([1, 2, 4])), latency_seconds=float(rng.choice([0, 0.5])))
        for a in names
        for b in names
        if a != b
    )
    cluster = Cluster(tuple(Device(name, memory_bytes=55) for name in names), links)
    graph = build.build()
    seconds = np.repeat(rng.integers(0, 5, size=(6, 1)).astype(float), 3, axis=1)
    return Problem(graph, cluster, Costs(graph, cluster, seconds), objective=Throughput(load=load))


@pytest.mark.parametrize("engine", ["cp-sat", "highs"])
@pytest.mark.parametrize("seed", range(8))
def test_both_ends_of_a_direct_link_pay_for_what_it_carries(seed, engine):
    problem = linked(seed, LOADS[seed % 3])
    best = Exhaustive().solve(problem, Budget()).objective_seconds
    solution = ThroughputMip(engine=engine).solve(problem, Budget())
    assert solution.objective_seconds == pytest.approx(best, rel=1e-12)
    assert solution.bound_seconds <= best * (1 + 1e-12)


@NO_DATA
def test_bert24_training_without_contiguity_is_proved():
    solution = ThroughputMip().solve(published("LayerGraphs/bert24_training"), Budget(seconds=60))
    assert solution.objective_seconds * 1e3 == pytest.approx(39.78953888, rel=1e-7)
    assert solution.gap == 0
    assert solution.scope == ""


@NO_DATA
def test_bert_with_three_layers_without_contiguity_is_proved():
    solution = ThroughputMip().solve(published("OperatorGraphs/bert_l-3_inference"), Budget(seconds=60))
    assert solution.objective_seconds * 1e3 == pytest.approx(21.90837611, rel=1e-7)
    assert solution.gap == 0


@NO_DATA
@pytest.mark.parametrize(
    "name", ["LayerGraphs/bert24_training", "LayerGraphs/gnmt_inference", "OperatorGraphs/bert_l-3_inference"]
)
def test_auto_proves_a_pipeline_before_it_spends_its_time_on_annealing(name):
    solution = Auto().solve(published(name), Budget(seconds=20))
    assert solution.gap == 0
    phases = {phase.name: phase.runs for phase in solution.phases}
    assert (phases["annealing"], phases["early program"]) == (1, 1)


@NO_DATA
@SLOW
def test_bert24_inference_without_contiguity_is_proved_to_a_ten_thousandth():
    solution = ThroughputMip().solve(published("LayerGraphs/bert24_inference"), Budget(seconds=120))
    assert solution.objective_seconds * 1e3 == pytest.approx(17.71471875, rel=1e-7)
    assert solution.gap < 1e-4


@NO_DATA
def test_gnmt_is_proved_with_every_device_contiguous():
    solution = ThroughputMip(contiguity="device").solve(published("LayerGraphs/gnmt_inference"), Budget())
    assert solution.objective_seconds * 1e3 == pytest.approx(32.910658203, rel=1e-6)
    assert (solution.gap, solution.scope) == (0, "each device contiguous, colocated operators as one")


def test_small_programs_are_counted_before_fractions_are_looked_at():
    reduced = reduce(two_towers(Throughput()), notion="any")
    engines = [(one.engine, one.relaxes) for one in ThroughputMip()._settings(0, reduced)]
    assert engines == [("cp-sat", False), ("cp-sat", True), ("highs", True), ("cp-sat", True)]


def test_a_tower_per_device_is_found_on_two_devices():
    # Each tower computes 4 s; the head and one crossing of 2.5 s come to the device of one: 4 + 1 + 2.5.
    solution = ThroughputMip().solve(two_towers(Throughput()), Budget())
    assert (solution.objective_seconds, solution.gap) == (7.5, 0)


def test_a_program_beyond_the_limit_is_refused_with_its_size():
    refusal = ThroughputMip(max_literals=10).unsupported(chain3(Throughput()))
    assert refusal is not None
    assert "max_literals = 10" in refusal


def test_an_unknown_contiguity_is_refused():
    with pytest.raises(BadInput, match="contiguity is one of device, any, got 'stages'"):
        ThroughputMip(contiguity="stages")


@NO_DATA
@pytest.mark.parametrize("engine", ["cp-sat", "highs"])
def test_ctrl_c_returns_the_incumbent(engine):
    script = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "from small_pipelines import published\n"
        "from stead.solvers import Budget\n"
        "from stead.solvers.exact.throughput_mip import ThroughputMip\n"
        "problem = published('LayerGraphs/bert24_inference')\n"
        "say = lambda step: print('step', flush=True)\n"
        "solver = ThroughputMip(engine=sys.argv[2], anneal_moves=1000)\n"
        "solution = solver.solve(problem, Budget(on_improvement=say))\n"
        "print('interrupted', solution.interrupted, flush=True)\n"
    )
    command = [sys.executable, "-c", script, os.path.dirname(__file__), engine]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout.readline() == "step\n"
        time.sleep(1.0)  # until the engine is at work
        child.send_signal(signal.SIGINT)
        assert child.communicate(timeout=60)[0].endswith("interrupted True\n")


def test_contiguity_of_devices_takes_colocated_operators_as_one_and_says_so():
    # a -> b and c -> d, a and d colocated: b and c beside each other come after and before their unit, though no path
    # leads from c to b. Apart from such placements, 2 s on one device and 1 s on the other cannot be had.
    build = GraphBuilder("unit between")
    first = build.tensor(build.operator("a", colocate="x"), size_bytes=0)
    build.operator("b", reads=[first])
    second = build.tensor(build.operator("c"), size_bytes=0)
    build.operator("d", reads=[second], colocate="x")
    graph, cluster = build.build(), tiny_cluster()
    costs = Costs(graph, cluster, np.ones((4, 2)), tensor_seconds=np.zeros(graph.tensor_count))
    problem = Problem(graph, cluster, costs, objective=Throughput("overlap"))
    solution = ThroughputMip(contiguity="device").solve(problem, Budget())
    assert (solution.bound_seconds, solution.scope) == (
        3.0,
        "each device contiguous, colocated operators as one",
    )
    assert Exhaustive().solve(problem, Budget()).objective_seconds == 2.0
