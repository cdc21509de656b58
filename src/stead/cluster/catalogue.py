"""The devices that stead knows by name: figures from data sheets, aliases, and no guessing.

A name is taken only if it is a key of `catalogue.toml` or one of the aliases listed there; capitals, blanks,
hyphens and the maker's name in front do not matter. A name that several devices answer to is an error that
lists them.
"""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

from stead.cluster.devices import PRECISION, Device
from stead.cluster.quantities import show
from stead.errors import BadCluster

KINDS = ("cpu", "gpu", "npu", "fpga", "group", "other")
DTYPES = ("fp64", "fp32", "tf32", "fp16", "bf16", "fp8", "fp4", "int8", "int4")
GENERIC_CPU = "generic CPU"

_GIB = 2**30
_GT_PER_SECOND = {"1.0": 2.5, "2.0": 5.0, "3.0": 8.0, "4.0": 16.0, "5.0": 32.0}  # PCI Express, per lane
_CODED = {"1.0": 8 / 10, "2.0": 8 / 10, "3.0": 128 / 130, "4.0": 128 / 130, "5.0": 128 / 130}
_MAKERS = ("nvidia", "amd", "intel", "google", "qualcomm")
_LONGEST_NAME = 80
_CANDIDATES = 8


@dataclass(frozen=True, slots=True)
class Fabric:
    """Links between devices of one model that do not pass through PCI Express."""

    name: str
    links: int
    link_bytes_per_second: float  # each way, one link
    peer_links: int  # between two devices
    bridge: bool  # an optional part; not assumed to be there

    @property
    def peer_bytes_per_second(self) -> float:
        """Bandwidth between two devices, each way."""
        return self.peer_links * self.link_bytes_per_second


@dataclass(frozen=True, slots=True)
class CatalogueEntry:
    """One row of the catalogue; None where no figure is published."""

    key: str
    vendor: str
    kind: str
    memory_bytes: int | None
    bytes_per_second: float | None
    flops_per_second: Mapping[str, float]  # native, dense, by dtype
    pcie: str  # generation and lanes, "4.0 x16"; empty if unknown or none
    fabric: Fabric | None
    launch_seconds: float  # an assumption by kind of device
    shares_host_memory: bool
    whole_machine: bool  # reaches others over a network only
    cores: int | None
    assumed: tuple[str, ...]  # fields that are an assumption, not a published figure
    aliases: tuple[str, ...]
    note: str
    source: str
    precision: Mapping[str, str]  # what its runtime does with types that it has no rate for: "converted to fp16"

    @property
    def title(self) -> str:
        """The key, with the memory size if that is not part of it.

        >>> lookup("3090").title
        'GeForce RTX 3090 24 GB'
        """
        if self.memory_bytes is None or self.key.endswith(" GB") or self.key == GENERIC_CPU:
            return self.key
        return f"{self.key} {self.memory_bytes // _GIB} GB"

    @property
    def pcie_bytes_per_second(self) -> float | None:
        """Peak of its PCI Express port, each way."""
        return pcie_rate(self.pcie) if self.pcie else None


def pcie_rate(port: str) -> float:
    """Peak bytes per second of a PCI Express port, each way.

    >>> round(pcie_rate("4.0 x16") / 1e9, 1)
    31.5
    """
    generation, _, lanes = port.partition(" x")
    if generation not in _GT_PER_SECOND or lanes not in ("1", "2", "4", "8", "16"):
        raise BadCluster(f'cannot read {show(port)} as a PCI Express port; write it like "4.0 x16"')
    return _GT_PER_SECOND[generation] * 1e9 / 8 * _CODED[generation] * int(lanes)


def entries() -> tuple[CatalogueEntry, ...]:
    """All devices, in the order of the table."""
    return _catalogue().entries


def lookup(name: str) -> CatalogueEntry:
    """The one device of that name or alias.

    >>> lookup("4060Ti16").key
    'GeForce RTX 4060 Ti 16 GB'
    >>> lookup("A100-80GB").key
    'A100 SXM4 80 GB'
    """
    found = candidates(name)
    if len(found) == 1:
        return found[0]
    if found:
        listed = ", ".join(entry.key for entry in found)
        raise BadCluster(f"{show(name)} may be any of {listed}; write one of these")
    near = _similar(name)
    offer = f"; candidates are {', '.join(near)}" if near else ""
    raise BadCluster(f"no device {show(name)} in the catalogue{offer}; `stead devices` lists all of them")


