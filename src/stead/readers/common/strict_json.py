"""JSON files read strictly: one sentence with the place for whatever is wrong, never a traceback.

Stricter than the standard library: a key given twice, NaN, Infinity, numbers of absurd length and half
characters are refused. Files may be compressed with gzip; the limit on their size counts what they unpack to.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from stead.errors import BadInput
from stead.files import OUT_OF_MEMORY, read_text
from stead.printing.wording import one_line, quoted, shown_path

MAX_DIGITS = 400  # no finite double needs more before the point; converting longer ones takes quadratic time

_TOKEN = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"|[{}\[\],]|-?Infinity|NaN|-?\d+', re.DOTALL)
_SURROGATE_ESCAPE = re.compile(r"\\u[dD][89a-fA-F]")


class _Flaw(Exception):
    """The text holds something that JSON does not have, or that stead refuses."""


def stem(path: str | os.PathLike[str]) -> str:
    """What a graph is called whose file does not say so.

    >>> stem("models/resnet.v2.json.gz")
    'resnet.v2'
    """
    return one_line(Path(path).name).removesuffix(".gz").removesuffix(".json")


def json_text(document: Mapping[str, Any]) -> str:
    """JSON of an object, with a line for every key and for every item of a list."""
    parts = [f"{_json_line(key)}: {_json_block(value)}" for key, value in document.items()]
    return "{\n" + ",\n".join(parts) + "\n}\n"


def _json_block(value: object) -> str:
    if not isinstance(value, list) or not value:
        return _json_line(value)
    return "[\n" + ",\n".join(_json_line(item) for item in value) + "\n]"


def _json_line(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False)


def read_json(path: str | os.PathLike[str]) -> Any:
    """The JSON document in a file, or BadInput with the line."""
    where = shown_path(path)
    text = read_text(path)
    if not text.strip():
        raise BadInput(f"{where}: the file is empty; write the graph again")
    return parse_json(text, where=where)


def parse_json(text: str, *, where: str) -> Any:
    """The JSON document that a text is, or BadInput with the line; `where` is what messages call it."""
    try:
        document = json.loads(text, object_pairs_hook=_object, parse_constant=_constant, parse_int=_integer)
    except _Flaw:
        raise BadInput(f"{where}: {_first_flaw(text)}") from None
    except json.JSONDecodeError as error:
        raise BadInput(f"{where}: line {error.lineno}, column {error.colno}: not JSON: {error.msg}") from None
    except RecursionError:
        raise BadInput(f"{where}: nested too deeply; lists and objects need only a few levels") from None
    except MemoryError:
        raise BadInput(f"{where}: {OUT_OF_MEMORY}") from None
    if _SURROGATE_ESCAPE.search(text):
        _check_characters(where, document)
    return document


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) < len(pairs):
        raise _Flaw
    return made


def _constant(literal: str) -> Any:
    raise _Flaw


def _integer(digits: str) -> int:
    if len(digits) > MAX_DIGITS:
        raise _Flaw
    return int(digits)


def _first_flaw(text: str) -> str:
    """The place and kind of the first thing that made `_Flaw` rise; before it the text is sound JSON."""
    keys: list[set[str] | None] = []  # keys so far of every open object, None for a list
    key_follows = False
    for token in _TOKEN.finditer(text):
        word = token.group()
        if word in ("{", "["):
            keys.append(set() if word == "{" else None)
            key_follows = word == "{"
        elif word in ("}", "]"):
            keys.pop()
            key_follows = False
        elif word == ",":
            key_follows = keys[-1] is not None
        elif word[0] == '"':
            own = keys[-1] if keys else None
            if key_follows and own is not None:
                key = json.loads(word)
                if key in own:
                    return f"{_line(text, token.start())}: the key {quoted(key)} is given twice; keep one"
                own.add(key)
            key_follows = False
        elif word[-1] in "Ny":
            return f"{_line(text, token.start())}: {word} is not a number; leave the key out or give a number"
        elif len(word) > MAX_DIGITS:
            return f"{_line(text, token.start())}: a number of {len(word)} digits; give a sensible one"
    return "not JSON"  # unreachable as long as the tokens cover what raises


def _line(text: str, position: int) -> str:
    line = text.count("\n", 0, position) + 1
    return f"line {line}, column {position - text.rfind(chr(10), 0, position)}"


def _check_characters(where: str, document: Any) -> None:
    """Refuse lone surrogates: they cannot be printed or written again."""
    try:
        json.dumps(document, ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        near = error.object[max(0, error.start - 20) : error.start + 1]
        raise BadInput(f"{where}: half a character (a lone surrogate) at the end of {quoted(near)}") from None
