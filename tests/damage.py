"""Ways to damage a file, for tests that try many: by structure where it is JSON, by bytes in any case."""

from __future__ import annotations

import copy
import json
import random
from contextlib import suppress
from typing import Any

ODD_VALUES: list[Any] = [
    None, True, False, 0, 1, -1, 2, 1.5, -0.0, 1e308, 1e-320, 255, 256, 2**31, 2**53, 2**62, 2**63, 2**64, -(2**70),
    10**399, "", "a", "1", "\u0000", "</script>", "\u202e", "a" * 300, "=" * 40, "eJwDAAAAAAE=", [], {}, [[]], [None],
    {"": 0}, {"a": {"b": []}}, [1, 2, 3], [[0, 1]], {"npz": ""}, {"policy": "priority"}, "latency", "d0", "d1",
    "conv1", "\ud800", "\U0001f600", {"operator": "conv1", "output": 0}, {"operator": "conv1", "output": 10**30},
]  # fmt: skip
ODD_BYTES = [
    b"NaN", b"-Infinity", b"1e999", b"1" + b"0" * 5000, b'"\\ud800"', b"[" * 2000, b"\xff", b"\x00", b",", b"}", b'"',
    b"\\", b'"x":1,"x":2,', b"null", b"\x1f\x8b", b"\xef\xbb\xbf", b"-", b"e9",
    b'{"a":' * 2000, b"/*", b" " * 5000,
]  # fmt: skip


def places(value: Any) -> list[tuple[Any, Any]]:
    """Every (container, key) below a value."""
    found: list[tuple[Any, Any]] = []
    open_values = [value]
    while open_values:
        container = open_values.pop()
        for key in range(len(container)) if isinstance(container, list) else list(container):
            found.append((container, key))
            if isinstance(container[key], dict | list):
                open_values.append(container[key])
    return found


def damaged_document(chance: random.Random, valid: Any) -> Any:
    """A copy of a document with one to three values replaced, removed, doubled, renamed or exchanged."""
    document = copy.deepcopy(valid)
    for _ in range(chance.choice((1, 1, 1, 2, 3))):
        known = places(document)
        if not known:
            break
        container, key = chance.choice(known)
        kind = chance.randrange(6)
        if kind == 0 or (kind == 5 and not isinstance(container[key], int | float)):
            container[key] = copy.deepcopy(chance.choice(ODD_VALUES))
        elif kind == 1:
            del container[key]
        elif kind == 2 and isinstance(container, list):
            container.insert(chance.randint(0, len(container)), copy.deepcopy(container[key]))
        elif kind == 3 and isinstance(container, dict):
            container[chance.choice(["", "x", f"{key}s", "seconds", "npz"])] = container.pop(key)
        elif kind == 5:
            factor, more = chance.choice((-1, 0.5, 2, 1.0000001)), chance.choice((0, 1))
            with suppress(OverflowError):  # an integer that no float holds stays as it is
                container[key] = container[key] * factor + more
        else:
            other, place = chance.choice(known)
            if (isinstance(other, dict) and place in other) or (isinstance(other, list) and place < len(other)):
                container[key] = copy.deepcopy(other[place])
    return document


def damaged_bytes(chance: random.Random, data: bytes) -> bytes:
    """The bytes with one to four places flipped, cut, doubled or filled with something odd; now and then cut off."""
    for _ in range(chance.randint(1, 4)):
        start = chance.randrange(len(data) + 1)
        stop = min(len(data), start + chance.choice((0, 1, 1, 2, 5, 30, 300)))
        odd, byte, number = chance.choice(ODD_BYTES), bytes([chance.randrange(256)]), chance.randrange(10**9)
        put = chance.choice((b"", odd, data[start:stop] * 2, byte, b"%d" % number))
        data = data[:start] + put + data[stop:]
    return data[: chance.randrange(len(data) + 1)] if chance.random() < 0.1 else data


def damaged_json(chance: random.Random, valid: Any) -> bytes:
    """The JSON of a document, damaged in its structure or in its bytes."""
    if chance.random() < 0.7:
        return json.dumps(damaged_document(chance, valid)).encode()
    return damaged_bytes(chance, json.dumps(valid).encode())
