"""Records ATen operators where no storages are known: names and strides tell what is a view."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from stead.printing.wording import one_line, quoted
from stead.readers.common.file_nodes import checked_size
from stead.readers.common.op_costs import Shape, Simple
from stead.readers.torch.aten import (
    Argument,
    Value,
    contiguous_strides,
    is_allocation,
    is_view,
    moved_bytes,
    region_of,
    shown_part,
    updated_statistics,
    values_in,
    written_arguments,
)
from stead.readers.torch.aten_costs import cost
from stead.readers.torch.aten_graph import Call, Trace, Weight

_CALL_NUMBER = re.compile(r"@\d+")


def clean_module(path: str) -> str:
    """A module path of an exported program as stead writes it.

    >>> clean_module("layers.0@1.attention"), clean_module("_empty_nn_module_stack_from_metadata_hook")
    ('layers.0.attention', '')
    """
    return "" if path.startswith("_empty_nn_module_stack") else _CALL_NUMBER.sub("", path)


def kind_of(target: str) -> str:
    """The kind of an operator: without its overload.

    >>> kind_of("torch.ops.aten.mm.default"), kind_of("torch.ops.higher_order.cond")
    ('aten.mm', 'higher_order.cond')
    """
    parts = target.removeprefix("torch.ops.").split(".")
    return ".".join(parts[:2]) if len(parts) > 1 else parts[0]


@dataclass(frozen=True, slots=True)
class Layout:
    """What a file or a program says about a tensor."""

    name: str
    shape: Shape
    dtype: str
    bits: int
    strides: Sequence[int]
    offset: int = 0


class Recorder:
    """Turns operators into a Trace, one after another."""

    def __init__(self, name: str) -> None:
        self.trace = Trace(name)

    def input(self, layout: Layout) -> Value:
        """An input of the model."""
        value = self._fresh(layout)
        self.trace.inputs.append(value)
        return value

    def weight(self, layout: Layout, name: str, *, tied_to: Value | None = None) -> Value:
        """A parameter, buffer or constant; `tied_to` is an earlier one with the same memory."""
        if tied_to is not None:
            return self._value(layout, tied_to.storage)
        value = self._fresh(layout)
        self.trace.weights.append(Weight(name, value.size_bytes, value.storage))
        return value

    def call(
        self,
        name: str,
        kind: str,
        arguments: Sequence[Argument],
        named: Mapping[str, Argument],
        results: Sequence[Layout],
        *,
        module: str = "",
        written: Sequence[Value] | None = None,
        price: Simple | None = None,
        inner_bytes: float = 0.0,
        function: Any = None,
    ) -> list[Value]:
        """An operator; gives its results. `written` are arguments it writes into, where more than a name tells.

        `function` runs it on real tensors, or is the name of what does.
        """
        if written is None:
            written = written_arguments(kind, arguments)
        else:
            written = [*written, *updated_statistics(kind, arguments)]
        if not results and not written:
            return []  # asserts, and arithmetic on sizes
        view = bool(results) and is_view(
            kind, arguments, results[0].shape, (results[0].dtype, results[0].bits)
        )
        folded = view or is_allocation(kind)
        writes = self._results(arguments, results, () if folded else written, view)
        call = Call(name, kind, arguments, named, writes, () if folded else written, folded, module)
        call.price, call.inner_bytes, call.function = price, inner_bytes, function
        call.other_names = [layout.name for layout in results if layout.name != name]
        self.trace.calls.append(call)
        return writes

    def _results(
        self, arguments: Sequence[Argument], results: Sequence[Layout], written: Sequence[Value], view: bool
    ) -> list[Value]:
        if view and isinstance(base := arguments[0], Value):
            return [self._view(layout, base) for layout in results]
        if len(results) == len(written) and all(
            layout.shape == value.shape for layout, value in zip(results, written, strict=True)
        ):
            return [self._same(layout, value) for layout, value in zip(results, written, strict=True)]
        return [self._fresh(layout) for layout in results]

    def _fresh(self, layout: Layout) -> Value:
        value = self._value(layout, len(self.trace.storages))
        self.trace.storages.append(value)
        return value

    def _same(self, layout: Layout, other: Value) -> Value:
        """An argument that is given back."""
        value = self._value(layout, other.storage)
        value.region, value.size_bytes = other.region, other.size_bytes
        return value

    def _view(self, layout: Layout, base: Value) -> Value:
        whole = self.trace.storages[base.storage]
        if whole.bits != layout.bits:  # elements seen as others, such as complex as real ones
            return self._same(layout, base)
        value = self._value(layout, base.storage)
        region = region_of(layout.offset, layout.shape, value.strides)
        value.region, value.size_bytes = shown_part(region, layout.bits, whole.size_bytes)
        return value

    def _value(self, layout: Layout, storage: int) -> Value:
        size = checked_size(f"tensor {quoted(layout.name)}", layout.shape, layout.bits)
        strides = layout.strides
        if len(strides) != len(layout.shape):
            strides = contiguous_strides(layout.shape)
        return Value(
            layout.name, layout.shape, layout.dtype, size, storage, bits=layout.bits, strides=strides
        )


# Operators with graphs inside them


_ONCE = (
    "wrap_with_set_grad_enabled",
    "wrap_with_autocast",
    "wrap",
    "checkpoint",
    "tag_activation_checkpoint",
    "wrap_activation_checkpoint",
    "invoke_subgraph",
    "strict_mode",
    "hints_wrapper",
)
_GONE_OVER = {"map": 0, "map_impl": 0, "associative_scan": 0, "scan": 1}  # which list of tensors, row by row


def runs_once(kind: str, bodies: int) -> bool:
    """Whether the operators inside run exactly once, so that they can take the place of the one around them."""
    return bodies == 1 and kind.rpartition(".")[2] in _ONCE


def trips(kind: str, arguments: Sequence[Argument]) -> int:
    """How often a body runs: once for every row of what it goes over; once where nobody knows."""
    over = _GONE_OVER.get(kind.rpartition(".")[2])
    lists = [list(values_in(given)) for given in arguments if isinstance(given, list | tuple)]
    if over is None or over >= len(lists):
        return 1
    return next((value.shape[0] for value in lists[over] if value.shape), 1)


def body_price(bodies: Sequence[Trace], times: int) -> tuple[Simple, float]:
    """FLOPs and bytes of the most expensive of some bodies."""
    prices = [_total(trace) for trace in bodies]
    flops, moved, known = max(prices, default=(0.0, 0.0, False))
    return Simple(times * flops, known=known), times * moved


def _total(trace: Trace) -> tuple[float, float, bool]:
    flops, moved, known = 0.0, 0.0, True
    for call in trace.calls:
        if not call.folded:
            price = call.price or cost(call.kind, call.arguments, call.named, call.writes)
            flops += price.flops
            moved += call.inner_bytes + moved_bytes(call.kind, price, call.reads(), call.writes, call.written)
            known = known and price.known
    return flops, moved, known


def bodies_note(kinds: Sequence[str]) -> list[str]:
    """A sentence about operators that hold graphs."""
    if not kinds:
        return []
    counted = ", ".join(f"{one_line(kind, 60)} {count}" for kind, count in Counter(kinds).most_common(8))
    return [
        f"{len(kinds)} operators hold graphs and are placed as one ({counted}): a branch costs what the most "
        "expensive one does, a loop of unknown length what one trip does"
    ]
