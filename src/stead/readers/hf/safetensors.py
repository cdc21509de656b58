"""Sizes of weights from the headers of safetensors files: no weight is read, nothing is unpickled.

A file begins with the length of its header (8 bytes, little-endian), then the header as JSON: name of every tensor,
its type, its shape and where its bytes are. A model in several files has an index that names them.
"""

from __future__ import annotations

import json
import math
import os
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stead.errors import BadInput
from stead.files import opened
from stead.graph import MAX_BYTES
from stead.printing.wording import one_line, quoted, shown_path
from stead.readers.common.checked_values import Wrong, object_of
from stead.readers.common.op_costs import bytes_of_elements
from stead.readers.common.strict_json import read_json
from stead.readers.hf.step import Types

MAX_HEADER_BYTES = 10**8  # as the format itself demands
MAX_FILES = 10_000
MAX_RANK = 64
SINGLE, INDEX = "model.safetensors", "model.safetensors.index.json"
PICKLED = (".bin", ".pt", ".pth", ".ckpt", ".pkl")

_DTYPES: dict[str, tuple[str, int]] = {  # name in the header: (name in stead, bits)
    "F64": ("fp64", 64), "F32": ("fp32", 32), "F16": ("fp16", 16), "BF16": ("bf16", 16), "F8_E4M3": ("fp8", 8),
    "F8_E5M2": ("fp8", 8), "F8_E8M0": ("fp8", 8), "F4": ("fp4", 4), "I64": ("int64", 64), "I32": ("int32", 32),
    "I16": ("int16", 16), "I8": ("int8", 8), "U64": ("int64", 64), "U32": ("int32", 32), "U16": ("int16", 16),
    "U8": ("int8", 8), "BOOL": ("bool", 8),
}  # fmt: skip
_PLAIN = ("fp64", "fp32", "fp16", "bf16")
_EXPERT = re.compile(r"(?P<layer>.*)\.mlp\.experts\.(?P<kind>gate_up_proj|down_proj)\[(?P<number>\d+)\]")
_EXPERT_MATRICES = {
    "gate_up_proj": (("gate_proj", "up_proj"), ("w1", "w3")),
    "down_proj": (("down_proj",), ("w2",)),
}


@dataclass(frozen=True, slots=True)
class Held:
    """A tensor in a file."""

    elements: int
    dtype: str
    bits: int

    @property
    def size_bytes(self) -> int:
        """In the file."""
        return bytes_of_elements(self.elements, self.bits)

    def loaded_bytes(self, types: Types) -> int:
        """In memory: plain numbers are loaded in the type of the model, quantised ones as they are."""
        return types.weight_bytes(self.elements) if self.dtype in _PLAIN else self.size_bytes


class Stored:
    """What the files of a model say about its weights."""

    def __init__(self, tensors: Mapping[str, Held] | None = None, notes: tuple[str, ...] = ()) -> None:
        self.tensors = dict(tensors or {})
        self.notes = notes
        self._modules: dict[str, dict[str, Held]] = {}
        for name, held in self.tensors.items():
            module, _, leaf = name.rpartition(".")
            self._modules.setdefault(module, {})[leaf] = held

    @property
    def dtype(self) -> str:
        """The type of most bytes, if it is one that models compute in; empty otherwise."""
        sizes: Counter[str] = Counter()
        for held in self.tensors.values():
            sizes[held.dtype] += held.size_bytes
        most = max(sizes, key=lambda one: sizes[one], default="")
        return most if most in _PLAIN else ""

    def bytes_of(self, parameter: str, types: Types) -> int | None:
        """Bytes of a parameter as transformers names it; None where the files do not have it.

        Files may lack the first component of a name, hold each expert apart, and hold a quantised matrix as several
        tensors, with scales and the like beside it.
        """
        expert = _EXPERT.fullmatch(parameter)
        found = self._expert(**expert.groupdict()) if expert is not None else self._plain(parameter)
        found = found or self._plain(parameter.partition(".")[2])
        return sum(held.loaded_bytes(types) for held in found) if found else None

    def _plain(self, name: str) -> list[Held]:
        module, _, leaf = name.rpartition(".")
        if leaf != "weight":
            return [self.tensors[name]] if name in self.tensors else []
        beside = {**self._modules.get(module, {}), **self._modules.get(name, {})}
        return [held for own, held in beside.items() if own != "bias"]

    def _expert(self, layer: str, kind: str, number: str) -> list[Held]:
        for inside, matrices in zip(("mlp", "block_sparse_moe"), _EXPERT_MATRICES[kind], strict=True):
            found = [self._plain(f"{layer}.{inside}.experts.{number}.{matrix}.weight") for matrix in matrices]
            if all(found):
                return [held for matrix in found for held in matrix]
        return []


