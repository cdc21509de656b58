"""plan.apply: modules that run operator by operator where a plan has them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from stead.errors import BadInput  # noqa: E402
from stead.placing.loading import load  # noqa: E402
from stead.problem import Latency  # noqa: E402
from stead.readers.torch.exported import from_torch  # noqa: E402
from stead.testing.exporters import plan_of  # noqa: E402

HEAD = """
import json, sys
import numpy as np
import torch
from stead.placing.loading import load
from stead.problem import Latency
from stead.readers.torch.exported import from_torch
from stead.readers.torch.capture import capture
from stead.testing.exporters import plan_of
from stead.testing.virtual_devices import virtual_devices

torch.manual_seed(0)
torch.set_num_threads(1)

class Block(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm, self.read = torch.nn.LayerNorm(width), torch.nn.Linear(width, 3 * width)
        self.wide, self.back = torch.nn.Linear(width, 2 * width), torch.nn.Linear(2 * width, width)

    def forward(self, x):
        q, k, v = self.read(self.norm(x)).chunk(3, -1)
        x = x + torch.softmax(q @ k.transpose(-1, -2), -1) @ v
        return x + self.back(torch.relu_(self.wide(x)))

class Picture(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = (torch.nn.Conv2d(n, 8, 3, padding=1) for n in (3, 8))
        self.norm, self.head = torch.nn.BatchNorm2d(8), torch.nn.Linear(8, 5)

    def forward(self, x):
        y = torch.relu_(self.norm(self.first(x)))
        z = y + self.second(y)
        z *= 2
        return {"classes": self.head(z.mean((2, 3))), "picture": z}

words = torch.nn.Sequential(torch.nn.Embedding(50, 16), Block(16), Block(16), torch.nn.Linear(16, 50)).eval()
words[3].weight = words[0].weight
CASES = {"words": (words, (torch.randint(0, 50, (2, 7)),)), "picture": (Picture().eval(), (torch.randn(2, 3, 8, 8),))}
devices = virtual_devices([None, None, None])

def leaves(given):
    return [one for one in torch.utils._pytree.tree_leaves(given) if isinstance(one, torch.Tensor)]

def compared(problem, target, example, inputs, wanted, seeds):
    worst, wrong = 0.0, []
    for seed in range(seeds):
        random = np.random.default_rng(seed)
        plan = plan_of(problem, random.integers(0, 3, problem.unit_count)[problem.units].tolist())
        placed = plan.apply(target, example)
        devices.clear()
        got = placed(*inputs)
        ran = [one.device for one in devices.log]
        pairs = zip(leaves(got), leaves(wanted), strict=True)
        worst = max([worst, *(float((a.cpu() - b).abs().max()) for a, b in pairs)])
        sizes, transfers = problem.graph.tensor_bytes, plan.trace.transfers
        told = sorted((int(sizes[t]), int(d)) for t, d in zip(transfers.tensor, transfers.target) if sizes[t])
        real = sorted((one.size_bytes, one.target) for one in placed.sent)
        crossed = sum(one.source >= 0 and one.target >= 0 for one in devices.crossings)
        if told != real or crossed != len(real) or set(ran) != set(plan.placement.devices.tolist()):
            wrong.append([seed, told, real, crossed])
    return {"worst": worst, "wrong": wrong}
"""


def told_by(program: str, *arguments: str) -> Any:
    command = [sys.executable, "-W", "ignore", "-c", HEAD + dedent(program), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_random_placements_give_the_same_results_and_send_what_the_simulator_says(tmp_path: Path) -> None:
    told = told_by(
        """
        found = {}
        for name, (module, inputs) in CASES.items():
            with torch.no_grad():
                wanted = module(*inputs)
            problem = load(from_torch(module, inputs), "3x 3090").problem(Latency())
            found[f"{name} by export"] = compared(problem, module, inputs, inputs, wanted, 6)
            tape = capture(module, inputs, update="none")
            problem = load(tape.model(), "3x 3090").problem(Latency())
            found[f"{name} by capture"] = compared(problem, (tape, module), None, inputs, wanted, 4)
            file = f"{sys.argv[1]}/{name}.pt2"
            with torch.no_grad():
                torch.export.save(torch.export.export(module, inputs), file)
            problem = load(file, "3x 3090").problem(Latency())
            found[f"{name} by file"] = compared(problem, file, None, inputs, wanted, 4)
        print(json.dumps(found))
        """,
        str(tmp_path),
    )
    assert len(told) == 6
    assert [name for name, one in told.items() if one["wrong"]] == [], told
    assert {one["worst"] for one in told.values()} == {0.0}


def test_parts_that_are_written_in_place_are_what_they_are_on_one_device() -> None:
    told = told_by(
        """
        from collections import Counter
        from copy import deepcopy

        class Parts(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.one, self.two, self.three = (torch.nn.Linear(8, 8) for _ in range(3))
                self.register_buffer("kept", torch.zeros(2, 6, 8))

            def forward(self, x):
                y = self.one(x)
                old = y.relu()
                y[:, :3] = self.two(x)[:, :3]
                y[:, 3:] += self.three(x)[:, 3:]
                y[..., ::2].mul_(2)
                self.kept[:, 1:3] = y[:, 1:3]
                self.kept[:, 3:].add_(1)
                room = torch.zeros(2, 6, 16)
                room[..., :8] = y + self.kept
                room[..., 8:] = old
                room[:, 0].add_(1)
                x[:, 5] = 0
                return room, y, x * 2

        plain, drawn = Parts().eval(), torch.randn(2, 6, 8)
        found = {"worst": 0.0, "beyond": [], "beside": set()}
        problem = load(from_torch(deepcopy(plain), (drawn.clone(),)), "3x 3090").problem(Latency())
        for seed in range(6):
            random = np.random.default_rng(seed)
            plan = plan_of(problem, random.integers(0, 3, problem.unit_count)[problem.units].tolist())
            whole, module = deepcopy(plain), deepcopy(plain)
            placed = plan.apply(module, (drawn.clone(),))
            for _ in range(2):  # the buffer goes on
                with torch.no_grad():
                    pairs = zip(placed(drawn.clone()), whole(drawn.clone()), strict=True)
                found["worst"] = max([found["worst"], *(float((a.cpu() - b).abs().max()) for a, b in pairs)])
            sizes, transfers = problem.graph.tensor_bytes, plan.trace.transfers
            told = Counter((int(sizes[t]), int(d)) for t, d in zip(transfers.tensor, transfers.target) if sizes[t])
            real = Counter((one.size_bytes, one.target) for one in placed.sent)
            found["beyond"] += sorted((real - told).elements())
            found["beside"] |= {size for size, _ in told - real}
        print(json.dumps({**found, "beside": sorted(found["beside"])}))
        """
    )
    assert told["worst"] == 0.0
    assert told["beyond"] == []  # the simulator knows of all that is sent
    # Who writes into a part gets the whole, for what stays of it, and the simulator counts the part beside it.
    assert set(told["beside"]) <= {64, 128, 192}


def test_a_plan_runs_on_the_cpu_where_it_is_told_to() -> None:
    net = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2)).eval()
    x = torch.ones(3, 4)
    problem = load(from_torch(net, (x,)), "2x 3090").problem(Latency())
    plan = plan_of(problem, [v % 2 for v in range(len(problem.graph))])
    with pytest.raises(BadInput, match=r"torch sees 0 here; say which device stands for it: devices="):
        plan.apply(net, (x,))
    placed = plan.apply(net, (x,), devices=dict.fromkeys(problem.cluster.names, "cpu"))
    assert torch.equal(placed(x), net(x))
    assert len(placed.sent) == len(problem.graph) - 1  # a chain in turns
    with pytest.raises(BadInput, match="was planned as"):
        placed(torch.ones(2, 4))


def test_another_module_than_the_planned_one_is_refused() -> None:
    net = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU()).eval()
    other = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.GELU()).eval()
    x = torch.ones(3, 4)
    plan = plan_of(load(from_torch(net, (x,)), "cpu").problem(Latency()), [0, 0, 0])
    with pytest.raises(BadInput, match="the plan has no 'gelu'"):
        plan.apply(other, (x,))
    with pytest.raises(BadInput, match="give the example inputs"):
        plan.apply(net)
