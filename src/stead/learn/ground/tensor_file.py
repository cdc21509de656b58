"""Files of tensors and JSON, in the layout of safetensors: nothing is unpickled, a kill leaves the old file or the new.

A file is the length of its header (8 bytes, little-endian), the header as JSON (type, shape and place of every tensor,
and under `__metadata__` our own JSON as a text and the checksum of everything else), then the bytes of the tensors.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TypedDict

import numpy as np
from numpy.typing import NDArray

from stead.errors import BadInput
from stead.files import read_bytes, writing
from stead.printing.wording import one_line, shown_path

MAX_HEADER_BYTES = 10**8
MAX_RANK = 32
Arrays = dict[str, NDArray[np.generic]]
_TYPES = {"F64": "<f8", "F32": "<f4", "I64": "<i8", "I32": "<i4", "U8": "|u1", "BOOL": "|b1"}
_NAMES = {np.dtype(code): name for name, code in _TYPES.items()}
_OWN, _SUM = "stead", "sha256"


class Entry(TypedDict):
    """What a header says of a tensor."""

    dtype: str
    shape: list[int]
    data_offsets: list[int]


def save(path: Path, arrays: Mapping[str, NDArray[np.generic]], document: Mapping[str, object]) -> None:
    """Write arrays and a JSON document; whoever reads meanwhile sees all of the old file or all of the new one."""
    tensors: dict[str, Entry] = {}
    blocks, end = [], 0
    for name in sorted(arrays):
        array = np.ascontiguousarray(arrays[name])
        block = array.tobytes()
        tensors[name] = {
            "dtype": _NAMES[array.dtype],
            "shape": list(arrays[name].shape),
            "data_offsets": [end, end + len(block)],
        }
        blocks.append(block)
        end += len(block)
    text = json.dumps(document, sort_keys=True)
    header = {"__metadata__": {_OWN: text, _SUM: _checksum(tensors, text, blocks)}, **tensors}
    head = json.dumps(header, separators=(",", ":")).encode()
    head += b" " * (-len(head) % 8)
    with writing(path) as file:
        file.write(len(head).to_bytes(8, "little") + head)
        for block in blocks:
            file.write(block)


def load(path: Path) -> tuple[Arrays, dict[str, object]]:
    """(arrays, document) of a file that `save` wrote; anything else is BadInput with the reason."""
    data = read_bytes(path, too_large="no policy is that large")
    try:
        return _parsed(data)
    except KeyError as error:
        reason = f"{error} is missing or not known"
    except (ValueError, TypeError, RecursionError, AttributeError, OverflowError, MemoryError) as error:
        reason = str(error) or type(error).__name__
    raise BadInput(f"{shown_path(path)} is no policy that stead wrote, or is damaged: {one_line(reason, 200)}")


def _checksum(tensors: Mapping[str, Entry], text: str, blocks: Iterable[bytes | memoryview]) -> str:
    """Of all that a file says: its tensors by name, the document, and the bytes."""
    digest = hashlib.sha256(json.dumps([tensors, text], sort_keys=True).encode())
    for block in blocks:
        digest.update(block)
    return digest.hexdigest()


def _parsed(data: bytes) -> tuple[Arrays, dict[str, object]]:
    length = int.from_bytes(data[:8], "little")
    if len(data) < 8 or not 2 <= length <= min(MAX_HEADER_BYTES, len(data) - 8):
        raise ValueError("the header is cut off")
    header = json.loads(data[8 : 8 + length], object_pairs_hook=_no_twins)
    metadata = header.pop("__metadata__")
    if not metadata.keys() <= {_OWN, _SUM}:
        raise ValueError("its metadata are not those of stead")
    body = memoryview(data)[8 + length :]
    expected = metadata.get(_SUM)  # files of stead 0.1 have none
    if expected is not None and _checksum(header, metadata[_OWN], [body]) != expected:
        raise ValueError("its checksum does not fit what it holds; copy or train it again")
    document = json.loads(metadata[_OWN])
    if not isinstance(document, dict):
        raise ValueError("its document is no object")
    arrays: Arrays = {}
    total = 0
    for name, entry in header.items():
        begin, end = (_whole(n) for n in entry["data_offsets"])
        dtype, shape = np.dtype(_TYPES[entry["dtype"]]), tuple(_whole(n) for n in entry["shape"])
        if len(shape) > MAX_RANK or end > len(body) or end - begin != math.prod(shape) * dtype.itemsize:
            raise ValueError(f"tensor {name!r} does not lie inside the file")
        if begin != total:
            raise ValueError(f"tensor {name!r} does not begin where the one before it ends")
        arrays[name] = np.frombuffer(body[begin:end], dtype=dtype).reshape(shape).copy()
        total = end
    if total != len(body):
        raise ValueError(f"{len(body)} bytes of tensors where {total} are described")
    return arrays, document


def _no_twins(pairs: list[tuple[str, object]]) -> dict[str, object]:
    made = dict(pairs)
    if len(made) < len(pairs):
        raise ValueError("a name is given twice in its header")
    return made


def _whole(value: object) -> int:
    if type(value) is not int or value < 0:
        raise ValueError(f"{value!r} is no size of a tensor")
    return value
