"""Look: how wide text may be, and whether it may have colours and signs beyond ASCII."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable
from dataclasses import dataclass

from stead.printing.wording import ascii_form, columns_of, cut, printable, shortened

LABEL = 9  # width of the words at the beginning of a line
PLAIN_WIDTH = 120  # of tables that go into files and pipes
_NARROWEST = 40  # on smaller terminals lines break; there is no table of a few columns

# Codes of SGR, the terminals' way of setting colours.
HEADER, LABELLED, GOOD, BAD, BEST = "2", "2", "32", "31", "1"
_DEVICES = ("36", "33", "35", "32", "34", "96", "93", "95")  # told apart on dark and on light ground


def device_style(d: int) -> str:
    """The colour of a device, by its place in the cluster."""
    return _DEVICES[d % len(_DEVICES)]


@dataclass(frozen=True, slots=True)
class Look:
    """What a reader's screen can show; without arguments, what a file or a pipe gets."""

    width: int = PLAIN_WIDTH
    wraps: bool = False  # long lines break between words; those of files stay whole
    colour: bool = False
    unicode: bool = True

    @property
    def columns(self) -> int:
        """That a table may take."""
        return max(self.width, _NARROWEST)

    def shown(self, text: str) -> str:
        """A text that is safe on this screen, on one line."""
        safe = printable(text)
        return safe if self.unicode else ascii_form(safe)

    def shortened(self, text: str, width: int) -> str:
        """A shown name in so many columns, without its middle."""
        return shortened(text, width, "…" if self.unicode else "..")

    def cut(self, text: str, width: int) -> str:
        """A shown sentence in so many columns, without its end."""
        return cut(text, width, "…" if self.unicode else "..")

    def painted(self, text: str, style: str) -> str:
        """A shown text in a colour, where there are any."""
        return f"\x1b[{style}m{text}\x1b[0m" if self.colour and style and text else text

    def fitted(self, lines: Iterable[str]) -> list[str]:
        """Labelled lines as this screen shows them: safe, broken where they are too long, the label painted."""
        found = []
        for line in lines:
            safe = self.shown(line)
            pieces = self._pieces(safe) if self.wraps and columns_of(safe) > self.columns else [safe]
            label = pieces[0][:LABEL]
            found.append(self.painted(label.rstrip(), LABELLED) + label[len(label.rstrip()) :] + pieces[0][LABEL:])
            found.extend(pieces[1:])
        return found

    def wrapped(self, text: str) -> list[str]:
        """A sentence without a label as this screen shows it: safe, broken where it is too long."""
        safe = self.shown(text)
        if not self.wraps or columns_of(safe) <= self.columns:
            return [safe]
        return textwrap.wrap(safe, self.columns, break_long_words=False, break_on_hyphens=False)

    def _pieces(self, text: str) -> list[str]:
        label, rest = text[: LABEL + 1], text[LABEL + 1 :]
        pieces = textwrap.wrap(
            rest, self.columns - LABEL - 1, break_long_words=False, break_on_hyphens=False, drop_whitespace=True
        )
        return [label + pieces[0], *(" " * (LABEL + 1) + one for one in pieces[1:])] if pieces else [text]


PLAIN = Look()
