"""Tables of results inside pages: what stands between two marks is written by commands, never by hand."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def fill(page: str, name: str, lines: Sequence[str]) -> None:
    """Put lines between `<!-- results: NAME -->` and `<!-- end -->` of a page, which must have these marks once."""
    path = ROOT / page
    text = path.read_text(encoding="utf-8")
    marks = re.compile(rf"(<!-- results: {re.escape(name)} -->\n).*?(<!-- end -->)", re.DOTALL)
    shown = "\n".join(lines)
    found, count = marks.subn(lambda mark: f"{mark.group(1)}\n{shown}\n\n{mark.group(2)}", text)
    if count != 1:
        raise SystemExit(f"{page} has no place for {name!r}")
    path.write_text(found, encoding="utf-8")
