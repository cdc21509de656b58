"""One home of the app, whose jobs run a stand-in for the command line."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from serve_asgi import PORT, TOKEN
from serve_fakes import FAKE

from stead.placing.place import place_problem
from stead.serve.app import Settings, make_app
from stead.serve.jobs import Jobs
from stead.serve.store import Store
from stead.solvers import Budget
from stead.testing import two_towers


class Place:
    """One home of the app, and what runs in it."""

    def __init__(self, folder: Path, **options: Any) -> None:
        self.folder = folder
        self.root = folder / "root"
        self.root.mkdir(exist_ok=True)
        fake = folder / "fake.py"
        fake.write_text(FAKE)
        plan = folder / "sample.json"
        if not plan.exists():
            place_problem(two_towers(), budget=Budget(evaluations=50)).save(plan)
        self.store = Store(folder / "home")
        self.jobs = Jobs(
            self.store, child=lambda arguments: [sys.executable, str(fake), str(plan), *arguments], **options
        )
        settings = Settings(folder / "home", self.root, PORT)
        self.app = make_app(settings, store=self.store, jobs=self.jobs, token=TOKEN)

    def run(self, until: Callable[[], bool], seconds: float = 20.0) -> None:
        """Let jobs go on until something is so."""
        end = time.monotonic() + seconds
        while not until():
            assert time.monotonic() < end, [(job["state"], job["message"]) for job in self.store.jobs()]
            self.jobs.tick()
            time.sleep(0.02)

    def state(self, job: str) -> str:
        found = self.store.job(job)
        return "" if found is None else found["state"]

    def submit(self, does: str, **more: Any) -> str:
        """A job of the stand-in, which does what the model's name says."""
        return self.jobs.submit("place", {"model": does, "devices": "3090", "time_limit": 5, **more})
