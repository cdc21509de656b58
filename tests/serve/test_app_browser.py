"""The whole way in a real browser: from a model of the zoo to a plan that is moved, saved and taken along."""

from __future__ import annotations

import base64
import io
import json
import math
import os
import signal
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from chromium import ELSEWHERE, Server, browser, fresh_tab, missing, until

from stead.graph import GraphBuilder
from stead.placing.place import place as find_plan
from stead.plan import Plan
from stead.problem import Placement
from stead.serve.jobs import keep_plan
from stead.serve.store import Store
from stead.sim import simulate
from stead.solvers import Solution
from stead.testing import two_towers
from stead.workloads.demo import demo_graph

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(bool(missing()) and not os.environ.get("STEAD_BROWSER"), reason=missing() or "there is one"),
]
PICTURES = Path(__file__).parent.parent.parent / "docs" / "howto"
MODEL = "inception-v3"
MOST_CLICKS = 5
WIDE = 1440  # pixels of the window that the docs show
SECONDS = 600  # a search that ends by itself under load would take away what is looked at


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    made = Server(tmp_path)
    made.start()
    yield made
    if made.process is not None and made.process.poll() is None:
        made.end()


class Page:
    """A browser that looks at the app."""

    def __init__(self, server: Server, driver: Any, width: int = WIDE, *, dark: bool = False) -> None:
        self.driver, self.width, self.clicks = driver, width, 0
        fresh_tab(driver, width, dark=dark)
        self.driver.get(server.address)
        self.see("#zoo button")

    def see(self, selector: str, text: str = "") -> Any:
        """The first element that fits and holds a text, once there is one."""

        def look() -> Any:
            found = self.driver.find_elements("css selector", selector)
            return next((one for one in found if text in one.text), None)

        return until(self.driver, look, f"{selector} {text}")

    def click(self, selector: str, text: str = "") -> None:
        """Click on what fits; where it is does not matter."""
        self.clicks += 1
        self.driver.execute_script("arguments[0].click()", self.see(selector, text))

    def set(self, selector: str, value: float | str, event: str) -> None:
        """Give an input a value, and tell the page."""
        script = "arguments[0].value = arguments[1]; arguments[0].dispatchEvent(new Event(arguments[2]))"
        self.driver.execute_script(script, self.see(selector), str(value), event)

    def go(self, where: str) -> None:
        """Another screen by its address."""
        self.driver.execute_script(f"location.hash = '#/{where}'")

    def at(self, part: str) -> str:
        """The address, once it holds a part."""
        found = until(self.driver, lambda: part in self.driver.current_url and self.driver.current_url, part)
        return str(found)

    def run(self, script: str) -> Any:
        return self.driver.execute_script(f"return {script}")

    def complaints(self) -> list[str]:
        """What the console says, beside a server that was killed and answers that are asked for again."""
        said = [one["message"] for one in self.driver.get_log("browser")]
        return [one for one in said if "net::ERR_" not in one and "503 (Service Unavailable)" not in one]

    def picture(self, name: str, of: str = "") -> None:
        """Keep a screenshot for the docs, where that is asked for, of what fits; they show the wide window."""
        if os.environ.get("STEAD_REWRITE") and self.width == WIDE:
            if of:
                self.driver.execute_script("arguments[0].scrollIntoView({block: 'center'})", self.see(of))
            self.driver.save_screenshot(str(PICTURES / f"ui-{name}.png"))


@pytest.fixture(scope="module")
def driver() -> Iterator[Any]:
    """One browser for all tests; each looks through a tab of its own."""
    made = browser()
    yield made
    made.quit()


@pytest.fixture
def page(server: Server, driver: Any) -> Page:
    return Page(server, driver)


def begun(page: Page) -> str:
    """Begin to solve the model, with more time than any test looks at it; the job's name."""
    page.click("#zoo button", MODEL)
    page.see("#fit tbody tr")
    page.set("[aria-label=Goal] input[type=number]", SECONDS, "change")
    page.picture("place")
    page.click("#solve")
    return page.at("solving/").rpartition("/")[2]


def solved_in_a_second(page: Page) -> str:
    """Solve what is chosen for a second; the plan's name."""
    page.see("#fit tbody tr")
    page.set("[aria-label=Goal] input[type=number]", 1, "change")
    page.click("#solve")
    return page.at("#/plan/").rpartition("/")[2]


