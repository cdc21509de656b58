"""One checksum for every part of a plan file, so that an edited part is told by its name.

They are taken of what a part says, not of how it is laid out: a file that was indented anew still fits. They find
accidents and edits by hand, not forgeries: who changes a part on purpose can change its checksum too.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from typing import Any

from stead.printing.wording import quoted
from stead.readers.common.checked_values import Wrong, object_of

KEY, OWN = "checksums", "checksum"
APART = "repro"  # differs from run to run, so that it keeps its own checksum and all other bytes can be compared
_DEEP = "problem"  # its parts have checksums of their own


def checksum(value: object) -> str:
    """Of a value that JSON can hold; 1e999 is read as infinity, and has one too."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def with_checksums(document: Mapping[str, Any]) -> dict[str, Any]:
    """The document with the checksums of its parts."""
    apart = document[APART]
    sealed = {**document, APART: {**apart, OWN: checksum(apart)}}
    return {**sealed, KEY: {name: checksum(value) for name, value in _parts(document)}}


def check(document: Mapping[str, Any]) -> None:
    """Wrong, with the name of the part, if one of them is not what it was."""
    given = object_of(document.get(KEY))
    parts = dict(_parts(document))
    for name, value in parts.items():
        if given.get(name) != checksum(value):
            known = "" if name in given else "there is no checksum for it: "
            raise Wrong(f"{name}: {known}it was changed after the plan was made")
    for name in given:
        if name not in parts:
            raise Wrong(f"{KEY}: {quoted(name)} has a checksum and is missing")
    apart = dict(object_of(document.get(APART)))
    if apart.pop(OWN, None) != checksum(apart):
        raise Wrong(f"{APART}: it was changed after the plan was made")


def _parts(document: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for key, value in document.items():
        if key == _DEEP and isinstance(value, dict):
            yield from ((f"{key}.{inner}", part) for inner, part in value.items())
        elif key not in (KEY, APART):
            yield key, value
