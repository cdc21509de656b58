"""Sizes that a file leaves open and nobody sets: what they usually are, by the names and places they have."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

# What other sizes of a kind are worth a look.
TYPICAL: Mapping[str, tuple[int, ...]] = {
    "batch": (1, 8, 32),
    "sequence": (128, 512, 2048),
    "image": (224, 384, 640),
}
_USUAL: Mapping[str, int] = {"batch": 1, "sequence": 128, "image": 224, "channels": 3, "frames": 16, "": 1}

_WORDS = (
    ("batch", re.compile(r"batch|(?<![a-z])(?:bsz?|[nb])(?![a-z])")),
    ("image", re.compile(r"height|width|image_?size|resolution|(?<![a-z])[hw](?![a-z])")),
    ("channels", re.compile(r"channel|(?<![a-z])c(?![a-z])")),
    ("sequence", re.compile(r"seq|len|token|time|steps?|past|context|(?<![a-z])[tsl](?![a-z])")),
)
_AUTOMATIC = re.compile(r"|\?|none|-1|unk_*\w*|dynamic_axes_\w*|dim_?\w*|s\d+|\W*", re.ASCII)
_BY_PLACE: Mapping[int, tuple[str, ...]] = {  # rank: kinds of its dimensions
    3: ("batch", "sequence", ""),
    4: ("batch", "channels", "image", "image"),
    5: ("batch", "channels", "frames", "image", "image"),
}


@dataclass(frozen=True, slots=True)
class Assumed:
    """An open dimension and the size that was taken for it."""

    name: str  # as the user would set it: --shape name=N
    size: int
    kind: str = ""  # a key of TYPICAL, or empty


def usual_size(name: str, axis: int = 0, rank: int = 1, *, whole_numbers: bool = False) -> tuple[str, int]:
    """The kind of an open dimension of an input, and its usual size; 1 where nothing tells.

    >>> usual_size("batch_size"), usual_size("past_sequence_length", 2, 4)
    (('batch', 1), ('sequence', 128))
    >>> usual_size("", 2, 4), usual_size("unk__7", 1, 2, whole_numbers=True), usual_size("boxes", 1, 2)
    (('image', 224), ('sequence', 128), ('', 1))
    """
    word = name.lower()
    for kind, pattern in _WORDS:
        if pattern.search(word) and not _AUTOMATIC.fullmatch(word):
            return kind, _USUAL[kind]
    if axis == 0:
        return "batch", _USUAL["batch"]
    if not _AUTOMATIC.fullmatch(word):
        return "", _USUAL[""]
    if rank == 2 and whole_numbers:
        return "sequence", _USUAL["sequence"]
    places: Sequence[str] = _BY_PLACE.get(rank, ())
    kind = places[axis] if axis < len(places) else ""
    return kind, _USUAL[kind]
