"""The HTTP interface: JSON in and out, errors as the command line tells them."""

from __future__ import annotations

import asyncio
import io
import json
import math
import subprocess
import tempfile
import threading
import zipfile
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from starlette.concurrency import run_in_threadpool
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from stead.cluster.quantities import format_bytes
from stead.errors import BadInput, Infeasible, SteadError
from stead.serve import clusters, models, runs
from stead.serve.commands import child_command
from stead.serve.jobs import Jobs, add_plan, keep_plan
from stead.serve.live import Pictures
from stead.serve.sessions import Session, Sessions
from stead.serve.store import Row, Store

POLL_SECONDS = 0.2
COMMENT_SECONDS = 15.0
EXPORT_SECONDS = 60.0
VIEW_TYPE = "application/vnd.stead.view"
T = TypeVar("T")
Handler = Callable[[Request], Awaitable[Response]]


class NotThere(Exception):
    """Something that was asked for by its name is not known."""


@dataclass(frozen=True)
class Interface:
    """What the routes work with."""

    store: Store
    jobs: Jobs
    root: Path
    memory_bytes: int = 0
    sessions: Sessions = field(default_factory=Sessions)
    pictures: Pictures = field(default_factory=Pictures)
    ending: threading.Event = field(default_factory=threading.Event)  # the server is about to end: streams end, too

    def routes(self) -> list[Route]:
        """All of them."""
        table: list[tuple[str, str, Handler]] = [
            ("GET", "/info", self.info),
            ("POST", "/models", self.add_model),
            ("PUT", "/upload", self.upload),
            ("POST", "/clusters/check", self.check_cluster),
            ("POST", "/clusters", self.add_cluster),
            ("POST", "/clusters/toml", self.cluster_file),
            ("POST", "/fit", self.fit),
            ("GET", "/jobs", self.list_jobs),
            ("POST", "/jobs", self.add_job),
            ("GET", "/jobs/{job}", self.get_job),
            ("DELETE", "/jobs/{job}", self.delete_job),
            ("POST", "/jobs/{job}/stop", self.stop_job),
            ("POST", "/jobs/{job}/resume", self.resume_job),
            ("GET", "/jobs/{job}/picture", self.picture),
            ("GET", "/runs", self.list_runs),
            ("GET", "/run", self.read_run),
            ("GET", "/events", self.events),
            ("GET", "/plans", self.list_plans),
            ("POST", "/plans", self.open_plan),
            ("GET", "/plans/{plan}", self.get_plan),
            ("DELETE", "/plans/{plan}", self.delete_plan),
            ("GET", "/plans/{plan}/view", self.view),
            ("POST", "/plans/{plan}/trace", self.trace),
            ("POST", "/plans/{plan}/later", self.later),
            ("POST", "/plans/{plan}/score", self.score),
            ("POST", "/plans/{plan}/what-if", self.what_if),
            ("POST", "/plans/{plan}/save", self.save),
            ("GET", "/plans/{plan}/file", self.plan_file),
            ("GET", "/plans/{plan}/report", self.report),
            ("GET", "/plans/{plan}/export", self.export),
        ]
        return [Route(f"/api{path}", told(handler), methods=[method]) for method, path, handler in table]

    # The question

    async def info(self, request: Request) -> Response:
        """What there is to choose from."""
        return JSONResponse(await run_in_threadpool(_info))

    async def add_model(self, request: Request) -> Response:
        """Read a file below the root, or a model of the zoo."""
        given = await body(request)
        options = _options(given)
        if isinstance(given.get("zoo"), str):
            name = given["zoo"]
            source = f"zoo:{name.removeprefix('zoo:')}"
        elif isinstance(given.get("path"), str):
            source = str(models.path_below(self.root, given["path"]))
            name = Path(source).name
        else:
            raise BadInput('a model is given as {"zoo": name} or {"path": file}')
        return await self._read(source, options, name)

    async def upload(self, request: Request) -> Response:
        """Take a file and read it."""
        name = request.query_params.get("name", "")
        options = _options(json.loads(request.query_params.get("options", "{}")))
        try:
            path = await models.uploaded(self.store, name, request.stream())
        except models.UploadTooLarge:
            limit = format_bytes(models.MOST_UPLOAD_BYTES)
            return error(413, f"a file has at most {limit} here", "give its path instead: it is read where it is")
        return await self._read(str(path), options, name)

    async def _read(self, source: str, options: dict[str, Any], name: str) -> Response:
        reading = partial(models.read_in_child, self.store, source, options, name, self.memory_bytes)
        model = await run_in_threadpool(reading)
        return JSONResponse({"model": model["id"], "name": model["name"], "facts": model["facts"]})

    async def check_cluster(self, request: Request) -> Response:
        """How a description of devices is understood."""
        given = await body(request)
        text = self._devices(given)
        if given.get("repair"):
            text = await run_in_threadpool(clusters.repaired, text)
        return JSONResponse({**await run_in_threadpool(clusters.checked, text), "text": text})

    async def add_cluster(self, request: Request) -> Response:
        """Take a device file; the description that names it."""
        text = _said(await body(request), "toml")
        return JSONResponse({"devices": await run_in_threadpool(clusters.imported, self.store, text)}, status_code=201)

    async def cluster_file(self, request: Request) -> Response:
        """A description as a device file."""
        text = await run_in_threadpool(clusters.as_toml, self._devices(await body(request)))
        return _download(text.encode(), "devices.toml", "application/toml")

    def _devices(self, given: Mapping[str, Any]) -> str:
        """The devices of a request; a file that they name must be one that can be opened here."""
        return clusters.resolved(self.store, self.root, _said(given, "devices"))

    async def fit(self, request: Request) -> Response:
        """Memory on every device for simple rules."""
        given = await body(request)
        model = self._model(_said(given, "model"))
        rows = await run_in_threadpool(models.fit, self.store, model, self._devices(given))
        return JSONResponse({"rules": rows})

    def _graph(self, given: object) -> str:
        """A model of the zoo, or a file below the root."""
        text = str(given)
        return text if text.startswith("zoo:") else str(models.path_below(self.root, text))

    def _model(self, name: str) -> Row:
        found = self.store.model(name)
        if found is None:
            raise NotThere(f"no model {name!r} is known here")
        return found

    # Jobs

    async def list_jobs(self, request: Request) -> Response:
        """All jobs, the newest first."""
        last = self.store.last_event()
        return JSONResponse({"jobs": [self._job(job) for job in self.store.jobs()], "last": last})

    async def add_job(self, request: Request) -> Response:
        """Queue a job; the same question is answered by the job that has answered it, unless asked again."""
        given = await body(request)
        verb, asked = _said(given, "verb"), {k: v for k, v in given.items() if k not in ("verb", "again")}
        for key in ("start", "plan_file", "model_id"):  # paths are ours to give
            asked.pop(key, None)
        if "devices" in asked:
            asked["devices"] = self._devices(asked)
        if verb == "train":
            asked["graphs"] = [self._graph(one) for one in asked.get("graphs") or ()]
        if "plan" in asked:
            path = self.store.plan_file(str(asked.pop("plan")))
            if path is None:
                raise NotThere("no such plan")
            asked["plan_file" if verb == "what-if" else "start"] = str(path)
        if "model" in asked:
            model = self._model(_said(asked, "model"))
            asked = {**asked, "model": model["source"], "options": model["options"], "title": model["name"],
                     "model_id": model["id"]}  # fmt: skip
        if not given.get("again"):
            for job in self.store.jobs("done", "queued", "running"):
                if job["verb"] == verb and job["request"] == asked:
                    return JSONResponse({"job": job["id"], "known": True})
        return JSONResponse({"job": self.jobs.submit(verb, asked), "known": False}, status_code=201)

    async def get_job(self, request: Request) -> Response:
        """One job with all its events so far."""
        last = self.store.last_event()  # first: what happens from here on is told by the stream
        job = self._known_job(request)
        rows = await run_in_threadpool(self.store.events_after, 0, job["id"], 20_000)
        said = [
            {**json.loads(row["body"]), "id": row["id"], "kind": row["kind"]} for row in rows if row["id"] <= last
        ]
        return JSONResponse({**self._job(job), "events": said, "last": last})

    async def picture(self, request: Request) -> Response:
        """The best placement so far as a view, or what it changes in the one that a page has; nothing if it has it."""
        job, have = self._known_job(request), request.query_params.get("have", "")
        count = int(have) if have.isascii() and have.isdecimal() else -1
        base = request.query_params.get("base", "")
        made = await run_in_threadpool(self.pictures.packed, self.store, job, base, count)
        return Response(made, media_type=VIEW_TYPE) if made else Response(status_code=204)

    async def stop_job(self, request: Request) -> Response:
        """Stop a job; what it has is kept."""
        job = self._known_job(request)
        self.jobs.stop(job["id"])
        return JSONResponse(self._job(self._known_job(request)))

    async def resume_job(self, request: Request) -> Response:
        """Go on where a job was cut short."""
        return JSONResponse({"job": self.jobs.resume(self._known_job(request)["id"])}, status_code=201)

    async def delete_job(self, request: Request) -> Response:
        """Forget a job that is over."""
        self.jobs.delete(self._known_job(request)["id"])
        return JSONResponse({})

    def _known_job(self, request: Request) -> Row:
        job = self.store.job(request.path_params["job"])
        if job is None:
            raise NotThere("no such job")
        return job

    def _job(self, job: Row) -> Row:
        plans = [plan["id"] for plan in self.store.plans() if plan["job"] == job["id"]]
        shown = {key: job[key] for key in ("id", "verb", "state", "request", "created", "started", "ended", "exit",
                                           "message", "fixes")}  # fmt: skip
        return {**shown, "plans": plans, "command": json.loads(job["command"] or "[]")}

    async def events(self, request: Request) -> Response:
        """One stream for a whole page, which goes on after the last event that it has seen."""
        given = request.headers.get("last-event-id") or request.query_params.get("after", "")
        last = int(given) if given.isdecimal() and given.isascii() else self.store.last_event()
        headers = {"x-accel-buffering": "no"}
        return StreamingResponse(self._stream(request, last), media_type="text/event-stream", headers=headers)

    async def _stream(self, request: Request, last: int) -> AsyncIterator[str]:
        yield ": stead\n\n"
        quiet = 0.0
        while not self.ending.is_set() and not await request.is_disconnected():
            rows = await run_in_threadpool(self.store.events_after, last)
            for row in rows:
                last = row["id"]
                data = json.dumps({**json.loads(row["body"]), "id": row["id"], "job": row["job"], "kind": row["kind"]})
                yield f"id: {row['id']}\nevent: stead\ndata: {data}\n\n"
            quiet = 0.0 if rows else quiet + POLL_SECONDS
            if quiet >= COMMENT_SECONDS:
                quiet = 0.0
                yield ": still here\n\n"
            await asyncio.sleep(POLL_SECONDS)

    # Runs

    async def list_runs(self, request: Request) -> Response:
        """Runs of learners and benchmarks, here and below the root."""
        return JSONResponse({"runs": await run_in_threadpool(runs.found, self.store, self.root)})

    async def read_run(self, request: Request) -> Response:
        """What the log of a run says from a byte on."""
        name, after = request.query_params.get("id", ""), request.query_params.get("after", "0")
        path = await run_in_threadpool(runs.path_of, self.store, self.root, name)
        if path is None and not name.startswith("job:"):
            raise NotThere("no such run")
        tail = int(after) if after.isascii() and after.isdecimal() else 0
        nothing = {"rows": [], "lines": {}, "results": [], "tail": 0, "more": False}
        return JSONResponse(nothing if path is None else await run_in_threadpool(runs.read, path, tail))

    # Plans

    async def list_plans(self, request: Request) -> Response:
        """All plans, the newest first."""
        return JSONResponse({"plans": self.store.plans()})

    async def open_plan(self, request: Request) -> Response:
        """A plan from a file below the root."""
        path = models.path_below(self.root, _said(await body(request), "path"))
        made = await run_in_threadpool(partial(keep_plan, self.store, path, name=path.name))
        return JSONResponse({"plan": made}, status_code=201)

    async def get_plan(self, request: Request) -> Response:
        """What the list says of a plan."""
        session = await self._session(request)
        row = next(one for one in self.store.plans() if one["id"] == request.path_params["plan"])
        cluster = session.plan.problem.cluster
        devices = [
            {"name": one.name, "memory_bytes": one.memory_bytes, "flops": bool(one.flops_per_second),
             "bandwidth": math.isfinite(one.bytes_per_second)}
            for one in cluster
        ]  # fmt: skip
        from stead.placing.size_curves import is_readable

        source, sizes = session.plan.provenance.get("source"), is_readable(session.plan, zoo_only=True)
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
        """What the same placement takes in other circumstances."""
        session = await self._session(request)
        return JSONResponse(await run_in_threadpool(session.case, (await body(request)).get("set")))

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
        return _download(path.read_bytes(), "plan.json", "application/json")

    async def report(self, request: Request) -> Response:
        """The plan as a page that needs no server."""
        from stead.report import page

        session = await self._session(request)
        text = await run_in_threadpool(page, session.plan)
        return _download(text.encode(), "report.html", "text/html")

    async def export(self, request: Request) -> Response:
        """What a runtime loads, made by `stead export`, as an archive."""
        path, target = self._plan_path(request), request.query_params.get("to", "")
        if not target or target.startswith("-"):
            raise BadInput("name a target with ?to=; `stead targets` lists them")
        packed = await run_in_threadpool(_exported, path, target)
        return _download(packed, f"{Path(target).name}.zip", "application/zip")

    def _plan_path(self, request: Request) -> Path:
        path = self.store.plan_file(request.path_params["plan"])
        if path is None or not path.exists():
            raise NotThere("no such plan")
        return path

    async def _session(self, request: Request) -> Session:
        path = self._plan_path(request)
        return await run_in_threadpool(self.sessions.of, request.path_params["plan"], path)


