"""Waiting for slots of shared memory."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from stead.run import transport
from stead.run.transport import Patience


@pytest.mark.parametrize("may_nap", [True, False])
def test_who_waits_in_real_time_never_leaves_the_core_to_others(may_nap: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    words, naps, looks = [-1, 0], [], []
    segment: Any = SimpleNamespace(words=words)
    monkeypatch.setattr(transport, "SPIN_SECONDS", 0.0)
    monkeypatch.setattr(transport, "YIELD_SECONDS", 0.0)
    monkeypatch.setattr(transport, "sleep", naps.append)
    patience = Patience(segment)
    patience.deadline, patience.may_nap = float("inf"), may_nap

    def come_at_last(now: float) -> None:
        looks.append(now)
        words[1] = len(looks) // 3

    patience.on_wait = come_at_last
    patience.until(1, 1)
    assert len(looks) == 3
    assert len(naps) == (3 if may_nap else 0)