def stored_weights(folder: Path) -> Stored:
    """Sizes of all weights in a folder; none if it has no safetensors files."""
    notes = []
    try:
        pickled = sorted(entry.name for entry in folder.iterdir() if entry.suffix in PICKLED)
    except OSError as error:
        raise BadInput(
            f"{shown_path(folder)}: {error.strerror or 'cannot be read'}; check the folder"
        ) from None
    if pickled:
        more = f" and {len(pickled) - 1} more" if len(pickled) > 1 else ""
        notes.append(f"{one_line(pickled[0], 100)}{more}: pickled weights are never opened, safetensors only")
    tensors: dict[str, Held] = {}
    missing = []
    for path in _files(folder):
        if path.is_file():
            tensors.update(read_header(path))
        else:
            missing.append(path.name)
    if missing:
        first = one_line(missing[0], 100)
        notes.append(f"{len(missing)} files that {INDEX} names are not there, such as {first}")
    return Stored(tensors, tuple(notes))


def read_header(path: Path) -> dict[str, Held]:
    """Every tensor in a file."""
    where = shown_path(path)
    with opened(path) as file:
        size = os.fstat(file.fileno()).st_size
        length = int.from_bytes(file.read(8), "little")
        header = file.read(length) if 2 <= length <= min(MAX_HEADER_BYTES, size - 8) else b""
    if not header:
        raise BadInput(
            f"{where}: not a safetensors file, its header would have {length} bytes; download it again"
        )
    try:
        document = object_of(json.loads(header.decode()))
        return {name: _tensor(name, entry) for name, entry in document.items() if name != "__metadata__"}
    except Wrong as wrong:
        raise BadInput(f"{where}: {wrong}; download the file again") from None
    except (ValueError, RecursionError):
        raise BadInput(f"{where}: its header is damaged; download the file again") from None


def _tensor(name: str, entry: Any) -> Held:
    fields = object_of(entry)
    dtype, shape = fields.get("dtype"), fields.get("shape")
    if not isinstance(dtype, str) or not isinstance(shape, list):
        raise Wrong(f"tensor {quoted(name)} has no type or no shape")
    if dtype not in _DTYPES:
        raise Wrong(f"tensor {quoted(name)} is of an unknown type, {quoted(dtype)}")
    whole = all(
        isinstance(size, int) and not isinstance(size, bool) and 0 <= size <= MAX_BYTES for size in shape
    )
    elements = math.prod(shape) if whole and len(shape) <= MAX_RANK else MAX_BYTES + 1
    if elements > MAX_BYTES:
        raise Wrong(f"tensor {quoted(name)} has an impossible shape")
    known, bits = _DTYPES[dtype]
    return Held(elements, known, bits)


def _files(folder: Path) -> list[Path]:
    """The safetensors files of a model, by its index if it has one."""
    index = folder / INDEX
    if not index.is_file():
        single = folder / SINGLE
        return [single] if single.is_file() else []
    where = shown_path(index)
    try:
        named = object_of(object_of(read_json(index)).get("weight_map"))
    except Wrong as wrong:
        raise BadInput(f"{where}: weight_map {wrong}; download the index again") from None
    files = list(dict.fromkeys(str(name) for name in named.values()))
    if len(files) > MAX_FILES:
        raise BadInput(f"{where}: names {len(files)} files; download the index again")
    outside = next((name for name in files if Path(name).name != name), None)
    if outside is not None:
        raise BadInput(f"{where}: {quoted(outside)} is no file of the same folder; download the index again")
    return [folder / name for name in files]