def candidates(name: str) -> tuple[CatalogueEntry, ...]:
    """Devices that may be meant: one for a key or an alias, several if the name is ambiguous, or none."""
    if len(name) > _LONGEST_NAME:
        return ()
    catalogue = _catalogue()
    plain = normal(name)
    shorter = [plain.removeprefix(maker) for maker in _MAKERS if plain.startswith(maker)]
    for form in (plain, *shorter):
        if form in catalogue.names:
            return (catalogue.names[form],)
        if form in catalogue.ambiguous:
            return catalogue.ambiguous[form]
    return ()


def usual_precision(kind: str) -> Mapping[str, str]:
    """What runtimes do with types that a device of a kind lacks, where its model is not known.

    >>> usual_precision("npu")["fp32"]
    'converted to fp16'
    """
    return _catalogue().usual.get(kind, {})


def is_alias(name: str) -> bool:
    """Whether a name that is in the catalogue is something else than the key or title of its device."""
    entry = lookup(name)
    return normal(name) not in (normal(entry.key), normal(entry.title))


def normal(name: str) -> str:
    """A name without capitals, blanks, hyphens and underscores: what names are compared by.

    >>> normal("RTX 3060-Ti")
    'rtx3060ti'
    """
    return "".join(name.casefold().replace("-", " ").replace("_", " ").split())


def device_from(
    entry: CatalogueEntry,
    name: str,
    *,
    memory_bytes: int | None = None,
    reserve_bytes: int = 0,
    alias: Mapping[str, str | int] | None = None,
) -> Device:
    """A device with the figures of the catalogue; a device without memory of its own needs `memory_bytes`."""
    memory = entry.memory_bytes if memory_bytes is None else memory_bytes
    if memory is None:
        raise BadCluster(
            f"memory of {name}: {entry.key} uses the memory of its machine; say how much that is"
        )
    if entry.bytes_per_second is None and not entry.shares_host_memory:
        raise BadCluster(f"bandwidth of {name}: the catalogue has none for {entry.key}")
    host = lookup(GENERIC_CPU).bytes_per_second or 0.0
    return Device(
        name,
        kind=entry.kind,
        memory_bytes=memory,
        reserve_bytes=reserve_bytes,
        flops_per_second=entry.flops_per_second,
        bytes_per_second=entry.bytes_per_second or host,
        launch_seconds=entry.launch_seconds,
        model=entry.key,
        alias=alias or {},
    )


# The table


@dataclass(frozen=True, slots=True)
class _Catalogue:
    entries: tuple[CatalogueEntry, ...]
    names: Mapping[str, CatalogueEntry]  # by normal form of key, title and aliases
    ambiguous: Mapping[str, tuple[CatalogueEntry, ...]]  # by normal form
    usual: Mapping[str, Mapping[str, str]]  # by kind: precision of devices that are not in the catalogue


@cache
def _catalogue() -> _Catalogue:
    text = Path(__file__).with_name("catalogue.toml").read_text(encoding="utf-8")
    return _build(tomllib.loads(text))


def _build(table: Mapping[str, Any]) -> _Catalogue:
    """Checks that no name leads to two devices: a fault of the table is found at its first use."""
    launch = {kind: float(us) / 1e6 for kind, us in table["launch_overhead_us"].items()}
    runtimes = tuple(_runtime(row) for row in table["runtime"])
    found = tuple(_entry(row, launch, runtimes) for row in table["device"])
    by_key = {entry.key: entry for entry in found}
    names: dict[str, CatalogueEntry] = {}
    for entry in found:
        for form in {normal(name) for name in (entry.key, entry.title, *entry.aliases)}:
            assert form not in names, f"catalogue: {form} names both {names[form].key} and {entry.key}"
            names[form] = entry
    ambiguous = {
        normal(name): tuple(by_key[key] for key in keys) for name, keys in table["ambiguous"].items()
    }
    assert not names.keys() & ambiguous.keys(), (
        f"catalogue: {names.keys() & ambiguous.keys()} are not ambiguous"
    )
    usual = {runtime.kind: runtime.precision for runtime in runtimes if runtime.usual}
    return _Catalogue(found, MappingProxyType(names), MappingProxyType(ambiguous), MappingProxyType(usual))


