"""Training in pieces: go on from a checkpoint, and stop when the minutes of a call are over."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

from data import Row

from stead.learn.ground.solver import Learns, train_policy
from stead.learn.ground.training_loop import Metrics, Trainee
from stead.learn.ground.training_run import Run, progress_line


class OutOfTimeError(Exception):
    """The minutes of this call are over."""


def trained(
    options: Learns, rows: Sequence[Row], output: Path, *, updates: int, seed: int, most_minutes: float, every: int
) -> bool:
    """Train on rows until done or out of time, with a checkpoint and a line after `every` updates; True when done."""
    begin = time.monotonic()

    def report(metrics: Metrics, trainee: Trainee) -> None:
        spent = time.monotonic() - begin
        if metrics.update % every == 0:
            print(progress_line(metrics, trainee, spent), flush=True)
        if metrics.update % every == 1 and spent > 60 * most_minutes:
            raise OutOfTimeError

    run = Run(output, updates, resume=True, every=every)
    problems, names = [row.problem() for row in rows], [row.name for row in rows]
    try:
        train_policy(options, problems, names, run, seed=seed, report=report)
    except OutOfTimeError:
        print(f"out of time; run it again to go on with {output}")
        return False
    print(f"wrote {output}")
    return True
