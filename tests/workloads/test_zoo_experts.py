"""Where a human expert puts the units of models of the zoo, written out by hand. Shipped graphs, no torch."""

from __future__ import annotations

import re

import pytest

from stead import Cluster, Device, Latency, Problem, Roofline, link_all
from stead.solvers import Budget, solver
from stead.workloads import parse


def devices_of(name: str, count: int) -> dict[str, set[int]]:
    """Devices by unit, all calls of a unit and all phases taken together."""
    spec = parse(name)
    graph = spec.graph()
    names = [f"gpu{d}" for d in range(count)]
    cluster = Cluster(
        tuple(Device(name, flops_per_second={"fp32": 1e13}, bytes_per_second=1e12) for name in names),
        link_all(names, bytes_per_second=1e10, latency_seconds=1e-5),
    )
    problem = Problem(graph, cluster, Roofline().costs(graph, cluster), objective=Latency())
    placed = solver("expert").solve(problem, Budget()).placement.devices
    found: dict[str, set[int]] = {}
    for unit, device in zip(spec.units(graph), placed.tolist(), strict=True):
        found.setdefault(re.sub("#[0-9]+", "", unit).replace("/", "."), set()).add(device)
    found.pop("", None)
    return found


def numbered(pattern: str, devices: list[int]) -> dict[str, set[int]]:
    return {pattern.format(number): {device} for number, device in enumerate(devices)}


@pytest.mark.parametrize(("count", "cells"), [(2, [0, 0, 1, 1]), (4, [0, 1, 2, 3])])
def test_a_language_model_has_its_ends_with_the_outer_layers(count: int, cells: list[int]) -> None:
    expected = {"embedding": {0}, "projection": {count - 1}, **numbered("cells.{}", cells)}
    assert devices_of("rnnlm-4?phase=train", count) == expected


@pytest.mark.parametrize(("count", "layers"), [(2, [0, 0, 1, 1]), (4, [0, 1, 2, 3])])
def test_translation_counts_both_sides_from_0_and_attends_at_the_end(count: int, layers: list[int]) -> None:
    last = {count - 1}
    expected = {
        "source_embedding": {0}, "target_embedding": {0}, "encoder.0.forwards": {0}, "encoder.0.backwards": {0},
        **dict(list(numbered("encoder.{}", layers).items())[1:]), **numbered("decoder.{}", layers),
        "keys": last, "attention": last, "projection": last,
    }  # fmt: skip
    assert devices_of("gnmt-4?phase=train", count) == expected


@pytest.mark.parametrize(("count", "layers"), [(2, [0, 0, 1, 1]), (4, [0, 1, 2, 3])])
def test_segments_stay_with_their_layers(count: int, layers: list[int]) -> None:
    expected = {"embedding": {0}, "projection": {count - 1}, **numbered("layers.{}", layers)}
    assert devices_of("transformer-xl-4?phase=train", count) == expected


@pytest.mark.parametrize("mode", ["infer", "train"])
def test_layers_of_an_encoder_are_cut_into_equal_parts(mode: str) -> None:
    layers = [0, 0, 0, 1, 1, 1, 2, 2, 2, 3, 3, 3]
    expected = {"embeddings": {0}, "head": {3}, **numbered("layers.{}", layers)}
    assert devices_of(f"bert-base?phase={mode}", 4) == expected


def test_layers_of_a_decoder_are_cut_into_equal_parts() -> None:
    expected = {"embedding": {0}, "head": {1}, **numbered("layers.{}", [0] * 16 + [1] * 16)}
    assert devices_of("llama-8b", 2) == expected


def test_experts_stay_with_their_layer() -> None:
    placed = devices_of("mixtral-8x7b", 4)
    layers = {unit: int(unit.split(".")[1]) for unit in placed if unit.startswith("layers.")}
    assert len(layers) == 32 * 10  # attention, router and 8 experts
    assert {unit: placed[unit] for unit in layers} == {unit: {n // 8} for unit, n in layers.items()}


def test_an_encoder_comes_before_its_decoder() -> None:
    placed = devices_of("t5-base?phase=train", 2)
    layers = {unit: where for unit, where in placed.items() if ".layers." in unit}
    encoder, decoder = (
        numbered(side + ".layers.{}", [d] * 12) for d, side in enumerate(("encoder", "decoder"))
    )
    assert layers == {**encoder, **decoder}


def test_dilated_layers_are_cut_into_equal_parts() -> None:
    placed = devices_of("wavenet-4x36?phase=train", 4)
    expected = numbered("layers.{}", [number // 9 for number in range(36)])
    assert {unit: where for unit, where in placed.items() if unit.startswith("layers.")} == expected


def test_searched_cells_are_cut_into_equal_parts() -> None:
    placed = devices_of("nasnet-mobile?phase=train", 4)  # 2 stem cells, 3 x 4 normal cells, 2 reductions
    expected = numbered("cells.{}", [number * 4 // 16 for number in range(16)])
    assert {unit: where for unit, where in placed.items() if unit.startswith("cells.")} == expected


def test_a_resnet_stays_on_one_device() -> None:
    assert {frozenset(where) for where in devices_of("resnet-50?phase=train", 4).values()} == {frozenset({0})}
