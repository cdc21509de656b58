"""What is known about ATen operators without torch, and graphs of small hand-made traces."""

from __future__ import annotations

from typing import Any

import pytest

from stead.errors import BadInput
from stead.readers.torch import aten, aten_costs
from stead.readers.torch.aten import Value, can_view, is_view, moved_bytes, operator_dtype, region_of
from stead.readers.torch.aten_costs import cost
from stead.readers.torch.aten_graph import Built, build_graph
from stead.readers.torch.aten_record import Layout, Recorder


def tensor(*shape: int, dtype: str = "fp32", storage: int = 0) -> Value:
    size = 4
    for dimension in shape:
        size *= dimension
    return Value("x", shape, dtype, size, storage)


def flops(kind: str, arguments: list[Any], *results: Value, **named: Any) -> float:
    price = cost(f"aten.{kind}", arguments, named, list(results))
    assert price.known
    return price.flops


# FLOPs


def test_a_matrix_product_takes_two_flops_for_every_multiplication():
    assert flops("mm", [tensor(2, 3), tensor(3, 5)], tensor(2, 5)) == 2 * 2 * 3 * 5
    assert flops("bmm", [tensor(7, 2, 3), tensor(7, 3, 5)], tensor(7, 2, 5)) == 7 * 60


def test_what_is_added_to_a_product_counts_once_per_element():
    assert flops("addmm", [tensor(5), tensor(2, 3), tensor(3, 5)], tensor(2, 5)) == 60 + 10
    assert flops("linear", [tensor(2, 3), tensor(5, 3), tensor(5)], tensor(2, 5)) == 60 + 10
    assert flops("linear", [tensor(2, 3), tensor(5, 3)], tensor(2, 5)) == 60


CONVOLUTION = [tensor(1, 4, 10, 10), tensor(8, 4, 3, 3), None, [1, 1], [1, 1], [1, 1]]


def test_a_convolution_multiplies_its_window_for_every_result():
    assert flops("convolution", [*CONVOLUTION, False, [0, 0], 1], tensor(1, 8, 10, 10)) == 2 * 800 * 36
    assert flops("conv2d", CONVOLUTION[:2], tensor(1, 8, 10, 10)) == 2 * 800 * 36


def test_a_grouped_convolution_is_cheaper_by_its_groups():
    arguments = [tensor(1, 4, 10, 10), tensor(8, 2, 3, 3), None, [1, 1], [1, 1], [1, 1], False, [0, 0], 2]
    assert flops("convolution", arguments, tensor(1, 8, 10, 10)) == 800 * 36


def test_a_transposed_convolution_spreads_its_input():
    arguments = [tensor(1, 4, 5, 5), tensor(4, 8, 3, 3), None, [2, 2], [1, 1], [1, 1], True, [1, 1], 1]
    assert flops("convolution", arguments, tensor(1, 8, 10, 10)) == 2 * 100 * 72


@pytest.mark.parametrize(("mask", "factor"), [((True, True, False), 2), ((False, True, False), 1)])
def test_each_gradient_of_a_convolution_costs_as_much_as_itself(mask: tuple[bool, ...], factor: int):
    arguments = [tensor(1, 8, 10, 10), *CONVOLUTION[:2], [0], [1, 1], [1, 1], [1, 1], False, [0, 0], 1, mask]
    assert flops("convolution_backward", arguments, tensor(1)) == factor * 2 * 800 * 36


def test_attention_is_two_products_and_a_softmax():
    query, key, value = tensor(2, 4, 3, 8), tensor(2, 4, 5, 8), tensor(2, 4, 5, 6)
    scores = 2 * 4 * 3 * 5
    result = tensor(2, 4, 3, 6)
    assert flops("scaled_dot_product_attention", [query, key, value], result) == scores * (2 * 14 + 8)


