"""stead run: run a plan on the cores of this machine, or on several hosts."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from stead.cli import options
from stead.errors import BadInput

if TYPE_CHECKING:
    from stead.plan import Plan
    from stead.run.executor import Burst, Numerics
    from stead.run.subject import Subject
    from stead.run.torch_executor import TorchExecutor


def run(
    plan: Annotated[Path, typer.Argument(metavar="PLAN", help="A plan that `stead place` wrote.")],
    model: Annotated[
        str,
        typer.Option(metavar="MODEL", help="zoo:NAME or a .pt2 file, if not what the plan was made from."),
    ] = "",
    on: Annotated[
        str,
        typer.Option(
            metavar="WORKERS", help='One worker per device: "core 0 + core 1 @ sse41". Absent: one core each.'
        ),
    ] = "",
    hosts: options.Hosts = "",
    launch: options.Launch = "",
    runs: Annotated[int, typer.Option(help="Steps to run after a warm-up.", min=1)] = 10,
    oversubscribe: Annotated[bool, typer.Option("--oversubscribe", help="Let workers share cores.")] = False,
    json: options.Json = False,
) -> int:
    """Run a plan on cores of this machine or of several hosts, and check the numbers; exit code 1 if they are wrong."""
    from stead.cli.output import print_json
    from stead.cli.progress import Progress
    from stead.cli.streams import print_lines
    from stead.plan import Plan
    from stead.run.plans import subject_of

    if launch and not hosts:
        raise BadInput("--launch says how agents are started on --hosts; name them")
    if _is_helping(hosts):
        return 0
    found = Plan.load(plan)
    subject = subject_of(found, model)
    with Progress() as progress:
        progress.doing(f"starting {len(found.problem.cluster)} workers for {subject.name}")
        with _executor(found, subject, on, hosts, launch, oversubscribe) as executor:
            progress.doing("checking the numbers")
            verdict = executor.check(found.placement)
            progress.doing(f"running {runs} steps")
            burst = executor.burst(found.placement, runs=runs)
    if json:
        print_json(_document(found, executor, burst, verdict))
    else:
        print_lines(_lines(found, executor, burst, verdict))
    return 0 if verdict.passed else 1


def _is_helping(hosts: str) -> bool:
    """Under torchrun, all ranks but the first help it to run the plan; whether this one did."""
    from stead.run.hosts.under_torchrun import TORCHRUN, Rank, serve_rank

    if hosts.strip() != TORCHRUN:
        return False
    rank = Rank.of(os.environ)
    if rank.number:
        serve_rank(rank)
    return rank.number > 0


def _executor(
    plan: Plan, subject: Subject, on: str, hosts: str, launch: str, oversubscribe: bool
) -> TorchExecutor:
    """What runs a plan: on workers of this machine, or of the hosts that are named."""
    from stead.run.cores import workers_from
    from stead.run.hosts.host_executor import agents_on, plan_on_hosts
    from stead.run.plans import workers_for
    from stead.run.torch_executor import TorchExecutor

    if hosts:
        agents = agents_on(hosts, plan.problem.cluster, launch=launch)
        return plan_on_hosts(plan, subject, agents, on=on, oversubscribe=oversubscribe)
    given = workers_from(on, oversubscribe=oversubscribe) if on else ()
    workers = workers_for(plan, given, oversubscribe=oversubscribe)
    return TorchExecutor(subject, workers, oversubscribe=oversubscribe)


def _lines(plan: Plan, executor: TorchExecutor, burst: Burst, verdict: Numerics) -> list[str]:
    """One screen: workers as they really are, time per step, how it was taken, and the verdict on the numbers."""
    from stead.printing.table import in_seconds
    from stead.report.text import line

    counts = plan.placement.counts()
    lines = [line("model", f"{executor.model_name}: {len(executor.graph)} operators")]
    for device, worker, found in zip(plan.problem.cluster.names, executor.workers, executor.readback, strict=True):
        cores = ", ".join(map(str, found["cores"])) or "any"
        isa = f"kernels up to {found['isa_cap']}" if found["isa_cap"] else found["isa"]
        threads = f"{found['threads']} thread{'s' if found['threads'] > 1 else ''}"
        become = f"core {cores}, {threads}, {isa}, {worker.dtype}"
        lines.append(line("worker", f"{device} is {worker.name}: {counts[device]} operators, {become}"))
    if executor.not_independent:
        lines.append(line("note", "workers share cores: times say nothing"))
    if burst.lost:
        lines.append(line("step", f"no time: {burst.lost}; run again"))
    else:
        ordered = sorted(burst.seconds)
        scale = in_seconds(ordered[len(ordered) // 2])
        lines.append(
            line(
                "step",
                f"median {scale(ordered[len(ordered) // 2])} {scale.unit}, fastest {scale(ordered[0])} {scale.unit}, "
                f"{len(ordered)} steps",
            )
        )
    lines.append(line("timing", _timing(burst)))
    lines.append(line("numbers", _verdict(verdict)))
    return lines


def _timing(burst: Burst) -> str:
    words = {
        "fifo": "real-time bursts",
        "quiet": "plain clock on a quiet machine",
        "cputime": "composed from processor time, as the machine is busy",
        "disturbed": "plain clock, and others were at work on the machine",
    }
    seen = burst.contention
    return (
        f"{burst.timing_mode}: {words.get(burst.timing_mode, '')}; load {seen.load_average:.1f}, "
        f"{seen.involuntary_switches} interruptions, {seen.steal_ticks} ticks stolen"
    )


def _verdict(verdict: Numerics) -> str:
    if verdict.max_abs == 0.0:
        return "the same as on one worker, bit for bit"
    if not verdict.passed:
        return f"WRONG: {verdict.fault}"
    return f"as on one worker: relative difference {verdict.relative:.2g}, {verdict.tolerance:g} allowed"


def _document(plan: Plan, executor: TorchExecutor, burst: Burst, verdict: Numerics) -> dict[str, Any]:
    from dataclasses import asdict

    return {
        "model": executor.model_name,
        "devices": [
            {"name": name, "worker": asdict(worker), "readback": found}
            for name, worker, found in zip(plan.problem.cluster.names, executor.workers, executor.readback, strict=True)
        ],
        "transport": executor.transport,
        "not_independent": executor.not_independent,
        "seconds": list(burst.seconds),
        "lost": burst.lost or None,
        "timing_mode": burst.timing_mode,
        "contention": asdict(burst.contention),
        "numerics": {**asdict(verdict), "passed": verdict.passed},
    }
