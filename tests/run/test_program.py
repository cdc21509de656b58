"""Programs for workers: what crosses, in which order, and what goes back; nothing here needs torch or a machine."""

from __future__ import annotations

import numpy as np
import pytest

from stead.errors import BadInput
from stead.run.composing import composed_seconds
from stead.run.instructions import (
    Alike,
    Dependencies,
    Program,
    Send,
    Wait,
    compile_program,
    stages,
    topological,
)
from stead.run.sheet import Layout, Sheet, SheetCall
from stead.run.transport import LINE, layout_of

FLOATS = Layout("float32", (4,), (1,), 0, 16, 4)


def call(operator: int, reads: tuple[int, ...], gives: tuple[int, ...], written: tuple[int, ...] = ()) -> SheetCall:
    return SheetCall(operator, False, reads, written, (), gives)


def training_sheet() -> Sheet:
    """A weight (0) and an input (1): forward reads both, a gradient reads its result, the update writes the weight."""
    calls = (call(0, (0, 1), (2,)), call(1, (2, 1), (3,)), call(2, (0, 3), (0,), written=(0,)))
    names = ("forward", "gradient", "update")
    return Sheet(names, calls, (0, 1, 2, 3), ("held", "given", "made", "made"), (0, 1, 2, 3), (("w", 0),), True)


def compiled(sheet: Sheet, devices: list[int], priority: list[float] | None = None) -> Program:
    known = Dependencies(sheet)
    order = topological(known, priority or list(range(len(sheet.operators))))
    layouts = [[FLOATS] * len(sheet.storage_of)] * 2
    return compile_program(known, devices, order, layouts, Alike(("cpu", "cpu")))


def test_one_device_sends_nothing() -> None:
    assert compiled(training_sheet(), [0, 0, 0]).crossings == ()


def test_an_updated_weight_goes_back_to_its_reader() -> None:
    program = compiled(training_sheet(), [0, 0, 1])
    assert [(one.storage, one.source, one.readers, one.is_refresh) for one in program.crossings] == [
        (3, 0, (1,), False),
        (0, 1, (0,), True),
    ]


def test_a_tensor_that_two_calls_read_elsewhere_crosses_once() -> None:
    calls = (call(0, (0,), (1,)), call(1, (1,), (2,)), call(2, (1,), (3,)))
    sheet = Sheet(("a", "b", "c"), calls, (0, 1, 2, 3), ("given", "made", "made", "made"), (0, 1, 2, 3), (), False)
    assert len(compiled(sheet, [0, 1, 1]).crossings) == 1


def test_an_order_against_the_dependencies_is_put_right() -> None:
    known = Dependencies(training_sheet())
    assert topological(known, [2.0, 1.0, 0.0]) == (0, 1, 2)


def test_tensors_that_go_back_and_forth_are_no_pipeline() -> None:
    calls = (call(0, (0,), (1,)), call(1, (1,), (2,)), call(2, (2,), (3,)))
    sheet = Sheet(("a", "b", "c"), calls, (0, 1, 2, 3), ("given", "made", "made", "made"), (0, 1, 2, 3), (), False)
    assert stages(compiled(sheet, [1, 0, 0]), ["x", "y"]) == (1, 0)
    with pytest.raises(BadInput, match="go back and forth between x and y"):
        stages(compiled(sheet, [0, 1, 0]), ["x", "y"])


def test_a_training_step_with_refreshes_is_no_pipeline() -> None:
    with pytest.raises(BadInput, match="updated weights go back"):
        stages(compiled(training_sheet(), [0, 0, 1]), ["x", "y"])


def test_a_composed_latency_waits_for_what_crosses() -> None:
    calls = (call(0, (0,), (1,)), call(1, (0,), (2,)), call(2, (1, 2), (3,)))
    sheet = Sheet(("a", "b", "c"), calls, (0, 1, 2, 3), ("given", "made", "made", "made"), (0, 1, 2, 3), (), False)
    program = compiled(sheet, [0, 1, 0])
    taken = {
        w: [{Send: 100, Wait: 10**9}.get(type(one), 1000 * (1 + w)) for one in program.workers[w].instructions]
        for w in program.active
    }
    # a takes 1 us here; b 2 us and its transfer 0.1 us there; then c 1 us here: the long wait itself does not count.
    assert composed_seconds(program, taken) == pytest.approx(3.1e-6)


def test_random_programs_never_wait_in_a_circle() -> None:
    draw = np.random.default_rng(0)
    for _ in range(60):
        count = int(draw.integers(2, 30))
        calls = []
        for v in range(count):
            reads = tuple(int(u) for u in draw.integers(0, v + 1, size=int(draw.integers(1, 4))))
            calls.append(call(v, reads, (v + 1,)))
        tensors = tuple(range(count + 1))
        names = tuple(f"o{v}" for v in range(count))
        sheet = Sheet(names, tuple(calls), tensors, ("given", *["made"] * count), tensors, (), False)
        devices = draw.integers(0, 2, size=count).tolist()
        program = compiled(sheet, devices, draw.integers(0, 3, size=count).astype(float).tolist())  # many ties
        taken = {w: [0] * len(program.workers[w].instructions) for w in program.active}
        assert composed_seconds(program, taken) == 0.0


def test_flags_of_crossings_never_lie_where_tensors_are() -> None:
    few, _ = layout_of(2, [100] * 3, 1, flags=2048)
    assert few[0] >= LINE * (1 + 2 * 2 + 2048)
    assert few[1] - few[0] == 4096
