"""Virtual devices: each test is a program of its own, as a process learns of them for good."""

import json
import subprocess
import sys
from textwrap import dedent
from typing import Any

import pytest

pytest.importorskip("torch")


def told_by(program: str) -> Any:
    """What a program with three virtual devices `devices` prints as JSON."""
    head = """
        import json
        import torch
        from stead.testing.virtual_devices import virtual_devices
        devices = virtual_devices([None, None, None])
    """
    done = subprocess.run(
        [sys.executable, "-c", dedent(head) + dedent(program)], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_devices_compute_count_what_lives_and_write_down_what_ran() -> None:
    told = told_by("""
        told = {}
        x = torch.ones(4, device="vdev:0")
        y = x + x
        same = y.add_(1)
        told["sum"] = [y.tolist(), str(y.device), same is y]
        told["ran"] = sorted([name, device, times] for (name, device), times in devices.histogram().items())
        told["live"] = [devices.live_bytes[0]]
        view = y[1:3]  # no storage of its own
        told["live"].append(devices.live_bytes[0])
        del y, same
        told["live"].append(devices.live_bytes[0])  # the view holds it
        del view
        told["live"].append(devices.live_bytes[0])
        told["peak"] = list(devices.peak_bytes)
        z = x.to("vdev:2")
        back = z.cpu()
        told["crossed"] = [[one.source, one.target, one.size_bytes] for one in devices.crossings]
        with devices.inside("head"):
            z * 2
        told["inside"] = [devices.log[-1].inside, devices.log[-1].operation, devices.log[-1].device]
        torch.manual_seed(0)
        net = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2))
        wanted = net(torch.ones(3, 4))
        got = net.to("vdev:1")(torch.ones(3, 4, device="vdev:1"))
        told["same"] = bool(torch.equal(got.cpu(), wanted))
        told["integers"] = str(torch.zeros(2, device=torch.device(1)).device)
        told["pointers"] = len({p.data_ptr() for p in net.parameters()}) == 4 and net[0].weight.data_ptr() != 0
        told["counts"] = torch.histc(torch.tensor([0, 1, 1], device="vdev:0", dtype=torch.int32), 2, 0, 1).tolist()
        print(json.dumps(told))
    """)
    assert told["sum"] == [[3.0] * 4, "vdev:0", True]
    assert told["ran"] == [["add.Tensor", 0, 1], ["add_.Tensor", 0, 1], ["ones", 0, 1]]
    assert told["live"] == [32, 32, 32, 16]
    assert told["peak"] == [32, 0, 0]
    assert told["crossed"] == [[0, 2, 16], [2, -1, 16]]
    assert told["inside"] == ["head", "mul.Tensor", 2]
    assert told["same"]
    assert told["pointers"]
    assert told["integers"] == "vdev:1"
    assert told["counts"] == [1.0, 2.0]


def test_what_a_graphics_card_refuses_is_refused() -> None:
    told = told_by("""
        def refused(what):
            try:
                what()
            except RuntimeError as error:
                return str(error)
        x, y = torch.ones(4, device="vdev:0"), torch.ones(4, device="vdev:1")
        told = {
            "mixed": refused(lambda: x + y),
            "host": refused(lambda: x + torch.ones(4)),
            "number": refused(lambda: x + torch.tensor(1.0)),
            "indices": refused(lambda: x[torch.tensor([0, 1])]),
            "assert": refused(lambda: torch.ops.aten._assert_tensor_metadata(x, dtype=torch.float32, device="vdev:1")),
            "absent": refused(lambda: torch.ones(1, device="vdev:5")),
        }
        devices = virtual_devices([100])
        elsewhere = torch.nn.Linear(2, 2)
        net = torch.nn.Linear(4, 4, device="vdev:0")  # 64 + 16 bytes
        try:
            net(torch.ones(2, 4, device="vdev:0"))  # 32 bytes more
        except RuntimeError as error:
            told["full"] = [error.device, error.needed_bytes, error.limit_bytes, [name for name, _ in error.alive]]
            told["text"] = str(error)
        print(json.dumps(told))
    """)
    assert "on the same device, but found vdev:0, vdev:1 (in add.Tensor)" in told["mixed"]
    assert "vdev:0, cpu" in told["host"]
    assert told["number"] is None
    assert told["indices"] is None
    assert "device mismatch" in told["assert"]
    assert "vdev:5" in told["absent"]
    assert told["full"][:3] == [0, 112, 100]
    assert told["full"][3][1:] == ["weight", "bias"]
    assert told["full"][3][0].endswith("which is asked for")
    assert told["text"].startswith("vdev:0 is out of memory: 112 bytes are needed, 100 are there; alive: ")


def test_a_process_without_virtual_devices_says_how_to_get_some() -> None:
    from stead.errors import SteadError
    from stead.testing.virtual_devices import current

    with pytest.raises(SteadError, match="call virtual_devices"):
        current()


def test_attention_is_one_kernel_that_never_holds_all_scores() -> None:
    told = told_by("""
        torch.manual_seed(0)
        q, k, v = (torch.randn(1, 4, 64, 8) for _ in range(3))
        wanted = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        here = [one.to("vdev:1") for one in (q, k, v)]
        devices.clear()
        got = torch.nn.functional.scaled_dot_product_attention(*here, is_causal=True)
        told = {"same": bool(torch.equal(got.cpu(), wanted)), "ran": [one.operation for one in devices.log[:1]]}
        told["bytes"] = devices.peak_bytes[1]
        print(json.dumps(told))
    """)
    one = 4 * 64 * 8 * 4  # heads, tokens, width, bytes; scores of all heads would be eight times as much
    assert told == {"same": True, "ran": ["scaled_dot_product_attention"], "bytes": 4 * one}
