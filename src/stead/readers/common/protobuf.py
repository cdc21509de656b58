"""The wire format of protocol buffers, walked without a schema and without copying what is not asked for.

Large fields, such as the weights in an ONNX file, are passed over by their length: reading a model of gigabytes
touches only the pages that hold its structure.
"""

from __future__ import annotations

import mmap
import os
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TypeAlias

from stead.files import opened
from stead.readers.common.checked_values import Wrong

Bytes: TypeAlias = bytes | mmap.mmap
Field: TypeAlias = tuple[int, int, int]  # (number, value or first byte, end); end is -1 when it is a value

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
MAX_FIELDS = 2**24  # in one file; a graph of a million nodes has fewer
MAX_FLOATS = 2**16  # that are looked at in one field

_DAMAGED = "the file is damaged or was not written completely"


@contextmanager
def mapped(path: str | os.PathLike[str]) -> Iterator[Bytes]:
    """The bytes of a regular file, read from disk where they are looked at; BadInput if there is none."""
    with opened(path) as file:
        size = os.fstat(file.fileno()).st_size
        data = mmap.mmap(file.fileno(), size, access=mmap.ACCESS_READ) if size else None
    if data is None:
        yield b""
        return
    with data:
        yield data


class Wire:
    """One file of protocol buffers; counts fields, so that a hostile file ends soon."""

    def __init__(self, data: Bytes) -> None:
        self.data = data
        self.fields_left = MAX_FIELDS

    def fields(self, start: int, end: int) -> Iterator[Field]:
        """Fields of the message between two bytes, in the order of the file.

        >>> list(Wire(b"\\x08\\x96\\x01\\x12\\x02hi").fields(0, 7))
        [(1, 150, -1), (2, 5, 7)]
        """
        data, at = self.data, start
        while at < end:
            self.fields_left -= 1
            if self.fields_left < 0:
                raise Wrong(f"more than {MAX_FIELDS} fields; coarsen the graph first")
            tag = data[at]
            at += 1
            if tag >= 0x80:
                tag, at = self._varint(at - 1, end)
            number, kind = tag >> 3, tag & 7
            if kind == BYTES:
                size, at = self._varint(at, end)
                stop = at + size
                if stop > end:
                    raise Wrong(f"a field at byte {at} runs {stop - end} bytes past its end: {_DAMAGED}")
                yield number, at, stop
                at = stop
            elif kind == VARINT:
                value, at = self._varint(at, end)
                yield number, value, -1
            elif kind in (FIXED64, FIXED32):
                stop = at + (8 if kind == FIXED64 else 4)
                if stop > end:
                    raise Wrong(f"a field at byte {at} is cut off: {_DAMAGED}")
                yield number, at, stop
                at = stop
            else:
                raise Wrong(f"byte {at - 1} starts a field of unknown type {kind}: {_DAMAGED}")

    def _varint(self, at: int, end: int) -> tuple[int, int]:
        """The number that starts at a byte, and the byte after it."""
        value = shift = 0
        while at < end and shift < 70:
            byte = self.data[at]
            at += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value, at
            shift += 7
        raise Wrong(f"a number before byte {at} has no end: {_DAMAGED}")

    def text(self, start: int, end: int) -> str:
        """A string field."""
        if end < 0:
            raise Wrong(f"a number where a name should be: {_DAMAGED}")
        try:
            return str(self.data[start:end], "utf-8")
        except UnicodeDecodeError:
            raise Wrong(f"the name at byte {start} is not UTF-8: {_DAMAGED}") from None

    def message(self, start: int, end: int) -> Iterator[Field]:
        """Fields of a message inside a message."""
        if end < 0:
            raise Wrong(f"a number where a message should be: {_DAMAGED}")
        return self.fields(start, end)

    def numbers(self, value: int, end: int) -> Iterator[int]:
        """Signed whole numbers of one field, alone or packed."""
        if end < 0:
            yield signed(value)
            return
        at = value
        while at < end:
            number, at = self._varint(at, end)
            yield signed(number)

    def floats(self, start: int, end: int) -> tuple[float, ...]:
        """The first single-precision numbers of one field, alone or packed."""
        if end < 0 or (end - start) % 4:
            raise Wrong(f"byte {start} does not start floating-point numbers: {_DAMAGED}")
        end = min(end, start + 4 * MAX_FLOATS)
        return struct.unpack(f"<{(end - start) // 4}f", self.data[start:end])


def signed(number: int) -> int:
    """A number of 64 bits in two's complement."""
    number &= 0xFFFFFFFFFFFFFFFF
    return number - 2**64 if number >= 2**63 else number
