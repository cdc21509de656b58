"""The view of a plan: one format for the report's page, for the app and for whoever wants arrays.

A `View` is a header (plain JSON data) and named columns. As bytes it is

    u32          length of the header, little-endian, as all that follows
    header       UTF-8 JSON, padded with blanks so that the block begins at a multiple of 4
    block        the columns, one behind the other, each at a multiple of 4

The header's `"columns"` says where each column lies: `{name: [offset in the block, items, type]}`. Types are `u1`, `u2`,
`u4`, `f4`; `d4`, which is `u4` stored as the difference to the item before (modulo 2**32, the first as it is); and
`utf8`, bytes of a text each of whose entries is ended by a line feed (none holds one: names are made printable).
`"view"` in the header is the version; whoever reads another one refuses it with a sentence.

Columns of version 1 (`report/plan_view.py` makes them). Times are in units of `header.unit_ticks` picoseconds.

| column | type | meaning |
|---|---|---|
| `op` `dev` `box` `kind` | d4 u1 u2 u2 | one slice per operator that ran (with micro-batches: per copy), sorted by (device, start): operator, device, leaf of the fold, index into `kinds` |
| `start` `dur` | d4 u4 | begin and duration |
| `flags` | u1 | 1 critical, 2 takes no time, 4 backward, 8 update |
| `micro` | u2 | micro-batch, 65535 for none; the column is absent where there are none |
| `tsrc` `tdst` `tten` | u1 u1 d4 | transfers sorted by (source, target, begin): devices and tensor |
| `tbeg` `tdur` `tflags` | d4 u4 u1 | begin, duration, 1 critical |
| `tfrom` `tto` | d4 u4 | slice that made the tensor, and the first slice there that reads it (2**32 - 1: none) |
| `m{d}at` `m{d}weights` `m{d}kv` `m{d}act` | d4 f4 f4 f4 | memory of device d as steps, in bytes; absent where it is not known |
| `bparent` `blayer` `bx` `bflags` | u2 u2 f4 u1 | boxes of the fold, parents before children, box 0 is the whole: parent, layer within the parent, place in the layer in box widths from the middle; 1 open at first, 2 a run of numbered siblings |
| `bops` `bcrit` `bslack` `bweights` `bout` | u4 f4 f4 f4 f4 | per box: operators, seconds on the critical path, least slack in seconds (NaN unknown), bytes of weights with caches, bytes of outputs |
| `bbegin` `bend` | u4 u4 | when its first operator begins and its last one ends |
| `bsec` | f4 | [box, device] seconds of its operators on each device, row by row |
| `esrc` `edst` `ebytes` `ecross` | u2 u2 f4 f4 | edges between leaves: bytes that pass, and those of them that cross to other devices |
| `names` `tensors` `kinds` `boxes` | utf8 | names of operators, of the tensors that are sent (`tten` counts among these), of kinds, and of boxes |

The header holds `graph`, `operators`, `objective`, `unit` ("step" or "sample"), `value`, `bound` {seconds, name, scope} or null, `gap`, `source`,
`solver`, `found_by`, `verdict` {state, claims, problems, remedies}, `timed` (false: no time line, each device's own operators in a row),
`unit_ticks`, `span_seconds` (of the time axis), `devices` [{name, letter, model, operators, busy, compute_seconds, received_seconds, sent_seconds,
weights, kv, activations, peak, limit or null, peak_at (in units) or null, blocks [[name, kind, bytes]]}], `rules` [{name, seconds or null, reason,
times}], `critical` {seconds by kind, steps: the ten longest}, `moves` {box: [[seconds or null, reason] per device]} (a box that is absent was not
computed), `moves_note`, `trail` [[elapsed, evaluations, seconds, bound, found_by]], `sensitivity` [{name, what, factors, seconds}],
`sizes` [{what, amounts, seconds}] (batch and context), `links` [{from, to, bytes, transfers, seconds or null, bytes_per_second, latency_seconds}],
`exports` [{name, command}], `provenance` {name: text}, and `text`, the summary.
With `"patch": true` a view holds only what moves change in another one (`report/moved_view.py`).
"""  # noqa: E501

