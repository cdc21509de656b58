"""How workers are written down, and what is refused."""

from __future__ import annotations

import pytest

from stead.errors import BadInput
from stead.run import cores
from stead.run.crew import environment_of
from stead.run.executor import Worker
from stead.run.probes import worker_environment


@pytest.fixture(autouse=True)
def four_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cores, "usable_cores", lambda: (0, 1, 2, 3))


def test_workers_have_cores_limits_and_types() -> None:
    assert cores.workers_from("core 0 + cores 1-2 @ sse41 + core 3 @ bf16") == (
        Worker("core 0", (0,)),
        Worker("cores 1-2 @ sse41", (1, 2), isa="SSE41"),
        Worker("core 3 @ bf16", (3,), dtype="bf16"),
    )


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("core 0 + core 0", "core 0 is given to 'core 0' and 'core 0'"),
        ("core 7", "no core 7 on this machine; there are 0, 1, 2, 3"),
        ("gpu 0", "workers are written like"),
        ("core 0 @ mmx", "after @ comes sse41, avx2, avx512 or bf16, got 'mmx'"),
        ("cores 3-1", "from the lowest to the highest"),
    ],
)
def test_what_makes_no_sense_is_one_line(text: str, words: str) -> None:
    with pytest.raises(BadInput, match=words):
        cores.workers_from(text)


def test_more_devices_than_cores_share_them_only_when_asked_to() -> None:
    with pytest.raises(BadInput, match="5 devices need 5 cores, this machine has 4"):
        cores.default_workers(5)
    shared = cores.default_workers(5, oversubscribe=True)
    assert shared[4].cores == (0,)
    assert cores.share_cores(shared)
    assert not cores.share_cores(cores.default_workers())


@pytest.mark.parametrize(
    ("level", "flags", "hidden"),
    [
        (28, "avx512f amx_bf16 amx_tile", True),  # a virtual machine that cuts the description off before tiles
        (32, "avx512f amx_bf16 amx_tile", False),
        (28, "avx512f avx512_bf16", False),
    ],
)
def test_tiles_that_are_not_described_are_not_used(
    level: int, flags: str, hidden: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    described = f"model name\t: Xeon\ncpuid level\t: {level}\nflags\t\t: fpu {flags}"
    assert cores.tiles_are_hidden(described) is hidden
    monkeypatch.setattr(cores, "_described", lambda: described)
    limit = environment_of(Worker("c", (0,), dtype="bf16")).get("ONEDNN_MAX_CPU_ISA")
    assert limit == ("AVX512_CORE_FP16" if hidden else None)
    assert worker_environment(Worker("c", (0,))).get("ONEDNN_MAX_CPU_ISA") == limit
    assert environment_of(Worker("c", (0,), isa="SSE41"))["ONEDNN_MAX_CPU_ISA"] == "SSE41"


def test_a_system_that_tells_nothing_sets_no_limit() -> None:
    assert not cores.tiles_are_hidden("")
    assert cores.processor_flags("") == frozenset()
