"""The alarm on collapse: a policy that always says the same device looks calm and is worthless.

When the greedy placement has been on one device for 20 updates although something known is 5 % faster, that is an
alarm: entropy weighs as at the beginning for 20 updates; from the second alarm on, training also goes back to the best
network so far (training_loop.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from stead.learn.ground.task import Task

COLLAPSED_UPDATES = 20  # on one device, while something better by COLLAPSED_SHARE is known, before the alarm
COLLAPSED_SHARE = 0.05


@dataclass(slots=True)
class CollapseAlarm:
    """How often it was raised, and for how long it still sounds."""

    raised: int = 0
    collapsed_updates: int = 0  # in a row
    loud_until: int = 0  # this version of the network

    def is_loud(self, version: int) -> bool:
        """Whether entropy weighs as at the beginning."""
        return version < self.loud_until

    def is_raised_by(self, tasks: Sequence[Task[object]], version: int) -> bool:
        """Count one more update; whether that was the last that could be borne."""
        if self.is_loud(version):
            return False
        self.collapsed_updates = self.collapsed_updates + 1 if any(collapsed(task) for task in tasks) else 0
        if self.collapsed_updates < COLLAPSED_UPDATES:
            return False
        self.raised, self.collapsed_updates = self.raised + 1, 0
        self.loud_until = version + COLLAPSED_UPDATES
        return True


def collapsed(task: Task[object]) -> bool:
    """Whether the greedy placement is on one device although a clearly better one is known."""
    limit = (1 + COLLAPSED_SHARE) * task.best_known_seconds
    return task.greedy_devices == 1 and task.greedy_seconds > limit
