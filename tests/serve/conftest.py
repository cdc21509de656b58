"""An app in a folder of its own; without the packages of the app there is nothing to test."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from serve_place import Place

collect_ignore_glob = [] if find_spec("starlette") and find_spec("uvicorn") else ["test_*.py"]


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    """A home, and whatever still runs in it at the end is ended."""
    from serve_place import Place

    made = Place(tmp_path)
    yield made
    for job in made.store.jobs("running", "stopping"):
        made.jobs.stop(job["id"])
    made.jobs.close()
    made.store.close()
