"""The report in Chromium: sizes, load, frames and nodes at three sizes of plans, in CPU time of the page's main thread.

    python benchmarks/report_page.py [PLAN...]

Without plans it makes its own, of inception-v3 (313 operators) and of a translation model in training, unrolled over so
many steps that it has 24,000 and 53,000, by list scheduling: what is measured is the page, not the plan. Needs Debian's
`chromium` and `chromium-driver`, and selenium. Frames pan and zoom, and every tenth selects a box.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from pathlib import Path

import stead
from stead.report import page
from stead.report.plan_view import view
from stead.testing.chromium import WIDE, Browser, chromium, missing

REPEATS = 5
UNROLLED = "zoo:nmt?layers=8,hidden=1024,batch=64"
MADE = (
    ("zoo:inception-v3", "2x a100-80gb"),
    (f"{UNROLLED},source_steps=126,target_steps=126", "4x a100-80gb"),
    (f"{UNROLLED},source_steps=277,target_steps=277", "4x a100-80gb"),
)
FRAMES = """
const {camera, store, timeline, graph} = window.stead, frames = 60, end = camera.end;
for (let f = 0; f < frames; f++) {
  const span = end * 0.86 ** (f < frames / 2 ? f : frames - f), middle = end * (0.5 + 0.3 * Math.sin(f / 5));
  camera.show(middle - span / 2, middle + span / 2);
  if (f % 10 === 9) store.set({box: graph.order[f % graph.order.length], slice: -1});
  else timeline.draw();
}
return frames;
"""


def plans(given: list[str]) -> list[stead.Plan]:
    """Those that are named, or the three of this benchmark."""
    if given:
        return [stead.Plan.load(path) for path in given]
    made = []
    for model, devices in MADE:
        problem = stead.load(model, devices).problem(stead.Latency())
        solution = stead.solver("heft").solve(problem, stead.Budget(evaluations=20))
        made.append(stead.Plan(problem, solution))
    return made


def measured(browser: Browser, path: Path) -> tuple[float, float, int]:
    """CPU seconds to load a page and of one frame, and its nodes."""
    loads, frames = [], []
    for _ in range(REPEATS):
        browser.driver.get("about:blank")
        browser.command("Performance.disable")
        browser.command("Performance.enable", {"timeDomain": "threadTicks"})
        before = browser.thread_seconds()
        browser.open(path)
        after = browser.thread_seconds()
        loads.append(after - before if after > before else after)
        begin = browser.thread_seconds()
        count = browser.run(FRAMES)
        frames.append((browser.thread_seconds() - begin) / count)
    nodes = browser.run("return document.querySelectorAll('*').length")
    return statistics.median(loads), statistics.median(frames), nodes


def main() -> int:
    """Print a table."""
    if missing():
        print(missing(), file=sys.stderr)
        return 1
    print("operators  transfers  page kB  view s  page s  load s  frame ms  nodes    (CPU, medians)")
    with tempfile.TemporaryDirectory() as folder, chromium() as browser:
        browser.look(WIDE)
        for plan in plans(sys.argv[1:]):
            begin = time.process_time()
            shown = view(plan, moves_seconds=0.0, sensitivity_seconds=0.0)
            seen = time.process_time()
            page(plan, moves_seconds=0.0, sensitivity_seconds=0.0)
            written = time.process_time()
            path = Path(folder) / "report.html"
            path.write_text(page(plan), encoding="utf-8")
            load, frame, nodes = measured(browser, path)
            print(
                f"{len(plan.problem.graph):9,}  {len(shown['tten']):9,}  {path.stat().st_size / 1000:7.0f}  "
                f"{seen - begin:6.2f}  {written - seen:6.2f}  {load:6.3f}  {1000 * frame:8.1f}  {nodes:5}",
                flush=True,
            )
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