def test_a_recurrent_layer_counts_every_layer_and_direction():
    weights = [tensor(8, 3), tensor(8, 2), tensor(8), tensor(8)] * 2  # 4 gates of 2, two directions
    arguments = [
        tensor(10, 1, 3),
        [tensor(2, 1, 2), tensor(2, 1, 2)],
        weights,
        True,
        1,
        0.0,
        False,
        True,
        False,
    ]
    assert flops("lstm", arguments, tensor(10, 1, 4)) == 2 * 10 * 8 * (2 * (3 + 2) + 4)


def test_einsum_counts_every_combination_of_indices():
    arguments = ["bhqd,bhkd->bhqk", [tensor(2, 4, 3, 8), tensor(2, 4, 5, 8)]]
    assert flops("einsum", arguments, tensor(2, 4, 3, 5)) == 2 * 2 * 4 * 3 * 5 * 8
    assert flops("einsum", ["...i,ij->...j", [tensor(2, 7, 3), tensor(3, 5)]], tensor(2, 7, 5)) == 2 * 210


def test_embeddings_and_copies_take_no_flops_but_embeddings_pick():
    table, picked = tensor(1000, 8), tensor(3, 8, storage=1)
    price = cost("aten.embedding", [table, tensor(3)], {}, [picked])
    assert (price.flops, price.picks) == (0.0, True)
    assert flops("cat", [[tensor(2), tensor(3)]], tensor(5)) == 0.0


def test_elementwise_operators_and_reductions_count_elements():
    assert flops("add_", [tensor(2, 3), tensor(2, 3)], tensor(2, 3)) == 6
    assert flops("sum", [tensor(2, 30)], tensor()) == 60
    assert flops("_softmax", [tensor(2, 3), -1, False], tensor(2, 3)) == 6 * 8
    assert flops("_foreach_add_", [[tensor(2), tensor(3)], 1.0]) == 5


def test_an_operator_that_nobody_knows_says_so():
    assert not cost("aten.frobnicate", [tensor(2)], {}, [tensor(2)]).known
    assert not cost("mylib.mm", [tensor(2, 2), tensor(2, 2)], {}, [tensor(2, 2)]).known
    assert not cost("aten.mm", ["nonsense"], {}, [tensor(2)]).known


# Bytes


def test_a_lookup_moves_what_it_picks_and_not_the_table():
    table, rows, picked = tensor(1000, 8, storage=0), tensor(3, storage=1), tensor(3, 8, storage=2)
    price = cost("aten.embedding", [table, rows], {}, [picked])
    assert moved_bytes("aten.embedding", price, [table, rows], [picked], []) == 96 + 12 + 96


def test_writing_in_place_reads_and_writes_but_overwriting_only_writes():
    x, y = tensor(10, storage=0), tensor(10, storage=1)
    assert moved_bytes("aten.add_", cost("aten.add_", [x, y], {}, [x]), [x, y], [x], [x]) == 120
    assert moved_bytes("aten.copy_", cost("aten.copy_", [x, y], {}, [x]), [x, y], [x], [x]) == 80


def test_an_operand_that_is_read_twice_moves_once():
    x, y = tensor(10), tensor(10, storage=1)
    assert moved_bytes("aten.mul", cost("aten.mul", [x, x], {}, [y]), [x, x], [y], []) == 80


def test_rows_written_into_a_large_cache_move_and_the_cache_does_not():
    cache, rows, new = tensor(100_000, storage=0), tensor(2, storage=1), tensor(2, storage=2)
    price = cost("aten.index_put_", [cache, [rows], new], {}, [cache])
    assert moved_bytes("aten.index_put_", price, [cache, rows, new], [cache], [cache]) == 32


def test_an_operator_computes_in_the_type_of_its_numbers():
    assert operator_dtype([tensor(2, dtype="fp16")], [tensor(2, dtype="int64")]) == "fp16"
    assert operator_dtype([tensor(2, dtype="int64")], [tensor(2, dtype="int64")]) == "int64"


# Views


def test_a_region_is_the_same_however_it_is_looked_at():
    whole = region_of(0, (2, 3, 4), (12, 4, 1))
    assert whole == region_of(0, (24,), (1,)) == region_of(0, (4, 3, 2), (1, 4, 12))
    assert region_of(4, (2, 4), (12, 1)) != region_of(8, (2, 4), (12, 1))