def solved(page: Page) -> str:
    """Solve the model and stop as soon as there is a bound; the plan's name."""
    begun(page)
    page.see("#gap", "%")
    page.see("[data-part=picture] canvas#when")
    assert page.run("window.stead.probe().lanes") >= 2
    page.picture("solving")
    page.click("#stop")
    plan = page.at("#/plan/").rpartition("/")[2]
    page.see("#moved")
    return plan


def test_from_a_model_to_a_plan_that_is_moved_saved_and_taken_along(server: Server, page: Page) -> None:
    page.click("[aria-label='one 3060 more']")
    page.see(".tile .num", "2")
    assert page.run("document.getElementById('devices').value") == "3090 + 2x 3060"
    page.clicks = 0
    plan = solved(page)
    assert page.clicks <= MOST_CLICKS
    page.picture("plan")
    before = page.run("window.stead.store.view.head.value")
    drag(page, to=1)
    page.see("#undo")
    said = page.see("#moved", "1 move from the plan").text
    assert "%" in said
    assert page.run("window.stead.store.view.head.value") != before
    page.click("#undo")
    page.see("#use")
    assert page.run("window.stead.store.view.head.value") == before
    assert page.run("document.querySelector('main.view').firstElementChild.ariaLabel") == "Verdict"
    page.run("window.stead.store.select(window.stead.graph.order[2])")
    page.click("#to-B")
    page.click("#save")
    saved = until(page.driver, lambda: _other(page, plan), "the saved plan")
    page.see("#use")
    archive = exported(page, "dot")
    assert {"plan.json", "versions.json", "README.txt"} < set(archive.namelist())
    page.click("#to-whatif")
    page.set("[data-knob='links.bandwidth']", -2, "input")
    assert "this plan:" in page.see("#whatif", "this plan:").text
    page.go(f"compare/{plan}/{saved}")
    page.see("canvas.then")
    server.end(signal.SIGKILL)
    server.start()
    page.go("plans")
    page.driver.refresh()
    page.see(".list a", "moved")
    page.go(f"plan/{saved}")
    page.click("#to-use")
    page.see("#take")
    page.see("#verdict", "nothing was seen to be wrong")
    assert page.complaints() == []


def exported(page: Page, target: str) -> zipfile.ZipFile:
    """Export the plan that is looked at, wait for what its runtime says, and take the files along."""
    page.click("#to-use")
    page.see("#target option", target)
    page.set("#target", target, "change")
    page.click("#run-export")
    assert page.see("[aria-label='Use it'] h3", "To load it")
    page.see("#verdict")
    page.picture("export", "[aria-label='Use it']")
    script = """const done = arguments[0];
      fetch(document.getElementById('take').href).then((answer) => answer.arrayBuffer())
        .then((data) => done(btoa(String.fromCharCode(...new Uint8Array(data)))))"""
    return zipfile.ZipFile(io.BytesIO(base64.b64decode(page.driver.execute_async_script(script))))


def _other(page: Page, plan: str) -> str:
    last = page.driver.current_url.partition("#/plan/")[2].partition("?")[0]
    return last if last and "/" not in last and last != plan else ""


def drag(page: Page, to: int) -> None:
    """The third box that is seen, by the mouse, onto the card of a device."""
    from selenium.webdriver import ActionChains

    x, y = page.run(
        "(() => { const g = window.stead.graph, p = g.at(g.order[2]), r = g.canvas.getBoundingClientRect(); "
        "return [r.left + g.dx + (p.x + p.w / 2) * g.scale, r.top + g.dy + (p.y + p.h / 2) * g.scale]; })()"
    )
    card = page.driver.find_elements("css selector", ".dev")[to].rect
    scrolled = page.run("window.scrollY")
    mouse = ActionChains(page.driver, duration=50)
    mouse.w3c_actions.pointer_action.move_to_location(int(x), int(y))
    mouse.w3c_actions.pointer_action.pointer_down()
    mouse.w3c_actions.pointer_action.move_to_location(int(x) + 12, int(y) + 12)
    mouse.w3c_actions.pointer_action.move_to_location(int(card["x"] + 40), int(card["y"] - scrolled + 20))
    mouse.perform()
    assert page.see("#moved", " to ").text
    mouse = ActionChains(page.driver, duration=50)
    mouse.w3c_actions.pointer_action.pointer_up()
    mouse.perform()


