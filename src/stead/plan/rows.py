"""Rows of numbers in a plan file: lists that people can read, or one text each where there are many.

The text is the numbers as little-endian bytes, compressed by zlib, in base64. Whoever reads it knows how many numbers
of what type there must be, so that a small text cannot unpack to gigabytes.
"""

from __future__ import annotations

import base64
import binascii
import math
import zlib
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stead.printing.wording import shown
from stead.readers.common.checked_values import MAX_DOUBLE, Wrong, list_of

SECONDS, BYTES, INDICES, SMALL, WIDE = "<f8", "<i8", "<i4", "|u1", "<u2"
_WORDS = {
    SECONDS: "a number or null",
    BYTES: "a whole number below 2^63",
    INDICES: "a whole number below 2^31",
    SMALL: "a whole number from 0 to 255",
    WIDE: "a whole number from 0 to 65535",
}


def devices_type(count: int) -> str:
    """How devices of a cluster of so many are packed."""
    return SMALL if count <= 256 else WIDE


def as_row(values: NDArray[Any], dtype: str, *, packed: bool) -> str | list[Any]:
    """A row as a file holds it; in a list null stands for infinity."""
    if packed:
        data = np.ascontiguousarray(values, dtype=dtype).tobytes()
        return base64.b64encode(zlib.compress(data, 6)).decode()
    return [None if value == math.inf else value for value in values.tolist()]


def row_of(value: object, dtype: str, count: int) -> NDArray[Any]:
    """The row in a list or a text; Wrong if it does not hold exactly `count` numbers of that type."""
    return _unpacked(value, dtype, count) if isinstance(value, str) else _listed(list_of(value), dtype, count)


def _unpacked(text: str, dtype: str, count: int) -> NDArray[Any]:
    wanted = count * np.dtype(dtype).itemsize
    inflate = zlib.decompressobj()
    try:
        data = inflate.decompress(base64.b64decode(text, validate=True), wanted + 1)
    except (binascii.Error, ValueError):
        raise Wrong("is not base64") from None
    except zlib.error:
        raise Wrong("its packed numbers are damaged") from None
    if len(data) != wanted or not inflate.eof or inflate.unused_data:
        raise Wrong(f"must hold {count} numbers, packed in {wanted} bytes")
    row = np.frombuffer(data, dtype=dtype)
    return row.astype(row.dtype.newbyteorder("="))


def _listed(values: list[Any], dtype: str, count: int) -> NDArray[Any]:
    if len(values) != count:
        raise Wrong(f"must hold {count} numbers, got {len(values)}")
    for number, value in enumerate(values):
        if not _is_number(value, dtype):
            raise Wrong(f"[{number}]: must be {_WORDS[dtype]}, got {shown(value)}")
    numbers = [math.inf if value is None else value for value in values]
    return np.array(numbers, dtype=np.dtype(dtype).newbyteorder("="))


def _is_number(value: object, dtype: str) -> bool:
    if isinstance(value, bool):
        return False
    if dtype == SECONDS:
        return value is None or (isinstance(value, int | float) and abs(value) <= MAX_DOUBLE)
    limits = np.iinfo(dtype)
    return isinstance(value, int) and int(limits.min) <= value <= int(limits.max)
