"""Mixtures of experts cost the same by experts, by modules and by blocks, on any one device.

`python tests/readers/test_hf_experts.py` prints the table of docs/howto/huggingface.md.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from hf_configs import MIXTURES, QWEN3_30B_A3B, Values, small

from stead.cluster import cluster_from
from stead.costs import Roofline
from stead.readers.hf import HuggingFace
from stead.readers.hf.step import Phase

WITHIN = 0.05
CARD = "A100-80GB"
CASES: list[tuple[Phase, int]] = [(phase, batch) for phase in ("decode", "prefill") for batch in (1, 8, 64)]
LARGE = "Qwen3-30B-A3B"
PAGE = Path(__file__).parents[2] / "docs" / "howto" / "huggingface.md"
HEADER = "| model | phase | batch | by layer, ms | by block, ms | by groups, ms | by expert, ms | largest difference |"


def seconds(values: Values, reader: HuggingFace, card: str = CARD) -> float:
    """Of all operators one after another on one device."""
    cluster, _ = cluster_from(card)
    return float(Roofline().costs(reader.from_config(values).graph, cluster).seconds.sum())


def by_granularity(
    values: Values, phase: Phase, batch: int, *, groups: int, experts: int, card: str = CARD
) -> list[float]:
    """By layers, by blocks, by groups of experts, by single experts."""
    cuts = (("layers", 1), ("blocks", 1), ("layers", groups), ("layers", experts))
    return [
        seconds(values, HuggingFace(batch, phase=phase, granularity=cut, expert_groups=count), card)  # type: ignore[arg-type]
        for cut, count in cuts
    ]


def of_small(name: str, phase: Phase, batch: int, card: str = CARD) -> list[float]:
    """Small mixtures have four experts."""
    return by_granularity(small(name), phase, batch, groups=2, experts=4, card=card)


def of_large(phase: Phase, batch: int) -> list[float]:
    return by_granularity(QWEN3_30B_A3B, phase, batch, groups=4, experts=128)


def difference(found: list[float]) -> float:
    return max(found) / min(found) - 1


def row(name: str, phase: Phase, batch: int, found: list[float]) -> str:
    """A row of the table."""
    cells = [name, phase, str(batch), *(f"{1e3 * one:.4g}" for one in found), f"{100 * difference(found):.1f} %"]
    return f"| {' | '.join(cells)} |"


def worst_row(name: str) -> str:
    """The case in which cuts of a small mixture differ most, the first of equals."""
    found = {case: of_small(name, *case) for case in CASES}
    worst = max(CASES, key=lambda case: round(difference(found[case]), 6))
    return row(name, *worst, found[worst])


def table() -> Iterator[str]:
    """Markdown."""
    yield HEADER
    yield "|" + "---|" * (HEADER.count("|") - 1)
    for case in CASES:
        yield row(LARGE, *case, of_large(*case))
    for name in MIXTURES:
        yield worst_row(name)


@pytest.mark.parametrize("card", ["A100-80GB", "cpu"])
@pytest.mark.parametrize("batch", [1, 8, 64])
@pytest.mark.parametrize("phase", ["decode", "prefill", "train"])
@pytest.mark.parametrize("name", MIXTURES)
def test_every_mixture_costs_the_same_at_every_granularity(
    name: str, phase: Phase, batch: int, card: str
) -> None:
    by_layer, by_block, _, by_expert = of_small(name, phase, batch, card)
    assert difference([by_layer, by_block, by_expert]) <= WITHIN


def test_groups_of_several_experts_also_move_the_sums_that_they_hand_on() -> None:
    by_expert, by_pairs = (
        HuggingFace(phase="prefill", context=30, expert_groups=groups).from_config(small("mixtral")).graph
        for groups in (4, 2)
    )
    # A token uses two of four experts. Both are in the other pair in a sixth of all cases, so that of 30 tokens 25 use
    # a pair. Two pairs in three layers write and read 25 rows of 64 numbers of two bytes.
    more = by_pairs.moved_bytes.sum() - by_expert.moved_bytes.sum()
    assert more == pytest.approx(3 * 2 * 2 * 25 * 64 * 2)


@pytest.mark.parametrize(("phase", "batch"), CASES)
def test_qwen3_30b_a3b_costs_the_same_by_128_experts_and_by_blocks_as_the_page_says(
    phase: Phase, batch: int
) -> None:
    found = of_large(phase, batch)
    assert difference(found) <= WITHIN
    assert row(LARGE, phase, batch, found) in PAGE.read_text().splitlines()


@pytest.mark.parametrize("name", MIXTURES)
def test_the_page_shows_where_cuts_of_a_mixture_differ_most(name: str) -> None:
    assert worst_row(name) in PAGE.read_text().splitlines()


def test_the_page_shows_these_mixtures_and_no_others() -> None:
    lines = PAGE.read_text().splitlines()
    first = lines.index(HEADER) + 2
    shown = [line.split(" | ")[0].removeprefix("| ") for line in lines[first : lines.index("", first)]]
    assert shown == [LARGE] * len(CASES) + list(MIXTURES)


def test_a_token_of_qwen3_30b_a3b_reads_eight_experts_of_every_layer() -> None:
    graph = HuggingFace(context=0, traffic="weights").from_config(QWEN3_30B_A3B).graph
    expert = 3 * 2048 * 768 * 2
    layer = graph.index("model.layers.7.mlp.experts")
    assert graph.parameter_bytes[layer] == 128 * expert
    assert graph.moved_bytes[layer] == pytest.approx(8 * expert)
    assert graph.kernels_of(layer)[0].launches == pytest.approx(8)
    # A batch of 64 wakes 128 (1 - (120/128)^64) = 125.94 of them.
    many = HuggingFace(batch=64, context=0, traffic="weights").from_config(QWEN3_30B_A3B).graph
    assert many.moved_bytes[layer] / expert == pytest.approx(125.942, abs=1e-3)


def test_on_one_card_it_takes_8_milliseconds_however_it_is_cut() -> None:
    # 6.5 GB of weights and caches at 2039 GB/s, and 21 launches of 5 microseconds in each of 48 layers
    assert seconds(QWEN3_30B_A3B, HuggingFace()) == pytest.approx(8.24e-3, rel=0.01)


if __name__ == "__main__":
    print(*table(), sep="\n")
