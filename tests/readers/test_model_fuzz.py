"""Damaged ONNX, OpenVINO and GGUF files: reading works or ends in one line, soon and in little memory.

STEAD_FUZZ=20000 tries that many files of each format.
"""

from __future__ import annotations

import os
import random
import re
import resource
import struct
import time
from pathlib import Path

import pytest
from model_files import (
    Graph,
    Ir,
    gguf_file,
    integers,
    node,
    onnx_function,
    onnx_model,
    pb,
    tensor,
    value,
    varint,
)
from model_zoo import Net, cnn, transformer
from test_gguf import METADATA, MOE, block

from stead.errors import SteadError
from stead.readers import graph_as_dict, graph_from_dict
from stead.readers.gguf.reader import Gguf
from stead.readers.onnx.reader import Onnx
from stead.readers.openvino.reader import OpenVino

ROUNDS = int(os.environ.get("STEAD_FUZZ", "300"))
SECONDS_PER_FILE = 5.0
MEMORY_BYTES = 1 << 30

ODD_NUMBERS = [0, 1, 2, 7, 127, 128, 255, 2**16, 2**31 - 1, 2**31, 2**32, 2**62, 2**63 - 1, 2**63, 2**64 - 1]
ODD_WORDS = [
    "", "-1", "0", "1", "99", "4294967296", str(2**62), str(2**63), "x", "nan", "1e9", "true", "\u00e9", " ", "9" * 400,
    "Loop", "MatMul", "Convolution", "Const", "Result", "Parameter", "ShapeOf", "Assign", "FP16", "i4",
]  # fmt: skip


def odd_onnx() -> bytes:
    """Loops, branches, functions, quantised and recurrent operators in one small model."""
    net = Net()
    body = Graph([node("MatMul", "h w", "h2"), node("Identity", "c", "c2")],
                 [value("i", (), 7), value("c", (), 9), value("h", (2, 8))], [value("c2"), value("h2")])  # fmt: skip
    net.weight("w", 8, 8)
    net.stored += [integers("n", 3), integers("pads", [0, 1, 0, 1])]
    net.nodes += [
        node("Loop", "n _ x", "a", "loop", body=body), node("Twice", "a w", "b", "call", domain="own"),
        node("If", "flag", "c", "branch", then_branch=Graph([node("Relu", "b", "t")], (), [value("t")]),
             else_branch=Graph([node("Exp", "b", "e")], (), [value("e")])),
        node("Pad", "c pads", "d", "pad"), node("Einsum", "d d", "e", "einsum", equation="ij,kj->ik"),
        node("TopK", "e n", "f g", "topk", axis=0), node("Slice", "f n n n", "h", "slice"),
        node("Split", "e", "p q", "split", axis=1), node("Resize", "e _ s", "r", "resize"),
        node("LSTM", "l lw lr", "o", "lstm", hidden_size=2), node("Range", "n n n", "z", "range"),
        node("Unknown", "p q r h o z g", "y", "unknown", domain="com.example"),
    ]  # fmt: skip
    net.weight("s", 2)
    net.weight("lw", 1, 8, 3)
    net.weight("lr", 1, 8, 2)
    inputs = [value("x", (2, 8)), value("flag", (), 9), value("l", (5, "batch", 3))]
    twice = onnx_function("Twice", "a b", "c", [node("MatMul", "a b", "t"), node("MatMul", "t b", "c")])
    return onnx_model(
        Graph(net.nodes, inputs, [value("y")], net.stored, [value("r", (2, "other"))]), functions=[twice]
    )


