"""From what a user names (a model, workers, plans) to executors and measurements."""

from __future__ import annotations

import platform
import time
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import numpy as np

from stead.costs import Fitted, MachineProfile
from stead.errors import BadInput
from stead.plan import Plan
from stead.problem import Objective, Placement, Problem
from stead.run.cores import default_workers, workers_from
from stead.run.executor import Executor, Worker
from stead.run.measure import Candidate, measure
from stead.run.open import executor_for, open_executor
from stead.run.predict import Predicted, predict
from stead.run.record import Record

_PACKAGES = {
    "torch": ("torch", "numpy"), "openvino": ("openvino", "numpy"), "ort": ("onnxruntime", "numpy"),
}  # fmt: skip
THIS_MACHINE = "this-machine"
_NOTHING_RUNS = "Refresh"  # of operators that only receive what others have made

Paying = Callable[[Problem, Placement], Problem]  # with what a network takes from the cores at its ends


def workers_on(text: str) -> tuple[Worker, ...]:
    """The workers that `--on` describes: one per core of this machine, or as it says."""
    return default_workers() if text.strip().lower() == THIS_MACHINE else workers_from(text)


def opened(
    model: Any, workers: tuple[Worker, ...], *, executor: str = "auto", options: Mapping[str, Any] | None = None
) -> Executor:
    """The executor of a model; `options` are those of a model of the zoo."""
    if executor_for(model, executor) != "torch":
        if options:
            raise BadInput(f"{model} is run as the file says; {', '.join(options)} cannot be set")
        return open_executor(model, workers, executor)
    from stead.run.torch_executor import TorchExecutor

    if str(model).startswith("zoo:"):
        return TorchExecutor.of_zoo(str(model), workers, reading=options)
    return TorchExecutor.of_file(model, workers)


def versions_of(executor: Executor) -> dict[str, str]:
    """What computed: versions of everything that has a say in the time."""
    found = {"stead": version("stead"), "python": platform.python_version()}
    for package in _PACKAGES.get(executor.name, ("numpy",)):
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found


def circumstances(executor: Executor, *, model: str) -> dict[str, str]:
    """How, where and when something is measured."""
    return {
        "model": model,
        "executor": executor.name,
        "machine": platform.machine(),
        "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        **versions_of(executor),
    }


def profiled_problem(problem: Problem, profile: MachineProfile, workers: Sequence[Worker]) -> Problem:
    """The same question with measured seconds and links; devices of the profile are found by name."""
    names = [worker.name for worker in workers]
    missing = [name for name in names if name not in profile.cluster.names]
    if missing:
        known = ", ".join(profile.cluster.names)
        unknown = ", ".join(missing)
        raise BadInput(f"the profile does not know {unknown}; it has {known}: profile again with the same --on")
    others = [name for name in profile.cluster.names if name not in names]
    cluster = profile.cluster.without(*others) if others else profile.cluster
    if cluster.names != tuple(names):
        order = [cluster.index(name) for name in names]
        cluster = type(cluster)(tuple(cluster.devices[d] for d in order), cluster.links)
    profiles = tuple(one for one in profile.profiles if one.device in names)
    costs = Fitted(profiles).costs(problem.graph, cluster)
    return Problem(problem.graph, cluster, costs, objective=problem.objective)


def measure_plans(
    plans: Sequence[Plan],
    *,
    names: Sequence[str],
    on: str | None = None,
    model: str | None = None,
    executor: str = "auto",
    profile: MachineProfile | None = None,
    bursts: int = 6,
    alternatives: bool = True,
    hosts: str = "",
    launch: str = "",
    on_step: Callable[[str], None] | None = None,
) -> tuple[Record, ...]:
    """Run plans about one model on workers of this machine, or of hosts, and hold them against what was predicted."""
    what = model or str(plans[0].provenance.get("model", ""))
    if not what:
        raise BadInput("the plan does not say what it was made from; name the model with --model")
    here = () if hosts else workers_on(on or workers_of(plans[0]))
    for plan, name in zip(plans, names, strict=True):
        _check_plan(plan, name, plans[0], len(plans[0].problem.cluster) if hosts else len(here))
    if on_step is not None:
        on_step(f"starting {what}")
    with (
        _on_hosts(plans[0], model or "", on or "", hosts, launch, executor)
        if hosts
        else opened(what, here, executor=executor)
    ) as running:
        workers = running.workers
        _check_graph(plans[0], running, what)
        paying = _paying(running, on_step) if hosts else None
        candidates = [
            candidate(plan, name, profile, workers, paying=paying)
            for plan, name in zip(plans, names, strict=True)
        ]
        single = singles(profiled_problem(plans[0].problem, profile, workers) if profile else plans[0].problem)
        readback = getattr(running, "readback", ())
        return measure(
            running,
            candidates,
            single_predicted=single,
            open_on=(lambda others: opened(what, others, executor=executor)) if alternatives and not hosts else None,
            bursts=bursts,
            on_step=on_step,
            circumstances={
                "versions": versions_of(running),
                "readback": tuple(readback() if callable(readback) else readback),
                "not_independent": profile is not None and any("not_independent" in one for one in profile.warnings),
                "transport": getattr(running, "transport", "shm"),
            },
        )


