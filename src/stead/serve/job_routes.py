"""Routes of jobs and of what they leave: their events as one stream, their results, and runs as curves."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse

from stead.errors import BadInput
from stead.serve import models, runs
from stead.serve.commands import OUT
from stead.serve.http_answers import (
    VIEW_TYPE,
    NotThere,
    Table,
    body,
    download,
    known_model,
    packed,
    said,
    whole_number,
)
from stead.serve.jobs import Jobs
from stead.serve.store import Row, Store

if TYPE_CHECKING:
    from stead.serve.live import Pictures

POLL_SECONDS = 0.2
COMMENT_SECONDS = 15.0
MOST_SAID = 2**20  # bytes of what a command printed
OURS = ("start", "plan_file", "model_id")  # paths are ours to give
READS_A_PLAN = ("what-if", "export", "verify")


@dataclass(frozen=True)
class JobRoutes:
    """What these routes work with."""

    store: Store
    jobs: Jobs
    root: Path
    devices: Callable[[Mapping[str, Any]], str]  # the devices of a request, as far as they may be read here
    ending: threading.Event  # the server is about to end: streams end, too

    @cached_property
    def pictures(self) -> Pictures:
        """Jobs that somebody watches."""
        from stead.serve.live import Pictures  # it brings the simulator: the app answers before that

        return Pictures()

    def table(self) -> Table:
        """All of them."""
        return [
            ("GET", "/jobs", self.list_jobs),
            ("POST", "/jobs", self.add_job),
            ("GET", "/jobs/{job}", self.get_job),
            ("DELETE", "/jobs/{job}", self.delete_job),
            ("POST", "/jobs/{job}/stop", self.stop_job),
            ("POST", "/jobs/{job}/resume", self.resume_job),
            ("GET", "/jobs/{job}/picture", self.picture),
            ("GET", "/jobs/{job}/result", self.result),
            ("GET", "/jobs/{job}/files", self.files),
            ("GET", "/runs", self.list_runs),
            ("GET", "/run", self.read_run),
            ("GET", "/events", self.events),
        ]

    async def list_jobs(self, request: Request) -> Response:
        """All jobs, the newest first."""
        last = self.store.last_event()
        return JSONResponse({"jobs": [self._job(job) for job in self.store.jobs()], "last": last})

    async def add_job(self, request: Request) -> Response:
        """Queue a job; the same question is answered by the job that has answered it, unless asked again."""
        given = await body(request)
        verb = said(given, "verb")
        asked = {key: value for key, value in given.items() if key not in ("verb", "again", *OURS)}
        if "devices" in asked:
            asked["devices"] = self.devices(asked)
        if verb == "train":
            asked["graphs"] = [self._graph(one) for one in asked.get("graphs") or ()]
        if "plan" in asked:
            path = self.store.plan_file(str(asked.pop("plan")))
            if path is None:
                raise NotThere("no such plan")
            asked["plan_file" if verb in READS_A_PLAN else "start"] = str(path)
        if "model" in asked:
            model = known_model(self.store, said(asked, "model"))
            asked = {**asked, "model": model["source"], "options": model["options"], "title": model["name"],
                     "model_id": model["id"]}  # fmt: skip
        if not given.get("again"):
            for job in self.store.jobs("done", "queued", "running"):
                if job["verb"] == verb and job["request"] == asked:
                    return JSONResponse({"job": job["id"], "known": True})
        return JSONResponse({"job": self.jobs.submit(verb, asked), "known": False}, status_code=201)

    def _graph(self, given: object) -> str:
        """A model of the zoo, or a file below the root."""
        text = str(given)
        return text if text.startswith("zoo:") else str(models.path_below(self.root, text))

    async def get_job(self, request: Request) -> Response:
        """One job with all its events so far."""
        last = self.store.last_event()  # first: what happens from here on is told by the stream
        job = self._known_job(request)
        rows = await run_in_threadpool(self.store.events_after, 0, job["id"], 20_000)
        told = [
            {**json.loads(row["body"]), "id": row["id"], "kind": row["kind"]} for row in rows if row["id"] <= last
        ]
        return JSONResponse({**self._job(job), "events": told, "last": last})

    async def picture(self, request: Request) -> Response:
        """The best placement so far as a view, or what it changes in the one that a page has; nothing if it has it."""
        job, count = self._known_job(request), whole_number(request, "have", -1)
        base = request.query_params.get("base", "")
        made = await run_in_threadpool(self.pictures.packed, self.store, job, base, count)
        return Response(made, media_type=VIEW_TYPE) if made else Response(status_code=204)

    async def result(self, request: Request) -> Response:
        """What a command has printed: its JSON document, or its text; and the files that it has written."""
        job = self._known_job(request)
        folder = self.jobs.folder(job["id"])
        return JSONResponse(await run_in_threadpool(_result, folder))

    async def files(self, request: Request) -> Response:
        """The folder that a job has written, as an archive."""
        job = self._known_job(request)
        folder = self.jobs.folder(job["id"]) / OUT
        if not folder.is_dir():
            raise NotThere("this job has written no folder")
        name = str(job["request"].get("to") or job["verb"])
        return download(await run_in_threadpool(packed, folder), f"{name}.zip", "application/zip")

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

    async def list_runs(self, request: Request) -> Response:
        """Runs of learners and benchmarks, here and below the root."""
        return JSONResponse({"runs": await run_in_threadpool(runs.found, self.store, self.root)})

    async def read_run(self, request: Request) -> Response:
        """What the log of a run says from a byte on."""
        name = request.query_params.get("id", "")
        path = await run_in_threadpool(runs.path_of, self.store, self.root, name)
        if path is None and not name.startswith("job:"):
            raise NotThere("no such run")
        nothing = {"rows": [], "lines": {}, "results": [], "tail": 0, "more": False}
        tail = whole_number(request, "after", 0)
        return JSONResponse(nothing if path is None else await run_in_threadpool(runs.read, path, tail))


def _result(folder: Path) -> dict[str, Any]:
    try:
        with (folder / "stdout.txt").open("rb") as file:
            text = file.read(MOST_SAID).decode(errors="replace")
    except OSError:
        raise BadInput("the job has not begun yet; look again later") from None
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        document = None
    out = folder / OUT
    files = [
        {"name": file.relative_to(out).as_posix(), "bytes": file.stat().st_size}
        for file in sorted(out.rglob("*")) if file.is_file()
    ]  # fmt: skip
    return {"document": document, "text": "" if document is not None else text, "files": files}
