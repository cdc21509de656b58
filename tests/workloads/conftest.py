"""Settings of the tests of workloads."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests neither read nor fill the cache of whoever runs them."""
    monkeypatch.setenv("STEAD_CACHE", str(tmp_path / "own-cache"))
