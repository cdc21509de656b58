"""Costs: roofline by hand, given columns, labels."""

from __future__ import annotations

import numpy as np
import pytest

from stead.cluster import Cluster, Device
from stead.costs import Costs, Given, Roofline, Source, flop_rate
from stead.errors import BadCluster, BadInput
from stead.graph import Graph, GraphBuilder

GPU = Device("g", flops_per_second={"fp32": 1e12, "fp16": 4e12}, bytes_per_second=1e11, launch_seconds=1e-6)


def graph_of(**operators: dict[str, object]) -> Graph:
    build = GraphBuilder()
    for name, options in operators.items():
        build.operator(name, **options)  # type: ignore[arg-type]
    return build.build()


def seconds(device: Device, **operator: object) -> float:
    graph = graph_of(a=operator)
    return float(Roofline().costs(graph, Cluster((device,))).seconds[0, 0])


def test_an_operator_with_much_arithmetic_takes_flops_by_rate_plus_launch() -> None:
    assert seconds(GPU, flops=2e9, moved_bytes=1e6) == pytest.approx(2e-3 + 1e-6)


def test_an_operator_with_much_traffic_takes_bytes_by_bandwidth_plus_launch() -> None:
    assert seconds(GPU, flops=2e6, moved_bytes=1e9) == pytest.approx(1e-2 + 1e-6)


def test_an_operator_without_work_is_free() -> None:
    assert seconds(GPU) == 0.0


def test_half_precision_uses_its_own_rate() -> None:
    assert seconds(GPU, flops=4e9, dtype="fp16") == pytest.approx(1e-3 + 1e-6)


def test_efficiency_scales_a_peak() -> None:
    slow = Device(
        "g",
        flops_per_second={"fp32": 1e12},
        bytes_per_second=1e11,
        efficiency={"compute": 0.5, "memory": 0.1},
    )
    assert (seconds(slow, flops=1e9), seconds(slow, moved_bytes=1e9)) == (
        pytest.approx(2e-3),
        pytest.approx(0.1),
    )


def test_a_card_that_is_slow_at_half_precision_computes_in_single() -> None:
    assert flop_rate(Device("p", flops_per_second={"fp32": 11.8e12, "fp16": 0.18e12}), "fp16") == 11.8e12


def test_a_device_without_flops_is_asked_for_them() -> None:
    with pytest.raises(BadCluster, match="has no FLOP/s for fp32"):
        seconds(Device("g"), flops=1.0)


def test_an_unsupported_kind_is_infinite_and_says_why() -> None:
    npu = Device("npu", flops_per_second={"fp32": 1e12}, unsupported_kinds=frozenset({"TopK"}))
    graph = graph_of(a={"kind": "TopK", "flops": 1.0})
    costs = Roofline().costs(graph, Cluster((npu, GPU)))
    assert (costs.seconds[0, 0], costs.reason("TopK", "npu")) == (np.inf, "npu does not support TopK")


def test_an_operator_that_runs_nowhere_is_refused() -> None:
    npu = Device("npu", flops_per_second={"fp32": 1e12}, unsupported_kinds=frozenset({"TopK"}))
    with pytest.raises(BadInput, match="'a' \\(TopK\\) can run on none of npu"):
        Roofline().costs(graph_of(a={"kind": "TopK", "flops": 1.0}), Cluster((npu,)))


def test_the_most_specific_column_wins_and_the_rest_is_analytic() -> None:
    cluster = Cluster((GPU, Device("h", flops_per_second={"fp32": 1e12})))
    given = Given({"gpu": np.array([np.nan, 7.0]), "g": np.array([np.nan, 3.0])})
    costs = given.costs(graph_of(a={"flops": 1e12}, b={"flops": 1e12}), cluster)
    assert costs.seconds.tolist() == [[1.000001, 1.0], [3.0, 7.0]]
    assert costs.sources.tolist() == [[Source.ANALYTIC] * 2, [Source.IMPORTED] * 2]
    assert costs.source is Source.ANALYTIC


def test_an_operator_timed_on_one_device_is_not_free_on_another() -> None:
    cluster = Cluster((Device("g"), Device("c", kind="cpu")))
    with pytest.raises(BadInput, match="times it on gpu but not on c"):
        Given({"gpu": np.array([1.0])}).costs(graph_of(a={}), cluster)


@pytest.mark.parametrize("table", [[[np.nan]], [[-1.0]], [[1.0, 2.0]], [["x"]]])
def test_nonsense_tables_are_refused(table: list[list[object]]) -> None:
    with pytest.raises(BadInput):
        Costs(graph_of(a={}), Cluster((GPU,)), table)


def test_the_callers_array_stays_his_own() -> None:
    table = np.array([[1.0]])
    Costs(graph_of(a={}), Cluster((GPU,)), table)
    table[0, 0] = 2.0
    assert table[0, 0] == 2.0
