"""Stretches of layers: found by hand, and by the search."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest

from stead.errors import BadInput
from stead.export.cuts import Items, Stretches, stretches_of
from stead.export.layer_stack import BEFORE, stack_of, why_no_stack
from stead.graph import GraphBuilder
from stead.problem import Throughput
from stead.sim import simulate_many
from stead.testing import chain3, tiny_layers


def test_a_stack_is_found_with_what_is_before_and_after() -> None:
    stack = stack_of(tiny_layers(2, experts=True).graph)
    assert stack.names == ("model.layers.0", "model.layers.1")
    assert stack.position.tolist() == [BEFORE, 0, 0, 0, 1, 1, 1, 2, 2]
    assert stack.expert.tolist() == [False, False, False, True, False, False, True, False, False]


def test_constraints_mean_exactly_the_operators_of_an_item() -> None:
    problem = tiny_layers(3, experts=True)
    stack = stack_of(problem.graph)
    apart = np.where(stack.expert, -1, stack.position + 1).astype(np.int32)
    units = problem.with_constraints(stack.together(apart, count=5)).units
    assert units.tolist() == [0, 1, 1, 2, 3, 3, 4, 5, 5, 6, 7, 7]


def test_what_is_no_language_model_says_so() -> None:
    assert "no language model" in (why_no_stack(chain3().graph) or "")
    with pytest.raises(BadInput, match="no language model"):
        stack_of(chain3().graph)


def test_encoder_and_decoder_are_two_stacks() -> None:
    build = GraphBuilder("both")
    embed = build.tensor(build.operator("embed", kind="Embedding", module="embed"), size_bytes=4)
    encoded, decoded = embed, embed
    for n in range(2):
        name = f"encoder.block.{n}.attn"
        encoded = build.tensor(build.operator(name, kind="Attention", module=name, reads=[encoded]), size_bytes=4)
    for n in range(2):
        name = f"decoder.block.{n}.attn"
        decoded = build.tensor(
            build.operator(name, kind="Attention", module=name, reads=[decoded, encoded]), size_bytes=4
        )
    assert "two stacks of layers: \"decoder.block.1.attn\" reads" in (why_no_stack(build.build()) or "")


@pytest.mark.parametrize(("layers", "devices"), [(5, 2), (5, 3), (3, 3)])
def test_the_search_finds_what_trying_everything_finds(layers: int, devices: int) -> None:
    problem = tiny_layers(layers, devices, objective=Throughput())
    items = np.clip(stack_of(problem.graph).position, 0, layers - 1).astype(np.int32)
    room = Items(problem, items, layers, np.zeros(len(problem.graph), dtype=np.uint8))
    every = [
        Stretches(order, counts)
        for order in permutations(range(devices))
        for counts in np.ndindex(*[layers + 1] * devices)
        if sum(counts) == layers
    ]
    best = simulate_many(problem, np.stack([room.row(one) for one in every])).seconds.min()
    found = room.best(range(devices))
    assert found is not None
    assert simulate_many(problem, room.row(found)[None]).seconds[0] == best


def test_stretches_leave_out_devices_without_layers() -> None:
    assert Stretches((2, 0, 1), (1, 0, 3)).used == Stretches((2, 1), (1, 3))
    assert stretches_of([0, 1, 0]) is None