_KEYS = frozenset(
    {
        "key",
        "vendor",
        "kind",
        "memory_gib",
        "bandwidth_gb_s",
        "tflops",
        "pcie",
        "fabric",
        "shares_host_memory",
        "whole_machine",
        "cores",
        "assumed",
        "aliases",
        "note",
        "source",
        "precision",
        "runtime",
    }
)


@dataclass(frozen=True, slots=True)
class _Runtime:
    """What software does with types of numbers that a device lacks."""

    name: str
    kind: str
    vendors: tuple[str, ...]
    usual: bool  # also for devices of that kind that the catalogue does not know
    precision: Mapping[str, str]


def _runtime(row: Mapping[str, Any]) -> _Runtime:
    known = {"name", "kind", "vendors", "usual", "precision", "note", "source"}
    assert row.keys() <= known, f"catalogue: runtime {row['name']} has unknown keys {row.keys() - known}"
    assert row["source"], f"catalogue: runtime {row['name']} has no source"
    _check_precision(row["name"], row["precision"])
    return _Runtime(row["name"], row["kind"], tuple(row["vendors"]), row.get("usual", False), row["precision"])


def _check_precision(name: str, precision: Mapping[str, str]) -> None:
    for dtype, said in precision.items():
        assert dtype in DTYPES, f"catalogue: {name} has unknown type {dtype}"
        assert PRECISION.fullmatch(said), f"catalogue: {name}: {said}"


def _precision_of(row: Mapping[str, Any], runtimes: Sequence[_Runtime]) -> Mapping[str, str]:
    """What its runtime says, and the row itself above that, of types that it has no rate for."""
    said: dict[str, str] = {}
    for runtime in runtimes:
        named = row["runtime"] == runtime.name if "runtime" in row else row["vendor"] in runtime.vendors
        if named and runtime.kind == row["kind"]:
            said.update(runtime.precision)
    own = row.get("precision", {})
    _check_precision(row["key"], own)
    return MappingProxyType({dtype: words for dtype, words in {**said, **own}.items() if dtype not in row["tflops"]})


def _entry(row: Mapping[str, Any], launch: Mapping[str, float], runtimes: Sequence[_Runtime]) -> CatalogueEntry:
    assert row.keys() <= _KEYS, f"catalogue: {row['key']} has unknown keys {row.keys() - _KEYS}"
    assert set(row["tflops"]) <= set(DTYPES), f"catalogue: {row['key']} has unknown types"
    memory, bandwidth = row.get("memory_gib"), row.get("bandwidth_gb_s")
    return CatalogueEntry(
        key=row["key"],
        vendor=row["vendor"],
        kind=row["kind"],
        memory_bytes=None if memory is None else int(memory) * _GIB,
        bytes_per_second=None if bandwidth is None else _scaled(bandwidth, 9),
        flops_per_second=MappingProxyType(
            {dtype: _scaled(rate, 12) for dtype, rate in row["tflops"].items()}
        ),
        pcie=row.get("pcie", ""),
        fabric=_fabric(row["fabric"]) if "fabric" in row else None,
        launch_seconds=launch[row["kind"]],
        shares_host_memory=row.get("shares_host_memory", False),
        whole_machine=row.get("whole_machine", False),
        cores=row.get("cores"),
        assumed=tuple(row.get("assumed", ())),
        aliases=tuple(row.get("aliases", ())),
        note=row.get("note", ""),
        source=row["source"],
        precision=_precision_of(row, runtimes),
    )


def _fabric(row: Mapping[str, Any]) -> Fabric:
    return Fabric(
        name=row["name"],
        links=row["links"],
        link_bytes_per_second=_scaled(row["link_gb_s"], 9),
        peer_links=row.get("peer_links", row["links"]),
        bridge=row.get("bridge", False),
    )


def _scaled(number: float, power: int) -> float:
    """`number * 10**power`, rounded once, so that 936.2 becomes the same double as "936.2GB/s"."""
    return float(f"{number!r}e{power}")


def _similar(name: str) -> list[str]:
    """Keys to offer for an unknown name: those that contain it first, then those that look alike."""
    catalogue = _catalogue()
    plain = normal(name[:_LONGEST_NAME])
    inside = [entry for form, entry in catalogue.names.items() if len(plain) > 1 and plain in form]
    close = [
        catalogue.names[form] for form in difflib.get_close_matches(plain, catalogue.names, n=_CANDIDATES)
    ]
    return list(dict.fromkeys(entry.key for entry in (*inside, *close)))[:_CANDIDATES]
