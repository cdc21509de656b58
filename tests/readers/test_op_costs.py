"""FLOPs by formula, worked out by hand."""

from __future__ import annotations

import pytest

from stead.readers.common import op_costs


def test_a_matrix_product_counts_two_for_each_multiply_add():
    # 2 products of 3x4 and 4x5: 2 * 3 * 5 results of 4 multiply-adds
    assert op_costs.matmul((2, 3, 5), 4) == 2 * 30 * 4


def test_a_convolution_counts_the_window_of_one_group():
    # 8 channels of 10x10; each sees 4 / 2 channels of 3x3
    assert op_costs.convolution((1, 8, 10, 10), (8, 2, 3, 3)) == 2 * 800 * 18


def test_a_transposed_convolution_spreads_every_input():
    # 4 channels of 5x5, each over 8 channels of 3x3, whatever the stride
    assert op_costs.transposed_convolution((1, 4, 5, 5), (4, 8, 3, 3)) == 2 * 100 * 72


def test_attention_is_two_products_and_a_softmax():
    products = 2 * 2 * 3 * 5 * 4 + 2 * 2 * 3 * 5 * 6
    assert op_costs.attention(2, 3, 5, 4, 6) == products + 2 * 3 * 5 * op_costs.SOFTMAX_FLOPS


@pytest.mark.parametrize(("gates", "name"), [(4, "LSTM"), (3, "GRU"), (1, "RNN")])
def test_a_recurrent_layer_multiplies_input_and_state_for_every_gate(gates, name):
    # 7 steps, batch 2, both directions; a gate: 3 inputs and 5 states, and one function
    expected = 2 * 7 * 2 * gates * 5 * (2 * (3 + 5) + op_costs.FUNCTION_FLOPS)
    assert op_costs.recurrent(gates, steps=7, batch=2, inputs=3, hidden=5, directions=2) == expected


def test_pooling_looks_at_every_element_under_the_window():
    assert op_costs.pooling((1, 8, 5, 5), (3, 3)) == 200 * 9


def test_scale_and_shift_of_a_normalisation_come_on_top():
    assert op_costs.normalisation((2, 10), parameters=2) - op_costs.normalisation((2, 10)) == 2 * 20


@pytest.mark.parametrize(
    ("equation", "shapes", "flops", "result"),
    [
        ("bij,bjk->bik", [(2, 3, 4), (2, 4, 5)], 2 * 2 * 3 * 4 * 5, (2, 3, 5)),
        ("ij,jk", [(3, 4), (4, 5)], 2 * 3 * 4 * 5, (3, 5)),
        ("i,j->ij", [(3,), (4,)], 12, (3, 4)),
        ("...ij,...jk->...ik", [(7, 2, 3, 4), (2, 4, 5)], 2 * 7 * 2 * 3 * 4 * 5, (7, 2, 3, 5)),
        ("ii->i", [(3, 3)], 3, (3,)),
    ],
)
def test_a_sum_of_products_counts_all_letters(equation, shapes, flops, result):
    assert op_costs.einsum(equation, shapes) == (flops, result)


@pytest.mark.parametrize("equation", ["ij,jk->iz", "ij->ij", "ijk,jk->i", ""])
def test_a_sum_of_products_that_makes_no_sense_is_an_error(equation):
    with pytest.raises((ValueError, KeyError)):
        op_costs.einsum(equation, [(3, 4), (4, 5)])


@pytest.mark.parametrize(
    ("kind", "flops"),
    [("Add", 6), ("Subtract", 6), ("ReLU", 6), ("Sigmoid", 24), ("Concat", 0), ("Convert", 0)],
)
def test_elementwise_kinds_count_what_they_write(kind, flops):
    assert op_costs.simple(kind, [(2, 3)], [(2, 3)]).flops == flops


def test_reductions_count_what_they_read():
    assert op_costs.simple("ReduceMean", [(2, 30)], [(2, 1)]).flops == 60
    assert op_costs.simple("GlobalAveragePool", [(2, 3, 4, 4)], [(2, 3, 1, 1)]).flops == 96


def test_a_function_costs_the_same_written_out():
    def written_out(*kinds):
        return sum(op_costs.simple(kind, [(10,)], [(10,)]).flops for kind in kinds)

    def flops(kind):
        return op_costs.simple(kind, [(10,)], [(10,)]).flops

    assert flops("Gelu") == written_out("Div", "Erf", "Add", "Mul", "Mul")
    assert flops("Swish") == written_out("Sigmoid", "Mul")
    assert flops("HSwish") == written_out("Add", "Clip", "Mul", "Div")
    assert flops("Mish") == written_out("Softplus", "Tanh", "Mul")


def test_picking_kinds_say_so():
    assert op_costs.simple("Gather", [(1000, 8), (3,)], [(3, 8)]).picks
    assert not op_costs.simple("Concat", [(2,), (3,)], [(5,)]).picks


def test_an_unknown_kind_is_known_to_be_unknown():
    assert op_costs.simple("Frobnicate", [(2,)], [(2,)]) == op_costs.Simple(0.0, known=False)


def test_elements_of_a_few_bits_are_packed():
    assert [op_costs.bytes_of_elements(count, 4) for count in (0, 1, 2, 3)] == [0, 1, 1, 2]
