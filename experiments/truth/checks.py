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
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from experiments.truth.kept import joined
from experiments.truth.run import HERE, PAGE
from experiments.truth.tables import fill, summary, usable
from stead import Latency, Placement, Problem, Roofline, SteadError
from stead.costs.machine_profile import UNSTEADY
from stead.run.machine_rates import measure_machine
from stead.run.probes import MALLOC
from stead.run.profile import REPEATS, take_timings
from stead.run.session import THIS_MACHINE, opened, workers_on

ROOT = HERE.parents[1]
SMALL = "zoo:gpt2-small?batch=1,layers=2,width=256,heads=4,length=64,vocabulary=2000"
GPT = "zoo:gpt2-small?batch=1,layers=4,width=512,heads=8,length=128,vocabulary=8000"
RESNET = "zoo:resnet-50?batch=1,side=192"


class Skipped(Exception):
    """A check that cannot be made here, and why."""


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
            alone = Placement(_problem(running), np.zeros(len(running.graph), dtype=np.int64))
            profiles, seconds = [], []
            for _ in range(6):  # taking turns: a machine that changes its speed must not look like an open profile
                profiles.append(take_timings(running, bursts=1))
                seconds += running.burst(alone, runs=REPEATS).seconds
            (timings,) = joined(profiles)
            if not seconds:
                raise Skipped("every burst was lost: the machine is too busy")
            off = float(timings.operators.sum() / np.percentile(seconds, 25) - 1)
            worst = max(worst, abs(off))
            told.append(f"{model.partition('?')[0]} {off:+.1%}")
    return worst <= 0.04, f"{', '.join(told)}; 4 % wanted of eager torch"


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
    """limits on instructions make unlike devices"""
    if len(workers_on(THIS_MACHINE)) < 2:
        raise Skipped("one core only")
    slower = {}
    for name, model in (("ResNet-50", RESNET), ("GPT", GPT)):
        with opened(model, workers_on("core 0 + core 1 @ sse41")) as running:
            first, second = take_timings(running, bursts=3)
            slower[name] = second.total.quartile_seconds / first.total.quartile_seconds
    flags = Path("/proc/cpuinfo").read_text(encoding="utf-8") if Path("/proc/cpuinfo").exists() else ""
    bf16 = "bf16 left out: the processor lacks it" if "bf16" not in flags else "bf16 not looked at"
    told = ", ".join(f"{name} {times:.2f}x" for name, times in slower.items())
    return slower["ResNet-50"] >= 1.5 and slower["GPT"] <= 1.1, f"SSE4.1 slows {told}; 1.5x and 1.1x wanted; {bf16}"


def m7() -> Outcome:
    """results are the same, bit for bit, and a stale slot would be noticed"""
    random = np.random.default_rng(0)
    worst, count = 0.0, 12
    with opened(SMALL, workers_on(THIS_MACHINE)) as running:
        problem = _problem(running)
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
        running.burst(Placement(_problem(running), np.zeros(len(running.graph), dtype=np.int64)), runs=2)
        left = _in_real_time([one["pid"] for one in running.readback])
    drop = shutil.which("setpriv")
    if drop is None:
        raise Skipped("no setpriv to drop the privilege with")
    code = (
        "import numpy as np\nfrom experiments.truth.checks import SMALL, _problem\nfrom stead import Placement\n"
        "from stead.run.session import opened, workers_on\n"
        "with opened(SMALL, workers_on('core 0')) as r:\n"
        "    b = r.burst(Placement(_problem(r), np.zeros(len(r.graph), dtype=np.int64)), runs=2)\n"
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
        alone = Placement(_problem(running), np.zeros(len(running.graph), dtype=np.int64))
        quiet, loud = [], []
        for _ in range(6):  # taking turns: a processor that changes its speed must not look like a disturbance
            quiet.append(running.burst(alone, runs=4))
            with _busy_loops(0):
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
        placement = Placement(_problem(running), np.arange(len(running.graph)) % len(running.workers))
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
    return _tests("tests/run/test_openvino_hetero.py", "tests/run/test_openvino_executor.py", needs="openvino")


def m13() -> Outcome:
    """ONNX Runtime does what was planned"""
    files = [f"tests/run/{path.name}" for path in sorted((ROOT / "tests/run").glob("test_ort*.py"))]
    return _tests(*files, needs="onnxruntime")


def m14() -> Outcome:
    """records are whole, and predicted and measured are never swapped"""
    return _tests("tests/run/test_measure.py")


def m15() -> Outcome:
    """models have the operators that they should have"""
    wanted = {"zoo:resnet-50?batch=1": (122, 138), "zoo:inception-v3?batch=1": (219, 254)}
    found = {name: _traced(name) for name in wanted}
    told = ", ".join(f"{name.partition('?')[0]} {nodes} nodes, {edges} edges" for name, (nodes, edges) in found.items())
    return found == wanted, f"{told}; OpenVINO's sizes are tests of tests/readers/test_model_agreement.py"


CHECKS: dict[str, Callable[[], Outcome]] = {
    function.__name__.upper(): function
    for function in (m1, m2, m3, m4, m5, m6, m7, m8, m9, m10, m11, m12, m13, m14, m15)
}


READ_RESULTS = ("M3", "M4", "M5")  # of experiments.truth.run: looked at every time
BEGIN, END = "<!-- begin of experiments.truth.checks -->", "<!-- end of experiments.truth.checks -->"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="M1,M7")
    parser.add_argument("--quick", action="store_true", help="read the results of --quick runs")
    parser.add_argument("--again", action="store_true", help="also what was checked before")
    parser.add_argument("--page", action="store_true", help=f"fill {PAGE.name} from all that was checked")
    given = parser.parse_args()
    if given.quick:
        global RESULTS
        RESULTS = HERE / "results-quick"
    only = [name.strip().upper() for name in given.only.split(",") if name.strip()]
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / KEPT
    known: dict[str, list[str]] = json.loads(path.read_text()) if path.exists() else {}
    for name, check in CHECKS.items():
        if only and name not in only:
            continue
        if given.again or name in only or name in READ_RESULTS or name not in known:
            known[name] = list(_outcome(check))
            path.write_text(json.dumps(known, indent=1) + "\n", encoding="utf-8")
        word, figure = known[name]
        print(f"{name:<4} {word}  {check.__doc__}: {figure}", flush=True)
    if given.page:
        fill(PAGE, checks_table(known), BEGIN, END)
    return 1 if any(word == "FAIL" for word, _ in known.values()) else 0


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
    return "\n".join(["| | what is checked | | figure or reason |", "|---|---|---|---|", *rows, ""])


