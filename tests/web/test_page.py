"""The offline page: one file that loads nothing, runs nothing it was not given, and says the same without script."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import zlib
from dataclasses import replace
from importlib.resources import files
from pathlib import Path
from urllib.parse import unquote

import numpy as np
import pytest

from stead.cluster import Cluster, Device, link_all
from stead.costs import Costs
from stead.graph import GraphBuilder
from stead.placing.place import place_problem
from stead.plan import Plan
from stead.problem import Latency, Placement, Problem, Throughput
from stead.report import page
from stead.report.columns import View
from stead.report.learning_curve import COLUMNS, KEPT, MOST_DRAWN, curve_document, curve_of
from stead.report.offline_page import POLICY, module_names, page_modules
from stead.sim import simulate
from stead.solvers import Budget, Solution
from stead.solvers.solution import LearningStep
from stead.testing import diamond, two_towers

WEB = Path(str(files("stead").joinpath("web")))
HOSTILE = ["</script><script>alert(1)</script>", "<img src=x onerror=alert(1)>", "a\u2028b", "x" * 10_000, "\u202eabc"]


def views_of(text: str) -> list[View]:
    packed = re.findall(r'<script type="application/octet-stream" data-view="[^"]*">([^<]*)</script>', text)
    return [View.from_bytes(zlib.decompress(base64.b64decode(one))) for one in packed]


def modules_of(text: str) -> dict[str, str]:
    (found,) = re.findall(r'<script type="importmap">(.*?)</script>', text, re.DOTALL)
    imports: dict[str, str] = json.loads(found)["imports"]
    return imports


def hostile_plan() -> Plan:
    build = GraphBuilder("<b>&")
    for name in HOSTILE:
        build.operator(name, flops=1, kind=name[:40], module=name[:60])
    graph = build.build()
    names = ["d\x9b\u202e<i>", "d1"]
    cluster = Cluster(tuple(map(Device, names)), link_all(names, bytes_per_second=1.0))
    problem = Problem(graph, cluster, Costs(graph, cluster, np.ones((len(HOSTILE), 2))))
    return place_problem(problem, budget=Budget(evaluations=50))


@pytest.mark.parametrize(
    "objective", [Latency(), Latency(execution="sequential"), Throughput(), Throughput(microbatches=3)]
)
def test_a_page_is_whole_and_calls_nobody(objective: Latency | Throughput) -> None:
    text = page(place_problem(two_towers(objective), budget=Budget(evaluations=200)))
    assert text.startswith("<!doctype html>")
    assert text.rstrip().endswith("</html>")
    assert "http://" not in text
    assert "https://" not in text
    assert not re.search(r"<[a-z]+[^>]*\s(src|href)=", text)
    assert f'content="{POLICY}"' in text
    assert len(views_of(text)) == 1


def test_the_policy_lets_a_page_load_nothing() -> None:
    rules = dict(one.strip().split(" ", 1) for one in POLICY.split(";"))
    assert rules["default-src"] == "'none'"
    assert not any(source in POLICY for source in ("http", "*", "'self'", "unsafe-eval", "blob:"))


def learned_plan(updates: int = 1000) -> Plan:
    """A plan whose file says how it was learnt."""
    steps = [LearningStep(n, 4 * n, 9.0 - n / updates, None, 10.0, 1.0 / n) for n in range(1, updates + 1)]
    plan = place_problem(diamond(), budget=Budget(evaluations=50))
    return replace(plan, provenance={**plan.provenance, KEPT: curve_document(steps)})


@pytest.mark.parametrize(
    ("plans", "learned", "without"),
    [(1, False, {"compare", "learning"}), (1, True, {"compare"}), (2, False, {"history", "learning"})],
)
def test_a_page_holds_every_module_that_it_shows_as_it_is(plans: int, learned: bool, without: set[str]) -> None:
    plan = learned_plan() if learned else place_problem(diamond(), budget=Budget(evaluations=50))
    imports = modules_of(page(*[plan] * plans))
    names = [name for name in module_names() if name not in without]
    assert set(imports) == {"lit-html", *(f"stead/{name}" for name in names)}
    for name in names:
        kind, source = imports[f"stead/{name}"].split(",", 1)
        assert kind == "data:text/javascript;charset=utf-8"
        assert unquote(source) == (WEB / "view" / f"{name}.js").read_text(encoding="utf-8")
    for source in imports.values():
        at_once = set(re.findall(r"""from ?['"]([^'"]+)['"]""", unquote(source)))
        later = set(re.findall(r"""import\(['"]([^'"]+)['"]""", unquote(source)))
        assert at_once | (later - {f"stead/{name}" for name in without}) <= set(imports)


def test_hostile_names_stay_text() -> None:
    text = page(hostile_plan())
    outside = re.sub(r"<script.*?</script>", "", text, flags=re.DOTALL)
    assert "<img" not in outside
    assert "alert(1)</script>" not in text
    assert "&lt;b&gt;&amp;" in outside
    assert [sign for sign in text if not sign.isprintable() and sign != "\n"] == []
    assert "\\u202e" in outside
    (view,) = views_of(text)
    assert view["names"][0] == HOSTILE[0]
    assert max(map(len, view["names"])) <= 240
    assert text.encode()


def test_two_plans_stand_in_one_page() -> None:
    problem = two_towers()
    apart, alone = (
        Plan(problem, Solution(placement, simulate(problem, placement).objective_seconds))
        for placement in (Placement(problem, [0, 1, 0, 1, 0]), Placement(problem, [0] * 5))
    )
    views = views_of(page(apart, alone, names=["a.json", "b.json"]))
    assert [view.header["value"] for view in views] == [7.5, 9.0]


def test_a_plan_that_does_not_fit_says_what_helps_first() -> None:
    problem = two_towers().with_memory("d0", 10).with_memory("d1", 8)  # a device that holds all needs 16 bytes
    placement = Placement(problem, [0] * 5)
    trace = simulate(problem, placement)
    assert not trace.feasible
    plan = Plan(problem, Solution(placement, trace.objective_seconds))
    verdict = views_of(page(plan))[0].header["verdict"]
    assert verdict["state"] == "infeasible"
    assert "short by" in verdict["problems"][0]
    assert any("this placement then works as it is" in remedy for remedy in verdict["remedies"])


def test_a_graph_without_operators_has_a_page() -> None:
    graph, cluster = GraphBuilder("none").build(), Cluster((Device("d0"),))
    problem = Problem(graph, cluster, Costs(graph, cluster, np.zeros((0, 1))))
    (view,) = views_of(page(Plan(problem, Solution(Placement(problem, []), 0.0))))
    assert (view.header["operators"], view["boxes"]) == (0, ("",))


def test_a_notebook_shows_the_report_in_a_frame_that_may_only_run_its_script() -> None:
    problem = diamond()
    placement = Placement(problem, [0, 0, 0, 0])
    shown = Plan(problem, Solution(placement, 7.0)).show(height=500)
    text = shown._repr_html_()
    assert text.startswith('<iframe sandbox="allow-scripts" srcdoc="&lt;!doctype html')
    assert 'height="500"' in text
    assert "<script" not in text
    assert repr(shown).endswith("500 pixels high)")


def test_a_card_runs_no_script_and_stays_small() -> None:
    text = hostile_plan()._repr_html_()
    assert "<script" not in text
    assert "<img" not in text
    assert len(text) < 30_000


def test_an_interrupted_plan_says_so() -> None:
    problem = two_towers()
    placement = Placement(problem, [0, 1, 0, 1, 0])
    plan = Plan(problem, Solution(placement, 7.5, bound_seconds=7.5, bound_name="all", interrupted=True))
    verdict = views_of(page(plan))[0].header["verdict"]
    assert (verdict["state"], verdict["interrupted"]) == ("proved", True)
    assert ["Proved optimal", "(all)"] in verdict["claims"]


SOURCES = sorted(WEB.glob("view/*.js"))


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.stem)
def test_scripts_never_turn_text_into_markup_or_code(path: Path) -> None:
    source = path.read_text(encoding="utf-8")
    for banned in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "new Function", "fetch(",
                   "XMLHttpRequest", "unsafeHTML", "setAttribute('style'"):  # fmt: skip
        assert banned not in source
    assert not re.search(r"<[^>]*\sstyle=", source), "a strict policy refuses style attributes; bind .style"
    assert source.startswith("// @ts-check\n")
    assert source.count("\n") <= 300


def test_what_is_vendored_is_what_was_recorded() -> None:
    recorded = re.findall(r"\| `([^`]+)` \|.*\| ([0-9a-f]{64}) \|", (WEB / "vendor" / "README.md").read_text())
    assert [name for name, _ in recorded] == ["lit-html.js"]
    for name, wanted in recorded:
        assert hashlib.sha256((WEB / "vendor" / name).read_bytes()).hexdigest() == wanted
    assert "Redistribution and use" in (WEB / "vendor" / "LICENSE.lit-html").read_text()


def test_a_learning_curve_is_thinned_and_ends_where_it_ended() -> None:
    curve = views_of(page(learned_plan()))[0].header["learning"]
    assert len(curve["update"]) <= MOST_DRAWN + 1
    assert (curve["update"][0], curve["update"][-1], curve["best_seconds"][-1]) == (1, 1000, 8.0)
    assert set(curve["greedy_seconds"]) == {None}


@pytest.mark.parametrize("given", [3, {"update": [1]}, dict.fromkeys(COLUMNS, "x"), {key: [] for key in COLUMNS}])
def test_a_learning_curve_that_cannot_be_read_is_none(given: object) -> None:
    assert curve_of({KEPT: given}) == {}


@pytest.mark.parametrize(("plans", "learned"), [(1, False), (1, True), (2, False)])
def test_assets_of_a_page_stay_small(plans: int, learned: bool) -> None:
    scripts = [WEB / "view" / f"{name}.js" for name in page_modules(plans, learned=learned)]
    total = sum(path.stat().st_size for path in [*scripts, WEB / "view" / "style.css", WEB / "vendor" / "lit-html.js"])
    assert total <= 120_000
