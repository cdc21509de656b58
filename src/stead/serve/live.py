"""The best placement of a job that still runs, as a picture: read from its file of events and simulated here.

A page gets the whole view of the first placement once, and then only what later ones change in it.
"""

from __future__ import annotations

import json
import threading
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field
from math import isclose
from pathlib import Path
from typing import Any

from stead.errors import SteadError
from stead.plan import Plan
from stead.plan.answer import placement_from
from stead.problem import Problem, objective_from
from stead.readers.common.checked_values import Wrong
from stead.readers.native.npz import graph_from_npz
from stead.report.columns import View
from stead.report.moved_view import Basis, moved_view
from stead.report.plan_view import view
from stead.serve.store import Row, Store
from stead.solvers import Solution

MOST_WATCHED = 2
SAME = 1e-9  # of the value that the job has told: else the costs are not those that are known here


@dataclass
class Watched:
    """One job whose events are followed."""

    path: Path
    request: Mapping[str, Any]
    graph: bytes
    tail: int = 0
    begin: dict[str, Any] = field(default_factory=dict)
    goal: str = ""
    goals: int = 0
    count: int = 0  # placements so far
    problem: Problem | None = None
    basis: Basis | None = None
    base: str = ""  # name of the view that later ones are laid over
    plan: Plan | None = None

    def follow(self) -> None:
        """Take over what the job has told since; of several placements the last."""
        last: dict[str, Any] | None = None
        with self.path.open("rb") as file:
            file.seek(self.tail)
            for line in file:
                if not line.endswith(b"\n"):
                    break  # it is still being written
                self.tail += len(line)
                try:
                    event = json.loads(line)
                except ValueError:
                    continue
                kind = event.get("kind")
                if kind == "begin":
                    self.begin = event
                elif kind == "goal":
                    self.goal, self.goals, last = str(event.get("objective")), self.goals + 1, None
                    self.problem = self.basis = self.plan = None
                elif kind == "incumbent":
                    last, self.count = event, self.count + 1
        if last is not None:
            self._place(last)

    def _place(self, told: Mapping[str, Any]) -> None:
        problem = self.problem = self.problem or self._problem()
        if self.begin.get("graph") != problem.graph.fingerprint or self.begin.get("devices") != list(
            problem.cluster.names
        ):
            return
        placement = placement_from(problem, told.get("placement"), told.get("order"), told.get("replicas", []))
        plan = Plan(problem, Solution(placement, float(told["objective"])))
        if not isclose(plan.trace.objective_seconds, plan.solution.objective_seconds, rel_tol=SAME):
            return
        self.plan = plan
        if self.basis is None:
            self.basis, self.base = Basis(plan), f"{self.goals}.{self.count}"

    def _problem(self) -> Problem:
        from stead.placing.loading import load

        goal = objective_from(self.goal, microbatches=self.request.get("microbatches"))
        return load(graph_from_npz(self.graph), str(self.request["devices"])).problem(goal)

    def packed(self, base: str, have: int) -> bytes:
        """The picture for a page that has a view and so many placements; nothing where it has the last one."""
        if self.plan is None or self.basis is None or (base == self.base and have == self.count):
            return b""
        shown = (
            moved_view(self.basis, self.plan)
            if base == self.base
            else view(self.basis.plan, moves_seconds=0.0, sensitivity_seconds=0.0, report=self.basis.report)
        )
        count = self.count if base == self.base or self.plan is self.basis.plan else -1  # more follows at once
        return View({**shown.header, "picture": {"base": self.base, "count": count}}, shown.columns).as_bytes()


class Pictures:
    """The last few jobs that somebody watches."""

    def __init__(self) -> None:
        self._watched: OrderedDict[str, Watched] = OrderedDict()
        self._lock = threading.Lock()

    def packed(self, store: Store, job: Row, base: str, have: int) -> bytes:
        """The best placement of a job as a view, or what it changes in one; nothing where there is none."""
        name, request = job["id"], job["request"]
        path, model = store.home / "jobs" / name / "events.jsonl", store.home / "models" / str(request.get("model_id"))
        if job["verb"] != "place" or not path.exists() or not (model / "graph.npz").exists():
            return b""
        with self._lock:
            if name not in self._watched:
                self._watched[name] = Watched(path, request, (model / "graph.npz").read_bytes())
            watched = self._watched[name]
            self._watched.move_to_end(name)
            while len(self._watched) > MOST_WATCHED:
                self._watched.popitem(last=False)
            try:
                watched.follow()
                return watched.packed(base, have)
            except (SteadError, Wrong, KeyError, TypeError, ValueError):
                return b""  # a picture is no reason to disturb a search
