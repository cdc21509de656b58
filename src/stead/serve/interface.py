"""The HTTP interface: what there is to choose from, models and clusters; jobs and plans have files of their own."""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from stead.errors import BadInput
from stead.serve import clusters, models
from stead.serve.http_answers import body, download, error, known_model, routes_of, said
from stead.serve.job_routes import JobRoutes
from stead.serve.jobs import Jobs
from stead.serve.plan_routes import PlanRoutes
from stead.serve.store import Store


@dataclass(frozen=True)
class Interface:
    """What the routes work with."""

    store: Store
    jobs: Jobs
    root: Path
    memory_bytes: int = 0
    ending: threading.Event = field(default_factory=threading.Event)  # the server is about to end: streams end, too

    def routes(self) -> list[Route]:
        """All of them."""
        jobs = JobRoutes(self.store, self.jobs, self.root, self._devices, self.ending)
        plans = PlanRoutes(self.store, self.root)
        return routes_of([
            ("GET", "/info", self.info),
            ("POST", "/models", self.add_model),
            ("PUT", "/upload", self.upload),
            ("POST", "/clusters/check", self.check_cluster),
            ("POST", "/clusters", self.add_cluster),
            ("POST", "/clusters/toml", self.cluster_file),
            ("POST", "/fit", self.fit),
            *jobs.table(),
            *plans.table(),
        ])  # fmt: skip

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
            from stead.cluster.quantities import format_bytes

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
        text = said(await body(request), "toml")
        return JSONResponse({"devices": await run_in_threadpool(clusters.imported, self.store, text)}, status_code=201)

    async def cluster_file(self, request: Request) -> Response:
        """A description as a device file."""
        text = await run_in_threadpool(clusters.as_toml, self._devices(await body(request)))
        return download(text.encode(), "devices.toml", "application/toml")

    def _devices(self, given: Mapping[str, Any]) -> str:
        """The devices of a request: a text, whose file must be one that can be opened here, or an object."""
        devices = given.get("devices")
        if isinstance(devices, Mapping):
            return clusters.imported_object(self.store, devices)
        return clusters.resolved(self.store, self.root, said(given, "devices"))

    async def fit(self, request: Request) -> Response:
        """Memory on every device for simple rules."""
        given = await body(request)
        model = known_model(self.store, said(given, "model"))
        rows = await run_in_threadpool(models.fit, self.store, model, self._devices(given))
        return JSONResponse({"rules": rows})


def _options(given: Mapping[str, Any]) -> dict[str, Any]:
    options = given.get("options", {}) if isinstance(given, Mapping) else None
    if not isinstance(options, dict) or set(options) - {"batch", "context", "phase"}:
        raise BadInput("options of a model are batch, context and phase")
    return {key: value for key, value in options.items() if value not in (None, "")}


def _info() -> dict[str, Any]:
    from stead.bench import SUITES
    from stead.cluster.catalogue import entries
    from stead.files import plain
    from stead.readers.known_formats import READERS
    from stead.solvers import solver_names
    from stead.solvers.registry import entries as solver_entries
    from stead.version import __version__
    from stead.workloads import zoo_names

    cards = [
        {"name": one.key, "kind": one.kind, "memory_bytes": one.memory_bytes, "bytes_per_second": one.bytes_per_second}
        for one in entries()
    ]
    limits = {"upload_bytes": models.MOST_UPLOAD_BYTES, "suffixes": list(models.SUFFIXES)}
    return {
        "version": __version__,
        "zoo": list(zoo_names()),
        "solvers": [name for name in solver_names() if not name.startswith("single:")],
        "options": {one.name: plain(one.options) for one in solver_entries()},
        "learned": list(solver_names("learned")),
        "catalogue": cards,
        "formats": [{"name": one.name, "suffixes": list(one.suffixes), "does": one.does} for one in READERS.values()],
        "suites": list(SUITES),
        "limits": limits,
    }
