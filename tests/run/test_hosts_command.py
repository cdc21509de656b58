"""Hosts on the command line: what is refused at once, plans that run on two, and what is measured of them."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from stead import Placement, Problem, Roofline, Solution, simulate
from stead.cli.main import exit_code
from stead.cluster import cluster_from, cluster_from_toml
from stead.errors import BadInput
from stead.plan import Plan
from stead.readers import read
from stead.run.hosts.under_torchrun import Rank

TWO_HOSTS = """
[[device]]
name = "x"
kind = "cpu"
flops = {fp32 = "50G"}
[[device]]
name = "y"
kind = "cpu"
flops = {fp32 = "50G"}
[[host]]
name = "a"
address = "127.0.0.1"
devices = ["x"]
[[host]]
name = "b"
address = "127.0.0.1"
devices = ["y"]
"""


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["devices", "--hosts", "a"], "--on, --hosts and -o belong to --measure"),
        (["devices", "--measure", "--launch", "{command}"], "--launch to --hosts"),
        (["devices", "--measure", "--hosts", "a", "--on", "core 0"], "times all cores of the hosts, not 'core 0'"),
        (["devices", "--measure", "--hosts", "a,a"], "host a is named twice"),
        (["devices", "--measure", "--hosts", "a", "--launch", "ssh {host}"], "--launch must have {command} in it"),
        (["run", "plan.json", "--launch", "{command}"], "--launch says how agents are started on --hosts"),
        (["run", "plan.json", "--hosts", "torchrun"], "--hosts torchrun is for processes of torchrun"),
        (["measure", "plan.json", "--launch", "{command}"], "--launch says how agents are started on --hosts"),
        (["measure", "plan.json", "--hosts", "torchrun"], "under torchrun there is stead run"),
    ],
)
def test_what_makes_no_sense_is_one_line(words: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code(words) == 2
    told = capsys.readouterr().err
    assert said in told
    assert told.count("\n") == 1


def test_torchrun_starts_one_process_on_each_host() -> None:
    given = {"RANK": "1", "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "1", "MASTER_ADDR": "a", "MASTER_PORT": "29500"}
    assert Rank.of(given) == Rank(1, 2, "a", 29500)
    with pytest.raises(BadInput, match="started 2 processes on this host; stead wants one: --nproc-per-node 1"):
        Rank.of({**given, "LOCAL_WORLD_SIZE": "2"})


def plan_over_two_hosts(folder: Path) -> Path:
    """A plan with half of a small model on each host."""
    torch = pytest.importorskip("torch")
    module = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 64)).eval()
    torch.export.save(torch.export.export(module, (torch.randn(32, 64),)), folder / "model.pt2")
    graph, cluster = read(folder / "model.pt2").graph, cluster_from_toml(TWO_HOSTS)
    problem = Problem(graph, cluster, Roofline().costs(graph, cluster))
    placement = Placement(problem, [int(2 * v >= len(graph)) for v in range(len(graph))])
    source = {"source": {"model": str(folder / "model.pt2"), "options": {}}}
    solution = Solution(placement, simulate(problem, placement).objective_seconds)
    Plan(problem, solution, provenance=source).save(folder / "plan.json")
    return folder / "plan.json"


def test_a_plan_runs_on_hosts_whose_agents_are_launched(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plan = plan_over_two_hosts(tmp_path)
    asked = ["run", str(plan), "--hosts", "a,b", "--launch", "{command}", "--runs", "2", "--oversubscribe"]
    assert exit_code(asked) == 0
    said = capsys.readouterr().out
    assert "the same as on one worker, bit for bit" in said
    assert "y is b/core" in said


@pytest.mark.slow
def test_hosts_are_measured_into_a_device_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("torch")
    file = tmp_path / "hosts.toml"
    asked = ["devices", "--measure", "--hosts", "a=127.0.0.1,b=127.0.0.1", "--launch", "{command}", "-o", str(file)]
    assert exit_code(asked) == 0
    assert str(file) in capsys.readouterr().out
    cluster = cluster_from(str(file))[0]
    assert [host.name for host in cluster.hosts] == ["a", "b"]
    assert all(device.flops_per_second["fp32"] > 0 for device in cluster)
    ends = {(link.source.split("/")[0], link.target.split("/")[0]) for link in cluster.links}
    assert {("a", "b"), ("b", "a")} <= ends
    assert all(link.bytes_per_second > 0 and link.latency_seconds >= 0 for link in cluster.links)


@pytest.mark.slow
def test_a_plan_runs_on_hosts_of_torchrun(tmp_path: Path) -> None:
    plan = plan_over_two_hosts(tmp_path)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    started = []
    try:
        for rank in range(2):
            words = f"--nnodes 2 --nproc-per-node 1 --node-rank {rank} --master-addr 127.0.0.1 --master-port {port}"
            started.append(
                subprocess.Popen(
                    [sys.executable, "-m", "torch.distributed.run", *words.split(), "-m", "stead", "run",
                     str(plan), "--hosts", "torchrun", "--runs", "2", "--oversubscribe"],
                    stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                )
            )  # fmt: skip
        said = [process.communicate(timeout=300)[0] for process in started]
    finally:
        for process in started:
            process.kill()
            process.wait()
    assert [process.returncode for process in started] == [0, 0], said
    assert "the same as on one worker, bit for bit" in said[0]
    assert "y is b/core" in said[0]


@pytest.mark.skipif((os.cpu_count() or 1) < 2, reason="two hosts on this machine need two cores")
def test_a_plan_is_measured_on_hosts_with_what_the_network_takes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = plan_over_two_hosts(tmp_path)
    asked = ["measure", str(plan), "--model", str(tmp_path / "model.pt2"), "--hosts", "a=127.0.0.1,b=127.0.0.1"]
    assert exit_code([*asked, "--launch", "{command}", "--bursts", "1", "--json"]) == 0
    (record,) = json.loads(capsys.readouterr().out)
    assert record["predicted"]["seconds"] >= record["also_predicted"]["plan"]["seconds"]
    assert record["predicted"]["charge"] == "overlapped"
