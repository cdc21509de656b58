"""What this machine has, processor, memory and NVIDIA cards, and the devices that these are; imports no framework."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from dataclasses import dataclass, replace
from pathlib import Path

from stead.cluster.catalogue import GENERIC_CPU, candidates, device_from, lookup
from stead.cluster.devices import Device
from stead.cluster.quantities import format_bytes, format_flops, format_rate, show
from stead.cluster.reserve import Reserve
from stead.errors import BadCluster

_TIMEOUT_SECONDS = 20
_PROBE_BYTES = 4 * 2**20  # enough for /proc/cpuinfo of any machine


@dataclass(frozen=True, slots=True)
class FoundGpu:
    """One card as `nvidia-smi` reports it."""

    index: int
    name: str
    memory_bytes: int
    pcie: str = ""  # "4.0 x16"; empty if it was not told


@dataclass(frozen=True, slots=True)
class Machine:
    """What was found out by asking the system; None and "" where it did not tell."""

    cpu_name: str = ""
    cores: int | None = None
    memory_bytes: int | None = None
    gpus: tuple[FoundGpu, ...] = ()
    notes: tuple[str, ...] = ()  # what could not be asked, and why


def this_machine() -> Machine:
    """Ask the system now; `nvidia-smi` only where it is installed."""
    gpus, notes = _nvidia()
    cpuinfo = _read("/proc/cpuinfo")
    return Machine(_cpu_name(cpuinfo), _cores(cpuinfo), _memory_bytes(), gpus, notes)


def plain_cpu_name(reported: str) -> str:
    """A processor's name without marks, clock and core count.

    >>> plain_cpu_name("13th Gen Intel(R) Core(TM) i9-13900K CPU @ 3.00GHz")
    'Intel Core i9-13900K'
    >>> plain_cpu_name("AMD EPYC 9654 96-Core Processor")
    'AMD EPYC 9654'
    """
    name = re.sub(
        r"\((?:R|TM|r|tm)\)|@.*$|\bCPU\b|\b\d+-Core\b|\bProcessor\b|^\d+th Gen\b", " ", reported[:200]
    )
    return " ".join(name.split())


def parse_nvidia_smi(table: str) -> tuple[FoundGpu, ...]:
    """Cards from lines of index, name, memory in MiB, PCIe generation and lanes; ValueError if they are not.

    >>> parse_nvidia_smi("0, NVIDIA GeForce RTX 3090, 24576, 4, 16")[0].pcie
    '4.0 x16'
    """
    gpus = []
    for line in table.splitlines():
        if not line.strip():
            continue
        index, name, mebibytes, generation, lanes = (field.strip() for field in line.split(","))
        told = generation in "12345" and lanes in ("1", "2", "4", "8", "16")
        pcie = f"{generation}.0 x{lanes}" if generation and told else ""
        gpus.append(FoundGpu(int(index), name, int(mebibytes) * 2**20, pcie))
    return tuple(gpus)


def _nvidia() -> tuple[tuple[FoundGpu, ...], tuple[str, ...]]:
    program = shutil.which("nvidia-smi")
    if program is None:
        return (), ()
    fields = "index,name,memory.total,pcie.link.gen.max,pcie.link.width.max"
    try:
        answer = subprocess.run(
            [program, f"--query-gpu={fields}", "--format=csv,noheader,nounits"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_TIMEOUT_SECONDS,
            check=True,
        )
        return parse_nvidia_smi(answer.stdout.decode(errors="replace")), ()
    except (OSError, subprocess.SubprocessError, ValueError) as error:
        reason = " ".join(str(error).split())[:200]
        return (), (
            f"nvidia-smi is installed but gave no list of cards ({reason}); NVIDIA cards are left out",
        )


def _cpu_name(cpuinfo: str) -> str:
    found = re.search(r"^model name\s*:\s*(.+)$", cpuinfo, re.MULTILINE)
    if found:
        return plain_cpu_name(found[1])
    sysctl = shutil.which("sysctl")
    if sysctl is None or cpuinfo:
        return ""
    try:
        answer = subprocess.run(
            [sysctl, "-n", "machdep.cpu.brand_string"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_TIMEOUT_SECONDS,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return plain_cpu_name(answer.stdout.decode(errors="replace"))


def _cores(cpuinfo: str) -> int | None:
    """Cores this process may use: physical ones where the system tells them apart from hardware threads."""
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    physical = {
        (package[1], core[1])
        for block in cpuinfo.split("\n\n")
        if (package := re.search(r"^physical id\s*:\s*(\d+)", block, re.MULTILINE))
        and (core := re.search(r"^core id\s*:\s*(\d+)", block, re.MULTILINE))
    }
    return min(usable, len(physical)) if usable and physical else usable


def _memory_bytes() -> int | None:
    """Memory of the machine, or less where a control group allows less."""
    found = re.search(r"^MemTotal:\s*(\d+) kB", _read("/proc/meminfo"), re.MULTILINE)
    sizes = [int(found[1]) * 1024] if found else []
    if not sizes and hasattr(os, "sysconf") and "SC_PHYS_PAGES" in os.sysconf_names:
        sizes.append(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    for limit in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        text = _read(limit).strip()
        if text.isdecimal() and len(text) < 20:
            sizes.append(int(text))
    return min(sizes) if sizes and min(sizes) > 0 else None


def _read(path: str) -> str:
    try:
        with Path(path).open("rb") as file:
            return file.read(_PROBE_BYTES).decode(errors="replace")
    except OSError:
        return ""


def found_card(gpu: FoundGpu, reserve: Reserve) -> tuple[Device, str]:
    """A card with its measured memory and the rates of the catalogue."""
    found = candidates(gpu.name)
    if len(found) > 1:  # variants that differ in memory: the measured size tells which
        sized = [
            row for row in found if row.memory_bytes and abs(gpu.memory_bytes / row.memory_bytes - 1) < 0.1
        ]
        found = tuple(sized) or found
    if len(found) != 1:
        listed = f" ({', '.join(row.key for row in found)})" if found else ""
        raise BadCluster(
            f"auto: card {gpu.index} is {show(gpu.name)}, which is {'not one device' if found else 'not'} "
            f"in the catalogue{listed}; name the devices, or describe the card in a device file"
        )
    row = found[0]
    name = f"cuda:{gpu.index}"
    device = device_from(
        row,
        name,
        memory_bytes=gpu.memory_bytes,
        reserve_bytes=reserve.of(row.kind, gpu.memory_bytes),
        alias={"accelerate": gpu.index, "llama": f"CUDA{gpu.index}", "ort": "cuda"},
    )
    rates = f"{format_rate(device.bytes_per_second)}, FLOP/s from the catalogue"
    return device, f"{name} = {row.key}: {format_bytes(gpu.memory_bytes)} (measured), {rates}"


def found_host(machine: Machine, reserve: Reserve) -> tuple[Device, tuple[str, ...]]:
    """The processor: memory and cores measured, rates from the catalogue if it is there, else assumed."""
    generic = lookup(GENERIC_CPU)
    memory = machine.memory_bytes or generic.memory_bytes or 0
    unified = candidates(f"{machine.cpu_name} {round(memory / 2**30)} GB")
    named = unified or candidates(machine.cpu_name)
    known = [row for row in named if row.whole_machine or row.kind == "cpu"]
    row = known[0] if len(known) == 1 else generic
    whole = device_from(row, "cpu", memory_bytes=memory, reserve_bytes=reserve.of(row.kind, memory))
    share = (machine.cores or 1) / row.cores if row.cores else 1.0
    device = replace(
        whole,
        name=row.kind,
        flops_per_second={dtype: rate * share for dtype, rate in row.flops_per_second.items()},
    )
    label = "assumed" if row is generic else f"from the catalogue, {row.key}"
    rates = (
        f"{format_rate(device.bytes_per_second)}, {format_flops(device.flops_per_second['fp32'])} ({label})"
    )
    size = f"{format_bytes(memory)} ({'measured' if machine.memory_bytes else 'assumed'})"
    cores = f"{machine.cores} cores (measured)" if machine.cores else "cores unknown"
    return device, (f"{device.name} = {machine.cpu_name or 'this processor'}: {size}, {cores}, {rates}",)