def told(handler: Handler) -> Handler:
    """The same route, whose errors are a sentence with a hint."""

    async def answered(request: Request) -> Response:
        try:
            return await handler(request)
        except NotThere as missing:
            return error(404, str(missing), "it may have been deleted")
        except Infeasible as infeasible:
            return error(422, str(infeasible), "give more memory or fewer constraints", code=3)
        except SteadError as wrong:
            sentence, _, hint = str(wrong).partition("; ")
            return error(409 if "still runs" in sentence else 400, sentence, hint)
        except ClientDisconnect:
            return Response(status_code=400)

    return answered


def error(status: int, sentence: str, hint: str, *, code: int = 2) -> JSONResponse:
    """An error as pages show it."""
    return JSONResponse({"error": sentence, "hint": hint, "code": code}, status_code=status)


async def body(request: Request) -> dict[str, Any]:
    """The JSON object of a request."""
    try:
        given = json.loads(await request.body())
    except (ValueError, RecursionError):
        raise BadInput("the request holds no JSON") from None
    if not isinstance(given, dict):
        raise BadInput("the request must hold a JSON object")
    return given


def _said(given: Mapping[str, Any], key: str) -> str:
    value = given.get(key)
    if not isinstance(value, str) or not value.strip():
        raise BadInput(f"{key} must be a text, got {value!r}")
    return value


