"""The app as a whole: pages, interface and guard, and the server that runs them on this machine alone."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import logging
import mimetypes
import secrets
import socket
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from types import FrameType

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from stead.serve.guard import Guard
from stead.serve.interface import Interface
from stead.serve.jobs import Jobs
from stead.serve.store import Store

_TYPES = {".js": "text/javascript", ".css": "text/css", ".html": "text/html"}


@dataclass(frozen=True, slots=True)
class Settings:
    """How the app is run."""

    home: Path
    root: Path
    port: int
    at_once: int = 2
    memory_bytes: int = 0


def make_app(
    settings: Settings, *, store: Store, jobs: Jobs, token: str, ending: threading.Event | None = None
) -> ASGIApp:
    """The guarded application; its streams end once `ending` is set."""
    interface = Interface(
        store, jobs, settings.root, settings.memory_bytes, ending=ending or threading.Event()
    )

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        jobs.start()
        yield
        jobs.close()

    page, import_map = index()
    routes = [
        Route("/", lambda request: HTMLResponse(page)),
        Route("/static/{path:path}", static),
        *interface.routes(),
    ]
    digest = base64.b64encode(hashlib.sha256(import_map.encode()).digest()).decode()
    app = Starlette(routes=routes, lifespan=lifespan)
    return Guard(app, token=token, port=settings.port, script_hashes=[digest])


def index() -> tuple[str, str]:
    """The one page, and the map of modules in it."""
    web = files("stead") / "web"
    names = {"lit-html": "/static/vendor/lit-html.js"}
    for folder in ("view", "app"):
        for file in (web / folder).iterdir():
            if file.name.endswith(".js"):
                prefix = "stead/" if folder == "view" else "app/"
                names[prefix + file.name.removesuffix(".js")] = f"/static/{folder}/{file.name}"
    import_map = json.dumps({"imports": dict(sorted(names.items()))})
    return (web / "index.html").read_text().replace("{{import_map}}", import_map), import_map


async def static(request: Request) -> Response:
    """A file of the pages; nothing else is served."""
    parts = request.path_params["path"].split("/")
    file = files("stead") / "web"
    for part in parts:
        if part in ("", ".", "..") or "\\" in part:
            return Response(status_code=404)
        file = file / part
    suffix = Path(parts[-1]).suffix
    if not file.is_file() or suffix not in _TYPES:
        return Response(status_code=404)
    return Response(file.read_bytes(), media_type=_TYPES.get(suffix) or mimetypes.guess_type(parts[-1])[0])


def token_of(store: Store) -> str:
    """The secret of this home: 256 bits, the same after a restart so that open pages go on."""
    return store.setting("token", secrets.token_urlsafe(32))


def serve(app: ASGIApp, opened: socket.socket, ending: threading.Event | None = None) -> None:
    """Run until Ctrl-C; `ending` is set then, before connections are waited for."""
    import uvicorn

    class Ending(uvicorn.Server):
        def handle_exit(self, sig: int, frame: FrameType | None) -> None:
            if ending is not None:
                ending.set()
            super().handle_exit(sig, frame)

    config = uvicorn.Config(
        app, log_level="warning", access_log=False, server_header=False, ws="none", timeout_graceful_shutdown=2
    )
    logging.getLogger("uvicorn.error").addFilter(_is_no_cancelling)
    Ending(config).run(sockets=[opened])


def _is_no_cancelling(record: logging.LogRecord) -> bool:
    """Whether a line tells more than that Ctrl-C came while something was being computed."""
    cause = record.exc_info[0] if record.exc_info else None
    return cause is not asyncio.CancelledError and "timeout graceful shutdown" not in record.getMessage()
