"""The header of a GGUF file: metadata, and names, shapes and types of its tensors; never their data.

Sizes of block types are those of ggml. Whatever counts and lengths a file claims, reading takes no more time
and memory than the bytes that are there.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from stead.graph import MAX_BYTES
from stead.printing.wording import quoted
from stead.readers.common.checked_values import Wrong
from stead.readers.common.op_costs import Shape, elements
from stead.readers.common.protobuf import Bytes

MAGIC = b"GGUF"
MAX_TENSORS = 2**20
MAX_METADATA = 2**16
MAX_STRINGS = 2**22  # in all lists together; vocabularies have a few hundred thousand
MAX_KEPT = 4096  # items of a list that are kept, such as one number per layer
MAX_DIMENSIONS = 8
_ALIGNMENT = 32


@dataclass(frozen=True, slots=True)
class TensorType:
    """How ggml stores elements: blocks of some elements and some bytes."""

    name: str
    elements: int
    bytes: int


def _types(block: int, sizes: dict[int, tuple[str, int]]) -> dict[int, TensorType]:
    return {code: TensorType(name, block, size) for code, (name, size) in sizes.items()}


TENSOR_TYPES: dict[int, TensorType] = {
    **_types(1, {0: ("F32", 4), 1: ("F16", 2), 24: ("I8", 1), 25: ("I16", 2), 26: ("I32", 4), 27: ("I64", 8),
                 28: ("F64", 8), 30: ("BF16", 2)}),
    **_types(32, {2: ("Q4_0", 18), 3: ("Q4_1", 20), 6: ("Q5_0", 22), 7: ("Q5_1", 24), 8: ("Q8_0", 34),
                  9: ("Q8_1", 40), 20: ("IQ4_NL", 18), 39: ("MXFP4", 17)}),
    **_types(64, {40: ("NVFP4", 36)}),
    **_types(128, {41: ("Q1_0", 18)}),
    **_types(256, {10: ("Q2_K", 84), 11: ("Q3_K", 110), 12: ("Q4_K", 144), 13: ("Q5_K", 176), 14: ("Q6_K", 210),
                   15: ("Q8_K", 292), 16: ("IQ2_XXS", 66), 17: ("IQ2_XS", 74), 18: ("IQ3_XXS", 98),
                   19: ("IQ1_S", 50), 21: ("IQ3_S", 110), 22: ("IQ2_S", 82), 23: ("IQ4_XS", 136),
                   29: ("IQ1_M", 56), 34: ("TQ1_0", 54), 35: ("TQ2_0", 66)}),
}  # fmt: skip

_FIXED: dict[int, str] = {
    0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d",
}  # fmt: skip
_STRING, _LIST = 8, 9


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """One tensor: everything but its data."""

    name: str
    shape: Shape  # innermost dimension first, as in the file
    type_name: str
    size_bytes: int

    @property
    def elements(self) -> int:
        """Number of its elements."""
        return elements(self.shape)

    @property
    def row_bytes(self) -> int:
        """Bytes of one row: what a lookup reads."""
        rows = elements(self.shape[1:])
        return self.size_bytes // rows if rows else 0


@dataclass(frozen=True, slots=True)
class Header:
    """Metadata and tensors of a file."""

    metadata: dict[str, Any]
    tensors: list[TensorInfo]
    is_complete: bool  # the file is as long as its tensors need
    unknown_types: int  # tensors whose size follows from where the next one begins


def read_header(data: Bytes) -> Header:
    """The header at the start of a file; Wrong if there is none."""
    if data[:4] != MAGIC:
        raise Wrong("does not start with GGUF; is it another kind of file?")
    cursor = _Cursor(data)
    version = int(cursor.number("I"))
    if version not in (2, 3):
        swapped = int.from_bytes(version.to_bytes(4, "little"), "big")
        if swapped in (2, 3):
            raise Wrong("its numbers are big-endian; convert the model on this kind of machine")
        raise Wrong(f"GGUF version {version} is not known; versions 2 and 3 are")
    tensor_count = cursor.count("tensors", MAX_TENSORS, 24)
    metadata_count = cursor.count("metadata entries", MAX_METADATA, 13)
    metadata: dict[str, Any] = {}
    for _ in range(metadata_count):
        key = cursor.text()
        metadata[key] = cursor.value(key)
    raw = [cursor.tensor() for _ in range(tensor_count)]
    return _with_sizes(metadata, raw, cursor.at, len(data))


class _Cursor:
    """Reads one thing after another and never past the end."""

    def __init__(self, data: Bytes) -> None:
        self.data = data
        self.at = len(MAGIC)
        self.end = len(data)
        self.strings_left = MAX_STRINGS

    def _take(self, size: int) -> int:
        """Move on by some bytes; where they start."""
        start = self.at
        if size > self.end - start:
            raise Wrong(f"the header ends at byte {self.end}, in the middle; was the file copied completely?")
        self.at = start + size
        return start

    def number(self, code: str) -> Any:
        size = struct.calcsize(f"<{code}")
        return struct.unpack_from(f"<{code}", self.data, self._take(size))[0]

    def count(self, what: str, most: int, least_bytes: int) -> int:
        """A number of things that follow, each of which takes at least some bytes."""
        found = int(self.number("Q"))
        if found > most or found * least_bytes > self.end - self.at:
            raise Wrong(f"claims {found} {what}, more than a file of {self.end} bytes can hold")
        return found

    def text(self) -> str:
        """A string, at most 64 KiB of it."""
        size = int(self.number("Q"))
        start = self._take(size)
        return str(self.data[start : start + min(size, 2**16)], "utf-8", "replace")

    def value(self, key: str) -> Any:
        """A value of metadata; None for lists that nobody asks for."""
        kind = int(self.number("I"))
        if kind in _FIXED:
            return self.number(_FIXED[kind])
        if kind == _STRING:
            return self.text()
        if kind == _LIST:
            return self._list(key)
        raise Wrong(f"metadata {quoted(key)} has the unknown type {kind}")

    def _list(self, key: str) -> list[Any] | None:
        kind = int(self.number("I"))
        if kind in _FIXED:
            size = struct.calcsize(f"<{_FIXED[kind]}")
            count = self.count(f"items of {quoted(key)}", self.end, size)
            start = self._take(count * size)
            if count > MAX_KEPT:
                return None
            return list(struct.unpack_from(f"<{count}{_FIXED[kind]}", self.data, start))
        if kind == _STRING:
            self._skip_strings(self.count(f"items of {quoted(key)}", self.strings_left, 8))
            return None
        raise Wrong(f"metadata {quoted(key)} is a list of the unknown type {kind}")

    def _skip_strings(self, count: int) -> None:
        self.strings_left -= count
        data, at, end = self.data, self.at, self.end
        length = struct.Struct("<Q").unpack_from
        for _ in range(count):
            if at + 8 > end:
                break
            at += 8 + length(data, at)[0]
        if at > end:
            raise Wrong(f"a list of strings runs past the end of the file at byte {end}")
        self.at = at

    def tensor(self) -> tuple[str, Shape, int, int]:
        """Name, shape, type and place of one tensor."""
        name = self.text()
        rank = int(self.number("I"))
        if rank > MAX_DIMENSIONS:
            raise Wrong(f"tensor {quoted(name)} has {rank} dimensions; at most {MAX_DIMENSIONS} make sense")
        shape = struct.unpack_from(f"<{rank}Q", self.data, self._take(8 * rank))
        return name, shape, int(self.number("I")), int(self.number("Q"))


def _with_sizes(
    metadata: dict[str, Any], raw: list[tuple[str, Shape, int, int]], header_end: int, file_end: int
) -> Header:
    """Sizes by type, or where the type is not known by where the next tensor begins."""
    alignment = metadata.get("general.alignment", _ALIGNMENT)
    if not isinstance(alignment, int) or not 0 < alignment <= 2**20:
        raise Wrong(f"an alignment of {alignment!r} makes no sense")
    start = -(-header_end // alignment) * alignment
    offsets = sorted({offset for *_, offset in raw} | {max(file_end - start, 0)})
    following = dict(pairwise(offsets))
    tensors: list[TensorInfo] = []
    names: set[str] = set()
    unknown = needed = 0
    for name, shape, code, offset in raw:
        if name in names:
            raise Wrong(f"two tensors are called {quoted(name)}")
        names.add(name)
        found = TENSOR_TYPES.get(code)
        if found is None:
            unknown += 1
            info = TensorInfo(name, shape, f"type {code}", following.get(offset, offset) - offset)
        else:
            info = TensorInfo(name, shape, found.name, _bytes(name, shape, found))
        if info.size_bytes > MAX_BYTES or info.elements > MAX_BYTES:
            raise Wrong(f"tensor {quoted(name)} would have {info.size_bytes:.3g} bytes; that makes no sense")
        needed = max(needed, start + offset + info.size_bytes)
        tensors.append(info)
    return Header(metadata, tensors, needed <= file_end, unknown)


def _bytes(name: str, shape: Shape, kind: TensorType) -> int:
    row = shape[0] if shape else 1
    if row % kind.elements:
        raise Wrong(f"rows of tensor {quoted(name)} have {row} elements, no multiple of {kind.elements}")
    return elements(shape) // kind.elements * kind.bytes