from __future__ import annotations

import json
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stead.errors import BadInput
from stead.printing.wording import printable, shortened

VERSION = 1
LONGEST_NAME = 240  # of an operator, tensor or box; longer ones lose their middle
_DTYPES = {"u1": "u1", "u2": "<u2", "u4": "<u4", "f4": "<f4", "d4": "<u4", "utf8": "u1"}


@dataclass(frozen=True, slots=True, eq=False)
class Column:
    """Items of one type; texts are lists of names."""

    type: str
    values: NDArray[Any] | tuple[str, ...]

    def stored(self) -> NDArray[Any]:
        """The items as they lie in the block."""
        if self.type == "utf8":
            return np.frombuffer("".join(f"{name}\n" for name in self.values).encode(), dtype=np.uint8)
        values = np.asarray(self.values).astype(_DTYPES[self.type])
        return np.diff(values, prepend=values.dtype.type(0)) if self.type == "d4" else values

    @staticmethod
    def read(kind: str, stored: bytes) -> Column:
        """The column that lies in the block as `stored`."""
        if kind == "utf8":
            return Column(kind, tuple(stored.decode().split("\n")[:-1]))
        values = np.frombuffer(stored, dtype=_DTYPES[kind])
        return Column(kind, np.cumsum(values, dtype=np.uint32) if kind == "d4" else values)


@dataclass(frozen=True, slots=True, eq=False)
class View:
    """What pages show of a plan."""

    header: Mapping[str, Any]
    columns: Mapping[str, Column]

    def __getitem__(self, name: str) -> Any:
        """Items of a column: an array, or names."""
        return self.columns[name].values

    def as_bytes(self) -> bytes:
        """Header and block; see the head of this module."""
        table, parts, offset = {}, [], 0
        for name, column in self.columns.items():
            stored = column.stored()
            table[name] = [offset, len(stored), column.type]
            parts += [stored.tobytes(), b"\0" * (-stored.nbytes % 4)]
            offset += stored.nbytes + -stored.nbytes % 4
        said = {"view": VERSION, **self.header, "columns": table}
        text = json.dumps(said, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        header = text.encode("utf-8", "backslashreplace")  # halves of characters become escapes, which JSON knows
        header += b" " * (-len(header) % 4)
        return b"".join([struct.pack("<I", len(header)), header, *parts])

    @staticmethod
    def from_bytes(data: bytes) -> View:
        """Read what `as_bytes` wrote."""
        if len(data) < 4 or len(data) < 4 + struct.unpack_from("<I", data)[0]:
            raise BadInput("this is no view of a plan: it ends before its header does")
        end = 4 + struct.unpack_from("<I", data)[0]
        header = json.loads(data[4:end])
        if header.get("view") != VERSION:
            version = header.get("view")
            raise BadInput(f"this is a view of version {version}, and version {VERSION} is read; write it anew")
        columns = {}
        for name, (offset, items, kind) in header.pop("columns").items():
            size = items * np.dtype(_DTYPES[kind]).itemsize
            columns[name] = Column.read(kind, data[end + offset : end + offset + size])
        return View({key: value for key, value in header.items() if key != "view"}, columns)


def shown_name(name: str) -> str:
    """A name on one line, printable and not endless."""
    return name if len(name) < LONGEST_NAME // 2 and name.isprintable() else shortened(printable(name), LONGEST_NAME)


def names_column(names: Sequence[str]) -> Column:
    """Names as pages show them."""
    return Column("utf8", tuple(map(shown_name, names)))


def array_column(kind: str, values: NDArray[Any]) -> Column:
    """Numbers as the format stores them."""
    kept = np.ascontiguousarray(values).astype(_DTYPES[kind])
    kept.setflags(write=False)
    return Column(kind, kept)
