"""What a device computes a type of numbers in: natively, in another type, or not at all.

The catalogue says in words what runtimes do with a type that a device has no rate for, and a device file may say
it in the same words:

    computed in fp32       tensors stay as they are, arithmetic runs at the rate of fp32
    converted to fp16      when the model is loaded: arithmetic at the rate of fp16, and bytes moved are those of fp16
    run at 1/64 of fp32    natively, at that share of another rate
    not supported          operators of that type run elsewhere

Whole numbers that index, mask or count, booleans and texts need no rate: they run anywhere, at memory speed.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass

from stead.cluster.catalogue import lookup, usual_precision
from stead.cluster.devices import PRECISION, Device

_BITS: Mapping[str, int] = {
    "fp64": 64, "fp32": 32, "tf32": 32, "fp16": 16, "bf16": 16, "fp8": 8, "int8": 8, "fp4": 4, "int4": 4, "int2": 2,
}  # fmt: skip
_AT_MEMORY_SPEED = re.compile(r"bool|string|u?int(?:16|32|64)", re.ASCII)
_SAME: Mapping[str, str] = {"complex64": "fp32", "complex128": "fp64", "int2": "int4", "": "fp32"}
# A wider format can always stand in; the fastest that a device has is taken.
_STAND_INS: Mapping[str, tuple[str, ...]] = {
    "fp64": (),
    "fp32": ("fp64",),
    "tf32": ("fp32",),
    "bf16": ("tf32", "fp32"),
    "fp16": ("tf32", "fp32"),
    "fp8": ("fp16", "bf16", "tf32", "fp32"),
    "fp4": ("fp8", "fp16", "bf16", "tf32", "fp32"),
    "int8": ("fp16", "bf16", "tf32", "fp32"),
    "int4": ("int8", "fp16", "bf16", "tf32", "fp32"),
}
_MOST_STEPS = 4  # converted to a type that is itself computed in another


@dataclass(frozen=True, slots=True)
class Precision:
    """How a device takes operators of one type."""

    flops_per_second: float  # 0: nobody knows; inf: no arithmetic worth counting
    moved_share: float = 1.0  # bytes really moved for each byte of the type in the file
    told: str = ""  # "converted to fp16"; empty: natively
    supported: bool = True


def precision_of(device: Device, dtype: str) -> Precision:
    """How a device computes operators of a type.

    A card that is slow at half precision computes in single precision instead; a card without bf16, too.

    >>> old = Device("old", flops_per_second={"fp32": 11.8e12, "fp16": 0.18e12})
    >>> precision_of(old, "fp16")
    Precision(flops_per_second=11800000000000.0, moved_share=1.0, told='computed in fp32', supported=True)
    >>> npu = Device("npu", kind="npu", flops_per_second={"fp16": 5.5e12})
    >>> precision_of(npu, "fp32")
    Precision(flops_per_second=5500000000000.0, moved_share=0.5, told='converted to fp16', supported=True)
    >>> precision_of(npu, "bool").flops_per_second
    inf
    """
    if _AT_MEMORY_SPEED.fullmatch(dtype):
        return Precision(math.inf)
    return _resolved(device, dtype, _MOST_STEPS)


def _resolved(device: Device, dtype: str, steps: int) -> Precision:
    dtype = _SAME.get(dtype, dtype)
    rates = device.flops_per_second
    said = device.precision.get(dtype, "")
    if not said and dtype not in rates:
        said = (lookup(device.model).precision if device.model else usual_precision(device.kind)).get(dtype, "")
    if said and steps:
        found = _as_said(device, dtype, said, steps)
        if found.flops_per_second > 0 or not found.supported:
            return found
    names = (dtype, *_STAND_INS.get(dtype, ("fp32",)))
    best = max(names, key=lambda name: (rates.get(name, 0.0), name == dtype))
    if best in rates:
        return Precision(rates[best], told="" if best == dtype else f"computed in {best}")
    for name in names[1:] if steps else ():  # types that it has no rate for either, but a way
        found = _as_said(device, dtype, f"computed in {name}", steps)
        if found.flops_per_second > 0 and found.supported:
            return found
    return Precision(0.0)


def _as_said(device: Device, dtype: str, said: str, steps: int) -> Precision:
    words = PRECISION.fullmatch(said)
    assert words is not None  # the border has checked it
    if words["none"]:
        return Precision(math.inf, told=said, supported=False)
    if words["share"]:
        rate = device.flops_per_second.get(words["base"], 0.0)
        return Precision(rate / int(words["share"]), told=said)
    target = words["computed"] or words["converted"]
    inner = Precision(device.flops_per_second[target]) if target in device.flops_per_second else None
    inner = inner or _resolved(device, target, steps - 1)
    share = _BITS[target] / _BITS.get(dtype, _BITS[target]) if words["converted"] else 1.0
    told = f"{said} and {inner.told}" if inner.told else said
    return Precision(inner.flops_per_second, share * inner.moved_share, told, inner.supported)
