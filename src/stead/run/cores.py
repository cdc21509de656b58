"""Workers of this machine: which cores there are, how people write them down, and which must not be used together."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from stead.errors import BadInput
from stead.run.executor import Worker

ISAS = {"sse41": "SSE41", "avx2": "AVX2", "avx512": "AVX512_CORE"}
WITHOUT_TILES = "AVX512_CORE_FP16"  # all instructions of oneDNN but those on tiles
_TILE_LEAF = 0x1D  # of the processor's description: how large tiles are
EXAMPLE = '"core 0 + core 1 @ sse41"'
_PART = re.compile(r"cores?\s+(\d+)(?:\s*-\s*(\d+))?\s*(?:@\s*(.*))?$")


def usable_cores() -> tuple[int, ...]:
    """The cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return tuple(sorted(os.sched_getaffinity(0)))
    return tuple(range(os.cpu_count() or 1))


def default_workers(count: int | None = None, *, oversubscribe: bool = False) -> tuple[Worker, ...]:
    """One worker per core, as many as asked for."""
    cores = usable_cores()
    wanted = len(cores) if count is None else count
    if wanted > len(cores) and not oversubscribe:
        raise BadInput(
            f"{wanted} devices need {wanted} cores, this machine has {len(cores)}; place on fewer devices, or add "
            "--oversubscribe to share cores and believe no times"
        )
    return tuple(Worker(f"core {cores[w % len(cores)]}", (cores[w % len(cores)],)) for w in range(wanted))


def workers_from(text: str, *, oversubscribe: bool = False) -> tuple[Worker, ...]:
    """The workers that a text means: `core N` or `cores N-M`, separated by `+`, each with `@ sse41`, `@ bf16` or both.

    >>> [(one.cores, one.isa) for one in workers_from("core 0 + core 0 @ sse41", oversubscribe=True)]
    [((0,), ''), ((0,), 'SSE41')]
    """
    workers = tuple(_worker(part.strip(), text) for part in text.lower().split("+"))
    check_workers(workers, oversubscribe=oversubscribe)
    return workers


def check_workers(workers: Sequence[Worker], *, oversubscribe: bool = False) -> None:
    """BadInput where workers ask for cores that are not there, or for each other's."""
    usable = usable_cores()
    taken: dict[int, str] = {}
    for worker in workers:
        for core in worker.cores:
            if core not in usable:
                raise BadInput(f"no core {core} on this machine; there are {', '.join(map(str, usable))}")
            if core in taken and not oversubscribe:
                raise BadInput(
                    f"core {core} is given to {taken[core]!r} and {worker.name!r}; give each its own, or add "
                    "--oversubscribe and believe no times"
                )
            taken[core] = worker.name


def instruction_limit(worker: Worker) -> str:
    """What kernels of a worker may use at most; empty: all that the processor has."""
    return worker.isa or (WITHOUT_TILES if tiles_are_hidden() else "")


def tiles_are_hidden(described: str | None = None) -> bool:
    """Whether a processor has instructions on tiles (AMX) and does not say how large tiles are.

    Some virtual machines cut that part of the description off. Kernels that ask for it make tiles of no size, and the
    processor ends the process with SIGILL.

    >>> tiles_are_hidden("cpuid level : 28\\nflags : avx512f amx_tile")
    True
    """
    text = _described() if described is None else described
    level = re.search(r"^cpuid level\s*:\s*(\d+)", text, re.MULTILINE)
    return level is not None and int(level[1]) < _TILE_LEAF and "amx_tile" in processor_flags(text)


def processor_flags(described: str | None = None) -> frozenset[str]:
    """What the first core says that it can do; nothing where the system does not tell."""
    text = _described() if described is None else described
    flags = re.search(r"^flags\s*:(.*)$", text, re.MULTILINE)
    return frozenset(flags[1].split()) if flags else frozenset()


@cache
def _described() -> str:
    try:
        return Path("/proc/cpuinfo").read_text(encoding="utf-8").partition("\n\n")[0]
    except OSError:  # other systems than Linux
        return ""


def share_cores(workers: Sequence[Worker]) -> bool:
    """Whether some workers are on the same core, so that they are not independent."""
    cores = [core for worker in workers for core in worker.cores]
    return len(set(cores)) < len(cores)


def _worker(part: str, text: str) -> Worker:
    found = _PART.match(part)
    if found is None:
        raise BadInput(f"workers are written like {EXAMPLE}, got {part!r} in {text!r}")
    first, last = int(found[1]), int(found[2] or found[1])
    if last < first or last - first > 4096:
        raise BadInput(f"cores are written from the lowest to the highest, got {part!r}")
    isa, dtype = "", "fp32"
    for word in re.split(r"[,\s]+", found[3].strip()) if found[3] else ():
        if word in ISAS:
            isa = ISAS[word]
        elif word in ("bf16", "fp32"):
            dtype = word
        else:
            raise BadInput(f"{part!r}: after @ comes {', '.join(ISAS)} or bf16, got {word!r}")
    return Worker(" ".join(part.split()), tuple(range(first, last + 1)), dtype=dtype, isa=isa)