def _options(given: Mapping[str, Any]) -> dict[str, Any]:
    options = given.get("options", {}) if isinstance(given, Mapping) else None
    if not isinstance(options, dict) or set(options) - {"batch", "context", "phase"}:
        raise BadInput("options of a model are batch, context and phase")
    return {key: value for key, value in options.items() if value not in (None, "")}


def _info() -> dict[str, Any]:
    from stead.cluster.catalogue import entries
    from stead.solvers import solver_names
    from stead.version import __version__
    from stead.workloads import zoo_names

    cards = [
        {"name": one.key, "kind": one.kind, "memory_bytes": one.memory_bytes, "bytes_per_second": one.bytes_per_second}
        for one in entries()
    ]
    limits = {"upload_bytes": models.MOST_UPLOAD_BYTES, "suffixes": list(models.SUFFIXES)}
    solvers = [name for name in solver_names() if not name.startswith("single:")]
    return {
        "version": __version__, "zoo": list(zoo_names()), "solvers": solvers, "catalogue": cards, "limits": limits,
        "learned": list(solver_names("learned")),
    }  # fmt: skip


def _exported(path: Path, target: str) -> bytes:
    """The folder that `stead export` writes, packed."""
    with tempfile.TemporaryDirectory() as scratch:
        command = child_command(["export", str(path), "--to", target, "-o", f"{scratch}/out"])
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=EXPORT_SECONDS, check=False)
        except subprocess.TimeoutExpired:
            raise BadInput(f"the export took more than {EXPORT_SECONDS:g} s; run `stead export` in a shell") from None
        if done.returncode:
            lines = [line for line in done.stderr.splitlines() if line.startswith("stead: ")]
            raise BadInput((lines or ["it failed"])[-1].removeprefix("stead: "))
        packed = io.BytesIO()
        with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
            for file in sorted(Path(scratch, "out").rglob("*")):
                if file.is_file():
                    archive.write(file, file.relative_to(Path(scratch, "out")))
            archive.writestr("command.txt", done.stdout)
        return packed.getvalue()


def _download(data: bytes, name: str, kind: str) -> Response:
    safe = "".join(sign if sign.isalnum() or sign in ".-" else "_" for sign in name)
    return Response(data, media_type=kind, headers={"content-disposition": f'attachment; filename="{safe}"'})
