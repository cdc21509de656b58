"""Models on their way to other hosts: the files of a subject, packed here and unpacked there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from stead.errors import BadInput
from stead.run.subject import FromPt2, Shipped, Subject


def packed(subject: Subject) -> dict[str, bytes]:
    """The files that a subject needs, by name; none for models that every host makes by itself."""
    try:
        if isinstance(subject, Shipped):
            return {path.name: path.read_bytes() for path in sorted(Path(subject.folder).iterdir())}
        if isinstance(subject, FromPt2):
            return {Path(subject.path).name: Path(subject.path).read_bytes()}
    except OSError as error:
        raise BadInput(f"{subject.name} cannot be read: {error.strerror}") from None
    return {}


def unpacked(subject: Subject, files: Mapping[str, bytes], folder: Path) -> Subject:
    """The same subject on another host, with its files in a folder there."""
    for name, contents in files.items():
        path = folder / name
        if not path.exists():
            path.write_bytes(contents)
    if isinstance(subject, Shipped):
        return replace(subject, folder=str(folder))
    if isinstance(subject, FromPt2):
        return replace(subject, path=str(folder / Path(subject.path).name))
    return subject
