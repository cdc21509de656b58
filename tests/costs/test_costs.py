"""Costs: roofline by hand, given columns, labels."""

from __future__ import annotations

import numpy as np
import pytest

from stead.cluster import Cluster, Device, cluster_from, device_from, entries, precision_of
from stead.costs import Costs, Given, Roofline, Source, precision_notes
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
    assert rate(Device("p", flops_per_second={"fp32": 11.8e12, "fp16": 0.18e12}), "fp16") == 11.8e12


def test_a_device_without_flops_is_asked_for_them() -> None:
    with pytest.raises(BadCluster, match="has no FLOP/s for fp32"):
        seconds(Device("g"), flops=1.0)


def rate(device: Device, dtype: str) -> float:
    return precision_of(device, dtype).flops_per_second


def named(text: str) -> Device:
    return cluster_from(text)[0].devices[0]


def test_bf16_on_a_v100_is_computed_in_fp32_with_tensors_as_they_are() -> None:
    v100 = named("V100-SXM2-32GB")  # 15.7 TFLOP/s, 900 GB/s, 5 us
    assert seconds(v100, flops=15.7e9, dtype="bf16") == pytest.approx(1e-3 + 5e-6)
    assert seconds(v100, moved_bytes=900e6, dtype="bf16") == pytest.approx(1e-3 + 5e-6)


def test_fp32_on_an_npu_is_converted_to_fp16_and_moves_half_the_bytes() -> None:
    npu = named("Meteor Lake NPU")  # 5.5 TFLOP/s in fp16, 89.6 GB/s, 20 us
    assert seconds(npu, flops=5.5e9) == pytest.approx(1e-3 + 20e-6)
    assert seconds(npu, moved_bytes=179.2e6) == pytest.approx(1e-3 + 20e-6)


def test_an_npu_without_a_published_fp16_rate_runs_at_half_its_int8_rate() -> None:
    assert rate(named("X Elite NPU"), "fp32") == 22.5e12


def test_masks_and_indices_run_anywhere_at_memory_speed() -> None:
    npu = named("Meteor Lake NPU")
    for dtype in ("bool", "int64", "int32", "string"):
        assert seconds(npu, flops=1e15, moved_bytes=89.6e6, dtype=dtype) == pytest.approx(1e-3 + 20e-6)


def test_double_precision_on_a_geforce_is_slow_but_there() -> None:
    assert rate(named("3090"), "fp64") == 35.58e12 / 64
    assert rate(named("2080 Ti"), "fp64") == 13.45e12 / 32


def test_a_type_that_a_device_does_not_support_runs_elsewhere() -> None:
    cluster = cluster_from("M4 Max 64GB + cpu")[0]
    costs = Roofline().costs(graph_of(a={"kind": "Add", "flops": 1.0, "dtype": "fp64"}), cluster)
    assert (costs.seconds[0, 0], np.isfinite(costs.seconds[0, 1])) == (np.inf, True)
    assert costs.reason("Add", "M4 Max 64GB") == "M4 Max 64GB does not support fp64"
    with pytest.raises(BadInput, match="can run on none of M4 Max 64GB"):
        Roofline().costs(graph_of(a={"flops": 1.0, "dtype": "fp64"}), cluster.without("cpu"))


def test_a_file_may_say_what_a_device_computes_a_type_in() -> None:
    slow = Device("g", flops_per_second={"fp32": 1e12, "fp16": 4e12}, precision={"fp32": "converted to fp16"})
    assert rate(slow, "fp32") == 4e12
    never = Device("g", flops_per_second={"fp32": 1e12}, precision={"bf16": "not supported"})
    assert seconds(never, dtype="bf16") == 0.0
    with pytest.raises(BadCluster, match="cannot read 'as fp16'"):
        Device("g", precision={"fp32": "as fp16"})


def test_what_devices_do_with_types_they_lack_is_said() -> None:
    graph = graph_of(a={"flops": 1.0, "dtype": "bf16"}, b={"flops": 1.0, "dtype": "bool"})
    told = precision_notes(graph, cluster_from("2x V100-SXM2-32GB + A100-80GB + NPU")[0])
    assert told == (
        "bf16 on v100-sxm2-32gb:0, v100-sxm2-32gb:1 is computed in fp32",
        "bf16 on NPU is converted to fp16 (assumed)",
    )


def test_every_device_of_the_catalogue_takes_every_type_or_says_why_not() -> None:
    refused = []
    for entry in entries():
        device = device_from(entry, "d", memory_bytes=2**30)
        for dtype in ("fp64", "fp32", "fp16", "bf16", "fp8", "int8", "int4", "int64", "bool", "complex64"):
            found = precision_of(device, dtype)
            assert found.flops_per_second > 0, (entry.key, dtype)
            refused += [(entry.vendor, dtype)] if not found.supported else []
    assert set(refused) == {("Apple", "fp64"), ("Intel", "fp64")}  # Metal; Gaudi


def test_what_is_assumed_about_a_type_is_said_to_be() -> None:
    told = precision_of(named("3090"), "fp64").told
    assert told == "run at 1/64 of fp32 (assumed)"
    assert precision_of(named("V100-SXM2-32GB"), "bf16").told == "computed in fp32"


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
