"""What people write for an engine, and the engine it means."""

from __future__ import annotations

import os
import re

from stead.engine.base import Engine, Fleet
from stead.errors import BadInput

FORMS = "local, local:N, dask://host:port, ray, ray:N or ray://host:port"
MOST_LOCAL = 1024  # processes


def opened_engine(text: str) -> Engine:
    """The engine that a text names, with its workers on the way; close it, or use it as a context manager."""
    return Engine(_fleet(text.strip()))


def _fleet(text: str) -> Fleet:
    if match := re.fullmatch(r"local(?::(\d{1,6}))?", text):
        from stead.engine.local import LocalFleet

        return LocalFleet(_size(text, match[1]) or cores())
    if match := re.fullmatch(r"dask://([^/\s:]+|\[[0-9a-fA-F:]+\]):(\d{1,5})/?", text):
        from stead.engine.dask import DaskFleet

        return DaskFleet(f"{match[1]}:{match[2]}")
    if match := re.fullmatch(r"ray(?::(\d{1,6}))?", text):
        from stead.engine.ray import RayFleet

        return RayFleet(None, _size(text, match[1]))
    if re.fullmatch(r"ray://[^/\s]+:\d{1,5}/?", text):
        from stead.engine.ray import RayFleet

        return RayFleet(text.rstrip("/"))
    raise BadInput(f"--engine is {FORMS}, got {text!r}")


def _size(text: str, digits: str | None) -> int | None:
    if digits is None:
        return None
    if not 1 <= int(digits) <= MOST_LOCAL:
        raise BadInput(f"--engine {text}: 1 to {MOST_LOCAL} workers")
    return int(digits)


def cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
