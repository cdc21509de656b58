"""Network namespaces as hosts: machines of their own on one, joined by a switch, each behind a link of a given rate.

    with Namespaces(2, bits_per_second=200e6) as hosts:
        subprocess.run(["ip", "netns", "exec", hosts.names[0], "ping", "-c1", hosts.addresses[1]])
        hosts.cut(1)

Needs the right to make namespaces and `tbf`, the token bucket of the kernel; `unavailable` says why it is not there.
Nothing leaves the namespaces: the switch is in one of its own. All of it is gone with the block.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from typing import Self

BURST_BYTES = 4 * 2**10  # that pass at once: far below the tensors of interest, or small messages seem free
_QUEUE = "200ms"
_SECONDS = 20.0


def unavailable() -> str:
    """Why there can be no namespaces here; empty where they can be made."""
    for tool in ("ip", "tc"):
        if shutil.which(tool) is None:
            return f"no {tool} is installed"
    name = f"stead-try-{os.getpid()}"
    commands = (
        f"ip netns add {name}",
        f"ip -n {name} link add left type veth peer name right",
        f"ip -n {name} link add switch type bridge",
        f"tc -n {name} qdisc add dev left root tbf rate 100mbit burst 32kb latency 200ms",
    )
    try:
        for command in commands:
            done = _ran(command)
            if done.returncode:
                return f"{command.split(name)[0].strip()} is not permitted: {done.stderr.strip()[:100]}"
    finally:
        _ran(f"ip netns del {name}")
    return ""


class Namespaces:
    """Some hosts on a switch; `bits_per_second` limits what each sends."""

    def __init__(self, count: int, *, bits_per_second: float | None = None) -> None:
        self._prefix = f"stead{os.getpid() % 100000}"
        self._rate = bits_per_second
        self._switch = f"{self._prefix}-sw"
        self.names = tuple(f"{self._prefix}-{chr(ord('a') + h)}" for h in range(count))
        self.addresses = tuple(f"10.77.0.{1 + h}" for h in range(count))

    @property
    def text(self) -> str:
        """As `--hosts` takes them."""
        return ",".join(f"{name}={address}" for name, address in zip(self.names, self.addresses, strict=True))

    def __enter__(self) -> Self:
        try:
            self._do(f"ip netns add {self._switch}")
            self._do(f"ip -n {self._switch} link add sw0 type bridge")
            self._do(f"ip -n {self._switch} link set sw0 up")
            for h, (name, address) in enumerate(zip(self.names, self.addresses, strict=True)):
                self._add(h, name, address)
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def cut(self, h: int) -> None:
        """Take the cable of a host out."""
        self._do(f"ip -n {self._switch} link set port{h} down")

    def close(self) -> None:
        """Take everything down; processes in a namespace keep it until they end."""
        for name in (*self.names, self._switch):
            _ran(f"ip netns del {name}")

    def _add(self, h: int, name: str, address: str) -> None:
        self._do(f"ip netns add {name}")
        self._do(f"ip -n {name} link set lo up")
        self._do(f"ip -n {self._switch} link add port{h} type veth peer name eth0 netns {name}")
        self._do(f"ip -n {self._switch} link set port{h} master sw0 up")
        self._do(f"ip -n {name} address add {address}/24 dev eth0")
        self._do(f"ip -n {name} link set eth0 up")
        if self._rate is not None:
            limit = f"rate {self._rate / 1e6:g}mbit burst {BURST_BYTES} latency {_QUEUE}"
            self._do(f"tc -n {name} qdisc add dev eth0 root tbf {limit}")

    def _do(self, command: str) -> None:
        done = _ran(command)
        if done.returncode:
            raise OSError(f"{command}: {done.stderr.strip()}")


def _ran(command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command.split(), capture_output=True, text=True, timeout=_SECONDS, check=False)
