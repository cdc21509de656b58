"""What a file of a model holds, and who can read it.

A reader is any object of the right shape. Those of this package are in a table (`known_formats`), and only the one that
a file needs is imported; other packages add theirs under the entry point group `stead.readers`.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from importlib import import_module
from typing import Any, Protocol, TypeVar

from stead.cluster import Cluster
from stead.costs import Given
from stead.errors import BadInput
from stead.files import read_bytes
from stead.graph import Graph
from stead.option_values import option_value
from stead.printing.wording import shown_path, suggestion
from stead.readers.common.assumed_sizes import Assumed
from stead.readers.common.strict_json import read_json
from stead.readers.known_formats import READERS, Format, plugged_in

__all__ = ["READERS", "Model", "Reader", "configured", "formats", "read", "read_json", "reader_of"]

HEAD_BYTES = 2**16
FOLDER_FILE = "config.json"  # what makes a folder a model
_OneThatTells = TypeVar("_OneThatTells", bound="Tells")


@dataclass(frozen=True, slots=True, eq=False)
class Model:
    """A graph and whatever else its file says."""

    graph: Graph
    given: Given | None = None  # seconds in the file; None: there are none
    cluster: Cluster | None = None  # devices in the file; None: it names none
    notes: tuple[str, ...] = ()  # sentences about the file that its user should see
    assumed: tuple[Assumed, ...] = ()  # open dimensions that nobody set


class Tells(Protocol):
    """What knows its files when it sees them."""

    @property
    def name(self) -> str:
        """Its name on the command line."""

    @property
    def suffixes(self) -> tuple[str, ...]:
        """How names of its files end, in lower case: ".json"."""

    def sniff(self, head: bytes) -> bool:
        """Whether a file that starts like this is one of its own."""


class Reader(Tells, Protocol):
    """Turns a file into a Model. Options are fields with defaults: a reader can be made without arguments."""

    def read(self, path: str | os.PathLike[str]) -> Model:
        """Read a file; BadInput with path, place and remedy if that is impossible."""


def read(path: str | os.PathLike[str], *, format: str = "", options: Mapping[str, Any] | None = None) -> Model:
    """The model in a file, read by the reader of the named format or by the one that recognises the file.

    `options` are fields of that reader; texts are converted to the type of the field's default.

    >>> read("no-such-model.json")
    Traceback (most recent call last):
    stead.errors.BadInput: no-such-model.json: no such file; check the path
    """
    return reader_for(path, format=format, options=options).read(path)


def reader_for(
    path: str | os.PathLike[str], *, format: str = "", options: Mapping[str, Any] | None = None
) -> Reader:
    """The reader of the named format, or the one that recognises a file, with options."""
    return configured(reader_of(format) if format else _recognise(path), options or {})


def configured(reader: Reader, options: Mapping[str, Any]) -> Reader:
    """A reader with other options; an option it does not have is an error that names those it has.

    >>> configured(reader_of("msr-fiddle"), {"cost_scale": "1000"}).cost_scale
    1000.0
    """
    if not options:
        return reader
    known = {one.name: getattr(reader, one.name) for one in fields(reader)}  # type: ignore[arg-type]
    for key in options:
        if key not in known:
            has = f"it has {', '.join(known)}" if known else "it has none"
            raise BadInput(f"a {reader.name} file has no option '{key}'{suggestion(key, known)}; {has}")
    changed = {key: _value(key, value, known[key]) for key, value in options.items()}
    made: Reader = replace(reader, **changed)  # type: ignore[type-var]
    return made


def _value(option: str, given: Any, default: Any) -> Any:
    try:
        return option_value(given, default)
    except ValueError:
        kind = "name=number,..." if isinstance(default, Mapping) else type(default).__name__
        raise BadInput(f"option {option} needs a value such as {kind}, got {given!r}") from None


def formats() -> dict[str, Reader]:
    """Every reader by name, those of other packages included."""
    return {reader.name: reader for reader in (*map(_made, READERS.values()), *plugged_in())}


def reader_of(name: str) -> Reader:
    """The reader of a format, with default options."""
    if name in READERS:
        return _made(READERS[name])
    others = {reader.name: reader for reader in plugged_in()}
    if name not in others:
        known = [*READERS, *others]
        raise BadInput(f"no format '{name}'{suggestion(name, known)}; known: {_listed(others.values())}")
    return others[name]


def _recognise(path: str | os.PathLike[str]) -> Reader:
    """The reader for a file: by suffix and contents, by contents, or by a suffix that only one reader has."""
    path = _telling_file(path)
    head = read_bytes(path, most=HEAD_BYTES)
    if not head.strip():
        raise BadInput(f"{shown_path(path)}: the file is empty; write the graph again")
    known, others = list(READERS.values()), []
    if (found := _best(path, head, known)) is None:
        others = list(plugged_in())
        if (other := _best(path, head, others)) is not None:
            return other
    if found is None and head.lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"{"):
        found = _best(path, read_bytes(path), known)  # the keys that tell may come last in a long JSON file
    if found is not None:
        return _made(found)
    raise BadInput(
        f"{shown_path(path)}: none of the known formats: {_listed(others)}; name the format to see what is wrong"
    )


def _telling_file(path: str | os.PathLike[str]) -> str | os.PathLike[str]:
    """The file that tells what a folder of a model holds; any other path as it is."""
    inside = os.path.join(os.fspath(path), FOLDER_FILE)
    return inside if os.path.isdir(path) and os.path.isfile(inside) else path


def _best(
    path: str | os.PathLike[str], head: bytes, offered: Sequence[_OneThatTells]
) -> _OneThatTells | None:
    file_name = os.fspath(path).lower()
    by_suffix = [one for one in offered if file_name.endswith(tuple(one.suffixes))]
    for one in (*by_suffix, *offered):
        if one.sniff(head):
            return one
    return by_suffix[0] if len(by_suffix) == 1 else None


def _made(one: Format) -> Reader:
    module, _, attribute = one.at.partition(":")
    made: Reader = getattr(import_module(module), attribute)()
    return made


def _listed(others: Iterable[Reader]) -> str:
    known: list[Tells] = [*READERS.values(), *others]
    return ", ".join(f"{one.name} ({' '.join(one.suffixes)})" for one in known)
