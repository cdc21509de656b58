"""Every bar of the pages in one table: the report and `stead ui` in Chromium, at three sizes of plans.

    python benchmarks/app_page.py [PLAN...]
    python benchmarks/app_page.py --server [PLAN...]     moves by hand alone, without a browser

The plans are those of `report_page.py`. CPU seconds, so that a busy machine does not decide: of the page's main thread
as Chromium counts them, of the server from /proc, over so many requests that its ticks of 10 ms do not matter. Stopping
and the way from nothing to a plan are on the clock, because that is what a person waits for.
"""

from __future__ import annotations

import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

import report_page

from stead.plan import Plan
from stead.report import page
from stead.report.offline_page import page_modules
from stead.serve.jobs import keep_plan
from stead.serve.sessions import Moves, Session
from stead.serve.store import Store
from stead.testing.chromium import WIDE, Browser, chromium, missing

REPEATS, HOVERS, DROPS = 5, 40, 12
PATIENCE_SECONDS = 120.0
MOVES = """
const {graph, store} = window.stead, devices = store.view.head.devices.length, made = [];
for (let i = 0; made.length < arguments[0]; i++) {
  const box = graph.order[i % graph.order.length], device = Math.floor(i / graph.order.length) % devices;
  if (i >= graph.order.length * devices || box > 0) made.push([[box, device]]);
}
return made;
"""
ASK = """
const [path, moves, done] = arguments, size = [];
(async () => {
  for (const one of moves) {
    const body = JSON.stringify({moves: one}), headers = {'X-Stead': '1', 'content-type': 'application/json'};
    const answer = await fetch(path, {method: 'POST', headers, body});
    if (answer.ok) size.push((await answer.arrayBuffer()).byteLength);
  }
  done(size);
})();
"""


