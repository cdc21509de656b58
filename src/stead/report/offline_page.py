"""A plan as one file that draws itself: no network, no build step, a strict policy on what it may load.

Scripts are the modules of `web/view` as they are, named `stead/data`, `stead/graph`, ...: in the page an import map
gives each as a `data:` address, an app would map the same names to files. The view of the plan is zlib and base64 in a
script element that no browser runs. Readers without script see `card.plain`.
"""

from __future__ import annotations

import base64
import html
import json
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from stead.printing.svg import escape
from stead.report.columns import View
from stead.report.facts import explain
from stead.report.notebook_card import plain
from stead.report.plan_view import view

if TYPE_CHECKING:
    from stead.plan import Plan

POLICY = (
    "default-src 'none'; script-src 'unsafe-inline' data:; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; "
    "form-action 'none'"
)
MOST_PLANS = 4  # beside each other
VENDORED = {"lit-html": "vendor/lit-html.js"}
_QUOTED = str.maketrans({sign: f"%{ord(sign):02X}" for sign in "%#\n\r\t"})  # what an address cannot hold as it is
_SOURCE_MAP = "\n//# sourceMappingURL="


def page(
    plan: Plan,
    *others: Plan,
    names: Sequence[str] = (),
    exports: Sequence[tuple[str, str]] = (),
    moves_seconds: float = 2.0,
    sensitivity_seconds: float = 2.0,
    sizes: Sequence[Mapping[str, Any]] = (),
) -> str:
    """The whole page as text; with up to three other plans of the same model, all beside each other.

    `names` are what plans are called where there are several; see `view` for the rest.
    """
    report = explain(plan)
    shown = view(
        plan,
        moves_seconds=moves_seconds,
        sensitivity_seconds=sensitivity_seconds,
        exports=exports,
        report=report,
        sizes=sizes,
    )
    shown = View({**shown.header, "text": ""}, shown.columns)  # it stands in the page for readers without script, too
    views = [shown, *(view(other, moves_seconds=0.0, sensitivity_seconds=0.0) for other in others)]
    called = [*names, *("this plan", "the other plan", "a third plan", "a fourth plan")[len(names) :]]
    title = f"{plan.problem.graph.name} on {', '.join(plan.problem.cluster.names)}"
    return page_of(views, title=title, names=called, fallback=plain(plan, report))


def page_of(views: Sequence[View], *, title: str, names: Sequence[str], fallback: str) -> str:
    """The page of one view or of several."""
    packed = "".join(
        f'<script type="application/octet-stream" data-view="{escape(name)}">{packed_view(one)}</script>\n'
        for one, name in zip(views, names, strict=False)
    )
    learned = bool(views[0].header.get("learning"))
    imports = json.dumps({"imports": dict(_modules(len(views), learned=learned))}, ensure_ascii=False)
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<style>{style_sheet()}</style>\n"
        '<script>document.documentElement.classList.add("script")</script>\n'
        f'<script type="importmap">{imports}</script></head>\n'
        f'<body><div id="stead"></div><div id="plain">{fallback}</div>\n{packed}'
        '<script type="module">import {start} from "stead/report"; start();</script></body></html>\n'
    )


@dataclass(frozen=True, slots=True, repr=False)
class Frame:
    """A page as a notebook shows it: in a frame of its own that may run its script and nothing else."""

    text: str
    height: int

    def __repr__(self) -> str:
        return f"Frame({len(self.text)} characters, {self.height} pixels high)"

    def _repr_html_(self) -> str:
        inside = html.escape(self.text)
        return (
            f'<iframe sandbox="allow-scripts" srcdoc="{inside}" title="report of a plan" '
            f'width="100%" height="{self.height}" style="border:0"></iframe>'
        )


def packed_view(one: View) -> str:
    """A view as a page holds it."""
    return base64.b64encode(zlib.compress(one.as_bytes(), 6)).decode()


@cache
def style_sheet() -> str:
    """The style of all pages."""
    return _asset("view/style.css")


def _modules(plans: int, *, learned: bool) -> Iterator[tuple[str, str]]:
    """Every module that a page of so many plans needs by the name it is imported by, as an address that holds it."""
    for name, path in VENDORED.items():
        yield name, _address(path)
    for name in page_modules(plans, learned=learned):
        yield f"stead/{name}", _address(f"view/{name}.js")


@cache
def module_names() -> tuple[str, ...]:
    """Modules of pages, by name."""
    found = files("stead").joinpath("web/view").iterdir()
    return tuple(sorted(one.name.removesuffix(".js") for one in found if one.name.endswith(".js")))


def page_modules(plans: int, *, learned: bool = False) -> tuple[str, ...]:
    """Modules of a page: several plans are compared, of one the search is shown, and what a learner drew."""
    without = {"history", "learning"} if plans > 1 else {"compare"} if learned else {"compare", "learning"}
    return tuple(name for name in module_names() if name not in without)


@cache
def _address(path: str) -> str:
    source = _asset(path).split(_SOURCE_MAP)[0]
    quoted = source.translate(_QUOTED).replace("</", "%3C/").replace("<!", "%3C!")  # these would end the script element
    return f"data:text/javascript;charset=utf-8,{quoted}"


def _asset(path: str) -> str:
    return files("stead").joinpath(f"web/{path}").read_text(encoding="utf-8")