KEPT = "checks.json"  # no result of a model: those are called EXECUTOR-MODEL.json
RESULTS = HERE / "results"


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


def _problem(running: Any) -> Problem:
    """The graph of an executor on devices without figures: placements need no more."""
    from stead.cluster import Cluster, Device, link_all

    names = [worker.name for worker in running.workers]
    devices = tuple(
        Device(name, kind="cpu", flops_per_second={"fp32": 1e11, "fp16": 1e11, "bf16": 1e11, "fp64": 5e10},
               bytes_per_second=1e10)
        for name in names
    )  # fmt: skip
    cluster = Cluster(devices, link_all(names, bytes_per_second=6e9, latency_seconds=3e-6))
    return Problem(running.graph, cluster, Roofline().costs(running.graph, cluster), objective=Latency())


def _tests(*files: str, needs: str = "") -> Outcome:
    """Tests that guard a check."""
    from importlib.util import find_spec

    if needs and find_spec(needs) is None:
        raise Skipped(f"{needs} is not installed")
    there = [name for name in files if (ROOT / name).exists()]
    if not there:
        raise Skipped("there are no such tests here")
    command = [sys.executable, "-m", "pytest", "-q", "-n", "0", "-p", "no:cacheprovider", *there]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=1200)
    last = [line for line in done.stdout.splitlines() if "passed" in line or "failed" in line or "skipped" in line]
    told = last[-1].strip("= ") if last else f"exit code {done.returncode}"
    return done.returncode == 0, f"{' '.join(there)}: {told}"


def _traced(name: str) -> tuple[int, int]:
    """Operators and edges of a traced module, normalisation folded, what does nothing left out."""
    import torch
    from torch.fx import symbolic_trace
    from torch.fx.experimental.optimization import fuse

    from stead.workloads import parse

    module, _, _ = parse(name).torch(device="cpu")
    traced = fuse(symbolic_trace(module.eval()))
    idle = [
        node for node in traced.graph.nodes
        if node.op == "call_module" and isinstance(traced.get_submodule(node.target), torch.nn.Dropout)
    ]  # fmt: skip
    for node in idle:
        node.replace_all_uses_with(node.all_input_nodes[0])
        traced.graph.erase_node(node)
    nodes = [node for node in traced.graph.nodes if node.op in ("call_module", "call_function", "call_method")]
    return len(nodes), sum(len(node.all_input_nodes) for node in nodes)


def _in_real_time(pids: list[int]) -> list[int]:
    """Threads of processes that are in a real-time class."""
    found = []
    for pid in pids:
        for thread in Path(f"/proc/{pid}/task").glob("*"):
            try:
                if os.sched_getscheduler(int(thread.name)) in (os.SCHED_FIFO, os.SCHED_RR):
                    found.append(int(thread.name))
            except OSError:  # it has ended
                continue
    return found


@contextmanager
def _busy_loops(core: int) -> Iterator[None]:
    """Somebody else on a core."""
    code = f"import os\nos.sched_setaffinity(0, [{core}])\nwhile True: pass"
    with tempfile.TemporaryFile() as nothing:
        busy = subprocess.Popen([sys.executable, "-c", code], stdout=nothing, stderr=nothing)
        try:
            time.sleep(0.2)  # until it is at work
            yield
        finally:
            busy.kill()
            busy.wait()


if __name__ == "__main__":
    raise SystemExit(main())
