"""Published comparisons: Hugging Face strings on mixed cards, and a fleet of five machines.

Decoding one token at a time: every weight is read once, so a unit takes its bytes divided by the bandwidth of
its device. Embeddings read one row and are free. A change of device costs 0.02 ms, but nothing where the CPU
takes part, from which weights are streamed at 25 GB/s.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations_with_replacement, permutations

import numpy as np
import pytest
from numpy.typing import NDArray

from stead.cluster import Cluster, Device, link_all, link_both_ways
from stead.costs import Roofline
from stead.graph import Graph, GraphBuilder, TensorId
from stead.problem import Latency, Placement, Problem, Throughput
from stead.sim import simulate, simulate_many
from stead.solvers import Budget, solver

GIB = 2**30
INFINITE = float("inf")
CARDS = {  # GiB, bytes per second
    "5090": (32, 1790e9), "3090": (24, 936e9), "3060": (12, 360e9), "P40": (24, 347e9), "4060Ti": (16, 288e9),
}  # fmt: skip


@dataclass(frozen=True)
class Case:
    """A model on some cards: where each rule changes device, and milliseconds per token."""

    model: str
    layers: int
    embedding_bytes: int  # and of the head
    layer_bytes: int
    norm_bytes: int
    cards: tuple[str, ...]
    rules: dict[str, tuple[list[tuple[str, str]], float]]  # (first unit, device) of every run, milliseconds
    best: tuple[list[tuple[str, str]], float]

    def graph(self) -> Graph:
        """Embedding, layers, norm and head in a chain."""
        build = GraphBuilder(self.model)
        last: list[TensorId] = []
        units = [
            ("model.embed_tokens", self.embedding_bytes),
            *((f"model.layers.{i}", self.layer_bytes) for i in range(self.layers)),
            ("model.norm", self.norm_bytes),
            ("lm_head", self.embedding_bytes),
        ]
        for name, size in units:
            moved = 0 if name == "model.embed_tokens" else size
            operator = build.operator(name, module=name, reads=last, moved_bytes=moved)
            build.weight(f"{name}.weight", size_bytes=size, users=[operator])
            last = [build.tensor(operator, size_bytes=0)]
        return build.build()

    def problem(self, *, reserve_bytes: int) -> Problem:
        """The cards with 92 % of their memory, in whole GiB, less a reserve; and a CPU."""
        cards = tuple(
            Device(card, memory_bytes=int(0.92 * CARDS[card][0]) * GIB, reserve_bytes=reserve_bytes,
                   bytes_per_second=CARDS[card][1])
            for card in self.cards
        )  # fmt: skip
        cpu = Device("cpu", kind="cpu", memory_bytes=64 * GIB, bytes_per_second=25e9)
        links = [
            *link_all(self.cards, bytes_per_second=INFINITE, latency_seconds=2e-5),
            *(link for card in self.cards for link in link_both_ways(card, "cpu", bytes_per_second=INFINITE)),
        ]
        graph, cluster = self.graph(), Cluster((*cards, cpu), tuple(links))
        return Problem(graph, cluster, Roofline().costs(graph, cluster), objective=Latency())


SEVEN_B = ("llama-7B", 32, 262_144_000, 404_766_720, 8_192)
EIGHT_B = ("llama3-8B", 32, 1_050_673_152, 436_224_000, 8_192)
THIRTEEN_B = ("llama-13B", 40, 327_680_000, 634_408_960, 10_240)
START, HEAD = "model.embed_tokens", "lm_head"


def layer(number: int) -> str:
    """The name of a layer."""
    return f"model.layers.{number}"


CASES = [
    Case(
        *SEVEN_B, ("3060", "3090"),
        {
            "hf-auto": ([(START, "3060"), (layer(16), "3090")], 25.209),
            "hf-sequential": ([(START, "3060"), (layer(27), "3090")], 32.820),
            "hf-balanced-low-0": ([(START, "3090")], 14.118),
        },
        ([(START, "3090")], 14.118),
    ),
    Case(
        *SEVEN_B, ("3090", "P40"),
        {
            "hf-auto": ([(START, "3090"), (layer(16), "P40")], 26.358),
            "hf-sequential": ([(START, "3090")], 14.118),
            "hf-balanced-low-0": ([(START, "P40")], 38.083),
        },
        ([(START, "3090")], 14.118),
    ),
    Case(
        *EIGHT_B, ("5090", "4060Ti"),
        {
            "hf-auto": ([(START, "5090"), (layer(16), "4060Ti")], 31.802),
            "hf-sequential": ([(START, "5090")], 8.385),
            "hf-balanced-low-0": ([(START, "4060Ti"), (HEAD, "cpu")], 90.496),
        },
        ([(START, "5090")], 8.385),
    ),
    Case(
        *THIRTEEN_B, ("3090", "3060", "P40"),
        {
            "hf-auto": ([(START, "3090"), (layer(13), "3060"), (layer(27), "P40")], 58.235),
            "hf-sequential": ([(START, "3090"), (layer(35), "3060")], 33.464),
            "hf-balanced-low-0": ([(START, "3060"), (layer(18), "P40")], 72.907),
        },
        ([(START, "3060"), (layer(5), "3090")], 32.904),
    ),
]  # fmt: skip
CASE_NAMES = [f"{case.model} on {'+'.join(case.cards)}" for case in CASES]
RULES = [(case, rule) for case in CASES for rule in case.rules]


def runs(placement: Placement) -> list[tuple[str, str]]:
    """(first unit, device) of every run of units on one device."""
    found: list[tuple[str, str]] = []
    for unit, device in placement.by_name().items():
        if not found or found[-1][1] != device:
            found.append((unit, device))
    return found


def contiguous_splits(units: int, devices: int) -> NDArray[np.uint8]:  # [split, unit]
    """Every split of a chain into consecutive pieces, at most one per device, devices in any order."""
    cuts = list(combinations_with_replacement(range(units + 1), devices - 1))
    position = np.array([[sum(cut <= unit for cut in ends) for unit in range(units)] for ends in cuts])
    orders = [np.array(order, dtype=np.uint8) for order in permutations(range(devices))]
    return np.unique(np.concatenate([order[position] for order in orders]), axis=0)


@pytest.mark.parametrize(("case", "rule"), RULES, ids=[f"{case.model} {rule}" for case, rule in RULES])
def test_a_hugging_face_string_gives_the_published_map_and_time(case: Case, rule: str) -> None:
    expected_runs, milliseconds = case.rules[rule]
    found = solver(rule).solve(case.problem(reserve_bytes=0), Budget())
    assert runs(found.placement) == expected_runs
    assert found.objective_seconds * 1e3 == pytest.approx(milliseconds, abs=6e-4)


@pytest.mark.parametrize("case", CASES, ids=CASE_NAMES)
def test_the_best_contiguous_split_is_the_published_one(case: Case) -> None:
    expected_runs, milliseconds = case.best
    problem = case.problem(reserve_bytes=GIB)
    splits = contiguous_splits(len(problem.graph), len(case.cards))
    scores = simulate_many(problem, splits)
    seconds = np.where(scores.feasible, scores.seconds, np.inf)
    best = int(np.argmin(seconds))
    assert runs(Placement(problem, splits[best])) == expected_runs
    assert seconds[best] * 1e3 == pytest.approx(milliseconds, abs=6e-4)


@pytest.mark.parametrize("case", CASES, ids=CASE_NAMES)
def test_some_hugging_face_string_is_within_two_percent_of_the_best(case: Case) -> None:
    assert min(milliseconds for _, milliseconds in case.rules.values()) <= 1.02 * case.best[1]


def fleet(objective: Latency | Throughput) -> Problem:
    """40 layers of 1 GB on five machines with free links."""
    machines = [
        ("M4 Max", 36, 264.4), ("M3 Ultra A", 96, 344.0), ("M1 Ultra", 64, 308.7), ("M3 Ultra B", 96, 351.2),
        ("M3 Max", 36, 177.6),
    ]  # fmt: skip
    devices = tuple(
        Device(name, memory_bytes=size * 10**9, bytes_per_second=rate * 1e9) for name, size, rate in machines
    )
    cluster = Cluster(devices, link_all([name for name, _, _ in machines], bytes_per_second=INFINITE))
    build = GraphBuilder("fleet")
    last: list[TensorId] = []
    for i in range(40):
        operator = build.operator(f"layer{i}", reads=last, moved_bytes=1e9)
        build.weight(f"weight{i}", size_bytes=10**9, users=[operator])
        last = [build.tensor(operator, size_bytes=0)]
    graph = build.build()
    return Problem(graph, cluster, Roofline().costs(graph, cluster), objective=objective)


def milliseconds(problem: Problem, devices: NDArray[np.uint8]) -> float:
    """What the simulator says of a placement."""
    return simulate(problem, Placement(problem, devices)).objective_seconds * 1e3


@pytest.mark.parametrize(
    ("rule", "counts", "bottleneck", "latency"),
    [
        ("capacity", [4, 12, 8, 12, 4], 34.884, 132.619),
        ("bandwidth", [7, 9, 9, 10, 5], 29.155, 138.419),
        ("single:M3 Ultra B", [0, 0, 0, 40, 0], 113.895, 113.895),
    ],
)
def test_a_rule_on_the_fleet_gives_the_published_numbers(
    rule: str, counts: list[int], bottleneck: float, latency: float
) -> None:
    found = solver(rule).solve(fleet(Throughput()), Budget())
    assert list(found.placement.counts().values()) == counts
    assert found.objective_seconds * 1e3 == pytest.approx(bottleneck, abs=6e-4)
    assert milliseconds(fleet(Latency()), found.placement.devices) == pytest.approx(latency, abs=6e-4)


def test_no_count_of_layers_beats_the_published_optimum_of_the_fleet() -> None:
    problem = fleet(Throughput())
    devices = np.repeat(np.arange(5, dtype=np.uint8), [7, 10, 8, 10, 5])
    assert milliseconds(problem, devices) == pytest.approx(29.070, abs=6e-4)
    assert milliseconds(fleet(Latency()), devices) == pytest.approx(138.087, abs=6e-4)
    rates = [device.bytes_per_second for device in problem.cluster]
    # one millisecond less on the busiest machine would leave layers over: the floors no longer add up to 40
    assert sum(int(0.029069 * rate / 1e9) for rate in rates) < 40


def test_the_fastest_single_machine_of_the_fleet_is_best_for_latency() -> None:
    found = solver("single").solve(fleet(Latency()), Budget())
    assert list(found.placement.counts().values()) == [0, 0, 0, 40, 0]
    assert found.objective_seconds * 1e3 == pytest.approx(113.895, abs=6e-4)


@pytest.mark.parametrize("case", CASES, ids=CASE_NAMES)
def test_auto_proves_mixed_cards(case: Case) -> None:
    found = solver("auto").solve(case.problem(reserve_bytes=GIB), Budget())
    assert found.objective_seconds * 1e3 <= case.best[1] * 1.001
    assert found.gap == 0


@pytest.mark.parametrize("objective", [Latency(), Throughput()], ids=lambda objective: objective.name)
def test_auto_proves_the_fleet(objective: Latency | Throughput) -> None:
    assert solver("auto").solve(fleet(objective), Budget()).gap == 0
