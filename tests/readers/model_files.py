"""Writers of small model files (ONNX, OpenVINO IR, GGUF), byte by byte: no other package is needed."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from xml.sax.saxutils import quoteattr

# ONNX: protocol buffers

FLOAT, INT64, FLOAT16, INT4 = 1, 7, 10, 22


def varint(number: int) -> bytes:
    number &= 2**64 - 1
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    out.append(number)
    return bytes(out)


def pb(number: int, value: int | bytes | str | float) -> bytes:
    """One field of a message."""
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    if isinstance(value, float):
        return varint(number << 3 | 5) + struct.pack("<f", value)
    data = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(data)) + data


def tensor(
    name: str, shape: Sequence[int], kind: int = FLOAT, data: bytes = b"", external: bool = False
) -> bytes:
    out = b"".join(pb(1, size) for size in shape) + pb(2, kind) + pb(8, name)
    return out + (pb(9, data) if data else b"") + (pb(14, 1) if external else b"")


def integers(name: str, numbers: Sequence[int] | int) -> bytes:
    """A stored vector, or scalar, of whole numbers."""
    many = [numbers] if isinstance(numbers, int) else list(numbers)
    shape = [] if isinstance(numbers, int) else [len(many)]
    return tensor(name, shape, INT64, struct.pack(f"<{len(many)}q", *many))


def attribute(name: str, value: Any) -> bytes:
    out = pb(1, name)
    if isinstance(value, bool | int):
        return out + pb(3, int(value)) + pb(20, 2)
    if isinstance(value, float):
        return out + pb(2, value) + pb(20, 1)
    if isinstance(value, str):
        return out + pb(4, value) + pb(20, 3)
    if isinstance(value, Graph):
        return out + pb(6, value.data) + pb(20, 5)
    if isinstance(value, bytes):
        return out + pb(5, value) + pb(20, 4)
    return out + b"".join(pb(8, item) for item in value) + pb(20, 7)


def node(
    kind: str,
    inputs: str,
    outputs: str,
    name: str = "",
    *,
    domain: str = "",
    scopes: str = "",
    **attributes: Any,
) -> bytes:
    """A node; operands and results are words, `_` one that is left out."""
    out = b"".join(pb(1, "" if word == "_" else word) for word in inputs.split())
    out += b"".join(pb(2, "" if word == "_" else word) for word in outputs.split())
    out += (pb(3, name) if name else b"") + pb(4, kind) + (pb(7, domain) if domain else b"")
    out += b"".join(pb(5, attribute(key, value)) for key, value in attributes.items())
    return out + (pb(9, pb(1, "pkg.torch.onnx.name_scopes") + pb(2, scopes)) if scopes else b"")


def value(name: str, shape: Iterable[int | str] | None = None, kind: int = FLOAT) -> bytes:
    """What a file says about a tensor; without a shape only its type."""
    if shape is None:
        return pb(1, name) + pb(2, pb(1, pb(1, kind)))
    sizes = (pb(1, size) if isinstance(size, int) else pb(2, size) if size else b"" for size in shape)
    return pb(1, name) + pb(2, pb(1, pb(1, kind) + pb(2, b"".join(pb(1, size) for size in sizes))))


class Graph:
    """A graph, or the body of a node."""

    def __init__(
        self,
        nodes: Iterable[bytes],
        inputs: Iterable[bytes] = (),
        outputs: Iterable[bytes] = (),
        stored: Iterable[bytes] = (),
        values: Iterable[bytes] = (),
        name: str = "net",
    ) -> None:
        parts = [pb(1, one) for one in nodes]
        parts += [pb(2, name), *(pb(5, one) for one in stored), *(pb(11, one) for one in inputs)]
        parts += [*(pb(12, one) for one in outputs), *(pb(13, one) for one in values)]
        self.data = b"".join(parts)


def onnx_model(graph: Graph, *, opset: int = 17, functions: Iterable[bytes] = ()) -> bytes:
    return (
        pb(1, 8)
        + pb(2, "test")
        + pb(7, graph.data)
        + pb(8, pb(2, opset))
        + b"".join(pb(25, one) for one in functions)
    )


def onnx_function(name: str, inputs: str, outputs: str, nodes: Iterable[bytes], domain: str = "own") -> bytes:
    out = pb(1, name) + b"".join(pb(4, word) for word in inputs.split())
    out += b"".join(pb(5, word) for word in outputs.split()) + b"".join(pb(7, one) for one in nodes)
    return out + pb(10, domain)


# OpenVINO IR: XML


class Ir:
    """Layers that are strung together by name."""

    def __init__(self) -> None:
        self.layers: list[str] = []
        self.edges: list[str] = []
        self.ids: dict[str, tuple[int, int]] = {}
        self.shapes: dict[str, Sequence[int]] = {}
        self.offset = 0

    def add(
        self,
        kind: str,
        name: str,
        shape: Sequence[int] | None,
        reads: str = "",
        /,
        precision: str = "FP32",
        body: str = "",
        **data: Any,
    ) -> str:
        """A layer with one result, or none; `reads` are names of others."""
        number, words = len(self.layers), reads.split()
        ports = "".join(self._port(i, self.shapes[word], "FP32") for i, word in enumerate(words))
        out = "" if shape is None else f"<output>{self._port(len(words), shape, precision)}</output>"
        attributes = "".join(f" {key}={quoteattr(str(item))}" for key, item in data.items())
        self.layers.append(
            f'<layer id="{number}" name={quoteattr(name)} type="{kind}" version="opset1"><data{attributes}/>'
            f"{f'<input>{ports}</input>' if words else ''}{out}{body}</layer>"
        )
        for i, word in enumerate(words):
            layer, port = self.ids[word]
            self.edges.append(
                f'<edge from-layer="{layer}" from-port="{port}" to-layer="{number}" to-port="{i}"/>'
            )
        self.ids[name] = (number, len(words))
        self.shapes[name] = shape or ()
        return name

    def constant(
        self, name: str, shape: Sequence[int], kind: str = "f32", *, bits: int = 32, offset: int | None = None
    ) -> str:
        size = bits
        for length in shape:
            size *= length
        size //= 8
        start = self.offset if offset is None else offset
        self.offset = max(self.offset, start + size)
        precision = {"f32": "FP32", "f16": "FP16"}.get(kind, kind.upper())
        return self.add("Const", name, shape, precision=precision, element_type=kind, offset=start, size=size)

    @staticmethod
    def _port(number: int, shape: Sequence[int], precision: str) -> str:
        sizes = "".join(f"<dim>{size}</dim>" for size in shape)
        return f'<port id="{number}" precision="{precision}">{sizes}</port>'

    def xml(self, name: str = "net") -> str:
        inside = f"<layers>{''.join(self.layers)}</layers><edges>{''.join(self.edges)}</edges>"
        return f'<?xml version="1.0"?><net name="{name}" version="11">{inside}</net>'


# GGUF

_KINDS = {bool: (7, "?"), int: (4, "I"), float: (6, "f")}
_BLOCKS = {0: (1, 4), 1: (1, 2), 8: (32, 34), 12: (256, 144), 30: (1, 2)}


def _string(text: str) -> bytes:
    return struct.pack("<Q", len(text.encode())) + text.encode()


def _value(item: Any) -> bytes:
    if isinstance(item, str):
        return struct.pack("<I", 8) + _string(item)
    if isinstance(item, list):
        if item and isinstance(item[0], str):
            return struct.pack("<IIQ", 9, 8, len(item)) + b"".join(map(_string, item))
        kind, code = _KINDS[type(item[0])]
        return struct.pack("<IIQ", 9, kind, len(item)) + struct.pack(f"<{len(item)}{code}", *item)
    kind, code = _KINDS[type(item)]
    return struct.pack(f"<I{code}", kind, item)


def gguf_file(
    metadata: Mapping[str, Any],
    tensors: Mapping[str, tuple[Sequence[int], int]],
    *,
    version: int = 3,
    data: bool = True,
) -> bytes:
    """A file with (shape, innermost first, and type) of each tensor, zeros for data."""
    out = b"GGUF" + struct.pack("<IQQ", version, len(tensors), len(metadata))
    out += b"".join(_string(key) + _value(item) for key, item in metadata.items())
    offset = 0
    for name, (shape, kind) in tensors.items():
        out += _string(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, kind, offset)
        count = 1
        for size in shape:
            count *= size
        block, size = _BLOCKS.get(kind, (1, 1))
        offset += -(-(count // block * size) // 32) * 32
    if not data:
        return out
    return out + bytes(-len(out) % 32 + offset)
