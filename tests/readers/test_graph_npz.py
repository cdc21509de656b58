"""Graphs in arrays: they come back equal, and whatever is wrong with a file is told in one line."""

from __future__ import annotations

import io
import os
import random
import time
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from strategies import graphs

from stead.errors import BadGraph, BadInput
from stead.graph import Graph, GraphBuilder
from stead.readers import read
from stead.readers.native.npz import FORMAT, GraphNpz, write_npz
from stead.workloads.demo import demo_graph
from stead.workloads.synthetic import synthetic

ROUNDS = int(os.environ.get("STEAD_FUZZ", "300"))
Change = Callable[..., str]


def rich_graph() -> Graph:
    """Three operators with everything a graph can hold."""
    build = GraphBuilder("rich: \u00fc\U0001f600")
    a = build.operator(
        "a", kind="mm", module="cells.0#1", flops=2.5, moved_bytes=7, dtype="bf16", colocate="g"
    )
    x = build.tensor(a, size_bytes=8, shape=(2, 4), dtype="u8", kept=True)
    y = build.tensor(a, size_bytes=4, name="own name")
    b = build.operator("b:1", reads=[x, y], after=[a], phase="backward", twin="a", colocate="g")
    build.tensor(b, size_bytes=0)
    c = build.operator("\0", after=[b], phase="update")
    build.weight("w", size_bytes=100, users=[a, b])
    build.weight("v", size_bytes=2**62, users=[c])
    build.fold("view", a)
    return build.build()


@pytest.fixture
def change(here: Path) -> Change:
    """Writes the rich graph with some members replaced, or removed by None, and gives the path."""

    def write(name: str = "demo.npz", **members: Any) -> str:
        write_npz(name, rich_graph())
        with np.load(name, allow_pickle=False) as held:
            arrays = dict(held)
        for key, value in members.items():
            if value is None:
                del arrays[key]
            else:
                arrays[key] = np.asarray(value)
        np.savez(name, **arrays)
        return name

    return write


@given(graphs(training=True, colocate=True))
def test_every_graph_comes_back_equal(graph: Graph) -> None:
    path = Path(os.environ.get("TMPDIR", "/tmp")) / f"stead-test-{os.getpid()}.npz"
    try:
        write_npz(path, graph)
        assert read(path).graph.fingerprint == graph.fingerprint
    finally:
        path.unlink(missing_ok=True)


@pytest.mark.parametrize("graph", [rich_graph(), demo_graph(), GraphBuilder("empty").build()], ids=repr)
def test_names_weights_shapes_and_views_come_back(graph: Graph, here: Path) -> None:
    write_npz("demo.npz", graph)
    back = read("demo.npz").graph
    assert back.fingerprint == graph.fingerprint
    assert back.tensor_names == graph.tensor_names
    assert back.tensor_shapes == graph.tensor_shapes
    assert dict(back.folded) == dict(graph.folded)
    assert [weight.tolist() for weight in (back.weight_bytes, back.weight_users)] == [
        weight.tolist() for weight in (graph.weight_bytes, graph.weight_users)
    ]


def test_equal_graphs_give_equal_files(here: Path) -> None:
    write_npz("one.npz", rich_graph())
    write_npz("two.npz", rich_graph())
    assert Path("one.npz").read_bytes() == Path("two.npz").read_bytes()


def test_it_is_recognised_by_its_contents(here: Path) -> None:
    write_npz("graph.bin", rich_graph())
    assert read("graph.bin").graph == rich_graph()


def test_arrays_of_a_graph_cannot_be_written(here: Path) -> None:
    write_npz("demo.npz", rich_graph())
    graph = GraphNpz().read("demo.npz").graph
    assert not any(value.flags.writeable for value in vars(graph).values() if isinstance(value, np.ndarray))


def test_fifty_thousand_operators_are_small_and_soon_there(here: Path) -> None:
    graph = synthetic("lstm-grid", operators=50_000, training=True)
    write_npz("big.npz", graph)
    assert Path("big.npz").stat().st_size < 2_000_000
    started = time.process_time()
    back = GraphNpz().read("big.npz").graph
    assert time.process_time() - started < 0.5
    assert back.fingerprint == graph.fingerprint


def test_half_a_character_cannot_be_written(here: Path, refusal: Callable[..., str]) -> None:
    build = GraphBuilder()
    build.operator("\ud800")
    assert "half a character" in refusal(write_npz, "demo.npz", build.build())