def test_a_reshape_copies_only_if_it_must():
    assert can_view((2, 3, 4), (12, 4, 1), (6, 4))
    assert can_view((2, 3, 4), (12, 4, 1), (2, 12))
    assert not can_view((3, 2, 4), (4, 12, 1), (6, 4))
    assert can_view((3, 2, 4), (4, 12, 1), (3, 2, 2, 2))
    x = Value("x", (3, 2, 4), "fp32", 96, 0, strides=(4, 12, 1))
    assert not is_view("aten.reshape", [x, [6, 4]], (6, 4), ("fp32", 32))
    assert not is_view("aten.contiguous", [x], (3, 2, 4), ("fp32", 32))


def test_a_cast_to_the_same_type_and_dropout_outside_training_are_views():
    x = tensor(2, 3)
    assert is_view("aten.to", [x, 7], (2, 3), ("fp32", 32))
    assert not is_view("aten.to", [x, 6], (2, 3), ("fp16", 16))
    assert is_view("aten.dropout", [x, 0.5, False], (2, 3), ("fp32", 32))
    assert not is_view("aten.dropout", [x, 0.5, True], (2, 3), ("fp32", 32))
    assert not is_view("mylib.view", [x], (2, 3), ("fp32", 32))


def test_the_list_of_views_agrees_with_the_schemas_of_torch():
    torch = pytest.importorskip("torch", reason="compares with the schemas of torch")
    schemas = [one for one in torch._C._jit_get_all_schemas() if one.name.startswith("aten::")]
    names = {one.name[6:] for one in schemas}
    aliasing = {
        one.name[6:]
        for one in schemas
        for result in one.returns
        if result.alias_info is not None and not result.alias_info.is_write
    }
    silent = {"_unsafe_view", "unsafe_chunk", "unsafe_split", "unsafe_split_with_sizes", "lift_fresh_copy"}
    assert names >= aten.VIEWS
    assert silent == aten.VIEWS - aliasing  # they share memory and do not say so
    known = aten.VIEWS | aten._RESHAPES | aten._CASTS
    others = {name for name in aliasing - known if not name.startswith(("_nested_", "_test_"))}
    assert others <= _NOT_OF_DENSE_TENSORS


_NOT_OF_DENSE_TENSORS = frozenset(
    ("__getitem__", "_fw_primal", "_grad_sum_to_size", "_indices", "_make_dual", "_ncf_unsqueeze", "_ncf_view",
     "_sparse_broadcast_to", "_unpack_dual", "_unwrap_optional", "_values", "as_tensor", "ccol_indices", "coalesce",
     "col_indices", "crow_indices", "get", "indices", "keys", "local_value", "pin_memory", "pop", "row_indices",
     "setdefault", "slice_inverse", "to_here", "values")
)  # fmt: skip


def test_every_priced_name_is_an_operator_of_torch():
    torch = pytest.importorskip("torch", reason="compares with the operators of torch")
    names = {one.name[6:] for one in torch._C._jit_get_all_schemas() if one.name.startswith("aten::")}
    bare = {name.removeprefix("special_").strip("_") for name in names}
    tables = (aten_costs._PER_RESULT, aten_costs._PER_OPERAND, aten_costs._PICKING, aten_costs._COPYING)
    assert [word for table in tables for word in table if word.strip("_") not in bare] == []
    assert set(aten_costs._FORMULAS) <= names


# Graphs


