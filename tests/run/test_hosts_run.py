"""Plans over several hosts: the same numbers bit for bit, one line for whatever goes wrong, and nothing left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
if not torch.distributed.is_available() or not torch.distributed.is_gloo_available():
    pytest.skip("torch has no gloo here", allow_module_level=True)

from models import Branches, SmallCNN, seeded  # noqa: E402
from test_robustness import is_running  # noqa: E402
from test_torch_executor import problem_of  # noqa: E402
from torch import nn  # noqa: E402

from stead import Placement  # noqa: E402
from stead.cluster import Cluster, Device, Host, link_all  # noqa: E402
from stead.errors import BadInput, RunFailed  # noqa: E402
from stead.run.hosts.host_crew import Agents, launched_by, workers_on_hosts  # noqa: E402
from stead.run.hosts.host_executor import agents_on, executor_on_hosts, hosts_of  # noqa: E402
from stead.run.hosts.host_messages import Look  # noqa: E402
from stead.run.hosts.launching import Launched, NamedHost, command_for, hosts_from  # noqa: E402
from stead.run.subject import captured  # noqa: E402
from stead.run.torch_executor import TorchExecutor  # noqa: E402

LOCAL = "a=127.0.0.1,b=127.0.0.1,c=127.0.0.1"


@pytest.fixture(autouse=True)
def nothing_is_left() -> Iterator[None]:
    yield
    shared = Path("/dev/shm")
    assert not shared.is_dir() or not list(shared.glob("stead-slots-*"))


def agent_pids(agents: Agents) -> list[int]:
    return [agent._process.pid for agent in agents.agents if isinstance(agent, Launched)]


def all_pids(executor: TorchExecutor, agents: Agents) -> list[int]:
    return [*agent_pids(agents), *(one["pid"] for one in executor.readback)]


def gone(pids: list[int], seconds: float = 5.0) -> bool:
    """Whether processes end soon: those of a dead agent do so a moment later."""
    end = time.monotonic() + seconds
    while any(map(is_running, pids)) and time.monotonic() < end:
        time.sleep(0.05)
    return not any(map(is_running, pids))


# What users write


def test_a_command_may_be_a_shell_line_for_ssh_or_words_for_exec() -> None:
    agent = [sys.executable, "-m", "stead.run.hosts.agent"]
    assert command_for("ssh {host} {command}", "a") == ["ssh", "a", *agent]
    assert command_for("ssh {host} 'cd /x && {command}'", "a")[2].startswith("cd /x && ")
    with pytest.raises(BadInput, match=r"must have \{command\} in it"):
        command_for("ssh {host}", "a")


@pytest.mark.parametrize("text", ["", "a,,b", "a b", "a=", "-oProxyCommand=x", "a,a"])
def test_hosts_that_make_no_sense_are_one_line(text: str) -> None:
    with pytest.raises(BadInput, match="host"):
        hosts_from(text)


def test_devices_are_on_the_hosts_that_the_cluster_says_by_name_or_in_order() -> None:
    names = ("x", "y", "z")
    hosts = (Host("a", ("x", "z")), Host("b", ("y",)))
    cluster = Cluster(tuple(map(Device, names)), link_all(names, bytes_per_second=1.0), hosts=hosts)
    assert hosts_of(cluster, [NamedHost("b"), NamedHost("a")]) == (1, 0, 1)
    assert hosts_of(cluster, [NamedHost("first"), NamedHost("second")]) == (0, 1, 0)
    with pytest.raises(BadInput, match="the plan is for hosts a, b, --hosts names a; name as many"):
        hosts_of(cluster, [NamedHost("a")])
    with pytest.raises(BadInput, match="3 devices cannot be shared equally by 2 hosts"):
        hosts_of(Cluster(cluster.devices, cluster.links), [NamedHost("a"), NamedHost("b")])


# Agents


def test_what_a_launch_command_complains_about_is_the_line() -> None:
    with pytest.raises(RunFailed, match=r"host a: its agent ended with code 3: no route to a"):
        agents_on("a", launch="sh -c 'echo no route to {host} >&2; exit 3' {command}")


def test_a_command_that_is_not_there_is_one_line() -> None:
    with pytest.raises(RunFailed, match="host a: cannot start /nowhere/ssh: No such file"):
        agents_on("a", launch="/nowhere/ssh {host} {command}")


def test_greetings_of_a_login_shell_do_no_harm() -> None:
    agents = agents_on("a=127.0.0.1", launch="sh -c 'echo Welcome to {host}; exec {command}'")
    try:
        assert agents.opened[0].peer.address == "127.0.0.1"
        assert agents.opened[0].cores
    finally:
        agents.close()


def test_an_address_of_another_host_is_one_line() -> None:
    with pytest.raises(RunFailed, match=r"host a: 192\.0\.2\.7 is no address of this host"):
        agents_on("a=192.0.2.7", launch="{command}")


def test_a_host_that_falls_silent_is_named_and_everything_ends() -> None:
    agents = Agents(hosts_from(LOCAL), launched_by("{command}"), patience_seconds=2.0)
    pids = agent_pids(agents)
    try:
        os.kill(pids[1], signal.SIGSTOP)
        with pytest.raises(RunFailed, match=r"host b(: no sign of life for| is cut off from the others: nothing)"):
            agents.ask(dict.fromkeys(range(3), Look()), 60.0)
    finally:
        agents.close()
    assert gone(pids)


def test_hosts_of_one_machine_share_its_cores() -> None:
    agents = agents_on("a=127.0.0.1,b=127.0.0.1", launch="{command}")
    try:
        cores = agents.opened[0].cores
        made = workers_on_hosts(agents, (0, 1), [None, None], oversubscribe=len(cores) < 2)
        assert len(cores) < 2 or made[0].cores != made[1].cores
        assert made[1].name == f"b/core {made[1].cores[0]}"
        with pytest.raises(BadInput, match="has no core left"):
            workers_on_hosts(agents, (0, 1) * len(cores), [None] * 2 * len(cores))
        assert all(seen.surroundings.load_average >= 0 for seen in agents.ask({0: Look(), 1: Look()}, 60.0).values())
    finally:
        agents.close()


def test_agents_end_with_a_coordinator_that_is_killed() -> None:
    script = (
        "import os, signal\n"
        "from stead.run.hosts.host_executor import agents_on\n"
        "agents = agents_on('a=127.0.0.1', launch='{command}')\n"
        "print(agents.agents[0]._process.pid, flush=True)\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == -signal.SIGKILL
    assert gone([int(done.stdout)])


# Executors


def hosted(prepared: Any, text: str, host_of: tuple[int, ...]) -> tuple[TorchExecutor, Agents]:
    agents = agents_on(text, launch="{command}", patience_seconds=30.0)  # a busy machine is no reason to fail
    return executor_on_hosts(prepared, agents, host_of, [None] * len(host_of), oversubscribe=True), agents


@pytest.fixture(scope="module")
def training() -> Iterator[TorchExecutor]:
    """A training step on three hosts, the first of which has two workers."""
    torch.manual_seed(1)
    images, classes = torch.randn(4, 3, 12, 12), torch.randint(0, 10, (4,))
    prepared = captured(
        seeded(SmallCNN), (images,), nn.functional.cross_entropy, targets=(classes,), update="sgd", name="cnn"
    )
    executor, _ = hosted(prepared, LOCAL, (0, 0, 1, 2))
    with executor:
        yield executor


def placements(executor: TorchExecutor, count: int, seed: int = 0) -> Iterator[Placement]:
    problem = problem_of(executor.graph, f"{len(executor.workers)}x 3090")
    draw = np.random.default_rng(seed)
    for _ in range(count):
        yield Placement(problem, draw.integers(0, len(executor.workers), len(problem.graph)))


def test_random_placements_over_hosts_give_the_numbers_of_one_worker_bit_for_bit(training: TorchExecutor) -> None:
    for placement in placements(training, 12):
        verdict = training.check(placement)
        assert verdict.tolerance == 0.0
        assert verdict.max_abs == 0.0


def test_losses_of_training_over_hosts_are_those_of_one_worker(training: TorchExecutor) -> None:
    alone = training.train_losses(None, steps=4)
    assert len(set(alone)) == 4
    for placement in placements(training, 2, seed=7):
        assert training.train_losses(placement, steps=4) == alone


def test_times_over_hosts_are_by_the_plain_clock(training: TorchExecutor) -> None:
    burst = training.burst(next(placements(training, 1)), runs=3)
    assert len(burst.seconds) == 3
    assert burst.timing_mode in ("quiet", "disturbed")  # real time and sockets hang
    assert training.transport == "gloo"
    with pytest.raises(BadInput, match="one process cannot have the cores of several hosts"):
        training.threads(runs=1)


def test_a_pipeline_over_hosts_and_a_host_that_is_killed() -> None:
    torch.manual_seed(1)
    prepared = captured(seeded(Branches).eval(), (torch.randn(1, 3, 12, 12),), export=True, name="branches")
    executor, agents = hosted(prepared, "a=127.0.0.1,b=127.0.0.1", (0, 1, 1))
    pids = all_pids(executor, agents)
    with executor:
        problem = problem_of(executor.graph, "3x 3090")
        thirds = Placement(problem, [3 * v // len(problem.graph) for v in range(len(problem.graph))])
        for placement in (thirds, *placements(executor, 4)):
            assert executor.check(placement).max_abs == 0.0
        flow = executor.pipeline(thirds, samples=12)
        assert len(flow.seconds) == 11
        assert flow.first_seconds > 0
        threading.Timer(0.5, os.kill, (pids[1], signal.SIGKILL)).start()
        began = time.monotonic()
        with pytest.raises(RunFailed, match=r"^host b: its agent was killed \(SIGKILL\)$"):
            executor.burst(thirds, runs=10_000_000)
        assert time.monotonic() - began < 20  # ten seconds are promised; the machine may be busy
    assert gone(pids)
