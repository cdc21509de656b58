"""Words for messages and terminals: nothing invisible, nothing that steers a terminal, on one line and not too wide.

Names, values and paths become safe to print; `suggestion` says what may have been meant.
"""

from __future__ import annotations

import itertools
import json
import os
import unicodedata
from collections.abc import Iterable

from stead.errors import did_you_mean

_ASCII_FORMS = str.maketrans({
    "…": "...", "·": "-", "→": "->", "—": "-", "±": "+-", "µ": "u", "≤": "<=", "≥": ">=",
})  # fmt: skip


def printable(text: str) -> str:
    r"""The text on one line, with a visible escape for every character that is not simply a sign.

    Control characters, marks of writing direction, line separators, characters without width and halves of
    characters (which names of files can hold) would otherwise steer the terminal or hide in a name.

    >>> print(printable("a\x1b[31m\u202eb\udcff\n"))
    a\x1b[31m\u202eb\udcff\n
    """
    if text.isprintable():
        return text
    return "".join(sign if sign.isprintable() else repr(sign)[1:-1] for sign in text)


def printable_lines(text: str) -> str:
    """The text with its line breaks, each line made printable."""
    if text.isprintable():
        return text
    return "\n".join(map(printable, text.split("\n")))


def ascii_form(text: str) -> str:
    r"""The text in ASCII: signs of ours in their plain forms, others as escapes.

    >>> print(ascii_form("a…b → ü"))
    a...b -> \xfc
    """
    if text.isascii():
        return text
    return text.translate(_ASCII_FORMS).encode("ascii", "backslashreplace").decode("ascii")


def columns_of(text: str) -> int:
    """How many columns a printable text takes on a terminal.

    >>> columns_of("layer"), columns_of("層"), columns_of("e\N{COMBINING ACUTE ACCENT}")
    (5, 2, 1)
    """
    if text.isascii():
        return len(text)
    return sum(map(_columns, text))


def _columns(sign: str) -> int:
    if unicodedata.combining(sign):
        return 0
    return 2 if unicodedata.east_asian_width(sign) in "WF" else 1


def shortened(text: str, width: int, gap: str = "…") -> str:
    """The text in at most `width` columns, its middle left out where it is longer: both ends of a name tell most.

    >>> shortened("model.layers.31.mlp.up_proj", 20)
    'model.lay…lp.up_proj'
    """
    if columns_of(text) <= width:
        return text
    room = width - len(gap)
    if room < 2:
        return _beginning(text, max(width, 0))
    head = _beginning(text, room // 2)
    return head + gap + _ending(text, room - columns_of(head))


def cut(text: str, width: int, gap: str = "…") -> str:
    """The text in at most `width` columns, its end left out where it is longer: for sentences.

    >>> cut("does not fit: needs 26.5 GiB", 16)
    'does not fit…'
    """
    if columns_of(text) <= width:
        return text
    kept = _beginning(text, max(width - len(gap), 0))
    words = kept.rpartition(" ")[0]
    return (words if len(words) > len(kept) / 2 else kept).rstrip(" ,;:") + gap[: max(width, 0)]


def _beginning(text: str, width: int) -> str:
    taken = 0
    for end, sign in enumerate(text):
        taken += _columns(sign)
        if taken > width:
            return text[:end]
    return text


def _ending(text: str, width: int) -> str:
    taken = 0
    for begin in range(len(text), 0, -1):
        taken += _columns(text[begin - 1])
        if taken > width:
            return text[begin:]
    return text


def one_line(text: str, most: int = 1000) -> str:
    """The text without line breaks and other unprintable characters, cut if it is very long."""
    return printable(text if len(text) <= most else f"{text[:most]}...")


def shown_path(path: str | os.PathLike[str]) -> str:
    """A path as the user gave it, on one line whatever it contains."""
    return one_line(os.fspath(path))


def quoted(name: str) -> str:
    """A name in double quotes, cut if it is long.

    >>> quoted("conv3")
    '"conv3"'
    """
    return f'"{one_line(name, 60)}"'


def shown(value: object) -> str:
    """A short word for any value that JSON can hold."""
    if isinstance(value, str):
        return quoted(value)
    if isinstance(value, list):
        return "a list"
    if isinstance(value, dict):
        return "an object"
    return one_line(json.dumps(value), 40)


def suggestion(given: str, known: Iterable[str]) -> str:
    """`did_you_mean` among names of about the same length: quick enough for a million of them."""
    if len(given) > 200:
        return ""
    near = (name for name in known if abs(len(name) - len(given)) <= 4)
    return did_you_mean(given, itertools.islice(near, 10_000))
