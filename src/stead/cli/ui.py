"""stead ui and stead serve: the app in a browser."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from stead.serve.store import Store

Given = Annotated[
    str | None,
    typer.Argument(
        metavar="[MODEL|PLAN|FOLDER]", help="What to open at once; a folder is taken as --root.", show_default=False
    ),
]
Port = Annotated[int, typer.Option(help="0 takes a free one.")]
Host = Annotated[str, typer.Option(help="This machine only; from elsewhere use ssh -L.")]
Home = Annotated[
    Path | None,
    typer.Option(metavar="DIR", help="Where jobs and plans are kept. Not given: ~/.local/share/stead/ui."),
]
Root = Annotated[Path, typer.Option(metavar="DIR", help="Models and plans below it can be opened by path.")]
AtOnce = Annotated[int, typer.Option(min=1, help="Jobs that run at once.")]
Keep = Annotated[float, typer.Option(metavar="DAYS", min=0, help="Jobs that ended before are forgotten; plans stay.")]
Memory = Annotated[float, typer.Option(help="GiB of address space that a job may use; 0: any.")]


def ui(
    given: Given = None,
    port: Port = 0,
    no_browser: Annotated[bool, typer.Option("--no-browser", help="Only print the address.")] = False,
    host: Host = "127.0.0.1",
    home: Home = None,
    root: Root = Path("."),
    jobs: AtOnce = 2,
    memory: Memory = 0.0,
    keep: Keep = 30.0,
) -> int:
    """Open the app: pick a model, edit the cluster, watch the search, move modules by hand."""
    return _run(given, port, host, home, root, jobs, memory, keep, browser=not no_browser)


def serve(
    given: Given = None,
    port: Port = 8321,
    host: Host = "127.0.0.1",
    home: Home = None,
    root: Root = Path("."),
    jobs: AtOnce = 2,
    memory: Memory = 0.0,
    keep: Keep = 30.0,
) -> int:
    """The same on a machine without a screen: prints how to reach it through ssh."""
    return _run(given, port, host, home, root, jobs, memory, keep, browser=False, remote=True)


def _run(
    given: str | None,
    port: int,
    host: str,
    home: Path | None,
    root: Path,
    at_once: int,
    memory: float,
    keep: float,
    *,
    browser: bool,
    remote: bool = False,
) -> int:
    import sys
    import threading
    import webbrowser

    from stead.errors import BadInput, MissingExtra
    from stead.serve.jobs import Jobs
    from stead.serve.listening import default_home, listening
    from stead.serve.store import Store

    if given is not None and Path(given).is_dir():
        root, given = Path(given), None
    if not root.is_dir():
        raise BadInput(f"{root} is no folder; --root names the one whose models can be opened")
    opened = listening(host, port)
    try:
        from stead.serve.app import Settings, make_app, token_of
        from stead.serve.app import serve as run
    except ModuleNotFoundError as error:
        opened.close()
        raise MissingExtra(str(error.name), "ui", "stead ui") from None
    store = Store(home or default_home())
    try:
        taken, token = opened.getsockname()[1], token_of(store)
        shown = "" if given is None else _screen(store, given, root)
        memory_bytes = int(memory * 2**30)
        settings = Settings(store.home, root.resolve(), taken, at_once, memory_bytes)
        waiting = Jobs(store, at_once=at_once, memory_bytes=memory_bytes)
        waiting.forget(keep)
        ending = threading.Event()
        app = make_app(settings, store=store, jobs=waiting, token=token, ending=ending)
        address = f"http://127.0.0.1:{taken}/?token={token}{shown}"
        print(address, flush=True)
        if remote:
            print(f"from elsewhere: ssh -L {taken}:127.0.0.1:{taken} this-machine, then open it there", flush=True)
        else:
            print("Ctrl-C ends it; jobs keep their best", file=sys.stderr, flush=True)
        if browser:
            webbrowser.open(address)
        run(app, opened, ending)
    finally:
        opened.close()
        store.close()
    return 0


def _screen(store: Store, given: str, root: Path) -> str:
    """The address within the app that shows a plan, or a model on the way to one."""
    from urllib.parse import quote

    from stead.plan.reading import is_plan
    from stead.readers.common.strict_json import read_json
    from stead.serve.jobs import keep_plan
    from stead.serve.models import path_below

    if given.startswith("zoo:"):
        return f"#/place/{quote(given, safe='')}"
    path = Path(given)
    if path.suffix == ".json" and path.is_file() and is_plan(read_json(path)):
        return f"#/plan/{keep_plan(store, path, name=path.name)}"
    return f"#/place/{quote(str(path_below(root, str(path.resolve()))), safe='')}"
