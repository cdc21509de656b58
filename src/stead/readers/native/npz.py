"""stead's graphs as numpy arrays in a .npz file: a tenth of the size of JSON, and read in a few hundredths of a second.

Every member is a row of numbers; nothing in the file is executed. Texts are UTF-8 in one row of bytes beside a row of
their lengths in characters, and texts that repeat are numbers of a table. `_ARRAYS` lists the members.
"""

from __future__ import annotations

import os
import re
import struct
import zipfile
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from io import BytesIO
from itertools import accumulate, pairwise
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from stead.errors import BadGraph, BadInput
from stead.files import (
    MAX_FILE_BYTES,
    MAX_GZIP_RATIO,
    OUT_OF_MEMORY,
    collector_paused,
    read_bytes,
    write_bytes,
)
from stead.graph import MAX_BYTES, Graph, refreshed
from stead.graph.arrays import graph_from_arrays
from stead.graph.kernels import Kernels
from stead.printing.wording import one_line, quoted, shown_path, suggestion
from stead.readers.base import Model
from stead.readers.common.checked_values import Wrong, about
from stead.readers.known_formats import OfTable

FORMAT = "stead.graph"  # the first member; it holds the version
VERSION = 1
FREE_BYTES = 2**26  # unpacked without a look at the ratio

_TEXTS = (
    "name", "operator_names", "kinds", "modules", "dtypes", "colocation_names", "tensor_names", "tensor_dtypes",
    "weight_names", "folded",
)  # fmt: skip
_ARRAYS = {
    FORMAT: "<u4",
    "kind": "<u4",  # [operator]; number in kinds, and so on
    "module": "<u4",
    "dtype": "<u4",
    "phase": "|u1",
    "flops": "<f8",
    "moved_bytes": "<f8",
    "twin": "<i4",
    "colocation": "<i4",
    "tensors": "<u4",  # [operator]; how many it writes
    "tensor_bytes": "<i8",
    "tensor_kept": "|u1",
    "tensor_naming": "|u1",  # [tensor]; see below
    "tensor_dtype": "<u4",
    "shape": "<u4",  # [tensor]; number of its shape
    "ranks": "<u4",  # [shape]
    "sizes": "<i8",  # of all shapes, one after the other
    "readers": "<u4",  # [tensor]; how many
    "distances": "<u4",  # of all readers: how far behind the producer
    "weight_bytes": "<i8",
    "users": "<u4",  # [weight]; how many
    "weight_users": "<u4",
    "folded_into": "<u4",
    **{f"{text}.text": "|u1" for text in _TEXTS},
    **{f"{text}.lengths": "<u4" for text in _TEXTS},
}
_KERNELS = {  # members that graphs have whose operators are not one kernel each
    "kernels": "<u4",  # [operator]; how many
    "kernel_flops": "<f8",
    "kernel_bytes": "<f8",
    "kernel_launches": "<f8",
}
_KNOWN = {**_ARRAYS, **_KERNELS}
_DEFAULT, _CONTROL, _OWN = range(3)  # naming of a tensor: after its producer; the same with ^; in tensor_names

_MAGIC = b"PK\x03\x04"
_HEADER = re.compile(
    rb"\x93NUMPY\x01\x00..\{'descr': '([<>|=][a-zA-Z][0-9]+)', 'fortran_order': (?:True|False), "
    rb"'shape': \(([0-9]{1,12}),\), *\} *\n",
    re.DOTALL,
)


@dataclass(frozen=True, slots=True)
class GraphNpz(OfTable):
    """Reader of stead's own graphs in arrays."""

    name: ClassVar[str] = "stead-npz"

    def read(self, path: str | os.PathLike[str]) -> Model:
        """The graph in a file; updated weights reach their readers (see `refreshed`)."""
        where = shown_path(path)
        data = read_bytes(path)
        try:
            with about(where):
                return Model(refreshed(graph_from_npz(data)))
        except MemoryError:
            raise BadInput(f"{where}: {OUT_OF_MEMORY}") from None


def write_npz(path: str | os.PathLike[str], graph: Graph) -> None:
    """Write a graph; reading it gives an equal graph, and equal graphs give equal files."""
    try:
        data = graph_as_npz(graph)
    except BadGraph as error:
        raise BadGraph(f"{shown_path(path)}: {error}") from None
    write_bytes(path, data)