def test_a_job_outlives_its_server_and_two_browsers_see_it(server: Server, page: Page) -> None:
    other = Page(server, browser())
    try:
        job = begun(page)
        other.go(f"solving/{job}")
        page.see("#gap", "%")
        other.see("#gap", "%")
        server.end(signal.SIGKILL)
        server.start()
        other.driver.refresh()
        other.click("#stop")
        assert page.at("#/plan/") == other.at("#/plan/")
    finally:
        other.driver.quit()


def test_a_killed_job_is_lost_and_goes_on(server: Server, page: Page) -> None:
    job = begun(page)
    page.see("#gap", "%")
    store = Store(server.folder / "home")
    running = store.job(job)
    store.close()
    assert running is not None
    os.killpg(running["pid"], signal.SIGKILL)
    page.click("#resume", "Resume")
    until(page.driver, lambda: job not in page.driver.current_url, "another job")
    page.see("#gap", "%")
    page.click("#stop")
    page.at("#/plan/")


@pytest.mark.parametrize(
    ("width", "dark"),
    [(390, True), pytest.param(390, False, marks=pytest.mark.slow), pytest.param(1440, True, marks=pytest.mark.slow)],
)
def test_no_screen_is_wider_than_its_window(server: Server, driver: Any, width: int, dark: bool) -> None:
    page = Page(server, driver, width, dark=dark)
    page.click("#zoo button", "rnnlm-2")
    plan = solved_in_a_second(page)
    page.see("#moved")
    for screen in (f"plan/{plan}", "place", "plans", "jobs", "compare", "runs"):
        page.go(screen)
        page.see(".card, .planhead")
        wide = page.run("document.documentElement.scrollWidth")
        assert wide <= width, screen
        beyond = page.run(
            "[...document.querySelectorAll('main *')].filter((e) => e.getClientRects().length && "
            "!e.closest('.scroll, .scroller, .virtual, svg, pre') && "
            "e.getBoundingClientRect().right > innerWidth + 1)"
            ".map((e) => e.className || e.tagName)"
        )
        assert beyond == [], screen
    assert page.complaints() == []


def test_links_and_the_text_of_devices_are_one(page: Page) -> None:
    page.see("#links")
    page.set("[data-link='3090->3060.bandwidth']", "8GB/s", "change")
    text = "document.getElementById('devices').value"
    assert page.run(text) == "3090,3060; 3090<->3060.bandwidth=8GB/s"
    page.run("[...document.querySelectorAll('details')].forEach((one) => { one.open = true; })")
    page.see("details p", "3090<->3060.bandwidth = 8.00 GB/s as given")
    page.set("#devices", "3090,3060; 3090->3060.latency=5us; 3090.reserve=1GiB", "change")
    latency = "document.querySelector(\"[data-link='3090->3060.latency']\").value"
    until(page.driver, lambda: page.run(latency) == "5us", "the latency in the matrix")
    page.set("[data-link='3090->3060.kind']", "pcie3x8", "change")
    kind = "3090,3060; 3090.reserve=1GiB; 3090<->3060.kind=pcie3x8"
    until(page.driver, lambda: page.run(text) == kind, "the kind in the text, in place of other figures")
    wide = "document.querySelector(\"[data-link='3060->3090.bandwidth']\").placeholder"
    until(page.driver, lambda: page.run(wide) == "7.88GB/s", "the bandwidth of that kind, both ways")
    page.picture("links", "#links")
    page.set("#devices", "3090,3060; 3060->3090.kind=ethernet10; 3090.reserve=1GiB", "change")
    chosen = "document.querySelector(\"[data-link='3060->3090.kind']\").value"
    until(page.driver, lambda: page.run(chosen) == "ethernet10", "the kind in the matrix")
    page.click("[aria-label='one 3060 more']")
    kept = "3090 + 2x 3060; 3090.reserve=1GiB"
    until(page.driver, lambda: page.run(text) == kept, "the text without links of a device that is gone")
    page.set("#devices", "3090 + 306x", "change")
    page.see("[role=alert]", "306x")
    assert page.run("document.getElementById('solve').disabled")
    assert [line for line in page.complaints() if "400 (Bad Request)" not in line] == []


