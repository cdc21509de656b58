"""Graphs of others: read as published, under the rules they were published with; and the peers that place them."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from stead.bench import Instance, jobs_of, suite_named
from stead.bench.instances import published_inputs, solver_with_options
from stead.bench.others import doppler_problem, piper_problem
from stead.bench.peers import PEERS
from stead.errors import BadInput
from stead.problem import Latency, Placement, Throughput
from stead.sim import simulate
from stead.solvers import Budget
from stead.testing import chain3, two_towers

SHARED = Path(__file__).parents[3] / "shared" / "data" / "doppler"
NO_DATA = pytest.mark.skipif(not SHARED.is_dir(), reason="the published graphs are not beside the project")
# two inputs, three nodes: 0 and 1 feed 2; sending costs 5
DOPPLER = "5\n0, 1, \n0, 1, \n2, 2, \n3000000000000,5000000000000\n4000000000000,5000000000000\n2000000000000,1\n"


def doppler(folder: Path, text: str = DOPPLER) -> Path:
    path = folder / "graph.txt"
    path.write_text(text)
    return path


def piper(folder: Path, **changed: object) -> Path:
    """a -> b -> c of 3, 2 and 1 s; 10 bytes each way over 20 bytes per second."""
    def node(number: int, seconds: float) -> dict[str, object]:
        alone = {"id": "vanilla", "timePerSample": seconds, "memoryUsageA": 1.0, "memoryUsageB": 9.0}
        return {"id": number, "TMPCs": {"1": [alone]}}

    document = {
        "maxDevices": 2, "maxMemoryPerDevice": 1000.0, "bandwidth": 20.0, "mbsInBatch": 4,
        "nodes": [node(7, 3.0), node(8, 2.0), node(9, 1.0)],
        "edges": [
            {"sourceId": 7, "destId": 8, "communicationCost": 10.0},
            {"sourceId": 8, "destId": 9, "communicationCost": 10.0},
        ],
        **changed,
    }  # fmt: skip
    path = folder / "piper.json"
    path.write_text(json.dumps(document))
    return path


def seconds_of(problem, devices) -> float:
    return simulate(problem, Placement(problem, np.array(devices))).objective_seconds


def test_transfers_of_doppler_take_time_but_never_queue(tmp_path):
    problem = doppler_problem(doppler(tmp_path))
    assert (len(problem.graph), len(problem.cluster)) == (3, 4)
    # both tensors go to device 2 side by side: max(3, 4) + 5 + 2; on one device 3 + 4 + 2
    assert [seconds_of(problem, row) for row in ([0, 1, 2], [0, 0, 0], [0, 1, 1])] == [11.0, 9.0, 10.0]


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (("5\n", "7\n"), "5 nodes are to be placed, but there are costs of 3"),
        (("2, 2, \n", "2, \n"), "2 sources of edges, but 1 targets"),
        (("2, 2, \n", "2, 9, \n"), "an edge names node 9, but nodes are 0 to 2"),
        (("0, 1, \n2, 2", "0, 2, \n2, 0"), "nodes wait for each other in a circle"),
        (("0, 1, \n2, 2", "0, 2, \n2, 2"), "node 2 reads its own output"),
        (("2000000000000,1\n", "two\n"), "a line after the fourth"),
        (("5\n", "five\n"), "not a graph of DOPPLER"),
    ],
)
def test_a_damaged_graph_of_doppler_is_refused_in_one_line(tmp_path, change, complaint):
    with pytest.raises(BadInput, match=complaint):
        doppler_problem(doppler(tmp_path, DOPPLER.replace(*change, 1)))


def test_both_ends_pay_for_an_edge_of_piper_there_and_back(tmp_path):
    problem = piper_problem(piper(tmp_path))
    assert isinstance(problem.objective, Throughput)
    # 20 bytes over 20 bytes per second: 3 + 1 beside 1 + 2 + 1
    assert seconds_of(problem, [0, 1, 1]) == 4.0
    assert problem.graph.weight_bytes.tolist() == [10, 10, 10]


def test_a_node_of_piper_that_needs_several_devices_is_refused(tmp_path):
    nodes = [{"id": 7, "TMPCs": {"2": []}}]
    with pytest.raises(BadInput, match="node 7 has no configuration for one device"):
        piper_problem(piper(tmp_path, nodes=nodes, edges=[]))


def test_an_edge_of_piper_to_nowhere_is_refused(tmp_path):
    edges = [{"sourceId": 7, "destId": 70, "communicationCost": 1.0}]
    with pytest.raises(BadInput, match="edge 7 to 70 names a node that is not listed"):
        piper_problem(piper(tmp_path, edges=edges))


def test_a_folder_gives_the_graphs_of_others_with_their_objectives(tmp_path):
    doppler(tmp_path)
    piper(tmp_path)
    (tmp_path / "notes.txt").write_text("nothing of the kind\n")
    found = published_inputs(tmp_path)
    assert [one.objective for one in found] == ["throughput", "latency"]
    assert isinstance(found[1].problem().objective, Latency)
    assert found[1].name == f"latency {tmp_path.name}/graph"


def test_a_folder_without_graphs_is_refused(tmp_path):
    with pytest.raises(BadInput, match="no graphs of Piper"):
        published_inputs(tmp_path)


@pytest.mark.parametrize("name", PEERS)
def test_peers_solve_what_is_tiny(name):
    peer = solver_with_options(name)
    for problem, optimum in ((chain3(), 4.0), (two_towers(), 7.5), (two_towers(Throughput()), None)):
        solution = peer.solve(problem, Budget(evaluations=400))
        assert solution.solver == name
        assert optimum is None or solution.objective_seconds == optimum
        assert solution.bound_seconds <= solution.objective_seconds


def test_random_restarts_repeat_themselves():
    one, other = (PEERS["random-restarts"]().solve(two_towers(), Budget(evaluations=300), 3) for _ in range(2))
    assert (one.placement, one.evaluations) == (other.placement, other.evaluations)


def test_the_suite_of_peers_asks_them_all():
    names = {job.solver for job in jobs_of(suite_named("peers"))}
    assert {"auto", "heft", "peft", "metis", "mtkahypar", "plain-cp-sat", "random-restarts"} <= names


def test_a_peer_takes_no_options():
    with pytest.raises(BadInput, match="random-restarts is here for comparison and takes no options"):
        solver_with_options("random-restarts patience=64")


@NO_DATA
def test_published_graphs_of_doppler_have_the_nodes_that_were_counted():
    counts = {one.name.split("/")[-1]: len(one.problem().graph) for one in published_inputs(SHARED)}
    assert counts == {"chain_mm_112nodes": 76, "ffnn_192nodes": 180, "transformer_block_215nodes": 182}


@NO_DATA
def test_a_published_graph_is_an_instance_like_any_other():
    problem = Instance(str(SHARED / "ffnn_192nodes.txt"), "", "latency").problem()
    assert problem.cluster.contention == "none"
