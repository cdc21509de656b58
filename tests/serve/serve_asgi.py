"""Requests to the app in this very process, without a socket and without a client package."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from typing import Any

PORT, TOKEN = 8321, "t" * 43


@dataclass(frozen=True)
class Answer:
    """Status, headers and body."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


def ask(
    app: Any,
    method: str,
    path: str,
    body: Any = None,
    *,
    headers: dict[str, str | None] | None = None,
    chunks: list[bytes] | None = None,
    until: int = 0,
) -> Answer:
    """One request as the app's own page sends it; `headers` replace or drop some; `until` ends a stream after bytes."""
    sent = {"host": f"127.0.0.1:{PORT}", "cookie": f"stead-{PORT}={TOKEN}", "x-stead": "1", **(headers or {})}
    path, _, query = path.partition("?")
    data = chunks if chunks is not None else [b"" if body is None else json.dumps(body).encode()]
    messages = [
        {"type": "http.request", "body": chunk, "more_body": number < len(data) - 1}
        for number, chunk in enumerate(data)
    ]
    scope = {
        "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": method, "scheme": "http",
        "path": path, "raw_path": path.encode(), "query_string": query.encode(), "root_path": "",
        "headers": [(key.encode(), value.encode()) for key, value in sent.items() if value is not None],
        "client": ("127.0.0.1", 1), "server": ("127.0.0.1", PORT),
    }  # fmt: skip
    got: dict[str, Any] = {"body": b""}

    async def run() -> None:
        over = asyncio.Event()

        async def receive() -> dict[str, Any]:
            if messages:
                return messages.pop(0)
            await over.wait()
            return {"type": "http.disconnect"}

        async def send(message: dict[str, Any]) -> None:
            if message["type"] == "http.response.start":
                got.update(status=message["status"], headers=message["headers"])
            else:
                got["body"] += message.get("body", b"")
                if until and len(got["body"]) >= until:
                    over.set()

        await asyncio.wait_for(app(scope, receive, send), 30)

    asyncio.run(run())
    found = {key.decode(): value.decode() for key, value in got["headers"]}
    return Answer(got["status"], found, got["body"])