def _on_hosts(plan: Plan, model: str, on: str, hosts: str, launch: str, executor: str) -> Executor:
    """The executor of a plan on several hosts."""
    from stead.run.hosts.host_executor import agents_on, plan_on_hosts
    from stead.run.plans import subject_of

    if executor not in ("auto", "torch"):
        raise BadInput(f"the executor {executor!r} runs on this machine only; on --hosts there is torch")
    subject = subject_of(plan, model)
    return plan_on_hosts(plan, subject, agents_on(hosts, plan.problem.cluster, launch=launch), on=on)


def _paying(executor: Executor, on_step: Callable[[str], None] | None) -> Paying:
    """What a network takes from the cores of hosts, as it is now."""
    from stead.run.hosts.host_crew import HostCrew
    from stead.run.hosts.host_tolls import measure_tolls, with_tolls
    from stead.run.torch_executor import TorchExecutor

    assert isinstance(executor, TorchExecutor)
    crew = executor.crew
    assert isinstance(crew, HostCrew)
    tolls = measure_tolls(crew, on_step=on_step)
    return lambda problem, placement: with_tolls(problem, placement, tolls, crew.host_of)


def workers_of(plan: Plan) -> str:
    """The workers that the devices of a plan stand for, as `--on` takes them; else this machine."""
    known = [device.alias.get("stead") for device in plan.problem.cluster]
    return " + ".join(map(str, known)) if all(known) else THIS_MACHINE


def candidate(
    plan: Plan, name: str, profile: MachineProfile | None, workers: Sequence[Worker], *, paying: Paying | None = None
) -> Candidate:
    """A plan to be measured, with every prediction of it that can be made.

    Copies in memory are paid by the producer; what goes over a network overlaps with compute, which pays for it.
    """
    objective = plan.problem.objective.name
    said = {"plan": predict(plan.problem, plan.placement, charge="overlapped")}
    best, problem = said["plan"], plan.problem
    if profile is not None:
        problem = profiled_problem(plan.problem, profile, workers)
        said["profile, overlapped"] = predict(problem, plan.placement, charge="overlapped")
        best = predict(problem, plan.placement)
    if paying is not None:
        best = predict(paying(problem, plan.placement), plan.placement, charge="overlapped")
    return Candidate(name, plan.placement, best, objective, said)


def singles(problem: Problem) -> list[Predicted]:
    """What each device alone should take, for one step or sample."""
    count = len(problem.graph)
    return [predict(problem, Placement(problem, np.full(count, d))) for d in range(len(problem.cluster))]


def with_objective(problem: Problem, objective: Objective) -> Problem:
    """The same question with another objective."""
    return problem if problem.objective == objective else problem.with_objective(objective)


def _check_plan(plan: Plan, name: str, first: Plan, workers: int) -> None:
    cluster = plan.problem.cluster
    if plan.problem.graph.operator_names != first.problem.graph.operator_names:
        raise BadInput(f"{name} is about another model than the plans before it; measure plans of one model at once")
    if len(cluster) != workers:
        raise BadInput(
            f"{name} is a plan for {len(cluster)} devices ({', '.join(cluster.names)}), but --on names {workers} "
            "workers; give as many"
        )


def _check_graph(plan: Plan, executor: Executor, what: str) -> None:
    graph, found = plan.problem.graph, set(executor.graph.operator_names)
    working = {name for name, kind in zip(graph.operator_names, graph.kinds, strict=True) if kind != _NOTHING_RUNS}
    differing = sorted((found - set(graph.operator_names)) | (working - found))
    if differing:
        raise BadInput(
            f"the plan was made from another graph than {what} gives: {len(differing)} operators differ, such as "
            f"{differing[0]!r}; name the model with its options (--model), or place it again"
        )
