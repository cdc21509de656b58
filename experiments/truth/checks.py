"""Is it measured honestly? python -m experiments.truth.checks [--quick] [--only M3]

Fifteen checks, each passed, failed or skipped with its reason and figure. M1, M2, M6 and M9 time this machine and want
it idle; M3, M4 and M5 read the results of `python -m experiments.truth.run`; M7, M8, M10 and M11 run a small model; M12
to M15 run tests and count operators. What was checked before is not checked again unless --again or --only is given.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from experiments.truth import tables
from experiments.truth.check_tools import (
    ROOT,
    Skipped,
    busy_loop,
    in_real_time,
    plain_problem,
    run_tests,
    traced_size,
)
from experiments.truth.run import HERE, PAGE, host
from experiments.truth.tables import fill, marks, summary, usable
from stead import Placement, SteadError
from stead.costs.machine_profile import UNSTEADY
from stead.run.cores import processor_flags, tiles_are_hidden
from stead.run.machine_rates import measure_machine
from stead.run.probes import MALLOC
from stead.run.profile import take_timings
from stead.run.session import THIS_MACHINE, opened, workers_on

SMALL = "zoo:gpt2-small?batch=1,layers=2,width=256,heads=4,length=64,vocabulary=2000"
GPT = "zoo:gpt2-small?batch=1,layers=4,width=512,heads=8,length=128,vocabulary=8000"
RESNET = "zoo:resnet-50?batch=1,side=192"
TURNS = 16  # of a profile and whole runs

Outcome = tuple[bool, str]  # passed, with its figure


def m1() -> Outcome:
    """two workers are two devices, or are marked as not independent"""
    count = len(workers_on(THIS_MACHINE))
    if count < 2:
        raise Skipped("one core only")
    found = measure_machine(workers_on(THIS_MACHINE))
    told = ", ".join(f"{what} {times:.2f}x" for what, times in found.aggregate.items())
    below = [what for what, times in found.aggregate.items() if times < 0.95 * count]
    marked = all(any(what in said for said in found.not_independent) for what in below)
    verdict = f"; {' and '.join(below)}: " + ("marked" if marked else "not marked") if below else ""
    return marked, f"{told} of one, {0.95 * count:.2f}x wanted{verdict}"


def m2() -> Outcome:
    """a profile closes: its operators add up to the latency of one device"""
    told, worst = [], 0.0
    for model in (RESNET, GPT):
        with opened(model, workers_on("core 0")) as running:
            ratios = []
            for turn in range(TURNS):  # either first: a machine that changes its speed is no open profile
                whole = running.alone(0, runs=4).seconds if turn % 2 else ()
                operators = float(np.median(running.profile(0, repeats=4).sum(axis=1)))
                whole = whole if turn % 2 else running.alone(0, runs=4).seconds
                ratios += [operators / float(np.median(whole))] if whole else []
            if len(ratios) < TURNS // 2:
                raise Skipped("most bursts were lost: the machine is too busy")
            low, off, high = np.percentile(ratios, [25, 50, 75]) - 1
            worst = max(worst, float(abs(off)))
            told.append(f"{model.partition('?')[0]} {off:+.1%} (middle half of turns {low:+.1%} to {high:+.1%})")
    return worst <= 0.04, f"{', '.join(told)}; {TURNS} turns, 4 % wanted of eager torch"


def m3() -> Outcome:
    """predictions are right"""
    rows = [summary(cell) for cell in _cells()]
    known = [row for row in rows if row["error_min"] is not None and set(row["modes"]) <= {"fifo", "quiet"}]
    if not known:
        raise Skipped("no results in real time or on a quiet machine")
    told = ", ".join(f"{row['model']} {row['error_min']:.1%}/{row['error_min_max']:.1%}" for row in known)
    good = all(row["error_min"] <= 0.05 and row["error_min_max"] <= 0.10 for row in known)
    return good, f"median/largest error: {told}; 5 %/10 % wanted"


def m4() -> Outcome:
    """the order of placements is preserved on Inception-v3"""
    found = {one["name"]: one for one in _cell("Inception-v3")["records"] if usable(one)}
    seconds = {name: one["measured"]["min"] for name, one in found.items()}
    randoms = [value for name, value in seconds.items() if name.startswith("random")]
    if not {"auto", "halves"} <= set(seconds) or not randoms or not found["auto"]["gain"]:
        raise Skipped("auto, halves or random placements were not measured well enough")
    gain = found["auto"]["gain"]["middle"]
    ms = {name: f"{1e3 * value:.1f}" for name, value in {**seconds, "worst": max(randoms)}.items()}
    told = f"auto {ms['auto']}, halves {ms['halves']}, worst random {ms['worst']} ms"
    return seconds["auto"] < seconds["halves"] < max(randoms) and gain >= 1.35, f"{told}; {gain:.2f}x, 1.35x wanted"


def m5() -> Outcome:
    """pipelines run at the rate of their slowest stage"""
    told, judged, good = [], 0, True
    for model in ("ResNet-50", "GPT-like", "Inception-v3"):
        pipes = [one for one in _cell(model)["records"] if one["objective"] == "throughput" and usable(one)]
        if not pipes:
            raise Skipped(f"no pipeline of {model} was measured")
        spread = pipes[0]["measured"]["iqr"] / pipes[0]["measured"]["median"]
        off = pipes[0]["ratio_of_median"] - 1
        gain = pipes[0]["gain"]["middle"] if pipes[0]["gain"] else 0.0
        copies = pipes[0]["baselines"]["replicas"]
        beside = f", replicas {1e3 * copies['median']:.1f} ms" if copies and copies["median"] else ""
        told.append(f"{model} {off:+.1%}, {gain:.2f}x{beside}")
        if spread > UNSTEADY:  # a median says nothing of an idle machine then
            told[-1] += f" (not judged: its results came {spread:.0%} apart, others were at work)"
            continue
        judged += 1
        good &= abs(off) <= 0.05 and gain >= 1.75
    figure = f"{'; '.join(told)}; 5 % and 1.75x wanted"
    if not judged:
        raise Skipped(figure)
    return good, figure


def m6() -> Outcome:
    """limits on instructions and precision make unlike devices"""
    if len(workers_on(THIS_MACHINE)) < 2:
        raise Skipped("one core only")
    slower = _against_all("core 0 + core 1 @ sse41")
    good = slower["ResNet-50"] >= 1.5 and slower["GPT"] <= 1.1
    told = f"SSE4.1 slows {_times(slower)}; 1.5x at least and 1.1x at most wanted"
    if not any("bf16" in flag for flag in processor_flags()):
        return good, f"{told}; bf16 left out: the processor lacks it"
    faster = {name: 1 / times for name, times in _against_all("core 0 + core 1 @ bf16").items()}
    good &= faster["ResNet-50"] >= 1.4 and faster["GPT"] >= 1.7
    hidden = ", without tiles, which this virtual machine does not describe" if tiles_are_hidden() else ""
    return good, f"{told}; bf16 speeds up {_times(faster)}{hidden}; 1.4x and 1.7x wanted"


def _against_all(on: str) -> dict[str, float]:
    """How many times as long the second worker takes as the first, by model."""
    found = {}
    for name, model in (("ResNet-50", RESNET), ("GPT", GPT)):
        with opened(model, workers_on(on)) as running:
            first, second = take_timings(running, bursts=3)
            found[name] = second.total.quartile_seconds / first.total.quartile_seconds
    return found


def _times(found: dict[str, float]) -> str:
    return ", ".join(f"{name} {times:.2f}x" for name, times in found.items())


def m7() -> Outcome:
    """results are the same, bit for bit, and a stale slot would be noticed"""
    random = np.random.default_rng(0)
    worst, count = 0.0, 12
    with opened(SMALL, workers_on(THIS_MACHINE)) as running:
        problem = plain_problem(running)
        for _ in range(count):
            placement = Placement(problem, random.integers(0, len(running.workers), len(problem.graph)))
            worst = max(worst, running.check(placement).relative)
    from stead.run.comparing import compare

    value = ("float32", (2,), np.array([1.0, 2.0], dtype=np.float32).tobytes())
    stale = ("float32", (2,), np.array([1.0, 1.0], dtype=np.float32).tobytes())
    noticed = not compare({0: stale}, {0: value}, 0.0).passed
    told = f"{count} random placements, largest difference {worst:.1g}; stale value noticed: {noticed}"
    return worst == 0.0 and noticed, told


def m8() -> Outcome:
    """without privileges it falls back and says so; no thread stays in real time"""
    with opened(SMALL, workers_on("core 0")) as running:
        running.burst(Placement(plain_problem(running), np.zeros(len(running.graph), dtype=np.int64)), runs=2)
        left = in_real_time([one["pid"] for one in running.readback])
    drop = shutil.which("setpriv")
    if drop is None:
        raise Skipped("no setpriv to drop the privilege with")
    code = (
        "import numpy as np\nfrom experiments.truth.checks import SMALL, plain_problem\nfrom stead import Placement\n"
        "from stead.run.session import opened, workers_on\n"
        "with opened(SMALL, workers_on('core 0')) as r:\n"
        "    b = r.burst(Placement(plain_problem(r), np.zeros(len(r.graph), dtype=np.int64)), runs=2)\n"
        "    print('mode', b.timing_mode)\n"
    )
    command = [drop, "--bounding-set", "-sys_nice", "--inh-caps", "-sys_nice", sys.executable, "-c", code]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
    mode = next((line.split()[1] for line in done.stdout.splitlines() if line.startswith("mode ")), "")
    if not mode:
        raise Skipped(f"the run without privileges did not start: {done.stderr.strip().splitlines()[-1:]}")
    return mode != "fifo" and not left, f"mode without privileges: {mode}; {len(left)} threads left in real time"


def m9() -> Outcome:
    """others on the same cores do not change real-time figures"""
    with opened(GPT, workers_on("core 0")) as running:
        alone = Placement(plain_problem(running), np.zeros(len(running.graph), dtype=np.int64))
        quiet, loud = [], []
        for _ in range(6):  # taking turns: a processor that changes its speed must not look like a disturbance
            quiet.append(running.burst(alone, runs=4))
            with busy_loop(0):
                loud.append(running.burst(alone, runs=4))
    times = [[one for burst in bursts for one in burst.seconds if not burst.lost] for bursts in (quiet, loud)]
    modes = {burst.timing_mode for burst in (*quiet, *loud)}
    if not all(times):
        raise Skipped("every burst was lost")
    limit = 0.05 if modes == {"fifo"} else 0.15
    off = float(np.median(times[1]) / np.median(times[0]) - 1)
    return abs(off) <= limit, f"{off:+.1%} with a busy loop on the core, {'/'.join(sorted(modes))}; {limit:.0%} wanted"


def m10() -> Outcome:
    """every worker has the environment that keeps memory in place"""
    with opened(SMALL, workers_on(THIS_MACHINE)) as running:
        found = [one["environment"] for one in running.readback]
    good = all(own.get(name) == value for own in found for name, value in MALLOC.items())
    return good, f"{len(found)} workers, {len(MALLOC)} variables each"


def m11() -> Outcome:
    """a worker that is killed is told within 5 s, and nothing is left behind"""
    before = set(os.listdir("/dev/shm")) if Path("/dev/shm").exists() else set()
    with opened(SMALL, workers_on(THIS_MACHINE)) as running:
        pids = [one["pid"] for one in running.readback]
        placement = Placement(plain_problem(running), np.arange(len(running.graph)) % len(running.workers))
        threading.Timer(0.3, os.kill, (pids[-1], signal.SIGKILL)).start()
        begin, said = time.monotonic(), ""
        while not said and time.monotonic() - begin < 20:
            try:
                said = running.burst(placement, runs=5).lost
            except SteadError as error:
                said = str(error)
        waited = time.monotonic() - begin - 0.3
    alive = [pid for pid in pids if Path(f"/proc/{pid}").exists()]
    leaked = (set(os.listdir("/dev/shm")) if Path("/dev/shm").exists() else set()) - before
    leaked = {name for name in leaked if "stead" in name}
    told = f"told after {waited:.1f} s ({said[:60]}); {len(alive)} processes and {len(leaked)} segments left"
    return waited <= 5 and not alive and not leaked, told


def m12() -> Outcome:
    """OpenVINO does what was planned"""
    return run_tests("tests/run/test_openvino_hetero.py", "tests/run/test_openvino_executor.py", needs="openvino")


def m13() -> Outcome:
    """ONNX Runtime does what was planned"""
    files = [f"tests/run/{path.name}" for path in sorted((ROOT / "tests/run").glob("test_ort*.py"))]
    return run_tests(*files, needs="onnxruntime")


def m14() -> Outcome:
    """records are whole, and predicted and measured are never swapped"""
    return run_tests("tests/run/test_measure.py")


def m15() -> Outcome:
    """models have the operators that they should have"""
    wanted = {"zoo:resnet-50?batch=1": (122, 138), "zoo:inception-v3?batch=1": (219, 254)}
    found = {name: traced_size(name) for name in wanted}
    told = ", ".join(f"{name.partition('?')[0]} {nodes} nodes, {edges} edges" for name, (nodes, edges) in found.items())
    return found == wanted, f"{told}; OpenVINO's sizes are tests of tests/readers/test_model_agreement.py"


CHECKS: dict[str, Callable[[], Outcome]] = {
    function.__name__.upper(): function
    for function in (m1, m2, m3, m4, m5, m6, m7, m8, m9, m10, m11, m12, m13, m14, m15)
}


READ_RESULTS = ("M3", "M4", "M5")  # of experiments.truth.run: looked at every time


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="M1,M7")
    parser.add_argument("--quick", action="store_true", help="read the results of --quick runs")
    parser.add_argument("--results", default=tables.RESULTS, help="folder with the results to read and to add to")
    parser.add_argument("--again", action="store_true", help="also what was checked before")
    parser.add_argument("--page", action="store_true", help=f"fill {PAGE.name} from all that was checked")
    given = parser.parse_args()
    global RESULTS
    RESULTS = HERE / ("results-quick" if given.quick else given.results)
    only = [name.strip().upper() for name in given.only.split(",") if name.strip()]
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / KEPT
    known: dict[str, list[str]] = json.loads(path.read_text()) if path.exists() else {}
    here = ", ".join(f"{key} {value}".strip() for key, value in host().items())
    for name, check in CHECKS.items():
        if only and name not in only:
            continue
        if given.again or name in only or name in READ_RESULTS or not _is_known(known.get(name), here):
            known[name] = [*_outcome(check), here]
            path.write_text(json.dumps(known, indent=1) + "\n", encoding="utf-8")
        word, figure = known[name][:2]
        print(f"{name:<4} {word}  {check.__doc__}: {figure}", flush=True)
    if given.page and not fill(PAGE, checks_table(known), *marks("experiments.truth.checks", RESULTS.name)):
        print(f"{PAGE} has no marks for {RESULTS.name}")
    return 1 if any(one[0] == "FAIL" for one in known.values()) else 0


def _is_known(kept: list[str] | None, here: str) -> bool:
    """Whether a check was made on this machine, on whatever day."""
    return kept is not None and len(kept) > 2 and kept[2].rpartition(", on ")[0] == here.rpartition(", on ")[0]


def _outcome(check: Callable[[], Outcome]) -> tuple[str, str]:
    """A word and the figure or reason that belongs to it."""
    try:
        passed, figure = check()
        return "pass" if passed else "FAIL", figure
    except Skipped as reason:
        return "skip", str(reason)
    except SteadError as error:
        return "FAIL", str(error)
    except Exception as error:  # one check must not take the others with it
        return "FAIL", f"{type(error).__name__}: {error}"


def checks_table(known: dict[str, list[str]]) -> str:
    """All checks for a page."""
    rows = [
        f"| {name} | {check.__doc__} | {known[name][0].lower()} | {known[name][1]} |"
        for name, check in CHECKS.items()
        if name in known
    ]
    where = "; ".join(dict.fromkeys(one[2] for one in known.values() if len(one) > 2))
    head = [f"Checked on {where}.", ""] if where else []
    return "\n".join([*head, "| | what is checked | | figure or reason |", "|---|---|---|---|", *rows, ""])


KEPT = "checks.json"  # no result of a model: those are called EXECUTOR-MODEL.json
RESULTS = HERE / tables.RESULTS


def _cells() -> list[dict[str, Any]]:
    found = [json.loads(path.read_text()) for path in sorted(RESULTS.glob("*-*.json"))]
    complete = [cell for cell in found if cell.get("complete")]
    if not complete:
        raise Skipped("no results; run `python -m experiments.truth.run` first")
    return complete


def _cell(model: str) -> dict[str, Any]:
    for cell in _cells():
        if cell["model"] == model and cell["executor"] == "torch":
            return cell
    raise Skipped(f"no results for {model}; run `python -m experiments.truth.run` first")


if __name__ == "__main__":
    raise SystemExit(main())
