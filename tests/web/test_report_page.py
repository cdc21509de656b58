"""The report in a real browser: opened from a file, without a network, told by what the page says of itself."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from stead.cluster import Cluster, Device, link_all
from stead.costs import Costs
from stead.graph import GraphBuilder
from stead.placing.place import place, place_problem
from stead.plan import Plan
from stead.problem import Latency, Placement, Problem, Throughput
from stead.report import page
from stead.report.bars import coverage
from stead.report.learning_curve import KEPT, curve_document
from stead.sim import simulate
from stead.solvers import Budget, Solution
from stead.solvers.solution import LearningStep
from stead.testing import two_towers
from stead.testing.chromium import NARROW, WIDE, Browser, chromium, missing
from stead.workloads.demo import demo_graph

pytestmark = [pytest.mark.browser, pytest.mark.skipif(bool(missing()), reason=missing() or "-")]
DOCS = Path(__file__).parents[2] / "docs"
ESCAPE, ENTER, BACKSPACE, DOWN, RIGHT = "\ue00c", "\ue007", "\ue003", "\ue015", "\ue014"

# Every text that is seen, with its colour and what lies behind it.
CONTRAST = """
const rgb = (text) => { const found = text.match(/[\\d.]+/g).map(Number); return found.length > 3 ? found : [...found, 1]; };
const light = ([r, g, b]) => { const f = (v) => (v /= 255) <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4; return 0.2126 * f(r) + 0.7152 * f(g) + 0.0722 * f(b); };
const behind = (node) => { for (; node; node = node.parentElement) { const c = rgb(getComputedStyle(node).backgroundColor); if (c[3] > 0.99) return c; } return [255, 255, 255, 1]; };
const poor = [];
for (const node of document.querySelectorAll('main *')) {
  if (![...node.childNodes].some((one) => one.nodeType === 3 && one.textContent.trim()) || !node.getClientRects().length) continue;
  const style = getComputedStyle(node), a = light(rgb(node instanceof SVGElement ? style.fill : style.color)), b = light(behind(node));
  const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
  if (ratio < 4.5) poor.push(`${node.tagName}.${node.getAttribute('class')}: ${node.textContent.trim().slice(0, 30)} ${ratio.toFixed(2)}`);
}
return poor;
"""  # noqa: E501


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as opened:
        yield opened


@pytest.fixture(scope="module")
def plan() -> Plan:
    return place(
        demo_graph(), "3090,3060", objective=Latency(), time_limit=None, evaluations=2000, granularity="operator"
    )


@pytest.fixture(scope="module")
def report(plan: Plan, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("report") / "report.html"
    path.write_text(page(plan, exports=[("explain", "stead explain plan.json NAME")]))
    return path


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("size", [WIDE, NARROW], ids=["1440", "390"])
def test_a_report_opens_from_a_file_and_fits_the_window(
    browser: Browser, report: Path, size: tuple[int, int], dark: bool
) -> None:
    browser.look(size, dark=dark)
    browser.open(report)
    assert browser.log() == []
    assert browser.run("return document.documentElement.scrollWidth") <= size[0]
    assert browser.run("return document.querySelectorAll('*').length") <= 2500
    assert browser.run("return document.querySelector('#plain')") is None
    probe = browser.probe()
    assert probe["lanes"] >= 2
    assert probe["drawn"] > 100
    assert browser.run(CONTRAST) == []
    if os.environ.get("STEAD_REWRITE") and (size, dark) in ((WIDE, False), (NARROW, True)):
        name = f"report-{size[0]}-{'dark' if dark else 'light'}.png"
        browser.picture(DOCS / name, height=1500 if size == NARROW else 1000)


def test_the_model_stays_beside_the_time_line_and_covers_nothing_else(browser: Browser, report: Path) -> None:
    browser.look()
    browser.open(report)
    browser.run("scrollTo(0, document.documentElement.scrollHeight)")
    where, column = (browser.run(f"return document.querySelector('{one}').getBoundingClientRect().bottom")
                     for one in (".where", ".both > .column"))  # fmt: skip
    assert where <= column + 1


def test_a_report_cannot_reach_a_network(browser: Browser, report: Path) -> None:
    browser.open(report)
    said = browser.driver.execute_async_script(
        "const done = arguments[0]; fetch('http://127.0.0.1:9/').then(() => done('reached'), (e) => done(e.message))"
    )
    assert said != "reached"
    assert any("Content Security Policy" in line for line in browser.log())


def test_boxes_are_walked_opened_and_closed_by_keys(browser: Browser, report: Path) -> None:
    browser.look()
    browser.open(report)
    browser.keys("#where", DOWN, DOWN)
    walked = browser.probe()
    assert walked["box"] == walked["places"][1]["box"]
    browser.keys("#where", "3")
    assert browser.probe()["mode"] == "critical"
    inner = browser.run("return stead.graph.order.find((box) => stead.store.view.boxes[box].parent > 0)")
    browser.run("stead.store.select(arguments[0])", inner)
    browser.keys("#where", BACKSPACE)
    closed = browser.probe()
    assert closed["boxes"] < walked["boxes"]
    assert closed["box"] == browser.run("return stead.store.view.boxes[arguments[0]].parent", inner)
    browser.keys("#where", ENTER)
    assert browser.probe()["boxes"] == walked["boxes"]
    browser.keys("body", ESCAPE)
    assert browser.probe()["box"] == -1
    assert browser.log() == []


def test_the_time_line_zooms_moves_and_steps_by_keys(browser: Browser, report: Path) -> None:
    browser.open(report)
    browser.keys("#when", "+", "+", RIGHT)
    begin, end = browser.probe()["t"]
    assert 0 < begin < end < 1
    browser.keys("#when", "f")
    assert browser.probe()["t"] == [0, 1]
    browser.keys("#when", "n", "n")
    probe = browser.probe()
    assert probe["slice"] >= 0
    assert browser.run("return stead.store.view.col.flags[arguments[0]] & 1", probe["slice"]) == 1
    assert "critical path" in browser.find(".live").get_attribute("textContent")


def test_a_click_on_a_box_and_a_click_on_a_slice_select_each_other(browser: Browser, report: Path) -> None:
    browser.look()
    browser.open(report)
    probe = browser.probe()
    first, scale = probe["places"][0], probe["scale"]
    middle = first["x"] + first["w"] / 2, first["y"] + first["h"] / 2
    browser.click("#where", probe["dx"] + middle[0] * scale, probe["dy"] + middle[1] * scale)
    assert browser.probe()["box"] == first["box"]
    path = browser.run("return stead.store.view.boxes[arguments[0]].path", first["box"])
    assert path in browser.find("[data-part=why]").text
    browser.click("#when", 136 + 30, 14)
    probe = browser.probe()
    assert probe["slice"] >= 0
    leaf = browser.run("return stead.store.view.col.box[arguments[0]]", probe["slice"])
    assert browser.run("return stead.store.shown(arguments[0])", leaf) == probe["box"]
    assert "Operator" in browser.find("[data-part=why]").text


def test_search_help_and_tables_are_reached_by_keys(browser: Browser, report: Path, plan: Plan) -> None:
    browser.open(report)
    browser.keys("body", "/")
    name = plan.problem.graph.operator_names[40]
    browser.keys("#search", name, ENTER)
    assert browser.probe()["box"] > 0
    browser.keys("body", ESCAPE, "?")
    assert browser.run("return document.querySelector('dialog.help').open")
    browser.run("document.querySelector('dialog.help').close()")
    for button in browser.driver.find_elements("css selector", ".twin"):
        browser.run("arguments[0].click()", button)
    rows = browser.driver.find_elements("css selector", ".virtual table")[1].get_attribute("aria-rowcount")
    assert rows == str(len(plan.problem.graph))
    assert browser.run("return document.querySelectorAll('*').length") <= 2500
    assert browser.log() == []


def test_a_view_can_be_linked(browser: Browser, report: Path) -> None:
    browser.look()
    browser.open(report, "#box=2&by=time&t=0.25-0.5")
    probe = browser.probe()
    assert (probe["box"], probe["mode"]) == (2, "time")
    assert probe["t"] == pytest.approx([0.25, 0.5], abs=1e-4)
    browser.keys("body", ESCAPE)
    assert "box=" not in browser.driver.current_url


def test_the_share_of_a_pixel_is_exact(browser: Browser, report: Path, plan: Plan) -> None:
    browser.open(report)
    cells = 97
    found = browser.driver.execute_async_script(
        """const [cells, done] = arguments;
        import('stead/data').then(({busyBefore}) => {
          const {view} = stead.store;
          const before = (lane, i) => (busyBefore(lane, (view.end * i) / cells) * cells) / view.end;
          done(view.lanes.filter((lane) => lane.kind === 'op').map((lane) =>
            Array.from({length: cells}, (_, i) => before(lane, i + 1) - before(lane, i))));
        });""",
        cells,
    )
    timeline = plan.trace.timeline
    assert timeline is not None
    for d, shares in enumerate(found):
        assert np.allclose(shares, coverage(timeline, d, cells), atol=1e-6)


def test_a_report_prints(browser: Browser, report: Path) -> None:
    browser.look()
    browser.open(report)
    printed = browser.command("Page.printToPDF", {"printBackground": True, "paperWidth": 8.27, "paperHeight": 11.69})
    assert len(printed["data"]) > 40_000
    assert browser.log() == []


def test_hostile_names_stay_text_in_the_browser(browser: Browser, tmp_path: Path) -> None:
    build = GraphBuilder("<img src=x onerror=window.owned=1>")
    image = "<img src=x onerror=window.owned=1>"
    for name in ("</script><script>window.owned=1</script>", image, "\u202ex", "y" * 10_000):
        build.operator(name, flops=1, module=name[:80])
    graph = build.build()
    cluster = Cluster((Device("<b>d0"), Device("d1")), link_all(["<b>d0", "d1"], bytes_per_second=1.0))
    problem = Problem(graph, cluster, Costs(graph, cluster, np.ones((4, 2))))
    path = tmp_path / "hostile.html"
    hostile = place_problem(problem, budget=Budget(evaluations=50))
    path.write_text(page(hostile, names=['"><script>window.owned=1</script>']))
    browser.look(NARROW)
    browser.open(path)
    assert browser.log() == []
    assert browser.run("return window.owned === undefined && !document.querySelector('img')")
    assert browser.run("return document.documentElement.scrollWidth") <= NARROW[0]


def test_two_plans_share_one_time_axis_and_outline_what_moved(browser: Browser, tmp_path: Path) -> None:
    problem = two_towers()
    apart, alone = (
        Plan(problem, Solution(placement, simulate(problem, placement).objective_seconds))
        for placement in (Placement(problem, [0, 1, 0, 1, 0]), Placement(problem, [0] * 5))
    )
    path = tmp_path / "two.html"
    path.write_text(page(apart, alone, names=["a.json", "b.json"]))
    browser.look()
    browser.open(path)
    assert browser.log() == []
    assert browser.probe()["outlined"] == 2
    assert "2 boxes stand elsewhere" in browser.find("[data-part=compared]").text
    assert browser.run("return stead.camera.end * stead.store.view.unit") == pytest.approx(9.0)


def test_four_plans_stand_beside_each_other(browser: Browser, tmp_path: Path) -> None:
    problem = two_towers()
    plans = [
        Plan(problem, Solution(placement, simulate(problem, placement).objective_seconds))
        for placement in (Placement(problem, row) for row in ([0, 1, 0, 1, 0], [0] * 5, [1] * 5, [0, 0, 1, 1, 0]))
    ]
    path = tmp_path / "four.html"
    path.write_text(page(*plans, names=["a.json", "b.json", "c.json", "d.json"]))
    browser.look(NARROW)
    browser.open(path)
    assert browser.log() == []
    assert browser.run("return document.querySelectorAll('canvas.then').length") == 3
    assert browser.run("return document.documentElement.scrollWidth") <= NARROW[0]


def test_a_plan_that_was_learnt_shows_how(browser: Browser, tmp_path: Path) -> None:
    plan = place_problem(two_towers(), budget=Budget(evaluations=100))
    steps = [LearningStep(n, 8 * n, 9 - n / 50, 9.5 - n / 50, 10.0, 1 / n) for n in range(1, 51)]
    path = tmp_path / "learned.html"
    path.write_text(page(replace(plan, provenance={**plan.provenance, KEPT: curve_document(steps)})))
    browser.look()
    browser.open(path)
    assert browser.log() == []
    assert browser.run("return document.querySelectorAll('[aria-label^=Learning] path.thin').length") == 3
    assert browser.run("return document.querySelectorAll('[aria-label^=Learning] path.bound').length") == 1
    assert "1.000 to 0.020 nats" in browser.find("[aria-label=Search]").text


@pytest.mark.parametrize("objective", [Throughput(), Throughput(microbatches=3)], ids=["steady", "micro-batches"])
def test_throughput_is_drawn_too(browser: Browser, tmp_path: Path, objective: Throughput) -> None:
    path = tmp_path / "throughput.html"
    path.write_text(page(place_problem(two_towers(objective), budget=Budget(evaluations=100))))
    browser.open(path)
    assert browser.log() == []
    assert browser.probe()["drawn"] >= 5


def test_a_view_of_another_version_leaves_the_plan_without_pictures(browser: Browser, tmp_path: Path) -> None:
    path = tmp_path / "old.html"
    text = page(place_problem(two_towers(), budget=Budget(evaluations=50)))
    path.write_text(text.replace("VERSION = 1;", "VERSION = 2;"))
    browser.open(path)
    assert "version 1, and version 2 is read" in browser.find("[role=alert]").text
    assert browser.find("#plain").is_displayed()
