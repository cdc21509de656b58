"""What a file of a model holds, and who can read it.

A reader is any object of the right shape. Built-in readers are known by the names of their modules, so that
importing this one stays cheap; other packages add theirs under the entry point group `stead.readers`.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from importlib import import_module, metadata
from typing import Any, Protocol

from stead.cluster import Cluster
from stead.costs import Given
from stead.errors import BadInput
from stead.files import read_bytes
from stead.graph import Graph
from stead.printing.wording import shown_path, suggestion
from stead.readers.common.assumed_sizes import Assumed
from stead.readers.common.strict_json import read_json

__all__ = ["READERS", "Model", "Reader", "configured", "formats", "read", "read_json", "reader_of"]

ENTRY_POINTS = "stead.readers"
READERS: dict[str, str] = {
    "stead-json": "stead.readers.native.reader:JsonGraph",
    "stead-npz": "stead.readers.native.npz:GraphNpz",
    "msr-fiddle": "stead.readers.msr.reader:MsrFiddle",
    "onnx": "stead.readers.onnx.reader:Onnx",
    "openvino": "stead.readers.openvino.reader:OpenVino",
    "gguf": "stead.readers.gguf.reader:Gguf",
    "pt2": "stead.readers.torch.pt2:Pt2",
    "huggingface": "stead.readers.hf:HuggingFace",
}
HEAD_BYTES = 2**16
FOLDER_FILE = "config.json"  # what makes a folder a model


@dataclass(frozen=True, slots=True, eq=False)
class Model:
    """A graph and whatever else its file says."""

    graph: Graph
    given: Given | None = None  # seconds in the file; None: there are none
    cluster: Cluster | None = None  # devices in the file; None: it names none
    notes: tuple[str, ...] = ()  # sentences about the file that its user should see
    assumed: tuple[Assumed, ...] = ()  # open dimensions that nobody set


class Reader(Protocol):
    """Turns a file into a Model. Options are fields with defaults: a reader can be made without arguments."""

    @property
    def name(self) -> str:
        """Its name on the command line."""

    @property
    def suffixes(self) -> tuple[str, ...]:
        """How names of its files end, in lower case: ".json"."""

    def sniff(self, head: bytes) -> bool:
        """Whether a file that starts like this is one of its own."""

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
    changed = {key: _converted(f"option {key}", value, known[key]) for key, value in options.items()}
    made: Reader = replace(reader, **changed)  # type: ignore[type-var]
    return made


def _converted(what: str, value: Any, default: Any) -> Any:
    """A text from a command line as the type of a default."""
    if not isinstance(value, str) or isinstance(default, str):
        return value
    try:
        if isinstance(default, bool):
            return {"true": True, "false": False}[value.lower()]
        if isinstance(default, Mapping):
            return sizes_from(value)
        return value if default is None else type(default)(value)
    except (ValueError, KeyError):
        kind = "name=number,..." if isinstance(default, Mapping) else type(default).__name__
        raise BadInput(f"{what} needs a value such as {kind}, got {value!r}") from None


def sizes_from(text: str) -> dict[str, int | tuple[int, ...]]:
    """Sizes by name as a command line gives them; ValueError if they are none.

    >>> sizes_from("batch=8,x=1x3")
    {'batch': 8, 'x': (1, 3)}
    """
    return {name: size_from(size) for name, _, size in (part.rpartition("=") for part in text.split(","))}


def size_from(text: str) -> int | tuple[int, ...]:
    """A size as a command line gives it; ValueError if it is none.

    >>> size_from("8"), size_from("1x3x224x224")
    (8, (1, 3, 224, 224))
    """
    sizes = tuple(int(part) for part in text.split("x"))
    return sizes if len(sizes) > 1 else sizes[0]


def formats() -> dict[str, Reader]:
    """Every reader by name, those of other packages included."""
    return {reader.name: reader for reader in (*_built_in(), *_plugged_in())}


def reader_of(name: str) -> Reader:
    """The reader of a format, with default options."""
    if name in READERS:
        return _load(READERS[name])
    known = formats()
    if name not in known:
        raise BadInput(f"no format '{name}'{suggestion(name, known)}; known: {_listed(known.values())}")
    return known[name]


def _recognise(path: str | os.PathLike[str]) -> Reader:
    """The reader for a file: by suffix and contents, by contents, or by a suffix that only one reader has."""
    path = _telling_file(path)
    head = read_bytes(path, most=HEAD_BYTES)
    if not head.strip():
        raise BadInput(f"{shown_path(path)}: the file is empty; write the graph again")
    for offered in (_built_in, _plugged_in):
        if found := _best(path, head, list(offered())):
            return found
    if head.lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"{"):
        whole = read_bytes(path)  # the keys that tell may come last in a long JSON file
        if found := _best(path, whole, list(_built_in())):
            return found
    known = _listed(formats().values())
    raise BadInput(
        f"{shown_path(path)}: none of the known formats: {known}; name the format to see what is wrong"
    )


def _telling_file(path: str | os.PathLike[str]) -> str | os.PathLike[str]:
    """The file that tells what a folder of a model holds; any other path as it is."""
    inside = os.path.join(os.fspath(path), FOLDER_FILE)
    return inside if os.path.isdir(path) and os.path.isfile(inside) else path


def _best(path: str | os.PathLike[str], head: bytes, readers: Sequence[Reader]) -> Reader | None:
    file_name = os.fspath(path).lower()
    by_suffix = [reader for reader in readers if file_name.endswith(tuple(reader.suffixes))]
    for reader in (*by_suffix, *readers):
        if reader.sniff(head):
            return reader
    return by_suffix[0] if len(by_suffix) == 1 else None


def _built_in() -> Iterator[Reader]:
    return (_load(target) for target in READERS.values())


def _plugged_in() -> Iterator[Reader]:
    for point in metadata.entry_points(group=ENTRY_POINTS):
        made: Reader = point.load()()
        yield made


def _load(target: str) -> Reader:
    module, _, attribute = target.partition(":")
    made: Reader = getattr(import_module(module), attribute)()
    return made


def _listed(readers: Iterable[Reader]) -> str:
    return ", ".join(f"{reader.name} ({' '.join(reader.suffixes)})" for reader in readers)