def graph_as_npz(graph: Graph) -> bytes:
    """The bytes of the file that `write_npz` writes."""
    buffer = BytesIO()
    try:
        arrays = _arrays(graph)
    except UnicodeEncodeError:
        raise BadGraph("a name holds half a character (a lone surrogate)") from None
    np.savez_compressed(buffer, **arrays)  # type: ignore[arg-type]  # its stub takes them for allow_pickle
    return buffer.getvalue()


def graph_from_npz(data: bytes) -> Graph:
    """The graph in such bytes; Wrong or BadGraph if there is none."""
    with collector_paused():
        return _graph(_members(data))


# Writing


def _arrays(graph: Graph) -> dict[str, NDArray[Any]]:
    arrays: dict[str, ArrayLike] = {FORMAT: [VERSION]}
    tables: dict[str, Sequence[str]] = {
        "name": [graph.name],
        "operator_names": graph.operator_names,
        "colocation_names": graph.colocation_names,
        "weight_names": graph.weight_names,
        "folded": list(graph.folded),
    }
    for one, many, texts in (
        ("kind", "kinds", graph.kinds),
        ("module", "modules", graph.modules),
        ("dtype", "dtypes", graph.dtypes),
        ("tensor_dtype", "tensor_dtypes", graph.tensor_dtypes),
    ):
        tables[many], arrays[one] = _numbered(texts)
    arrays["tensor_naming"], tables["tensor_names"] = _naming(graph)
    shapes, arrays["shape"] = _numbered(graph.tensor_shapes)
    position = {name: v for v, name in enumerate(graph.operator_names)}
    arrays |= {
        "phase": graph.phases,
        "flops": graph.flops,
        "moved_bytes": graph.moved_bytes,
        "twin": graph.twins,
        "colocation": graph.colocation,
        "tensors": np.diff(graph.tensor_first),
        "tensor_bytes": graph.tensor_bytes,
        "tensor_kept": graph.tensor_kept,
        "ranks": [len(shape) for shape in shapes],
        "sizes": [size for shape in shapes for size in shape],
        "readers": np.diff(graph.reader_first),
        "distances": graph.readers - np.repeat(graph.tensor_producer, np.diff(graph.reader_first)),
        "weight_bytes": graph.weight_bytes,
        "users": np.diff(graph.weight_user_first),
        "weight_users": graph.weight_users,
        "folded_into": [position[name] for name in graph.folded.values()],
    }
    for many, table in tables.items():
        arrays[f"{many}.text"] = np.frombuffer("".join(table).encode(), dtype=np.uint8)
        arrays[f"{many}.lengths"] = [len(text) for text in table]
    if graph.kernels is not None:
        arrays |= {
            "kernels": np.diff(graph.kernels.first),
            "kernel_flops": graph.kernels.flops,
            "kernel_bytes": graph.kernels.moved_bytes,
            "kernel_launches": graph.kernels.launches,
        }
    return {name: np.asarray(arrays[name]).astype(dtype) for name, dtype in _KNOWN.items() if name in arrays}


def _numbered(items: Iterable[Any]) -> tuple[list[Any], list[int]]:
    """Distinct items in order of appearance, and the number of each item."""
    numbers: dict[Any, int] = {}
    of_item = [numbers.setdefault(item, len(numbers)) for item in items]
    return list(numbers), of_item


def _naming(graph: Graph) -> tuple[list[int], list[str]]:
    """How tensors are named, and the names that do not follow from their producers."""
    naming, own = [], []
    producers = [graph.operator_names[v] for v in graph.tensor_producer.tolist()]
    defaults = _output_names(graph.operator_names, graph.tensor_producer)
    for name, default, producer in zip(graph.tensor_names, defaults, producers, strict=True):
        if name == default:
            naming.append(_DEFAULT)
        elif name == f"^{producer}":
            naming.append(_CONTROL)
        else:
            naming.append(_OWN)
            own.append(name)
    return naming, own


def _output_names(operators: Sequence[str], producer: NDArray[Any]) -> list[str]:
    """Names of tensors after their producers: the first output has the same one, the second one :1 behind it."""
    names = list(map(operators.__getitem__, producer.tolist()))
    number = np.arange(len(producer)) - np.searchsorted(producer, producer)
    for t in np.flatnonzero(number).tolist():
        names[t] = f"{names[t]}:{number[t]}"
    return names


# Reading


