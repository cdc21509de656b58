"""The log of a campaign: a line of JSON for every task that was answered, on disk before anything else happens."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from stead.errors import BadInput
from stead.files import appending, read_text, write_text

FORMAT = 1


def _sum(digest: str, value: Any) -> str:
    """By which damage is noticed."""
    return hashlib.sha256(f"{digest} {json.dumps(value, sort_keys=True)}".encode()).hexdigest()[:16]


class Journal:
    """What tasks answered, by their digest; a line that a kill cut off is dropped.

    The digest is of function, arguments and shared contents, so that a file of another campaign does no harm.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._answers: dict[str, Any] = {}
        if path.exists() and path.stat().st_size:
            self._read(read_text(path))
        else:
            self._write({"kind": "engine", "format": FORMAT})

    def __len__(self) -> int:
        return len(self._answers)

    def __contains__(self, digest: str) -> bool:
        return digest in self._answers

    def answer(self, digest: str) -> Any:
        """What a task answered."""
        return self._answers[digest]

    def add(self, digest: str, name: str, value: Any) -> None:
        """Keep an answer."""
        self._answers[digest] = value
        self._write({"kind": "task", "digest": digest, "name": name, "value": value, "sum": _sum(digest, value)})

    def _read(self, text: str) -> None:
        whole = text[: text.rfind("\n") + 1]
        for number, line in enumerate(whole.splitlines(), 1):
            try:
                record = json.loads(line)
                if record["kind"] == "task":
                    if record["sum"] != _sum(record["digest"], record["value"]):
                        raise BadInput(f"{self.path}:{number}: this line was changed; take it out, or another file")
                    self._answers[str(record["digest"])] = record["value"]
                elif record["kind"] != "engine" or record["format"] != FORMAT:
                    raise ValueError(line)
            except BadInput:
                raise
            except (ValueError, KeyError, TypeError):
                raise BadInput(f"{self.path}:{number}: not a line of a journal; write to another file") from None
        if whole != text:
            write_text(self.path, whole)

    def _write(self, record: dict[str, Any]) -> None:
        with appending(self.path) as file:
            file.write(json.dumps(record).encode() + b"\n")
