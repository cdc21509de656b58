"""Network namespaces with limited links as hosts: the same numbers, at the speed of the link, until one is cut off."""

from __future__ import annotations

import threading
import time

import pytest

torch = pytest.importorskip("torch")
if not torch.distributed.is_available() or not torch.distributed.is_gloo_available():
    pytest.skip("torch has no gloo here", allow_module_level=True)

from test_hosts_run import agent_pids, gone  # noqa: E402
from test_torch_executor import problem_of  # noqa: E402
from torch import nn  # noqa: E402

from stead import Placement  # noqa: E402
from stead.errors import RunFailed  # noqa: E402
from stead.run.hosts.host_executor import agents_on, executor_on_hosts  # noqa: E402
from stead.run.hosts.host_links import measure_host_links  # noqa: E402
from stead.run.hosts.host_tolls import measure_tolls  # noqa: E402
from stead.run.subject import captured  # noqa: E402
from stead.testing.namespaces import Namespaces, unavailable  # noqa: E402

WHY_NOT = unavailable()
pytestmark = pytest.mark.skipif(bool(WHY_NOT), reason=f"no network namespaces: {WHY_NOT}")
BYTES_PER_SECOND = 25e6


def test_a_pipeline_over_a_limited_link_until_a_host_is_cut_off() -> None:
    """Half a MiB crosses at 25 MB/s, which takes 21 ms: of ten samples at most three are on their way beforehand."""
    module = nn.Sequential(nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU())
    prepared = captured(module.eval(), (torch.randn(512, 256),), export=True, name="layers")
    with Namespaces(2, bits_per_second=8 * BYTES_PER_SECOND) as network:
        agents = agents_on(network.text, launch="ip netns exec {host} {command}")
        with executor_on_hosts(prepared, agents, (0, 1), [None, None], oversubscribe=True) as executor:
            pids = [*agent_pids(agents), *(one["pid"] for one in executor.readback)]
            problem = problem_of(executor.graph)
            halves = Placement(problem, [int(2 * v >= len(problem.graph)) for v in range(len(problem.graph))])
            assert executor.check(halves).max_abs == 0.0
            flow = executor.pipeline(halves, samples=10)
            assert flow.first_seconds + sum(flow.seconds) >= 0.8 * 7 * 2**19 / BYTES_PER_SECOND
            (link,) = measure_host_links(executor.crew, sizes=(2**10, 2**18), rounds=1)  # type: ignore[arg-type]
            assert link.seconds[2**18].median_seconds >= 0.8 * 2**18 / BYTES_PER_SECOND
            tolls = measure_tolls(executor.crew, size_bytes=2**18, count=4)  # type: ignore[arg-type]
            assert [(toll.source, toll.target) for toll in tolls] == [(0, 1), (1, 0)]
            assert all(0.0 <= seconds < 1e-6 for toll in tolls for seconds in (toll.sending, toll.receiving))
            threading.Timer(0.5, network.cut, (1,)).start()
            began = time.monotonic()
            with pytest.raises(RunFailed, match=r"^hosts .*-a and .*-b are cut off from each other: nothing heard"):
                executor.burst(halves, runs=1_000_000)
            assert time.monotonic() - began < 20  # ten seconds are promised; the machine may be busy
        assert gone(pids)