def test_four_plans_stand_beside_each_other(tmp_path: Path, driver: Any) -> None:
    problem, store, names = two_towers(), Store(tmp_path / "home"), []
    for number, devices in enumerate(([0, 1, 0, 1, 0], [0] * 5, [1] * 5, [0, 0, 1, 1, 0])):
        placement = Placement(problem, devices)
        plan = Plan(problem, Solution(placement, simulate(problem, placement).objective_seconds))
        plan.save(tmp_path / "plan.json")
        names.append(keep_plan(store, tmp_path / "plan.json", name=f"plan {number}"))
    store.close()
    server = Server(tmp_path)
    server.start()
    page = Page(server, driver)
    try:
        page.go(f"compare/{'/'.join(names)}")
        page.see("canvas.then")
        assert page.run("document.querySelectorAll('canvas.then').length") == 3
        heads = page.run("[...document.querySelectorAll('.compared table:first-child th')].map((e) => e.textContent)")
        assert heads[1:5] == [f"plan {number}" for number in range(4)]
        assert page.run("window.stead.probe().outlined") > 0
        page.picture("compare")
        page.click("[aria-label='without plan 2']")
        until(page.driver, lambda: page.run("document.querySelectorAll('canvas.then').length") == 2, "three plans")
        assert page.complaints() == []
    finally:
        server.end()


def test_a_remedy_is_a_button_that_solves(page: Page) -> None:
    page.set("#devices", "3060 200MB", "change")
    page.click("#zoo button", "rnnlm-2")
    page.see("#fit tbody tr")
    page.set("[aria-label=Goal] input[type=number]", 1, "change")
    page.click("#solve")
    page.click(".remedy", "more on 3060")
    page.at("#/plan/")
    assert page.see("#moved")


def test_names_out_of_files_are_text(tmp_path: Path, driver: Any) -> None:
    evil = "<img src=x onerror=window.hit=1></script>"
    build = GraphBuilder(evil)
    tensor = build.tensor(build.operator(f"{evil}a", flops=1e9, module=evil), size_bytes=4)
    build.operator(f"{evil}b", flops=1e9, reads=(tensor,), module=f"{evil}.x")
    find_plan(build.build(), "3090,3060", evaluations=20).save(tmp_path / "plan.json")
    store = Store(tmp_path / "home")
    plan = keep_plan(store, tmp_path / "plan.json", name=evil)
    store.close()
    server = Server(tmp_path)
    server.start()
    page = Page(server, driver)
    try:
        page.go("plans")
        assert page.see(".list a").text == evil
        page.go(f"plan/{plan}")
        page.see("#moved")
        page.run("window.stead.store.select(1)")
        page.see("#to-A")
        assert page.run("window.hit") is None
        assert page.run("document.querySelectorAll('img').length") == 0
    finally:
        server.end()


def test_a_learning_curve_grows_while_it_is_looked_at(server: Server, page: Page) -> None:
    log = server.folder / "runs" / "policy.jsonl"
    log.parent.mkdir()
    rows = [learned(update) for update in range(1, 41)]
    log.write_text("".join(rows[:25]))
    page.go("runs")
    page.see("#update", "25")
    assert page.see("#above").text == "25 %"
    assert page.run("document.querySelector('.chart path.bound') !== null")
    with log.open("a") as file:
        file.write("".join(rows[25:]))
    page.see("#update", "40")
    assert page.complaints() == []


def test_a_benchmark_is_run_and_its_tables_are_read(server: Server, page: Page) -> None:
    page.go("runs")
    for name, value in (("solvers", "single,balanced"), ("only", "lstm-grid"), ("budgets", "1")):
        page.set(f"#bench-{name}", value, "change")
    page.click("#bench")
    page.at("#/runs/job")
    page.see("#state", "done")
    assert "balanced" in page.see("#tables").text
    assert int(page.see("#finished").text) >= 2
    page.picture("bench")
    page.go("jobs")
    assert page.see(".list a", "bench smoke").get_attribute("href").partition("#")[2].startswith("/runs/job:")
    assert page.complaints() == []


