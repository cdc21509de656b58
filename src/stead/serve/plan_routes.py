"""Routes of plans: looked at, moved by hand, explained, and taken along."""

from __future__ import annotations

import math
import subprocess
import tempfile
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from stead.errors import BadInput
from stead.serve import models
from stead.serve.commands import child_command
from stead.serve.http_answers import VIEW_TYPE, NotThere, Table, body, download, packed, said, whole_number
from stead.serve.jobs import add_plan, keep_plan
from stead.serve.store import Store

if TYPE_CHECKING:
    from stead.serve.sessions import Session, Sessions

EXPORT_SECONDS = 60.0


@dataclass(frozen=True)
class PlanRoutes:
    """What these routes work with."""

    store: Store
    root: Path

    @cached_property
    def sessions(self) -> Sessions:
        """Plans that are being looked at."""
        from stead.serve.sessions import Sessions  # it brings the simulator: the app answers before that

        return Sessions()

    def table(self) -> Table:
        """All of them."""
        return [
            ("GET", "/plans", self.list_plans),
            ("POST", "/plans", self.open_plan),
            ("GET", "/plans/{plan}", self.get_plan),
            ("DELETE", "/plans/{plan}", self.delete_plan),
            ("GET", "/plans/{plan}/view", self.view),
            ("GET", "/plans/{plan}/boxes", self.boxes),
            ("POST", "/plans/{plan}/trace", self.trace),
            ("POST", "/plans/{plan}/later", self.later),
            ("POST", "/plans/{plan}/score", self.score),
            ("POST", "/plans/{plan}/what-if", self.what_if),
            ("POST", "/plans/{plan}/explain", self.explain),
            ("POST", "/plans/{plan}/save", self.save),
            ("GET", "/plans/{plan}/file", self.plan_file),
            ("GET", "/plans/{plan}/report.html", self.report),
            ("GET", "/plans/{plan}/trace.json", self.perfetto),
            ("GET", "/plans/{plan}/targets", self.targets),
            ("GET", "/plans/{plan}/export", self.export),
        ]

    async def list_plans(self, request: Request) -> Response:
        """All plans, the newest first."""
        return JSONResponse({"plans": self.store.plans()})

    async def open_plan(self, request: Request) -> Response:
        """A plan from a file below the root."""
        path = models.path_below(self.root, said(await body(request), "path"))
        made = await run_in_threadpool(partial(keep_plan, self.store, path, name=path.name))
        return JSONResponse({"plan": made}, status_code=201)

    async def get_plan(self, request: Request) -> Response:
        """What the list says of a plan, and what of its machine can be changed."""
        session = await self._session(request)
        row = next(one for one in self.store.plans() if one["id"] == request.path_params["plan"])
        cluster = session.plan.problem.cluster
        devices = [
            {"name": one.name, "memory_bytes": one.memory_bytes, "flops": bool(one.flops_per_second),
             "bandwidth": math.isfinite(one.bytes_per_second)}
            for one in cluster
        ]  # fmt: skip
        from stead.placing.size_curves import sizes_of

        source, sizes = session.plan.provenance.get("source"), sizes_of(session.plan, zoo_only=True)
        return JSONResponse({**row, "cluster": devices, "links": len(cluster.links), "source": source, "sizes": sizes})

    async def delete_plan(self, request: Request) -> Response:
        """Forget a plan."""
        await self._session(request)
        self.store.drop_plan(request.path_params["plan"])
        return JSONResponse({})

    async def view(self, request: Request) -> Response:
        """The plan as pages show it."""
        session = await self._session(request)
        return Response(await run_in_threadpool(lambda: session.packed), media_type=VIEW_TYPE)

    async def boxes(self, request: Request) -> Response:
        """What lies in a box: the next level, also where the view ends above it."""
        session, under = await self._session(request), whole_number(request, "under", 0)
        return JSONResponse(await run_in_threadpool(session.inside, under))

    async def trace(self, request: Request) -> Response:
        """What moves change in the view of a plan."""
        session = await self._session(request)
        moves = session.moves_from((await body(request)).get("moves"))
        return Response(await run_in_threadpool(session.moved_bytes, moves), media_type=VIEW_TYPE)

    async def later(self, request: Request) -> Response:
        """What moves change beyond that, which takes longer: memory, slack, further moves."""
        session = await self._session(request)
        moves = session.moves_from((await body(request)).get("moves"))
        return Response(await run_in_threadpool(session.later_bytes, moves), media_type=VIEW_TYPE)

    async def score(self, request: Request) -> Response:
        """What the whole takes after moves."""
        session = await self._session(request)
        moves = session.moves_from((await body(request)).get("moves"))
        return JSONResponse(await run_in_threadpool(session.score, moves))

    async def what_if(self, request: Request) -> Response:
        """What the same placement, or that after moves, takes in other circumstances."""
        session, given = await self._session(request), await body(request)
        moves = session.moves_from(given.get("moves", []))
        return JSONResponse(await run_in_threadpool(session.case, given.get("set"), moves))

    async def explain(self, request: Request) -> Response:
        """Why operators are where they are, as `stead explain PLAN NAME --json` says it."""
        session, name = await self._session(request), said(await body(request), "name")
        return JSONResponse({"operators": await run_in_threadpool(session.explained, name)})

    async def save(self, request: Request) -> Response:
        """Keep the plan after moves as another plan."""
        from stead.plan.writing import plan_bytes

        session, given = await self._session(request), await body(request)
        moved = await run_in_threadpool(session.with_moves, session.moves_from(given.get("moves")))
        data = plan_bytes(moved.problem, moved.solution, moved.baselines, moved.provenance)
        made = add_plan(self.store, moved, data, name=str(given.get("name") or "moved by hand")[:200])
        return JSONResponse({"plan": made}, status_code=201)

    async def plan_file(self, request: Request) -> Response:
        """The plan's own file."""
        path = self._plan_path(request)
        return download(path.read_bytes(), "plan.json", "application/json")

    async def report(self, request: Request) -> Response:
        """The plan as a page that needs no server."""
        from stead.report import page

        session = await self._session(request)
        text = await run_in_threadpool(page, session.plan)
        return download(text.encode(), "report.html", "text/html")

    async def perfetto(self, request: Request) -> Response:
        """The time line for Perfetto, gzipped as it is read there."""
        from stead.report.chrome_trace import packed_trace

        session = await self._session(request)
        if session.plan.trace.timeline is None:
            raise BadInput("there is no time line for this objective")
        data = await run_in_threadpool(packed_trace, session.plan.trace)
        return download(data, "trace.json.gz", "application/gzip")

    async def targets(self, request: Request) -> Response:
        """What the plan can be handed on to, and why not to others."""
        session = await self._session(request)
        return JSONResponse({"targets": await run_in_threadpool(_targets, session)})

    async def export(self, request: Request) -> Response:
        """What a runtime loads, made by `stead export`, as an archive."""
        path, target = self._plan_path(request), request.query_params.get("to", "")
        if not target or target.startswith("-"):
            raise BadInput("name a target with ?to=; `stead targets` lists them")
        made = await run_in_threadpool(_exported, path, target)
        return download(made, f"{Path(target).name}.zip", "application/zip")

    def _plan_path(self, request: Request) -> Path:
        path = self.store.plan_file(request.path_params["plan"])
        if path is None or not path.exists():
            raise NotThere("no such plan")
        return path

    async def _session(self, request: Request) -> Session:
        path = self._plan_path(request)
        return await run_in_threadpool(self.sessions.of, request.path_params["plan"], path)


def _targets(session: Session) -> list[dict[str, Any]]:
    from stead.export.targets import TARGETS, exporter

    problem = session.plan.problem
    return [
        {"name": name, "does": one.summary, "checked": one.checked, "refusal": exporter(name).unsupported(problem)}
        for name, one in TARGETS.items()
    ]


def _exported(path: Path, target: str) -> bytes:
    """The folder that `stead export` writes, packed."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch, "out")
        command = child_command(["export", str(path), "--to", target, "-o", str(folder)])
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=EXPORT_SECONDS, check=False)
        except subprocess.TimeoutExpired:
            raise BadInput(f"the export took more than {EXPORT_SECONDS:g} s; run `stead export` in a shell") from None
        if done.returncode:
            lines = [line for line in done.stderr.splitlines() if line.startswith("stead: ")]
            raise BadInput((lines or ["it failed"])[-1].removeprefix("stead: "))
        return packed(folder, command=done.stdout)