def _members(data: bytes) -> dict[str, NDArray[Any]]:
    """The arrays of a file, each of the type it must have."""
    try:
        with zipfile.ZipFile(BytesIO(data)) as archive:
            found = archive.infolist()
            _check_members(found, len(data))
            return {info.filename.removesuffix(".npy"): _array(archive, info) for info in found}
    except zipfile.BadZipFile as error:
        raise Wrong(f"damaged: {one_line(str(error), 100)}; write the file again") from None
    # zipfile lets these through: packed data, headers and offsets that make no sense, encryption
    except (
        zlib.error, EOFError, OSError, RuntimeError, ValueError, OverflowError, struct.error, NotImplementedError,
    ) as error:  # fmt: skip
        raise Wrong(f"damaged ({type(error).__name__}); write the file again") from None


def _check_members(found: Sequence[zipfile.ZipInfo], packed_bytes: int) -> None:
    names = [info.filename.removesuffix(".npy") for info in found]
    for name in names:
        if name not in _KNOWN:
            raise Wrong(f"unknown member {quoted(name)}{suggestion(name, _KNOWN)}")
        if names.count(name) > 1:
            raise Wrong(f"the member {quoted(name)} is there twice")
    if FORMAT not in names:
        raise Wrong(f'no graph: the member "{FORMAT}" is missing')
    if any(info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED) for info in found):
        raise Wrong("packed in a way that stead does not read; use numpy.savez_compressed")
    total = sum(info.file_size for info in found)
    if total > MAX_FILE_BYTES:
        raise Wrong(f"unpacks to {total / 2**30:.3g} GiB; coarsen the graph first")
    if total > FREE_BYTES and total > MAX_GZIP_RATIO * packed_bytes:
        raise Wrong(f"unpacks to over {MAX_GZIP_RATIO} times its size: no graph")