def some_ir() -> str:
    body = Ir()
    body.add("Parameter", "slice", (1, 1, 8))
    body.constant("bw", (8, 8))
    body.add("MatMul", "bm", (1, 1, 8), "slice bw")
    body.add("Result", "bo", None, "bm")
    inside = body.xml().partition("<layers>")[2].removesuffix("</net>")
    port_map = (
        '<port_map><input external_port_id="0" internal_layer_id="0" axis="1" part_size="1"/></port_map>'
    )
    ir = Ir()
    ir.add("Parameter", "x", (1, -1, 8), shape="1,?,8", element_type="f32")
    ir.constant("w", (8, 8), "f16", bits=16)
    ir.add("Convert", "w32", (8, 8), "w", destination_type="f32")
    ir.add("MatMul", "m", (1, -1, 8), "x w32", transpose_a="false", transpose_b="true")
    ir.add("TensorIterator", "loop", (1, -1, 8), "m", body=f"{port_map}<body><layers>{inside}</body>")
    ir.constant("shape", (3,), "i64", bits=64)
    ir.add("Reshape", "r", (1, 8, -1), "loop shape", special_zero="true")
    ir.add("MaxPool", "pool", (1, 8, -1), "r", kernel="2", strides="2")
    ir.add("SoftMax", "s", (1, 8, -1), "pool", axis=2)
    ir.add("Result", "y", None, "s")
    return ir.xml()


def some_gguf() -> bytes:
    metadata = {
        **METADATA,
        "llama.expert_count": 8,
        "llama.expert_used_count": 2,
        "llama.attention.key_length": 64,
    }
    return gguf_file(
        metadata, {"token_embd.weight": ((256, 100), 1), **block(0), **block(1, MOE)}, data=False
    )


def damaged(chance: random.Random, valid: bytes) -> bytes:
    """Some bytes changed, removed, doubled or put in; some numbers replaced by odd ones."""
    data = bytearray(valid)
    for _ in range(chance.randint(1, 6)):
        at = chance.randrange(len(data) + 1)
        kind = chance.randrange(7)
        if kind == 0 and at < len(data):
            data[at] = chance.randrange(256)
        elif kind == 1 and at < len(data):
            data[at] ^= 1 << chance.randrange(8)
        elif kind == 2:
            del data[at : at + chance.randint(1, 20)]
        elif kind == 3:
            data[at:at] = data[at : at + chance.randint(1, 200)]
        elif kind == 4:
            odd = struct.pack("<Q", chance.choice(ODD_NUMBERS))
            data[at : at + 8] = odd if chance.random() < 0.5 else odd[:4]
        elif kind == 5:
            data[at:at] = varint(chance.choice(ODD_NUMBERS))
        elif chance.random() < 0.2:
            del data[at:]
    return bytes(data)


def damaged_fields(chance: random.Random, valid: bytes, depth: int = 0) -> bytes:
    """A message with fields removed, doubled, exchanged, renumbered or replaced; lengths stay right."""
    fields, at = [], 0
    while at < len(valid):
        start = at
        tag, at = number_at(valid, at)
        if tag & 7 == 2:
            size, at = number_at(valid, at)
            fields.append((tag >> 3, valid[at : at + size]))
            at += size
        elif tag & 7 == 0:
            amount, at = number_at(valid, at)
            fields.append((tag >> 3, amount))
        else:
            at += 8 if tag & 7 == 1 else 4
            fields.append((-1, valid[start:at]))
    for _ in range(chance.randint(1, 2)):
        if not fields:
            break
        i = chance.randrange(len(fields))
        number, held = fields[i]
        kind = chance.randrange(6)
        if (
            kind <= 2
            and isinstance(held, bytes)
            and len(held) > 2
            and number > 0
            and depth < 6
            and looks_like_message(held)
        ):
            fields[i] = (number, damaged_fields(chance, held, depth + 1))
        elif kind == 3:
            fields.insert(chance.randrange(len(fields) + 1), fields[chance.randrange(len(fields))])
        elif kind == 4:
            del fields[i]
        elif isinstance(held, int):
            fields[i] = (number, chance.choice(ODD_NUMBERS))
        else:
            fields[i] = (
                number if number > 0 else 1,
                chance.choice([b"", b"x", b"a", held[::-1], held * 2, *map(varint, ODD_NUMBERS)]),
            )
    return b"".join(held if number < 0 else pb(number, held) for number, held in fields)


def number_at(data: bytes, at: int) -> tuple[int, int]:
    number = shift = 0
    while True:
        byte = data[at]
        at += 1
        number |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            return number, at


def looks_like_message(data: bytes) -> bool:
    at = 0
    try:
        while at < len(data):
            tag, at = number_at(data, at)
            if tag & 7 == 2:
                size, at = number_at(data, at)
                at += size
            elif tag & 7 == 0:
                _, at = number_at(data, at)
            elif tag & 7 == 5:
                at += 4
            else:
                return False
    except IndexError:
        return False
    return at == len(data)


