"""Node counts, FLOPs, units, speed and memory beside what others have counted; mostly with STEAD_SLOW=1 alone."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stead.workloads import graph_cache as cache
from stead.workloads import names, parse
from stead.workloads.zoo import MODES

# torch warns about its own plans when it exports
pytestmark = pytest.mark.filterwarnings(
    "ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::UserWarning"
)
NEEDS_TORCH = pytest.mark.skipif(not cache.torch_version(), reason="captures models with torch")

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))
import zoo  # noqa: E402

# Calls and nodes of a training step without update; `benchmarks/zoo.py` prints them beside those of others.
RECORDED = {
    "rnnlm-2": (4_659, 4_981),
    "rnnlm-8": (16_665, 17_947),
    "gnmt-2": (13_001, 13_803),
    "gnmt-4": (21_645, 23_087),
    "gnmt-8": (38_933, 41_655),
    "gnmt-8?steps=80": (77_813, 83_255),
    "transformer-xl-4": (3_760, 3_990),
    "transformer-xl-8": (7_340, 7_794),
    "wavenet-4x36": (1_542, 1_979),
    "inception-v3": (1_665, 2_425),
    "resnet-152": (2_596, 3_838),
    "bert-base": (2_497, 2_655),
    "bert-large": (4_909, 5_211),
}
UNITS = {"rnnlm-2": 40 * 3 + 1, "gnmt-2": 40 * 7 + 3, "gnmt-4": 40 * 11 + 3, "gnmt-8": 40 * 19 + 3,
         "inception-v3": 95, "resnet-50": 54, "resnet-152": 156}  # fmt: skip


def test_the_page_about_the_zoo_shows_the_figures_of_the_catalogue() -> None:
    page = (Path(__file__).parents[2] / "docs" / "reference" / "zoo.md").read_text()
    assert [row for row in zoo.models() if row not in page] == []


@pytest.mark.slow
@NEEDS_TORCH
@pytest.mark.parametrize("name", zoo.NODES)
def test_recordings_are_as_long_as_those_of_others(name: str) -> None:
    wanted_calls, wanted_nodes = zoo.NODES[name]
    calls, nodes = zoo.recorded(name)
    assert (calls, nodes) == RECORDED[name]
    assert calls == pytest.approx(wanted_calls, rel=0.02)
    assert nodes == pytest.approx(wanted_nodes or nodes, rel=0.02)


@pytest.mark.parametrize("name", zoo.PRODUCTS)
def test_products_and_convolutions_have_the_reference_flops(name: str) -> None:
    assert zoo.product_flops(parse(name).graph()) / 1e9 == pytest.approx(zoo.PRODUCTS[name], rel=0.005)


@pytest.mark.parametrize("name", UNITS)
def test_unit_counts_follow_from_steps_and_layers(name: str) -> None:
    spec = parse(name, phase="train")
    graph = spec.graph()
    units = spec.units(graph)
    assert len({units[v] for v in np.flatnonzero(graph.phases == 0).tolist() if units[v]}) == UNITS[name]


@pytest.mark.slow
@NEEDS_TORCH
@pytest.mark.skipif(
    cache.torch_version() != cache.catalogue_torch(),
    reason="graphs were captured by another version of torch",
)
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", names())
def test_every_shipped_graph_is_captured_again_exactly(name: str, mode: str) -> None:
    spec = parse(name, phase=mode)
    graph = spec.capture()
    entry = cache.catalogue()[spec.fingerprint]
    assert (len(graph), graph.fingerprint) == (entry.operators, entry.graph)


_MEASURED = """
import resource, sys, time, warnings
warnings.simplefilter("ignore")
import torch
from stead.workloads import parse
started = time.process_time()
graph = parse(sys.argv[1]).capture()
usage = resource.getrusage(resource.RUSAGE_SELF)
print(len(graph), time.process_time() - started, usage.ru_maxrss / 2**20)
"""


@pytest.mark.slow
@NEEDS_TORCH
@pytest.mark.parametrize("name", zoo.EXPERTS)
def test_the_expert_is_no_worse_than_that_of_others(name: str) -> None:
    devices, seconds, share = zoo.EXPERTS[name]
    alone, *shares = zoo.expert_shares(name, devices)
    assert alone == pytest.approx(seconds, rel=0.025)
    assert min(shares) < share + 0.02


@pytest.mark.slow
@NEEDS_TORCH
@pytest.mark.parametrize(
    ("name", "operators", "seconds", "gigabytes"),
    [
        ("gnmt-8?steps=80,phase=train", 45_000, 60.0, 2.0),  # after views are folded
        ("llama-70b", 3_000, 60.0, 1.5),
        ("llama-70b?phase=train", 10_000, 60.0, 1.5),
    ],
)
def test_capturing_a_big_model_is_quick_and_small(
    name: str, operators: int, seconds: float, gigabytes: float
) -> None:
    done: Any = subprocess.run(
        [sys.executable, "-c", _MEASURED, name], capture_output=True, text=True, check=True
    )
    found, taken, peak = map(float, done.stdout.split())
    print(f"{name}: {found:.0f} operators, {taken:.1f} s, {peak:.2f} GB")
    assert found > operators
    assert taken < seconds
    assert peak < gigabytes