class App:
    """`stead ui` as a user starts it, and the CPU seconds that it takes."""

    def __init__(self, folder: Path) -> None:
        command = [sys.executable, "-m", "stead", "ui", "--no-browser", "--home", str(folder / "home")]
        self.process = subprocess.Popen(
            command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        assert self.process.stdout is not None
        self.address = self.process.stdout.readline().strip()
        self.origin = self.address.partition("/?")[0]

    def cpu_seconds(self) -> float:
        """Of the server alone: models and jobs are processes of their own."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def answered(self) -> float:
        """CPU seconds from its start until it has answered for the first time, with the page itself."""
        with urllib.request.build_opener(urllib.request.HTTPCookieProcessor()).open(self.address) as answer:
            assert b"stead" in answer.read()
        return self.cpu_seconds()

    def end(self) -> None:
        """As Ctrl-C does."""
        self.process.send_signal(signal.SIGINT)
        self.process.wait()


def waited(browser: Browser, script: str) -> float:
    """Seconds until a script gives something true."""
    begin = time.monotonic()
    while not browser.run(f"return {script}"):
        if time.monotonic() - begin > PATIENCE_SECONDS:
            raise SystemExit(f"never came: {script}\n{browser.run('return document.body.innerText')[:600]}")
        time.sleep(0.02)
    return time.monotonic() - begin


def opened(browser: Browser, app: App, plan: str) -> float:
    """CPU seconds of the page until it shows a plan."""
    browser.driver.get("about:blank")
    browser.command("Performance.disable")
    browser.command("Performance.enable", {"timeDomain": "threadTicks"})
    before = browser.thread_seconds()
    browser.driver.get(f"{app.origin}/#/plan/{plan}")
    waited(browser, "!!window.stead && !!document.querySelector('#moved')")
    browser.settle()
    after = browser.thread_seconds()
    return after - before if after > before else after


def asked(browser: Browser, app: App, path: str, moves: list[Any]) -> tuple[float, float]:
    """CPU seconds of the server for one request, and bytes of its answer; both over all of them."""
    begin = app.cpu_seconds()
    sizes = browser.driver.execute_async_script(ASK, path, moves)
    return (app.cpu_seconds() - begin) / len(moves), statistics.mean(sizes)


def dropped(browser: Browser) -> float:
    """CPU seconds of the page for one move and what it changes in all panels; the rest that follows left out."""
    taken = []
    for turn in range(REPEATS):
        browser.run("window.stead.store.select(window.stead.graph.order[arguments[0]])", turn + 1)
        letter = browser.run("return window.stead.store.view.head.devices[1].letter")
        waited(browser, f"!!document.querySelector('#to-{letter}')")
        browser.run("window.last = window.stead")
        begin = browser.thread_seconds()
        browser.run(f"document.querySelector('#to-{letter}').click()")
        waited(browser, "window.stead !== window.last")
        browser.settle()
        taken.append(browser.thread_seconds() - begin)
        browser.run("window.last = window.stead; document.querySelector('#undo').click()")
        waited(browser, "window.stead !== window.last")
    return statistics.median(taken)


def of_plan(browser: Browser, app: App, name: str) -> dict[str, float]:
    """What one plan costs in the app."""
    begin = app.cpu_seconds()
    opened(browser, app, name)
    found = {"view": app.cpu_seconds() - begin}
    found["load"] = statistics.median(opened(browser, app, name) for _ in range(REPEATS))
    begin = browser.thread_seconds()
    count = browser.run(report_page.FRAMES)
    found["frame"] = (browser.thread_seconds() - begin) / count
    found["nodes"] = browser.run("return document.querySelectorAll('*').length")
    moves = browser.run(MOVES, HOVERS)
    asked(browser, app, f"/api/plans/{name}/trace", moves[:1])  # what all moves share is computed once
    found["hover"], _ = asked(browser, app, f"/api/plans/{name}/score", moves)
    found["drop"], found["drop_bytes"] = asked(browser, app, f"/api/plans/{name}/trace", moves[1 : DROPS + 1])
    found["later"], _ = asked(browser, app, f"/api/plans/{name}/later", moves[1:3])
    found["drop_page"] = dropped(browser)
    return found


def from_nothing(browser: Browser, app: App) -> dict[str, float]:
    """The way of somebody who has never seen the app: clicks and seconds to a plan, and how long stopping takes."""
    begin, clicks = time.monotonic(), 0
    browser.driver.get(app.address)
    waited(browser, "!!document.querySelector('#zoo button')")
    for look, click in (
        ("[...document.querySelectorAll('#zoo button')].some((b) => b.textContent === 'inception-v3')",
         "[...document.querySelectorAll('#zoo button')].find((b) => b.textContent === 'inception-v3').click()"),
        ("document.querySelector('#solve')?.disabled === false", "document.querySelector('#solve').click()"),
        ("document.querySelector('#gap')?.textContent.includes('%')", "document.querySelector('#stop').click()"),
    ):  # fmt: skip
        waited(browser, look)
        browser.run(click)
        clicks += 1
    stopped = waited(browser, "location.hash.startsWith('#/plan/')")
    waited(browser, "!!window.stead && !!document.querySelector('#moved')")
    return {"stop": stopped, "clicks": clicks, "way": time.monotonic() - begin}


def assets() -> tuple[list[int], int]:
    """Bytes that a report holds beside its plan (of one plan, of a learnt one, of several), and that the app serves."""
    web = Path(str(files("stead").joinpath("web")))
    served = sum(path.stat().st_size for path in web.rglob("*") if path.suffix in (".js", ".css", ".html"))
    shared = sum((web / name).stat().st_size for name in ("view/style.css", "vendor/lit-html.js"))
    pages = (page_modules(1), page_modules(1, learned=True), page_modules(2))
    return [shared + sum((web / "view" / f"{name}.js").stat().st_size for name in names) for names in pages], served


def of_report(browser: Browser, plan: Plan, folder: Path) -> dict[str, float]:
    """What the offline page of a plan costs."""
    begin = time.process_time()
    page(plan, moves_seconds=0.0, sensitivity_seconds=0.0)
    written = time.process_time() - begin
    path = folder / "report.html"
    path.write_text(page(plan), encoding="utf-8")
    load, frame, nodes = report_page.measured(browser, path)
    return {"size": path.stat().st_size, "write": written, "load": load, "frame": frame, "nodes": nodes}


def server_only(plans: list[Plan]) -> None:
    """CPU of the server for hovering and dropping, as its routes call it; HTTP left out."""
    print("| operators | hover | drop | what follows | a drop sends | the whole view |\n|---|---|---|---|---|---|")
    for plan in plans:
        session = Session(plan)
        boxes = session.boxes
        shown = [b for b in range(1, len(boxes.names)) if boxes.is_open[boxes.parents[b]] and not boxes.is_open[b]]
        moves = [((box, d),) for d in range(len(plan.problem.cluster)) for box in shown][:DROPS]
        session.moved_bytes(moves.pop(0))  # what all moves share is computed once
        hover, _ = timed(session.score, moves)
        drop, sent = timed(session.moved_bytes, moves)
        later, _ = timed(session.later_bytes, moves[:2])
        print(
            f"| {len(plan.problem.graph):,} | {1000 * hover:.1f} ms | {1000 * drop:.1f} ms | {later:.2f} s | "
            f"{len(sent) / 1000:.0f} kB | {len(session.packed) / 1000:.0f} kB |"
        )


def timed(act: Callable[[Moves], Any], moves: Sequence[Moves]) -> tuple[float, Any]:
    """CPU seconds of one call, the median, and what the last one gives."""
    taken = []
    for one in moves:
        begin = time.process_time()
        found = act(one)
        taken.append(time.process_time() - begin)
    return statistics.median(taken), found


def main() -> int:
    """Print the table."""
    if "--server" in sys.argv:
        server_only(report_page.plans([one for one in sys.argv[1:] if one != "--server"]))
        return 0
    if missing():
        print(missing(), file=sys.stderr)
        return 1
    plans = report_page.plans(sys.argv[1:])
    with tempfile.TemporaryDirectory() as scratch, chromium() as browser:
        folder = Path(scratch)
        browser.look(WIDE)
        store = Store(folder / "home")
        names = []
        for number, plan in enumerate(plans):
            plan.save(folder / f"{number}.json")
            names.append(keep_plan(store, folder / f"{number}.json", name=f"plan {number}"))
        store.close()
        reports = [of_report(browser, plan, folder) for plan in plans]
        app = App(folder)
        try:
            begun = app.answered()
            browser.driver.get(app.address)
            waited(browser, "!!document.querySelector('#zoo button')")
            shown = [of_plan(browser, app, name) for name in names]
            way = from_nothing(browser, app)
        finally:
            app.end()
    counts = [f"{len(plan.problem.graph):,}" for plan in plans]
    print(f"| what | bar | {' | '.join(counts)} |\n|---|---|{'---|' * len(counts)}")
    for what, bar, key, scale, unit, side in ROWS:
        values = [f"{scale * one[key]:.{2 if scale * one[key] < 10 else 0}f} {unit}".strip() for one in
                  (reports if side == "report" else shown)]  # fmt: skip
        print(f"| {what} | {bar} | {' | '.join(values)} |")
    own, served = assets()
    pages = ", ".join(f"{one / 1000:.1f}" for one in own)
    print(
        f"\nassets in a report of one plan, of a learnt one, of several {pages} "
        f"kB (120), served to the app {served / 1000:.1f} kB (250); "
        f"`stead ui` until it answers {begun:.2f} CPU s (1.0); "
        f"stop until the plan is there {way['stop']:.2f} s (2); "
        f"from `stead ui` to a plan of a zoo model {way['clicks']:.0f} clicks (5), {way['way']:.1f} s (60)"
    )
    return 0


ROWS = (
    ("report: size", "150 kB up to 500 operators, 1.5 MB", "size", 1e-3, "kB", "report"),
    ("report: written, moves and curves left out", "1.5 s at 53k", "write", 1, "s", "report"),
    ("report: load, main thread", "0.15 s, 0.4 s at 53k", "load", 1, "s", "report"),
    ("report: frame (pan, zoom, select)", "16 ms", "frame", 1000, "ms", "report"),
    ("report: DOM nodes", "2,500", "nodes", 1, "", "report"),
    ("app: load of a plan, main thread", "0.15 s, 0.4 s at 53k", "load", 1, "s", "app"),
    ("app: frame (pan, zoom, select)", "16 ms", "frame", 1000, "ms", "app"),
    ("app: DOM nodes", "2,500", "nodes", 1, "", "app"),
    ("app: hover score, server", "10 ms at 24k", "hover", 1000, "ms", "app"),
    ("app: drop with the new time line, server", "40 ms at 24k", "drop", 1000, "ms", "app"),
    ("app: drop, main thread", "none", "drop_page", 1000, "ms", "app"),
    ("app: what a drop sends", "none", "drop_bytes", 1e-3, "kB", "app"),
    ("app: what follows a drop (memory, slack, moves), server", "none", "later", 1, "s", "app"),
    ("app: first view of a plan with moves and curves, server", "none", "view", 1, "s", "app"),
)  # fmt: skip


if __name__ == "__main__":
    raise SystemExit(main())