def damaged_words(chance: random.Random, valid: str) -> bytes:
    """XML with values, texts and elements replaced, removed or doubled."""
    text = valid
    for _ in range(chance.randint(1, 4)):
        parts = re.findall(r"<[^>]*>|[^<]+", text)
        i = chance.randrange(len(parts))
        kind = chance.randrange(5)
        if kind == 0:
            values = list(re.finditer(r'"[^"]*"', parts[i]))
            if values:
                one = chance.choice(values)
                parts[i] = f'{parts[i][: one.start()]}"{chance.choice(ODD_WORDS)}"{parts[i][one.end() :]}'
        elif kind == 1 and not parts[i].startswith("<"):
            parts[i] = chance.choice(ODD_WORDS)
        elif kind == 2:
            parts.insert(chance.randrange(len(parts)), parts[i])
        elif kind == 3:
            del parts[i]
        else:
            j = chance.randrange(len(parts))
            parts[i], parts[j] = parts[j], parts[i]
        text = "".join(parts)
    return text.encode()


def survives(reading, path):
    """The graph, or None for an error of stead that is one printable line; never slow."""
    started = time.process_time()
    graph, told = None, "read"
    try:
        graph = reading(path).graph
    except SteadError as error:
        told = str(error)
    assert told.isprintable()
    assert len(told) < 4000
    assert time.process_time() - started < SECONDS_PER_FILE
    return graph


def tried(reader, make, valid, name):
    chance = random.Random(f"{name} 2")
    peak_before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    good = 0
    for number in range(ROUNDS):
        data = make(chance, chance.choice(valid))
        Path(name).write_bytes(data)
        graph = survives(reader.read, name)
        if graph is not None:
            good += 1
            if number % 20 == 0:  # what is read can be written
                assert len(graph_from_dict(graph_as_dict(graph), place=name)) == len(graph)
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - peak_before
    assert 1024 * grown < MEMORY_BYTES
    return good


@pytest.fixture(scope="module")
def onnx_files():
    """Models to damage; weights are left out, so that damage hits the structure."""
    inputs, weights = [value("x", (1, 2, 5, 5))], [tensor("w", (3, 2, 3, 3))]
    convolution = Graph([node("Conv", "x w", "y", "conv")], inputs, [value("y")], weights)
    return [odd_onnx(), cnn(), transformer(layers=1, width=8, heads=2, length=4), onnx_model(convolution)]


@pytest.mark.fuzz(ROUNDS)
@pytest.mark.parametrize("make", [damaged, damaged_fields])
def test_damaged_onnx_files(here, onnx_files, make):
    valid = [data for data in onnx_files if looks_like_message(data)]
    assert len(valid) >= 3
    assert tried(Onnx(), make, valid, "net.onnx") > 0


@pytest.mark.fuzz(ROUNDS)
@pytest.mark.parametrize("level", ["nothing", "constants", "views"])
def test_damaged_onnx_files_with_less_folding(here, onnx_files, level):
    valid = [data for data in onnx_files if looks_like_message(data)]
    tried(Onnx(fold=level), damaged_fields, valid, f"{level}.onnx")


@pytest.mark.fuzz(ROUNDS)
def test_damaged_openvino_files(here):
    assert tried(OpenVino(), damaged_words, [some_ir()], "net.xml") > 0


@pytest.mark.fuzz(ROUNDS)
def test_openvino_files_with_damaged_bytes(here):
    tried(
        OpenVino(fold="nothing"),
        lambda chance, text: damaged(chance, text.encode()),
        [some_ir()],
        "other.xml",
    )


@pytest.mark.fuzz(ROUNDS)
def test_damaged_gguf_files(here):
    assert tried(Gguf(context=100), damaged, [some_gguf()], "net.gguf") > 0


def test_valid_files_are_read(here, onnx_files):
    for number, (reader, data) in enumerate(
        [(Onnx(), onnx_files[0]), (OpenVino(), some_ir().encode()), (Gguf(), some_gguf())]
    ):
        Path(f"{number}").write_bytes(data)
        assert survives(reader.read, f"{number}") is not None
