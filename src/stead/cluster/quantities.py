"""Quantities as people write them, "24GiB", "936GB/s", "35.6T", "5us", and as stead prints them.

Sizes are binary (KiB, MiB, GiB, TiB), rates decimal (GB/s, Gbit/s, TFLOP/s). Reading is strict and exact: the
number is taken as a decimal fraction and rounded once, at the end; what is not understood is refused.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from decimal import Decimal
from fractions import Fraction

from stead.cluster.devices import UNLIMITED_BYTES
from stead.errors import BadCluster

MAX_BYTES_PER_SECOND = 1e18
MAX_FLOPS_PER_SECOND = 1e24
MAX_SECONDS = 1e6

_NUMBER = re.compile(r"([0-9]{1,30}(?:\.[0-9]{1,30})?(?:[eE][+-]?[0-9]{1,2})?)\s*(\S*)", re.ASCII)
_LONGEST = 80  # characters; no sensible quantity is longer, and no longer text is looked at

_SIZES: Mapping[str, int] = {"": 1, "B": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40}
_RATES: Mapping[str, Fraction] = {
    "": Fraction(1),
    "B/s": Fraction(1),
    **{f"{prefix}B/s": Fraction(10**power) for prefix, power in (("k", 3), ("M", 6), ("G", 9), ("T", 12))},
    **{
        f"{prefix}bit/s": Fraction(10**power, 8)
        for prefix, power in (("k", 3), ("M", 6), ("G", 9), ("T", 12))
    },
}
_FLOPS: Mapping[str, int] = {
    f"{prefix}{unit}": 10**power
    for prefix, power in (("", 0), ("k", 3), ("M", 6), ("G", 9), ("T", 12), ("P", 15))
    for unit in ("", "FLOP/s", "FLOPS", "OP/s", "OPS")
}
_SECONDS: Mapping[str, Fraction] = {
    "": Fraction(1),
    "s": Fraction(1),
    "ms": Fraction(1, 10**3),
    "us": Fraction(1, 10**6),
    "µs": Fraction(1, 10**6),  # micro sign
    "\N{GREEK SMALL LETTER MU}s": Fraction(1, 10**6),
    "ns": Fraction(1, 10**9),
    "ps": Fraction(1, 10**12),
}


def parse_bytes(given: object, what: str = "size") -> int:
    """A memory size in bytes; a plain number counts bytes, a fraction of a byte is dropped.

    >>> parse_bytes("24GiB") == 24 * 2**30
    True
    """
    advice = "write a number with KiB, MiB, GiB or TiB"
    amount = _amount(given, _SIZES, what, advice)
    if amount > UNLIMITED_BYTES:
        raise BadCluster(f"{what}: {show(given)} is more than 2^62 bytes; {advice}")
    return math.floor(amount)


def parse_rate(given: object, what: str = "bandwidth") -> float:
    """A bandwidth in bytes per second, more than 0.

    >>> parse_rate("936GB/s"), parse_rate("10 Gbit/s")
    (936000000000.0, 1250000000.0)
    """
    advice = "write a number with MB/s, GB/s, TB/s or Gbit/s"
    return _positive(_amount(given, _RATES, what, advice), given, what, advice, MAX_BYTES_PER_SECOND)


def parse_flops(given: object, what: str = "flops") -> float:
    """Operations per second, more than 0.

    >>> parse_flops("35.6T")
    35600000000000.0
    """
    advice = 'write operations per second as a number with G, T or P, such as "35.6T"'
    return _positive(_amount(given, _FLOPS, what, advice), given, what, advice, MAX_FLOPS_PER_SECOND)


def parse_seconds(given: object, what: str = "time") -> float:
    """A time in seconds, at least 0.

    >>> parse_seconds("0.5 ms"), parse_seconds("5us")
    (0.0005, 5e-06)
    """
    advice = "write a number with ns, us, ms or s"
    amount = _amount(given, _SECONDS, what, advice)
    if amount > MAX_SECONDS:
        raise BadCluster(f"{what}: {show(given)} is more than {MAX_SECONDS:.0e} seconds; {advice}")
    return float(amount)


def show(given: object) -> str:
    """A value in an error message: its `repr`, cut if it is long, on one line."""
    if isinstance(given, int) and given.bit_length() > 200:
        return "a number of more than 60 digits"
    if isinstance(given, str) and len(given) > _LONGEST:
        return f"{given[:40]!r}... ({len(given)} characters)"
    if isinstance(given, dict | list | tuple | set):
        return f"a {type(given).__name__}"
    text = repr(given)
    return text if len(text) <= _LONGEST else f"{text[:40]}..."


def _amount(
    given: object, units: Mapping[str, int] | Mapping[str, Fraction], what: str, advice: str
) -> Fraction:
    """The number times its unit, exactly; at least 0."""
    if isinstance(given, int | float) and not isinstance(given, bool):
        return _plain(given, what, advice)
    text = given.strip() if isinstance(given, str) and len(given) <= _LONGEST else None
    parts = _NUMBER.fullmatch(text) if text else None
    if parts is None or parts[2] not in units:
        raise BadCluster(f"{what}: cannot read {show(given)}; {advice}")
    return Fraction(parts[1]) * units[parts[2]]


def _plain(given: float, what: str, advice: str) -> Fraction:
    """A bare number as a file gives it: finite and not negative."""
    if isinstance(given, float) and not math.isfinite(given):
        raise BadCluster(f"{what}: {show(given)} is not a finite number; {advice}")
    if given < 0:
        raise BadCluster(f"{what}: {show(given)} is negative; {advice}")
    return Fraction(given)


def _positive(amount: Fraction, given: object, what: str, advice: str, most: float) -> float:
    if amount > most:
        raise BadCluster(f"{what}: {show(given)} is more than {most:.0e} per second; {advice}")
    rate = float(amount)
    if rate == 0:
        raise BadCluster(f"{what}: must be more than 0, got {show(given)}; {advice}")
    return rate


def format_bytes(size_bytes: float) -> str:
    """A size for people, in GiB where it is that large.

    >>> format_bytes(13.5 * 2**30), format_bytes(2**20), format_bytes(17), format_bytes(-(2**30))
    ('13.5 GiB', '1.0 MiB', '17 B', '-1.0 GiB')
    """
    if abs(size_bytes) >= UNLIMITED_BYTES:
        return "unlimited"
    for unit, scale in (("TiB", 2**40), ("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if abs(size_bytes) >= scale * (1 if unit != "TiB" else 10):  # 1536 GiB reads better than 1.5 TiB
            return f"{size_bytes / scale:.1f} {unit}"
    return f"{size_bytes:.0f} B"


def format_seconds(seconds: float) -> str:
    """A time for people: three digits and s, ms, us or ns.

    >>> format_seconds(0.0141182), format_seconds(5e-6), format_seconds(75), format_seconds(0)
    ('14.1 ms', '5.00 us', '75.0 s', '0 s')
    """
    if seconds == 0 or not math.isfinite(seconds):
        return f"{seconds:.0f} s"
    for unit, scale in (("s", 1.0), ("ms", 1e3), ("us", 1e6)):
        if abs(seconds) * scale >= 0.9995:
            return f"{_three_digits(seconds * scale)} {unit}"
    return f"{_three_digits(seconds * 1e9)} ns"


def format_rate(bytes_per_second: float) -> str:
    """A bandwidth for people.

    >>> format_rate(936.2e9), format_rate(1792e9), format_rate(125e6)
    ('936 GB/s', '1792 GB/s', '125 MB/s')
    """
    return _decimal(bytes_per_second, "B/s", (("G", 1e9), ("M", 1e6), ("k", 1e3)))


def format_flops(flops_per_second: float) -> str:
    """A compute rate for people.

    >>> format_flops(35.58e12), format_flops(989.4e12)
    ('35.6 TFLOP/s', '989 TFLOP/s')
    """
    return _decimal(flops_per_second, "FLOP/s", (("T", 1e12), ("G", 1e9), ("M", 1e6)))


def format_work(flops: float) -> str:
    """An amount of arithmetic for people.

    >>> format_work(56.1e9), format_work(2.819e13), format_work(3)
    ('56.1 GFLOP', '28.2 TFLOP', '3.00 FLOP')
    """
    return _decimal(flops, "FLOP", (("P", 1e15), ("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3)))


def _decimal(rate: float, unit: str, prefixes: tuple[tuple[str, float], ...]) -> str:
    if math.isinf(rate):
        return "unlimited"
    for prefix, scale in prefixes:
        if abs(rate) >= 0.9995 * scale:
            return f"{_three_digits(rate / scale)} {prefix}{unit}"
    return f"{_three_digits(rate)} {unit}"


def _three_digits(number: float) -> str:
    """At least three significant digits, never an exponent for the sizes met here."""
    for decimals, least in ((0, 99.95), (1, 9.995), (2, 0.9995)):
        if abs(number) >= least:
            return f"{number:.{decimals}f}"
    return f"{number:.3g}"


def exact_bytes(size_bytes: int) -> str | int:
    """The shortest form of a size that `parse_bytes` reads back exactly.

    >>> exact_bytes(24 * 2**30), exact_bytes(1000)
    ('24GiB', 1000)
    """
    for unit in ("TiB", "GiB", "MiB", "KiB"):
        if size_bytes and size_bytes % _SIZES[unit] == 0:
            return f"{size_bytes // _SIZES[unit]}{unit}"
    return size_bytes


def exact_rate(bytes_per_second: float) -> str | float:
    """The shortest form of a bandwidth that `parse_rate` reads back exactly.

    >>> exact_rate(936.2e9)
    '936.2GB/s'
    """
    return _exact(bytes_per_second, (("GB/s", 9), ("MB/s", 6), ("B/s", 0)))


def exact_flops(flops_per_second: float) -> str | float:
    """The shortest form of a compute rate that `parse_flops` reads back exactly.

    >>> exact_flops(35.58e12)
    '35.58T'
    """
    return _exact(flops_per_second, (("T", 12), ("G", 9), ("", 0)))


def exact_seconds(seconds: float) -> str | float:
    """The shortest form of a time that `parse_seconds` reads back exactly.

    >>> exact_seconds(5e-6)
    '5us'
    """
    return _exact(seconds, (("s", 0), ("ms", -3), ("us", -6), ("ns", -9)))


def _exact(number: float, units: tuple[tuple[str, int], ...]) -> str | float:
    """Up to seven digits in the largest unit that needs no leading zero; otherwise the number itself."""
    for unit, power in units:
        scaled = Decimal(repr(float(number))).scaleb(-power).normalize()
        digits = f"{scaled:f}"
        if scaled >= 1 and len(digits) <= 8:
            return digits + unit
    return float(number)
