"""Docstrings as the reference shows them: examples at the prompt as code, fields with the comments behind them."""

from __future__ import annotations

import re
from typing import Any

import griffe

EXAMPLE = re.compile(r"^(>>> .*(?:\n(?!\s*$).*)*)", re.MULTILINE)  # a prompt and all up to an empty line
COMMENT = re.compile(r"\s#\s(?!type:|fmt:|noqa|doctest:)(.+)$", re.MULTILINE)


class Shown(griffe.Extension):
    """Fences examples, and lists the fields of a class with the comments behind them."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        if obj.docstring:
            obj.docstring.value = EXAMPLE.sub(r"```pycon\n\1\n```", obj.docstring.value)
        if isinstance(obj, griffe.Class) and obj.docstring and (fields := _fields(obj)):
            section = "\n".join(f"{name} : {kind}\n    {comment}" for name, kind, comment in fields)
            obj.docstring.value += f"\n\nAttributes\n----------\n{section}\n"


def _fields(owner: griffe.Class) -> list[tuple[str, str, str]]:
    """Name, type and comment of what has no docstring of its own."""
    found = []
    for name, member in owner.members.items():
        if not isinstance(member, griffe.Attribute) or member.docstring or name.startswith("_"):
            continue
        comment = COMMENT.search(member.source)
        if comment:
            found.append((name, str(member.annotation or ""), comment[1]))
    return found
