"""What is believed of workers before anything is measured: the data sheet of this machine, or whatever is given."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from stead.cluster import Cluster, Device, cluster_from, link_all
from stead.cluster.machine import this_machine
from stead.costs import MachineProfile, Roofline
from stead.errors import BadInput
from stead.problem import Objective, Problem
from stead.run.executor import Executor, Worker
from stead.run.machine_rates import described
from stead.run.session import profiled_problem

LAUNCH_SECONDS = 5e-6  # of one operator, in a framework
SHARED_MEMORY_BYTES_PER_SECOND, SHARED_MEMORY_SECONDS = 6e9, 3e-6  # of one copy between two processes
ISA_SHARE = {"SSE41": 0.5}  # of the peak that is left where kernels may use less: vectors half as long


def believed_problem(
    executor: Executor,
    objective: Objective,
    *,
    devices: str | None = None,
    profile: MachineProfile | None = None,
) -> Problem:
    """The question about an executor's model, with the costs of a profile, of described devices or of a data sheet."""
    graph, workers = executor.graph, executor.workers
    if devices is not None:
        cluster = cluster_from(devices)[0]
        if len(cluster) != len(workers):
            raise BadInput(
                f"--devices describes {len(cluster)} devices, but there are {len(workers)} workers "
                f"({', '.join(worker.name for worker in workers)}); describe as many"
            )
    else:
        cluster = data_sheet(workers)
    problem = Problem(graph, cluster, Roofline().costs(graph, cluster), objective=objective)
    return problem if profile is None else profiled_problem(problem, profile, workers)


def data_sheet(workers: Sequence[Worker]) -> Cluster:
    """Workers as the catalogue has the processor of this machine, each with the share of its cores.

    >>> cluster = data_sheet([Worker("core 0", (0,)), Worker("core 1", (1,), isa="SSE41")])
    >>> fast, slow = (device.flops_per_second["fp32"] for device in cluster)
    >>> cluster.names, fast / slow
    (('core 0', 'core 1'), 2.0)
    """
    away = [worker for worker in workers if worker.device != "cpu"]
    if away:
        raise BadInput(f"{away[0].name} is not a processor: say with --devices what is to be believed of it")
    found = cluster_from("auto")[0]
    whole = next(device for device in found if device.is_host)
    cores = max(this_machine().cores or 1, 1)
    names = [worker.name for worker in workers]
    links = link_all(
        names,
        bytes_per_second=SHARED_MEMORY_BYTES_PER_SECOND,
        latency_seconds=SHARED_MEMORY_SECONDS,
        carried_by="sender",
    )
    return Cluster(tuple(_share(whole, worker, cores) for worker in workers), links)


def _share(whole: Device, worker: Worker, cores: int) -> Device:
    share = min(1.0, len(worker.cores) / cores)
    peak = share * ISA_SHARE.get(worker.isa, 1.0)
    memory = max(1, int(share * whole.memory_bytes))
    return replace(
        whole, name=worker.name, memory_bytes=memory, reserve_bytes=min(int(share * whole.reserve_bytes), memory - 1),
        flops_per_second={dtype: peak * rate for dtype, rate in whole.flops_per_second.items()},
        bytes_per_second=share * whole.bytes_per_second, launch_seconds=LAUNCH_SECONDS,
        alias={"stead": described(worker)},
    )  # fmt: skip
