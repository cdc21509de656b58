"""What checks of the measuring need: a plain problem, tests, sizes of models, others at work, threads in real time."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from stead import Latency, Problem, Roofline
from stead.cluster import Cluster, Device, link_all

ROOT = Path(__file__).parents[2]


class Skipped(Exception):
    """A check that cannot be made here, and why."""


def plain_problem(running: Any) -> Problem:
    """The graph of an executor on devices without figures: placements need no more."""
    names = [worker.name for worker in running.workers]
    devices = tuple(
        Device(name, kind="cpu", flops_per_second={"fp32": 1e11, "fp16": 1e11, "bf16": 1e11, "fp64": 5e10},
               bytes_per_second=1e10)
        for name in names
    )  # fmt: skip
    cluster = Cluster(devices, link_all(names, bytes_per_second=6e9, latency_seconds=3e-6))
    return Problem(running.graph, cluster, Roofline().costs(running.graph, cluster), objective=Latency())


def run_tests(*files: str, needs: str = "") -> tuple[bool, str]:
    """Tests that guard a check."""
    if needs and find_spec(needs) is None:
        raise Skipped(f"{needs} is not installed")
    there = [name for name in files if (ROOT / name).exists()]
    if not there:
        raise Skipped("there are no such tests here")
    command = [sys.executable, "-m", "pytest", "-n", "0", "-p", "no:cacheprovider", *there]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=1200)
    last = [line for line in done.stdout.splitlines() if "passed" in line or "failed" in line or "skipped" in line]
    told = last[-1].strip("= ") if last else f"exit code {done.returncode}"
    return done.returncode == 0, f"{' '.join(there)}: {told}"


def traced_size(name: str) -> tuple[int, int]:
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


def in_real_time(pids: Sequence[int]) -> list[int]:
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
def busy_loop(core: int) -> Iterator[None]:
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
