"""Tasks for tests of engines: functions that workers can import."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

from stead.engine.calls import Blob
from stead.errors import BadInput


def doubled(number: int) -> int:
    """Twice a number."""
    return 2 * number


def process_id(seconds: float) -> int:
    """Who does it, after a while."""
    time.sleep(seconds)
    return os.getpid()


def shared_sum(blob: Blob, number: int) -> int:
    """The sum of what all share, and a number."""
    return int(sum(blob.value)) + number


def killed_at_first(mark: str, number: int) -> int:
    """Twice a number; the first process that is asked dies of it, as if memory were short."""
    if not Path(mark).exists():
        Path(mark).touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return 2 * number


def always_killed() -> None:
    """No process survives it."""
    os.kill(os.getpid(), signal.SIGKILL)


def refused(text: str) -> None:
    """An error of stead."""
    raise BadInput(text)


def noted(folder: str, seconds: float) -> list[float]:
    """When it began and ended, by the clock of the machine; a file per call says how often it ran."""
    began = time.monotonic()
    Path(folder, f"{os.getpid()}-{began}").touch()
    time.sleep(seconds)
    return [began, time.monotonic()]
