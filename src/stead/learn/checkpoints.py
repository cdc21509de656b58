"""Files of tensors and JSON, in the layout of safetensors: nothing is unpickled, a kill leaves the old file or the new.

A file is the length of its header (8 bytes, little-endian), the header as JSON (type, shape and place of every tensor,
and our own JSON as a text under `__metadata__`), then the bytes of the tensors.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stead.errors import BadInput

MAX_HEADER_BYTES = 10**8
Arrays = dict[str, NDArray[np.generic]]
_TYPES = {"F64": "<f8", "F32": "<f4", "I64": "<i8", "I32": "<i4", "U8": "|u1", "BOOL": "|b1"}
_NAMES = {np.dtype(code): name for name, code in _TYPES.items()}


def save(path: Path, arrays: Mapping[str, NDArray[Any]], document: Mapping[str, Any]) -> None:
    """Write arrays and a JSON document; whoever reads meanwhile sees all of the old file or all of the new one."""
    header: dict[str, Any] = {"__metadata__": {"stead": json.dumps(document, sort_keys=True)}}
    blocks, end = [], 0
    for name in sorted(arrays):
        array = np.ascontiguousarray(arrays[name])
        block = array.tobytes()
        header[name] = {
            "dtype": _NAMES[array.dtype],
            "shape": list(arrays[name].shape),
            "data_offsets": [end, end + len(block)],
        }
        blocks.append(block)
        end += len(block)
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    half = path.with_name(f".{path.name}.{os.getpid()}.part")
    with half.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for block in blocks:
            file.write(block)
        file.flush()
        os.fsync(file.fileno())
    half.replace(path)


def load(path: Path) -> tuple[Arrays, dict[str, Any]]:
    """(arrays, document) of a file that `save` wrote; anything else is BadInput with the reason."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise BadInput(f"cannot read {path}: {error.strerror}") from None
    try:
        return _parsed(data)
    except (ValueError, KeyError, TypeError, RecursionError, AttributeError) as error:
        raise BadInput(f"{path} is no policy that stead wrote, or is damaged: {error}") from None


def _parsed(data: bytes) -> tuple[Arrays, dict[str, Any]]:
    length = int.from_bytes(data[:8], "little")
    if len(data) < 8 or not 2 <= length <= min(MAX_HEADER_BYTES, len(data) - 8):
        raise ValueError("the header is cut off")
    header = json.loads(data[8 : 8 + length])
    document = json.loads(header.pop("__metadata__")["stead"])
    if not isinstance(document, dict):
        raise ValueError("its document is no object")
    body = memoryview(data)[8 + length :]
    arrays: Arrays = {}
    total = 0
    for name, entry in header.items():
        begin, end = entry["data_offsets"]
        dtype, shape = np.dtype(_TYPES[entry["dtype"]]), tuple(int(n) for n in entry["shape"])
        wanted = int(np.prod(shape, dtype=np.float64)) * dtype.itemsize
        if min((*shape, begin), default=0) < 0 or end > len(body) or end - begin != wanted:
            raise ValueError(f"tensor {name!r} does not lie inside the file")
        arrays[name] = np.frombuffer(body[begin:end], dtype=dtype).reshape(shape).copy()
        total += wanted
    if total != len(body):
        raise ValueError(f"{len(body)} bytes of tensors where {total} are described")
    return arrays, document
