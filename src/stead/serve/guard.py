"""Who may talk to the app: this machine, under its own name, with the token, and not too much at a time.

Loopback alone is no boundary: a page in the user's browser can send requests here, and by rebinding a name even read
the answers. So `Host` and `Origin` must be ours, a cookie must hold the secret, and whatever changes something must
carry a header that no form and no foreign page can set.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Iterable
from http.cookies import CookieError, SimpleCookie
from urllib.parse import parse_qs

from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

MOST_BODY_BYTES = 8 * 2**20
REQUEST_SECONDS = 30.0
SAFE = ("GET", "HEAD")
UNHURRIED = ("/api/events", "/api/upload", "/api/models")  # streams, and readers with a limit of their own


class Guard:
    """ASGI middleware: refuses what is foreign, limits what is ours, and sends the headers of a strict page."""

    def __init__(self, app: ASGIApp, *, token: str, port: int, script_hashes: Iterable[str] = ()) -> None:
        self._app, self._token, self._port = app, token, port
        self._cookie = f"stead-{port}"
        self._hosts = {f"127.0.0.1:{port}", f"localhost:{port}"}
        self._origins = {f"http://{host}" for host in self._hosts}
        allowed = " ".join(["'self'", *(f"'sha256-{one}'" for one in script_hashes)])
        policy = (
            f"default-src 'none'; script-src {allowed}; style-src 'self'; connect-src 'self'; img-src 'self' data:; "
            "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
        )
        self._headers = [
            (b"content-security-policy", policy.encode()),
            (b"x-content-type-options", b"nosniff"),
            (b"referrer-policy", b"no-referrer"),
            (b"cross-origin-resource-policy", b"same-origin"),
            (b"cache-control", b"no-store"),
        ]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let a request pass, or answer it."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":
            return  # there are no web sockets here
        refused = self._refusal(scope)
        if refused is not None:
            await refused(scope, receive, self._with_headers(send))
            return
        limited = receive if scope["path"] == "/api/upload" else _Limited(receive)
        if scope["path"] in UNHURRIED:
            await self._app(scope, limited, self._with_headers(send))
            return
        try:
            async with asyncio.timeout(REQUEST_SECONDS):
                await self._app(scope, limited, self._with_headers(send))
        except TooLarge:
            answer = _error(413, f"a request holds at most {MOST_BODY_BYTES // 2**20} MiB", "send less at once")
            await answer(scope, receive, self._with_headers(send))
        except TimeoutError:
            answer = _error(503, "this took too long", "ask again when the machine is less busy")
            await answer(scope, receive, self._with_headers(send))

    def _refusal(self, scope: Scope) -> Response | None:
        headers = {key.decode("latin-1").lower(): value.decode("latin-1") for key, value in scope["headers"]}
        if headers.get("host") not in self._hosts:
            return _error(400, "this is not the name of the app", f"open http://127.0.0.1:{self._port}/")
        if headers.get("origin", "http://" + headers["host"]) not in self._origins:
            return _error(400, "another page may not ask here", "open the app itself")
        given = parse_qs(scope["query_string"].decode("latin-1")).get("token", [""])[0]
        if scope["path"] == "/" and scope["method"] == "GET" and given:
            return self._welcome(given)
        if not self._knows(headers.get("cookie", "")):
            return _error(403, "the token is missing", "open the address that `stead ui` printed")
        if scope["method"] not in SAFE and headers.get("x-stead") != "1":
            return _error(403, "the header X-Stead is missing", "requests that change something need it")
        return None

    def _welcome(self, given: str) -> Response:
        """Exchange the token for a cookie, and drop it from the address."""
        if not secrets.compare_digest(given.encode(), self._token.encode()):
            return _error(403, "the token is not that of this app", "open the address that `stead ui` printed")
        answer = RedirectResponse("/", status_code=303)
        answer.set_cookie(self._cookie, self._token, httponly=True, samesite="strict", path="/")
        return answer

    def _knows(self, cookies: str) -> bool:
        try:
            held = SimpleCookie(cookies).get(self._cookie)
        except CookieError:
            return False
        return held is not None and secrets.compare_digest(held.value.encode(), self._token.encode())

    def _with_headers(self, send: Send) -> Send:
        async def sending(message: Message) -> None:
            if message["type"] == "http.response.start":
                message = {**message, "headers": [*message["headers"], *self._headers]}
            await send(message)

        return sending


class TooLarge(Exception):
    """A request that holds more than it may."""


class _Limited:
    """What is received, up to so many bytes."""

    def __init__(self, receive: Receive) -> None:
        self._receive, self._seen = receive, 0

    async def __call__(self) -> Message:
        message = await self._receive()
        self._seen += len(message.get("body", b""))
        if self._seen > MOST_BODY_BYTES:
            raise TooLarge
        return message


def _error(status: int, sentence: str, hint: str) -> JSONResponse:
    return JSONResponse({"error": sentence, "hint": hint, "code": 2}, status_code=status)