def _array(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> NDArray[Any]:
    name = info.filename.removesuffix(".npy")
    data = archive.read(info)
    if len(data) > info.file_size:
        raise Wrong(f"{name}: longer than the file says")
    header = _HEADER.match(data)
    if header is None:
        raise Wrong(f"{name}: not a row of numbers")
    dtype, count = header.group(1).decode(), int(header.group(2))
    if dtype != _KNOWN[name]:
        raise Wrong(f"{name}: numbers must be of type {_KNOWN[name]}, got {dtype}")
    if len(data) - header.end() != count * np.dtype(dtype).itemsize:
        raise Wrong(f"{name}: {count} numbers are announced, there are others")
    return np.frombuffer(data, dtype=dtype, offset=header.end())


def _graph(arrays: Mapping[str, NDArray[Any]]) -> Graph:
    _check_version(arrays[FORMAT])
    needed = _KNOWN if _KERNELS.keys() & arrays.keys() else _ARRAYS
    missing = [name for name in needed if name not in arrays]
    if missing:
        raise Wrong(f"the member {quoted(missing[0])} is missing")
    texts = {many: _texts(many, arrays) for many in _TEXTS}
    names = texts["operator_names"]
    if len(texts["name"]) != 1:
        raise Wrong("name: must be one text")
    producer = _owners("tensors", "tensor_bytes", arrays, len(names))
    tensors = len(producer)
    tensor = _owners("readers", "distances", arrays, tensors)
    weight = _owners("users", "weight_users", arrays, len(texts["weight_names"]))
    readers = producer[tensor] + arrays["distances"].astype(np.int64)
    return graph_from_arrays(
        texts["name"][0],
        operator_names=names,
        kinds=_picked("kind", arrays, texts["kinds"], len(names)),
        modules=_picked("module", arrays, texts["modules"], len(names)),
        dtypes=_picked("dtype", arrays, texts["dtypes"], len(names)),
        phases=arrays["phase"],
        flops=arrays["flops"],
        moved_bytes=arrays["moved_bytes"],
        twins=arrays["twin"],
        colocation=arrays["colocation"],
        colocation_names=texts["colocation_names"],
        tensor_producer=producer,
        tensor_bytes=arrays["tensor_bytes"],
        tensor_kept=arrays["tensor_kept"],
        tensor_names=_tensor_names(arrays, names, producer, texts["tensor_names"]),
        tensor_shapes=_picked("shape", arrays, _shapes(arrays), tensors),
        tensor_dtypes=_picked("tensor_dtype", arrays, texts["tensor_dtypes"], tensors),
        reads=(tensor, readers),
        weight_names=texts["weight_names"],
        weight_bytes=arrays["weight_bytes"],
        weight_uses=(weight, arrays["weight_users"]),
        folded=_folded(arrays["folded_into"], texts["folded"], names),
        kernels=_kernels(arrays, len(names)),
    )


def _kernels(arrays: Mapping[str, NDArray[Any]], count: int) -> Kernels | None:
    """The kernels of every operator; None where each is one."""
    if "kernels" not in arrays:
        return None
    owner = _owners("kernels", "kernel_flops", arrays, count)
    columns = [arrays[name] for name in _KERNELS if name != "kernels"]
    for name, column in zip(list(_KERNELS)[1:], columns, strict=True):
        _same_length(name, column, len(owner))
    first = np.searchsorted(owner, np.arange(count + 1)).astype(np.int32)
    return Kernels(first, *(column.astype(np.float64) for column in columns))


def _check_version(given: NDArray[Any]) -> None:
    if given.shape != (1,) or given[0] < 1:
        raise Wrong(f'the member "{FORMAT}" must hold one version')
    if given[0] > VERSION:
        raise Wrong(f"version {given[0]} is newer than what this stead reads ({VERSION}); update stead")


def _texts(many: str, arrays: Mapping[str, NDArray[Any]]) -> list[str]:
    lengths = arrays[f"{many}.lengths"].tolist()
    try:
        text = arrays[f"{many}.text"].tobytes().decode()
    except UnicodeDecodeError as error:
        raise Wrong(f"{many}: byte {error.start} of the text is not UTF-8") from None
    ends = list(accumulate(lengths, initial=0))
    if ends[-1] != len(text):
        raise Wrong(f"{many}: texts of {ends[-1]} characters are announced, there are {len(text)}")
    return list(map(text.__getitem__, map(slice, ends, ends[1:])))


def _owners(
    counts_name: str, items_name: str, arrays: Mapping[str, NDArray[Any]], count: int
) -> NDArray[np.int64]:
    """The owner of every item, from how many items each owner has."""
    counts = arrays[counts_name]
    _same_length(counts_name, counts, count)
    total, items = int(counts.sum(dtype=np.uint64)), len(arrays[items_name])
    if total != items:
        raise Wrong(f"{items_name}: {total} numbers are needed, there are {items}")
    return np.repeat(np.arange(count), counts)


def _picked(one: str, arrays: Mapping[str, NDArray[Any]], table: Sequence[Any], count: int) -> list[Any]:
    """Items of a table by number."""
    numbers = arrays[one]
    _same_length(one, numbers, count)
    if numbers.size and numbers.max() >= len(table):
        raise Wrong(f"{one}: number {numbers.max()} is given, there are {len(table)}")
    return list(map(table.__getitem__, numbers.tolist()))


def _tensor_names(
    arrays: Mapping[str, NDArray[Any]],
    operators: Sequence[str],
    producer: NDArray[np.int64],
    own: Sequence[str],
) -> list[str]:
    names, naming = _output_names(operators, producer), arrays["tensor_naming"]
    _same_length("tensor_naming", naming, len(names))
    if naming.size and naming.max() > _OWN:
        raise Wrong(f"tensor_naming: must be 0, 1 or 2, got {naming.max()}")
    where = np.flatnonzero(naming == _OWN).tolist()
    if len(where) != len(own):
        raise Wrong(f"tensor_names: {len(where)} are needed, there are {len(own)}")
    for t in np.flatnonzero(naming == _CONTROL).tolist():
        names[t] = f"^{operators[producer[t]]}"
    for t, name in zip(where, own, strict=True):
        names[t] = name
    return names


def _shapes(arrays: Mapping[str, NDArray[Any]]) -> list[tuple[int, ...]]:
    ranks, sizes = arrays["ranks"], arrays["sizes"]
    ends = list(accumulate(ranks.tolist(), initial=0))
    if ends[-1] != len(sizes):
        raise Wrong(f"sizes: shapes of {ends[-1]} sizes are announced, there are {len(sizes)}")
    if sizes.size and not (sizes.min() >= 0 and sizes.max() <= MAX_BYTES):
        raise Wrong("sizes: must lie in 0..2^62")
    flat = sizes.tolist()
    return [tuple(flat[start:end]) for start, end in pairwise(ends)]


def _folded(into: NDArray[Any], sources: Sequence[str], operators: Sequence[str]) -> dict[str, str]:
    _same_length("folded_into", into, len(sources))
    if into.size and into.max() >= len(operators):
        raise Wrong(f"folded_into: operator {into.max()} is given, there are {len(operators)}")
    made = {source: operators[v] for source, v in zip(sources, into.tolist(), strict=True)}
    if len(made) < len(sources):
        raise Wrong("folded: a name is there twice")
    return made


def _same_length(name: str, given: NDArray[Any], count: int) -> None:
    if len(given) != count:
        raise Wrong(f"{name}: {count} numbers are needed, there are {len(given)}")
