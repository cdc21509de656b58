"""Published comparisons of mixed cards, from the configurations of the models.

Decoding one token at a time with an empty cache: a unit takes the bytes of its weights divided by the bandwidth of its
device. The figures of the cards are those of tests/solvers/test_users_tables.py.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from itertools import combinations_with_replacement, permutations

import numpy as np
import pytest
from hf_configs import LLAMA3_8B, LLAMA_7B, LLAMA_13B, Values
from numpy.typing import NDArray

from stead.cluster import Cluster, Device, link_all, link_both_ways
from stead.costs import Roofline
from stead.graph import Graph
from stead.problem import Latency, Placement, Problem
from stead.readers.hf import HuggingFace
from stead.sim import simulate_many
from stead.solvers import Budget, solver

GIB = 2**30
CARDS = {  # GiB, bytes per second
    "5090": (32, 1790e9), "3090": (24, 936e9), "3060": (12, 360e9), "P40": (24, 347e9), "4060Ti": (16, 288e9),
}  # fmt: skip
START, HEAD = "model.embed_tokens", "lm_head"
Runs = list[tuple[str, str]]  # (first unit, device) of every run of units on one device


@dataclass(frozen=True)
class Case:
    """A model on some cards: where each rule changes device, and milliseconds per token."""

    name: str
    config: Values
    cards: tuple[str, ...]
    rules: dict[str, tuple[Runs, float]]
    best: tuple[Runs, float]


def layer(number: int) -> str:
    """The name of a layer."""
    return f"model.layers.{number}"


CASES = [
    Case(
        "llama-7B on 3060, 3090", LLAMA_7B, ("3060", "3090"),
        {
            "hf-auto": ([(START, "3060"), (layer(16), "3090")], 25.209),
            "hf-sequential": ([(START, "3060"), (layer(27), "3090")], 32.820),
            "hf-balanced-low-0": ([(START, "3090")], 14.118),
        },
        ([(START, "3090")], 14.118),
    ),
    Case(
        "llama-7B on 3090, P40", LLAMA_7B, ("3090", "P40"),
        {
            "hf-auto": ([(START, "3090"), (layer(16), "P40")], 26.358),
            "hf-sequential": ([(START, "3090")], 14.118),
            "hf-balanced-low-0": ([(START, "P40")], 38.083),
        },
        ([(START, "3090")], 14.118),
    ),
    Case(
        "llama3-8B on 5090, 4060Ti", LLAMA3_8B, ("5090", "4060Ti"),
        {
            "hf-auto": ([(START, "5090"), (layer(16), "4060Ti")], 31.802),
            "hf-sequential": ([(START, "5090")], 8.385),
            "hf-balanced-low-0": ([(START, "4060Ti"), (HEAD, "cpu")], 90.496),
        },
        ([(START, "5090")], 8.385),
    ),
    Case(
        "llama-13B on 3090, 3060, P40", LLAMA_13B, ("3090", "3060", "P40"),
        {
            "hf-auto": ([(START, "3090"), (layer(13), "3060"), (layer(27), "P40")], 58.235),
            "hf-sequential": ([(START, "3090"), (layer(35), "3060")], 33.464),
            "hf-balanced-low-0": ([(START, "3060"), (layer(18), "P40")], 72.907),
        },
        ([(START, "3060"), (layer(5), "3090")], 32.904),
    ),
]  # fmt: skip
NAMES = [case.name for case in CASES]
RULES = [(case, rule) for case in CASES for rule in case.rules]
RULE_NAMES = [f"{case.name} {rule}" for case, rule in RULES]

UNITS = HuggingFace(context=0, granularity="blocks", traffic="weights")  # the model of the table


def problem_of(graph: Graph, cards: tuple[str, ...], *, reserve_bytes: int) -> Problem:
    """A graph on cards with 92 % of their memory, in whole GiB, less a reserve; and a CPU."""
    rates = {"bf16": 1e30}  # arithmetic is free
    devices = [
        Device(card, memory_bytes=int(0.92 * CARDS[card][0]) * GIB, reserve_bytes=reserve_bytes,
               bytes_per_second=CARDS[card][1], flops_per_second=rates)
        for card in cards
    ]  # fmt: skip
    cpu = Device("cpu", kind="cpu", memory_bytes=64 * GIB, bytes_per_second=25e9, flops_per_second=rates)
    fast = float("inf")
    links = [
        *link_all(cards, bytes_per_second=fast, latency_seconds=2e-5),
        *(link for card in cards for link in link_both_ways(card, "cpu", bytes_per_second=fast)),
    ]
    cluster = Cluster((*devices, cpu), tuple(links))
    return Problem(graph, cluster, Roofline().costs(graph, cluster), objective=Latency())


def unit_of(operator: str) -> str:
    """The embedding, a layer, the norm or the head."""
    parts = operator.split(".")
    return ".".join(parts[:3]) if parts[1:2] == ["layers"] else operator


def runs(placement: Placement) -> Runs:
    """(first unit, device) of every run of units on one device."""
    found: Runs = []
    for operator, device in placement.by_name().items():
        if not found or found[-1][1] != device:
            found.append((unit_of(operator), device))
    return found


def contiguous_splits(units: int, devices: int) -> NDArray[np.uint8]:  # [split, unit]
    """Every split of a chain into consecutive pieces, at most one per device, devices in any order."""
    cuts = list(combinations_with_replacement(range(units + 1), devices - 1))
    position = np.array([[sum(cut <= unit for cut in ends) for unit in range(units)] for ends in cuts])
    orders = [np.array(order, dtype=np.uint8) for order in permutations(range(devices))]
    return np.unique(np.concatenate([order[position] for order in orders]), axis=0)


@pytest.mark.parametrize(
    ("config", "layers", "sizes"),
    [
        (LLAMA_7B, 32, (262_144_000, 404_766_720, 8_192, 262_144_000)),
        (LLAMA3_8B, 32, (1_050_673_152, 436_224_000, 8_192, 1_050_673_152)),
        (LLAMA_13B, 40, (327_680_000, 634_408_960, 10_240, 327_680_000)),
    ],
    ids=["7B", "8B", "13B"],
)
def test_units_have_the_bytes_of_the_table(config: Values, layers: int, sizes: tuple[int, ...]) -> None:
    embedding, each, norm, head = sizes
    graph = UNITS.from_config(config).graph
    assert graph.parameter_bytes.tolist() == [embedding, *[each] * layers, norm, head]
    assert graph.moved_bytes.tolist() == [0, *[each] * layers, norm, head]  # a lookup is free


@pytest.mark.parametrize(("case", "rule"), RULES, ids=RULE_NAMES)
def test_a_hugging_face_string_gives_the_published_map_and_time(case: Case, rule: str) -> None:
    expected_runs, milliseconds = case.rules[rule]
    graph = UNITS.from_config(case.config).graph
    found = solver(rule).solve(problem_of(graph, case.cards, reserve_bytes=0), Budget())
    assert runs(found.placement) == expected_runs
    assert found.objective_seconds * 1e3 == pytest.approx(milliseconds, abs=6e-4)


@pytest.mark.parametrize(("case", "rule"), RULES, ids=RULE_NAMES)
def test_single_operators_and_activations_change_less_than_a_tenth_of_a_percent(
    case: Case, rule: str
) -> None:
    expected_runs, milliseconds = case.rules[rule]
    graph = HuggingFace(context=0).from_config(case.config).graph
    found = solver(rule).solve(problem_of(graph, case.cards, reserve_bytes=0), Budget())
    assert runs(found.placement) == expected_runs
    assert found.objective_seconds * 1e3 == pytest.approx(milliseconds, rel=1e-3)


@pytest.mark.parametrize("case", CASES, ids=NAMES)
def test_the_best_contiguous_split_is_the_published_one(case: Case) -> None:
    expected_runs, milliseconds = case.best
    problem = problem_of(UNITS.from_config(case.config).graph, case.cards, reserve_bytes=GIB)
    splits = contiguous_splits(len(problem.graph), len(case.cards))
    scores = simulate_many(problem, splits)
    seconds = np.where(scores.feasible, scores.seconds, np.inf)
    best = int(np.argmin(seconds))
    assert runs(Placement(problem, splits[best])) == expected_runs
    assert seconds[best] * 1e3 == pytest.approx(milliseconds, abs=6e-4)


@pytest.mark.parametrize("case", CASES, ids=NAMES)
def test_a_plan_is_as_good_as_the_best_contiguous_split_within_seconds(case: Case) -> None:
    started = time.process_time()
    problem = problem_of(UNITS.from_config(case.config).graph, case.cards, reserve_bytes=GIB)
    found = solver("auto").solve(problem, Budget(seconds=3))
    assert found.objective_seconds * 1e3 <= case.best[1] * 1.001
    assert time.process_time() - started < 5


def test_a_cache_of_17466_tokens_is_what_a_3090_has_room_for() -> None:
    reader = HuggingFace(granularity="blocks", context=17_466)
    graph = reader.from_config(LLAMA_7B).graph
    usable = 24 * 0.92 * GIB - GIB
    per_token = 2 * 32 * 128 * 2 * 32  # keys and values, heads, width of a head, bytes, layers
    total = sum(graph.weight_bytes.tolist())
    assert total == 13_476_831_232 + 17_466 * per_token
    assert total <= usable < total + per_token