def test_what_is_inside_a_box_is_listed_and_explained(tmp_path: Path, driver: Any) -> None:
    plan = find_plan(demo_graph(), "3090,3060", evaluations=50)
    plan.save(tmp_path / "plan.json")
    store = Store(tmp_path / "home")
    name = keep_plan(store, tmp_path / "plan.json", name="demo")
    store.close()
    server = Server(tmp_path)
    server.start()
    page = Page(server, driver)
    try:
        page.go(f"plan/{name}?box=1&by=time")
        page.see("#moved")
        assert page.run("window.stead.probe().mode") == "time"  # what is looked at is part of the address
        page.click("#inside summary")
        page.see("#inside td")
        page.run("window.stead.store.select(window.stead.store.view.boxes.find((b) => !b.children.length).index)")
        page.click("#inside button.link")
        assert page.see("#inside h3", "Why").text.split()[-1] in ("3090", "3060")
        assert page.complaints() == []
    finally:
        server.end()


def test_training_is_watched_and_stopped(server: Server, page: Page) -> None:
    pytest.importorskip("torch")
    page.go("runs")
    page.set("#graph", "zoo:rnnlm-2", "change")
    page.set("#updates", 500, "change")
    page.click("#train")
    page.at("#/runs/job")
    grown = "Number(document.getElementById('update')?.textContent) >= 12"
    until(page.driver, lambda: page.run(grown), "twelve updates")
    page.picture("runs")
    assert page.see("#above").text.endswith("%")
    page.click("#stop")
    page.see("#state", "stopped")
    assert page.complaints() == []


def learned(update: int) -> str:
    """A line of a log of `stead train`."""
    best = max(1.2, 1.6 - 0.02 * update)
    wave = 0.05 * math.sin(update)
    row = {"elapsed_seconds": update / 4, "update": update, "evaluations": 64 * update, "best": best,
           "mean": best + 0.2 + wave, "greedy": best + 0.08 - wave, "entropy": 1 / (1 + update / 20),
           **({"lines": {"bound": 0.9, "heft": 1.3, "expert": 1.4}} if update == 1 else {})}  # fmt: skip
    return json.dumps(row) + "\n"


def test_another_name_another_page_and_another_token_get_nothing(server: Server, page: Page, tmp_path: Path) -> None:
    here = f"http://127.0.0.1:{server.port}"
    foreign = browser()
    try:
        foreign.get(server.address.replace("127.0.0.1", ELSEWHERE))  # a name that somebody has bound to this machine
        assert "Place" not in foreign.find_element("css selector", "body").text
        foreign.get(f"{here}/?token=wrong")
        assert "Place" not in foreign.find_element("css selector", "body").text
    finally:
        foreign.quit()
    evil = tmp_path / "evil.html"
    evil.write_text(EVIL.replace("HERE", here))
    page.driver.get(evil.as_uri())  # in the browser that has the cookie
    until(page.driver, lambda: page.run("document.title") == "asked", "answers")
    page.driver.get(f"{here}/#/jobs")
    page.see("h2", "Jobs")
    assert page.run("document.querySelectorAll('.list tr').length") == 0


EVIL = """<script type=module>
const body = '{"verb": "train", "policy": "colocrl", "graphs": ["zoo:rnnlm-2"], "devices": "3090", "updates": 1}';
const asked = {method: 'POST', credentials: 'include', body};
for (const more of [{mode: 'no-cors'}, {headers: {'X-Stead': '1', 'content-type': 'application/json'}}])
  await fetch('HERE/api/jobs', {...asked, ...more}).catch(() => {});
document.title = 'asked';
</script>"""


def test_a_file_that_is_too_large_is_refused_with_a_sentence(tmp_path: Path, driver: Any) -> None:
    server = Server(tmp_path, upload_bytes=1000)
    server.start()
    (tmp_path / "model.onnx").write_bytes(b"\0" * 5000)
    page = Page(server, driver)
    try:
        page.driver.find_element("css selector", "input[type=file]").send_keys(str(tmp_path / "model.onnx"))
        assert "at most" in page.see("[role=alert]").text
        assert list((tmp_path / "home" / "models").glob("*")) == []
    finally:
        server.end()
