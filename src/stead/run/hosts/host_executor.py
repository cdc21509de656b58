"""Plans on several hosts: which device is where, and the executor that runs them there.

    agents = agents_on("a,b", plan.problem.cluster, launch="ssh {host} {command}")
    with plan_on_hosts(plan, subject_of(plan), agents) as executor:
        burst = executor.burst(plan.placement, runs=5)
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace

from stead.cluster import Cluster
from stead.errors import BadInput
from stead.plan import Plan
from stead.run.cores import workers_from
from stead.run.executor import Worker
from stead.run.hosts.host_crew import PATIENCE_SECONDS, Agents, HostCrew, launched_by, workers_on_hosts
from stead.run.hosts.launching import BY_SSH, NamedHost, hosts_from
from stead.run.hosts.under_torchrun import TORCHRUN, Rank, agents_of_ranks
from stead.run.subject import Prepared, Subject
from stead.run.torch_executor import TorchExecutor


def hosts_of(cluster: Cluster, hosts: Sequence[NamedHost]) -> tuple[int, ...]:  # [device]
    """The host of every device: as the cluster says, by name or else in its order; else in equal parts.

    >>> from stead.cluster import cluster_from
    >>> hosts_of(cluster_from("4x 3090")[0], [NamedHost("a"), NamedHost("b")])
    (0, 0, 1, 1)
    """
    names = [host.name for host in hosts]
    count = len(cluster)
    if not cluster.hosts:
        if count % len(hosts):
            raise BadInput(
                f"{count} devices cannot be shared equally by {len(hosts)} hosts; say in the device file which device "
                "is on which host ([[host]] tables), and place again"
            )
        return tuple(d * len(hosts) // count for d in range(count))
    known = [host.name for host in cluster.hosts]
    if len(known) != len(names):
        raise BadInput(f"the plan is for hosts {', '.join(known)}, --hosts names {', '.join(names)}; name as many")
    by_name = set(known) == set(names)
    number = {host: names.index(host) if by_name else at for at, host in enumerate(known)}
    on = {device: number[host.name] for host in cluster.hosts for device in host.devices}
    return tuple(on[name] for name in cluster.names)


def agents_on(
    text: str, cluster: Cluster | None = None, *, launch: str = "", patience_seconds: float = PATIENCE_SECONDS
) -> Agents:
    """An agent on every host of a text, such as "a,b"; "torchrun": on the hosts that torchrun has started."""
    if text.strip() == TORCHRUN:
        rank = Rank.of(os.environ)
        known = [host.name for host in cluster.hosts] if cluster is not None else []
        names = known if len(known) == rank.count else [f"node{number}" for number in range(rank.count)]
        return agents_of_ranks(rank, names, patience_seconds=patience_seconds)
    hosts = hosts_from(text)
    if cluster is not None:
        hosts_of(cluster, hosts)  # what does not fit is said before anything is started
        hosts = with_addresses(hosts, cluster)
    return Agents(hosts, launched_by(launch or BY_SSH), patience_seconds=patience_seconds)


def plan_on_hosts(
    plan: Plan,
    subject: Subject | Prepared,
    agents: Agents,
    *,
    on: str = "",
    oversubscribe: bool = False,
    deadline_seconds: float | None = None,
) -> TorchExecutor:
    """The executor of a plan on the hosts of its devices; closes the agents with itself."""
    try:
        host_of, wanted = hosts_of(plan.problem.cluster, agents.hosts), wanted_workers(plan, on)
    except BaseException:
        agents.close()
        raise
    return executor_on_hosts(
        subject, agents, host_of, wanted, oversubscribe=oversubscribe, deadline_seconds=deadline_seconds
    )


def with_addresses(hosts: Sequence[NamedHost], cluster: Cluster) -> tuple[NamedHost, ...]:
    """Hosts with the addresses that a cluster knows, where none is given."""
    known = {host.name: host.address for host in cluster.hosts}
    return tuple(replace(host, address=host.address or known.get(host.name, "")) for host in hosts)


def wanted_workers(plan: Plan, on: str = "") -> list[Worker | None]:
    """What is wanted of the worker of each device, on its own host; None: any core that is free."""
    cluster = plan.problem.cluster
    if on:
        given = [workers_from(part, oversubscribe=True)[0] for part in on.split("+")]
        if len(given) < len(cluster):
            raise BadInput(f"the plan has {len(cluster)} devices, --on names {len(given)} workers; name one for each")
        return list(given[: len(cluster)])
    known = [device.alias.get("stead") for device in cluster]
    return [workers_from(str(text), oversubscribe=True)[0] if text else None for text in known]


def executor_on_hosts(
    subject: Subject | Prepared,
    agents: Agents,
    host_of: Sequence[int],
    wanted: Sequence[Worker | None],
    *,
    oversubscribe: bool = False,
    deadline_seconds: float | None = None,
) -> TorchExecutor:
    """The executor of a model on workers of several hosts; closes the agents with itself."""
    try:
        crew = HostCrew(agents, workers_on_hosts(agents, host_of, wanted, oversubscribe=oversubscribe), host_of)
        executor = TorchExecutor(subject, crew=crew, deadline_seconds=deadline_seconds)
        crew.join()
    except BaseException:
        agents.close()
        raise
    return executor