@pytest.mark.parametrize(
    ("members", "complaint"),
    [
        (
            {FORMAT: np.array([2], dtype="<u4")},
            "version 2 is newer than what this stead reads (1); update stead",
        ),
        ({FORMAT: np.array([0], dtype="<u4")}, 'the member "stead.graph" must hold one version'),
        ({"flops": None}, 'the member "flops" is missing'),
        ({"flop": np.zeros(1)}, "unknown member \"flop\"; did you mean 'flops'"),
        ({"flops": np.zeros(3, dtype="<f4")}, "flops: numbers must be of type <f8, got <f4"),
        ({"flops": np.zeros((3, 1))}, "flops: not a row of numbers"),
        ({"flops": np.array(1.0)}, "flops: not a row of numbers"),
        ({"flops": np.zeros(2)}, "flops must be 3 numbers"),
        ({"flops": np.array([0, -1.0, 0])}, "operator 'b:1': flops must be a finite number of at least 0"),
        ({"moved_bytes": np.array([0, 0, np.nan])}, "bytes moved must be a finite number"),
        ({"kind": np.array([0, 1, 9], dtype="<u4")}, "kind: number 9 is given, there are 2"),
        ({"kind": np.array([0], dtype="<u4")}, "kind: 3 numbers are needed, there are 1"),
        ({"twin": np.array([0, 0, 7], dtype="<i4")}, "twins must lie in -1..2"),
        ({"phase": np.array([0, 0, 3], dtype="|u1")}, "phases must lie in 0..2"),
        ({"distances": np.zeros(3, dtype="<u4")}, "'a' reads from 'a', which does not come before it"),
        ({"distances": np.full(3, 2**32 - 1, dtype="<u4")}, "readers must lie in 0..2"),
        ({"distances": np.zeros(1, dtype="<u4")}, "distances: 3 numbers are needed, there are 1"),
        ({"tensors": np.full(3, 2**32 - 1, dtype="<u4")}, "tensor_bytes: 12884901885 numbers are needed"),
        ({"tensor_bytes": np.array([1, 1, 1, -1], dtype="<i8")}, "tensor bytes must lie in 0..2^62"),
        ({"tensor_naming": np.array([0, 0, 0, 0], dtype="|u1")}, "tensor_names: 0 are needed, there are 1"),
        ({"tensor_naming": np.array([0, 2, 0, 7], dtype="|u1")}, "tensor_naming: must be 0, 1 or 2, got 7"),
        ({"sizes": np.array([2, -4], dtype="<i8")}, "sizes: must lie in 0..2^62"),
        ({"ranks": np.array([9], dtype="<u4")}, "sizes: shapes of 9 sizes are announced, there are 2"),
        ({"folded_into": np.array([3], dtype="<u4")}, "folded_into: operator 3 is given, there are 3"),
        ({"weight_users": np.array([0, 1, 3], dtype="<u4")}, "users of weights must lie in 0..2"),
        (
            {"operator_names.lengths": np.array([1, 1, 1], dtype="<u4")},
            "operator_names: texts of 3 characters",
        ),
        (
            {"operator_names.text": np.full(5, 255, dtype="|u1")},
            "operator_names: byte 0 of the text is not UTF-8",
        ),
        ({"name.lengths": np.array([], dtype="<u4")}, "name: texts of 0 characters are announced"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_what_is_wrong_is_told(
    change: Change, refusal: Callable[..., str], members: dict[str, Any], complaint: str
) -> None:
    message = refusal(read, change(**members), format="stead-npz")
    assert message.startswith("demo.npz: ")
    assert complaint in message


def test_a_name_given_twice_is_refused(change: Change, refusal: Callable[..., str]) -> None:
    path = change(**{"operator_names.text": np.frombuffer(b"aa\0", dtype="|u1"),
                     "operator_names.lengths": np.array([1, 1, 1], dtype="<u4")})  # fmt: skip
    assert "two operators are called 'a'" in refusal(read, path)
    with pytest.raises(BadGraph):
        read(path)


def test_pickled_objects_are_never_opened(here: Path, refusal: Callable[..., str]) -> None:
    class Trap:
        def __reduce__(self) -> tuple[Any, ...]:
            return (Path.touch, (Path("opened"),))

    write_npz("demo.npz", rich_graph())
    with np.load("demo.npz") as held:
        arrays = dict(held)
    arrays["flops"] = np.array([Trap()], dtype=object)
    np.savez("demo.npz", allow_pickle=True, **arrays)
    assert "flops: not a row of numbers" in refusal(read, "demo.npz")
    assert not Path("opened").exists()


def test_a_header_that_promises_terabytes_is_refused(here: Path, refusal: Callable[..., str]) -> None:
    write_npz("demo.npz", rich_graph())
    buffer = io.BytesIO()
    np.lib.format.write_array_header_1_0(buffer, {"descr": "<f8", "fortran_order": False, "shape": (10**11,)})
    replace_member("demo.npz", "flops.npy", buffer.getvalue())
    assert "flops: 100000000000 numbers are announced" in refusal(read, "demo.npz")


def test_a_small_file_that_unpacks_to_gigabytes_is_refused(here: Path, refusal: Callable[..., str]) -> None:
    write_npz("demo.npz", rich_graph())
    replace_member("demo.npz", "flops.npy", bytes(2**27))
    assert "times its size: no graph" in refusal(read, "demo.npz")


def test_a_member_there_twice_is_refused(here: Path, refusal: Callable[..., str]) -> None:
    write_npz("demo.npz", rich_graph())
    with zipfile.ZipFile("demo.npz", "a") as archive, pytest.warns(UserWarning, match="Duplicate"):
        archive.writestr("flops.npy", b"")
    assert 'the member "flops" is there twice' in refusal(read, "demo.npz")


def test_other_files_of_numpy_are_none_of_ours(here: Path, refusal: Callable[..., str]) -> None:
    np.savez("weights.npz", conv=np.zeros(3))
    assert "unknown member" in refusal(read, "weights.npz")
    assert not GraphNpz().sniff(Path("weights.npz").read_bytes())


def replace_member(path: str, name: str, data: bytes) -> None:
    """Write a zip file again with other contents for one member."""
    with zipfile.ZipFile(path) as archive:
        held = {info.filename: archive.read(info) for info in archive.infolist()}
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for member, contents in {**held, name: data}.items():
            archive.writestr(member, contents)


def damaged(chance: random.Random, valid: bytes) -> bytes:
    """A file with some bytes changed, cut, doubled or moved."""
    data = bytearray(valid)
    for _ in range(chance.randint(1, 6)):
        place = chance.randrange(max(len(data), 1))
        kind = chance.randrange(5)
        if kind < 3:
            data[place : place + 1] = bytes([chance.randrange(256)])
        elif kind == 3:
            del data[place : place + chance.choice([1, 4, 100, 10**6])]
        else:
            data[place:place] = data[: chance.choice([1, 30, 200])]
    return bytes(data)


def stored(graph: Graph) -> bytes:
    """The same file without compression, so that damage reaches the numbers behind the checksums."""
    buffer = io.BytesIO()
    write_npz("fuzz.npz", graph)
    with np.load("fuzz.npz", allow_pickle=False) as held:
        np.savez(buffer, **dict(held))
    return buffer.getvalue()


def damaged_members(chance: random.Random, valid: bytes) -> bytes:
    """A sound zip file with damaged members."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(valid)) as source, zipfile.ZipFile(buffer, "w") as target:
        hit = set(chance.sample(source.namelist(), chance.randint(1, 3)))
        for name in source.namelist():
            data = source.read(name)
            target.writestr(name, damaged(chance, data) if name in hit else data)
    return buffer.getvalue()


def rounds(here: Path) -> Iterator[bytes]:
    chance = random.Random(7)
    valid = [stored(rich_graph()), stored(demo_graph())]
    for number in range(ROUNDS):
        spoil = damaged if number % 3 == 0 else damaged_members
        yield spoil(chance, valid[number % 2])


def complaint_about(data: bytes) -> str:
    """What reading says; empty if it works."""
    Path("fuzz.npz").write_bytes(data)
    try:
        GraphNpz().read("fuzz.npz")
    except BadInput as error:
        return str(error)
    return ""


@pytest.mark.fuzz(ROUNDS)
def test_damaged_files_end_in_one_line_or_a_graph(here: Path) -> None:
    assert all(complaint_about(data).isprintable() for data in rounds(here))
