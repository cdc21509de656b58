"""What all routes share: reading a request, and answering it as the command line would tell it."""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from stead.errors import BadInput, Infeasible, SteadError
from stead.serve.store import Row, Store

VIEW_TYPE = "application/vnd.stead.view"
Handler = Callable[[Request], Awaitable[Response]]
Table = list[tuple[str, str, Handler]]  # method, path below /api, who answers


class NotThere(Exception):
    """Something that was asked for by its name is not known."""


def routes_of(table: Table) -> list[Route]:
    """The rows of a table as routes; what goes wrong is told in a sentence."""
    return [Route(f"/api{path}", told(handler), methods=[method]) for method, path, handler in table]


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


def said(given: Mapping[str, Any], key: str) -> str:
    """A text of a request that must be there."""
    value = given.get(key)
    if not isinstance(value, str) or not value.strip():
        raise BadInput(f"{key} must be a text, got {value!r}")
    return value


def known_model(store: Store, name: str) -> Row:
    """A model that was read here before."""
    found = store.model(name)
    if found is None:
        raise NotThere(f"no model {name!r} is known here")
    return found


def whole_number(request: Request, key: str, default: int) -> int:
    """A number in the query of a request; the default where there is none."""
    given = request.query_params.get(key, "")
    return int(given) if given.isascii() and given.isdecimal() and len(given) < 16 else default


def download(data: bytes, name: str, kind: str) -> Response:
    """A file that the browser is to keep."""
    safe = "".join(sign if sign.isalnum() or sign in ".-" else "_" for sign in name)
    return Response(data, media_type=kind, headers={"content-disposition": f'attachment; filename="{safe}"'})


def packed(folder: Path, **more: str) -> bytes:
    """All files below a folder as an archive, with some further texts in it."""
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as archive:
        for file in sorted(folder.rglob("*")):
            if file.is_file() and not file.is_symlink():
                archive.write(file, file.relative_to(folder))
        for name, text in more.items():
            archive.writestr(f"{name}.txt", text)
    return made.getvalue()
