"""Text that is safe to print and that fits: nothing invisible, nothing that steers a terminal, nothing too wide."""

from __future__ import annotations

import unicodedata

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
