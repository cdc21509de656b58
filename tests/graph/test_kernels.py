"""Operators of several kernels: each is limited in its own way and launched as often as is to be expected."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from stead.cluster import Cluster, Device
from stead.costs import Roofline
from stead.errors import BadGraph, BadInput
from stead.graph import Graph, GraphBuilder
from stead.graph.kernels import Kernel
from stead.readers import read, write_graph
from stead.readers.native.npz import write_npz

ONE = Cluster((Device("d", bytes_per_second=10.0, flops_per_second={"fp32": 100.0}, launch_seconds=0.5),), ())


def pair(*kernels: Kernel) -> Graph:
    """An operator of some kernels and one that is a kernel itself, 100 FLOP and 20 bytes each."""
    build = GraphBuilder("pair")
    a = build.operator("a", flops=100, moved_bytes=20, kernels=kernels)
    x = build.tensor(a, size_bytes=4)
    b = build.operator("b", flops=100, moved_bytes=20, reads=[x])
    build.tensor(b, size_bytes=4, kept=True)
    return build.build()


PARTS = (Kernel(100, 0), Kernel(0, 20, 0.25))


def test_kernels_run_one_after_another_and_are_launched_as_often_as_expected() -> None:
    # 1 s of arithmetic, 2 s of traffic, 1.25 launches of half a second; as one kernel max(1, 2) + 0.5
    assert Roofline().costs(pair(*PARTS), ONE).seconds[:, 0].tolist() == [3.625, 2.5]


def test_without_kernels_a_graph_is_what_it_was() -> None:
    assert pair().kernels is None
    assert pair().fingerprint == "0eca5e03a232b961"
    assert pair(*PARTS).fingerprint != pair().fingerprint


@pytest.mark.parametrize("name", ["graph.json", "graph.npz"])
def test_files_bring_kernels_back(tmp_path: Path, name: str) -> None:
    graph, path = pair(*PARTS), tmp_path / name
    (write_npz if name.endswith("npz") else write_graph)(path, graph)
    found = read(path).graph
    assert found == graph
    assert found.kernels_of(0) == PARTS


def test_a_group_of_operators_has_the_kernels_of_all() -> None:
    graph = pair(*PARTS)
    assert graph.kernels is not None
    merged = graph.kernels.grouped(np.array([0, 0]), 1)
    assert merged.of(0) == [*PARTS, Kernel(100, 20)]
    picked = graph.kernels.picked(np.array([1, 0]))
    assert (picked.of(0), picked.of(1)) == ([Kernel(100, 20)], list(PARTS))


def test_kernels_that_do_not_add_up_are_refused(tmp_path: Path) -> None:
    with pytest.raises(BadGraph, match="its kernels have 90 flops together, it has 100; make them equal"):
        pair(Kernel(90, 20))
    path = tmp_path / "graph.json"
    write_graph(path, pair(*PARTS))
    document = json.loads(path.read_text())
    for wrong, message in (
        ([[100, 20]], "kernel 0: must be FLOPs, bytes moved and launches"),
        ([[100, 20, -1]], "kernel 0: "),
        ([[1, 20, 1]], "make them equal"),
    ):
        document["operators"][0]["kernels"] = wrong
        path.write_text(json.dumps(document))
        with pytest.raises(BadInput, match=message):
            read(path)
