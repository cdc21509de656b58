"""--events FILE: the file of events of one command, whatever way the command ends."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from stead.placing.event_log import EventLog


@contextmanager
def told(path: str | None) -> Iterator[EventLog]:
    """A log that is open while the command runs; an error that ends the command is its last line."""
    from stead.errors import Infeasible, SteadError
    from stead.placing.event_log import EventLog

    with EventLog(path) as log:
        try:
            yield log
        except KeyboardInterrupt:
            log.end(130, message="interrupted")
            raise
        except SteadError as error:
            log.end(3 if isinstance(error, Infeasible) else 2, message=str(error))
            raise
    if log.failure:
        print(f"stead: note: {log.failure}", file=sys.stderr)
