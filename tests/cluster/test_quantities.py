"""Quantities: what is read, what is refused, and that nothing is lost on the way."""

from __future__ import annotations

import math
import time
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stead.cluster.quantities import (
    MAX_BYTES_PER_SECOND,
    MAX_FLOPS_PER_SECOND,
    MAX_SECONDS,
    exact_bytes,
    exact_flops,
    exact_rate,
    exact_seconds,
    format_bytes,
    format_flops,
    format_rate,
    format_seconds,
    parse_bytes,
    parse_flops,
    parse_rate,
    parse_seconds,
)
from stead.errors import BadCluster

PARSERS: tuple[Callable[[object], float], ...] = (parse_bytes, parse_rate, parse_flops, parse_seconds)


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("24GiB", 24 * 2**30),
        ("0.5 GiB", 2**29),
        ("512MiB", 2**29),
        ("17", 17),
        ("17B", 17),
        (1000, 1000),
        ("1e3", 1000),
    ],
)
def test_sizes_are_binary(text: object, size: int) -> None:
    assert parse_bytes(text) == size


def test_a_fraction_of_a_byte_is_dropped() -> None:
    assert parse_bytes("0.1GiB") == 107374182


@pytest.mark.parametrize(
    ("text", "rate"),
    [
        ("936GB/s", 936e9),
        ("936.2 GB/s", 936.2e9),
        ("10Gbit/s", 1.25e9),
        ("1.5TB/s", 1.5e12),
        (2, 2.0),
        ("3B/s", 3.0),
    ],
)
def test_rates_are_decimal(text: object, rate: float) -> None:
    assert parse_rate(text) == rate


@pytest.mark.parametrize(
    ("text", "rate"), [("35.6T", 35.6e12), ("989TFLOPS", 989e12), ("48 TOPS", 48e12), ("1P", 1e15)]
)
def test_compute_rates_take_a_letter_or_a_word(text: str, rate: float) -> None:
    assert parse_flops(text) == rate


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("5us", 5e-6),
        ("0.5 ms", 5e-4),
        ("5\N{MICRO SIGN}s", 5e-6),
        ("7ns", 7e-9),
        (0, 0.0),
        ("2s", 2.0),
        (0.25, 0.25),
    ],
)
def test_times_take_their_units(text: object, seconds: float) -> None:
    assert parse_seconds(text) == seconds


def test_a_decimal_is_rounded_once_to_the_nearest_double() -> None:
    assert parse_rate("0.1GB/s") == 1e8
    assert parse_seconds("0.3us") == 0.3e-6


@pytest.mark.parametrize(
    "text", ["24Gb", "24GB", "24gib", "24 G iB", "GiB", "", " ", "-1GiB", "1,5GiB", "0x10", "1_000"]
)
def test_a_size_in_doubtful_units_is_refused_with_what_to_write(text: str) -> None:
    with pytest.raises(
        BadCluster, match=r"^memory of cuda:0: cannot read .*; write a number with KiB, MiB, GiB or TiB$"
    ):
        parse_bytes(text, "memory of cuda:0")


@pytest.mark.parametrize("parse", PARSERS)
@pytest.mark.parametrize(
    "given_value",
    [
        math.nan,
        math.inf,
        -math.inf,
        -1,
        -0.5,
        "nan",
        "inf",
        "Infinity",
        "-5",
        1e300,
        "1e300",
        10**400,
        "9" * 10**6,
        "1" + "0" * 70,
        None,
        True,
        [],
        {},
        b"1",
        "1e99999999",
        "\N{ARABIC-INDIC DIGIT ONE}",
        "1\n2",
        "5us\x00",
    ],
)
def test_what_is_no_sensible_number_is_refused_in_one_line(
    parse: Callable[[object], float], given_value: object
) -> None:
    begin = time.process_time()
    with pytest.raises(BadCluster) as caught:
        parse(given_value)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 300
    assert time.process_time() - begin < 1


@pytest.mark.parametrize("parse", [parse_rate, parse_flops])
@pytest.mark.parametrize("zero", [0, 0.0, "0", "0.0"])
def test_a_rate_of_zero_is_refused(parse: Callable[[object], float], zero: object) -> None:
    with pytest.raises(BadCluster, match="must be more than 0"):
        parse(zero)


@given(st.text(max_size=100))
def test_any_text_is_a_number_or_an_error(text: str) -> None:
    for parse in PARSERS:
        amount, told = 0.0, ""
        try:
            amount = parse(text)
        except BadCluster as error:
            told = str(error)
        assert 0 <= amount < math.inf
        assert "\n" not in told


@given(st.integers(0, 2**62))
def test_an_exact_size_reads_back(size: int) -> None:
    assert parse_bytes(exact_bytes(size)) == size


@given(st.floats(1e-300, MAX_BYTES_PER_SECOND))
def test_an_exact_bandwidth_reads_back(rate: float) -> None:
    assert parse_rate(exact_rate(rate)) == rate


@given(st.floats(1e-300, MAX_FLOPS_PER_SECOND))
def test_an_exact_compute_rate_reads_back(rate: float) -> None:
    assert parse_flops(exact_flops(rate)) == rate


@given(st.floats(0, MAX_SECONDS))
def test_an_exact_time_reads_back(seconds: float) -> None:
    assert parse_seconds(exact_seconds(seconds)) == seconds


@given(st.integers(1, 9999), st.sampled_from(["GB/s", "MB/s"]))
def test_a_round_bandwidth_is_written_as_people_write_it(number: int, unit: str) -> None:
    assert str(exact_rate(parse_rate(f"{number}{unit}"))).endswith("B/s")


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0 B"),
        (13.5 * 2**30, "13.5 GiB"),
        (1536 * 2**30, "1536.0 GiB"),
        (2**45, "32.0 TiB"),
        (2**62, "unlimited"),
    ],
)
def test_sizes_print_in_gib(size: float, text: str) -> None:
    assert format_bytes(size) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.014118, "14.1 ms"),
        (1.79, "1.79 s"),
        (0.0009996, "1.00 ms"),
        (5e-06, "5.00 us"),
        (3e-07, "300 ns"),
        (0, "0 s"),
        (-0.0025, "-2.50 ms"),
        (7200, "7200 s"),
        (math.inf, "inf s"),
    ],
)
def test_times_print_with_three_digits(seconds: float, text: str) -> None:
    assert format_seconds(seconds) == text


def test_rates_print_with_three_digits() -> None:
    assert [format_rate(rate) for rate in (936.2e9, 1.25e9, 63e9, 5, math.inf)] == [
        "936 GB/s",
        "1.25 GB/s",
        "63.0 GB/s",
        "5.00 B/s",
        "unlimited",
    ]
    assert format_flops(0.512e12) == "512 GFLOP/s"


@given(st.floats(allow_nan=False))
def test_printing_never_fails(number: float) -> None:
    for text in (format_bytes(number), format_seconds(number), format_rate(number), format_flops(number)):
        assert text
        assert "\n" not in text