class Traced:
    """A trace written by hand: tensors of 4-byte elements, dense unless said otherwise."""

    def __init__(self) -> None:
        self.record = Recorder("traced")

    def layout(
        self, name: str, shape: tuple[int, ...], strides: tuple[int, ...] = (), offset: int = 0
    ) -> Layout:
        return Layout(name, shape, "fp32", 32, strides, offset)

    def input(self, name: str, *shape: int) -> Value:
        return self.record.input(self.layout(name, shape))

    def weight(self, name: str, *shape: int) -> Value:
        return self.record.weight(self.layout(name, shape), name)

    def call(
        self, name: str, kind: str, arguments: list[Any], shape: tuple[int, ...], **layout: Any
    ) -> Value:
        return self.record.call(name, f"aten.{kind}", arguments, {}, [self.layout(name, shape, **layout)])[0]

    def row(self, name: str, base: Value, index: int) -> Value:
        rows, columns = base.shape
        assert index < rows
        return self.call(name, "select", [base, 0, index], (columns,), strides=(1,), offset=index * columns)

    def built(self, *outputs: Value) -> Built:
        self.record.trace.outputs = list(outputs)
        return build_graph(self.record.trace)


def written(built: Built, operator: str) -> dict[str, int]:
    """Names and bytes of the tensors of an operator."""
    graph = built.graph
    found = graph.operator(graph.index(operator)).writes
    return {graph.tensor_names[t]: int(graph.tensor_bytes[t]) for t in found}


def parents(built: Built, operator: str) -> set[str]:
    graph = built.graph
    v = graph.index(operator)
    return {graph.operator_names[a] for a, b in graph.edges.tolist() if b == v}


def test_each_row_that_is_read_is_a_tensor_and_the_whole_is_not():
    traced = Traced()
    base = traced.call("base", "relu", [traced.input("x", 3, 10)], (3, 10))
    for index in range(3):
        traced.call(f"read{index}", "relu", [traced.row(f"row{index}", base, index)], (10,))
    built = traced.built()
    assert written(built, "base") == {"row0": 40, "row1": 40, "row2": 40}
    assert dict(built.graph.folded) == {"row0": "base", "row1": "base", "row2": "base"}


def test_rows_that_nobody_reads_are_memory_of_the_producer_alone():
    traced = Traced()
    base = traced.call("base", "relu", [traced.input("x", 3, 10)], (3, 10))
    traced.call("read", "relu", [traced.row("row", base, 2)], (10,))
    built = traced.built()
    assert written(built, "base") == {"row": 40, "base:rest": 80}
    rest = built.graph.tensor_names.index("base:rest")
    assert built.graph.tensor(rest).readers == ()


def test_the_same_row_taken_twice_is_one_tensor():
    traced = Traced()
    base = traced.call("base", "relu", [traced.input("x", 2, 10)], (2, 10))
    traced.call("a", "relu", [traced.row("first", base, 0)], (10,))
    traced.call("b", "relu", [traced.row("again", base, 0)], (10,))
    traced.call("c", "relu", [traced.row("other", base, 1)], (10,))
    assert written(traced.built(), "base") == {"first": 40, "other": 40}


def test_a_transposed_tensor_is_the_tensor_itself():
    traced = Traced()
    base = traced.call("base", "relu", [traced.input("x", 2, 10)], (2, 10))
    turned = traced.call("turned", "t", [base], (10, 2), strides=(1, 10))
    traced.call("a", "relu", [turned], (10, 2))
    traced.call("b", "relu", [base], (2, 10))
    built = traced.built()
    assert written(built, "base") == {"turned": 80}
    assert built.graph.moved_bytes[built.graph.index("a")] == 160


def test_a_broadcast_tensor_moves_as_it_is():
    traced = Traced()
    base = traced.call("base", "relu", [traced.input("x", 10)], (10,))
    wide = traced.call("wide", "expand", [base, [1000, 10]], (1000, 10), strides=(0, 1))
    traced.call("read", "sum", [wide], ())
    built = traced.built()
    assert written(built, "base") == {"wide": 40}
    assert built.graph.moved_bytes[built.graph.index("read")] == 44


def test_views_of_a_weight_are_part_of_whoever_reads_them():
    traced = Traced()
    weight = traced.weight("layer.weight", 5, 4)
    turned = traced.call("turned", "t", [weight], (4, 5), strides=(1, 4))
    traced.call("mm", "mm", [traced.input("x", 3, 4), turned], (3, 5))
    built = traced.built()
    assert built.graph.folded["turned"] == "mm"
    assert list(zip(built.graph.weight_names, built.graph.weight_bytes.tolist(), strict=True)) == [
        ("layer.weight", 80)
    ]


