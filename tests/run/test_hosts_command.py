"""Hosts on the command line: what is refused at once, and a plan that torchrun starts on two."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path

import pytest

from stead import Placement, Problem, Roofline, Solution, simulate
from stead.cli.main import exit_code
from stead.cluster import cluster_from_toml
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


@pytest.mark.slow
def test_a_plan_runs_on_hosts_of_torchrun(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    module = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 64)).eval()
    torch.export.save(torch.export.export(module, (torch.randn(32, 64),)), tmp_path / "model.pt2")
    graph, cluster = read(tmp_path / "model.pt2").graph, cluster_from_toml(TWO_HOSTS)
    problem = Problem(graph, cluster, Roofline().costs(graph, cluster))
    placement = Placement(problem, [int(2 * v >= len(graph)) for v in range(len(graph))])
    source = {"source": {"model": str(tmp_path / "model.pt2"), "options": {}}}
    solution = Solution(placement, simulate(problem, placement).objective_seconds)
    Plan(problem, solution, provenance=source).save(tmp_path / "plan.json")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    started = []
    try:
        for rank in range(2):
            words = f"--nnodes 2 --nproc-per-node 1 --node-rank {rank} --master-addr 127.0.0.1 --master-port {port}"
            started.append(
                subprocess.Popen(
                    [sys.executable, "-m", "torch.distributed.run", *words.split(), "-m", "stead", "run",
                     str(tmp_path / "plan.json"), "--hosts", "torchrun", "--runs", "2", "--oversubscribe"],
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