def test_readers_after_a_write_in_place_follow_the_writer_and_it_follows_earlier_readers():
    traced = Traced()
    base = traced.call("base", "neg", [traced.input("x", 10)], (10,))
    traced.call("before", "neg", [base], (10,))
    traced.call("change", "add_", [base, 1.0], (10,))
    traced.call("after", "neg", [base], (10,))
    built = traced.built()
    assert parents(built, "change") == {"base", "before"}
    assert parents(built, "after") == {"change"}


def test_writing_a_part_reads_the_old_whole_and_gives_a_new_one():
    traced = Traced()
    base = traced.call("base", "neg", [traced.input("x", 3, 10)], (3, 10))
    row = traced.row("row", base, 1)
    traced.call("change", "zero_", [row], (10,))
    traced.call("after", "neg", [base], (3, 10))
    built = traced.built()
    assert parents(built, "change") == {"base"}
    assert parents(built, "after") == {"change"}
    assert built.graph.moved_bytes[built.graph.index("change")] == 40  # the row that it fills
    assert written(built, "change") == {"base#2": 120}


def test_memory_without_contents_is_part_of_what_fills_it():
    traced = Traced()
    empty = traced.call("empty", "empty", [[10]], (10,))
    traced.call("fill", "normal_", [empty], (10,))
    traced.call("read", "neg", [empty], (10,))
    built = traced.built()
    assert built.graph.operator_names == ("fill", "read")
    assert built.graph.folded["empty"] == "fill"


def test_a_buffer_that_is_written_orders_its_readers_and_is_no_tensor():
    traced = Traced()
    buffer = traced.weight("running", 10)
    traced.call("before", "neg", [buffer], (10,))
    traced.call("change", "add_", [buffer, 1.0], (10,))
    traced.call("after", "neg", [buffer], (10,))
    built = traced.built()
    assert parents(built, "change") == {"before"}
    assert parents(built, "after") == {"change"}
    assert set(written(built, "change").values()) == {0}  # the order alone
    groups = [one.colocation for one in built.graph.operators()]
    assert groups == ["", "state running", "state running"]


def test_two_buffers_that_one_operator_reads_make_one_group():
    traced = Traced()
    keys, values = traced.weight("keys", 10), traced.weight("values", 10)
    traced.call("put_keys", "add_", [keys, 1.0], (10,))
    traced.call("put_values", "add_", [values, 1.0], (10,))
    traced.call("attend", "mul", [keys, values], (10,))
    graph = traced.built().graph
    assert graph.colocation.tolist() == [0, 0, 0]


def test_outputs_are_kept_and_inputs_are_operators():
    traced = Traced()
    x = traced.input("x", 10)
    traced.input("unused", 10)
    out = traced.call("out", "neg", [x], (10,))
    graph = traced.built(out).graph
    assert [(one.name, one.kind, one.moved_bytes) for one in graph.operators()] == [
        ("x", "input", 0.0),
        ("out", "aten.neg", 80.0),
    ]
    assert graph.tensor_kept.tolist() == [0, 1]


def test_operators_of_unknown_kinds_are_counted():
    traced = Traced()
    x = traced.input("x", 10)
    for name in ("a", "b"):
        traced.record.call(name, "mylib.conv", [x], {}, [traced.layout(name, (10,))])
    built = traced.built()
    assert list(built.notes()) == [
        "2 operators of unknown kinds have a price by their bytes alone: mylib.conv 2"
    ]
    assert built.graph.moved_bytes.tolist() == [0.0, 80.0, 80.0]


def test_a_model_that_does_nothing_is_refused():
    traced = Traced()
    x = traced.input("x", 10)
    traced.call("view", "view", [x, [2, 5]], (2, 5))
    with pytest.raises(BadInput, match="nothing to place"):
        traced.built(x)
