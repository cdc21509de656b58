"""Tables: they fit, they say their units, and they leave out what matters least."""

from __future__ import annotations

import pytest

from stead.printing.look import Look
from stead.printing.table import Column, Painted, in_bytes, in_seconds, table
from stead.printing.wording import ascii_form, columns_of, cut, printable, shortened

NAMES = [Column("operator", least=10), Column("time", "ms", right=True), Column("rate", right=True, drop=1)]
ROWS = [["model.layers.31.mlp.up_proj", "1.5", "10"], ["head", "12.0", "3"]]


def test_the_middle_of_a_long_name_gives_way() -> None:
    assert table(NAMES, ROWS, Look(40)) == [
        " operator                     time  rate",
        "                                ms",
        " model.layers.31.mlp.up_proj   1.5    10",
        " head                         12.0     3",
    ]
    wide = [Column("operator", least=10), Column("time", "ms", right=True), Column("rate" * 4, right=True)]
    assert table(wide, ROWS, Look(40))[2] == " model.l…up_proj   1.5                10"
    assert max(map(len, table(wide, ROWS, Look(40)))) == 40


def test_the_least_important_column_is_left_out_before_a_name_becomes_unreadable() -> None:
    columns = [Column("operator", least=20), *[Column(f"c{i}", right=True, drop=i) for i in (1, 2, 3)]]
    rows = [["model.layers.31.mlp.up_proj", *["123456"] * 3]]
    assert table(columns, rows, Look(40))[0].split() == ["operator", "c1", "c2"]


def test_a_column_without_anything_in_it_is_not_shown() -> None:
    assert table([Column("a"), Column("b"), Column("c")], [["1", "", "2"]])[0].split() == ["a", "c"]


def test_a_whole_text_is_broken_on_a_screen_and_left_alone_in_a_file() -> None:
    columns = [Column("name"), Column("says", least=20, whole=True)]
    rows = [["a", "one two three four five six seven eight nine ten eleven twelve"]]
    assert len(table(columns, rows, Look(40, wraps=True))) == 3
    assert table(columns, rows, Look(40))[1] == f" a     {rows[0][1]}"


def test_wide_signs_count_twice_and_colours_not_at_all() -> None:
    columns, rows = [Column("name"), Column("n", right=True)], [["層層", "1"], [Painted("abcd", "31"), "2"]]
    assert table(columns, rows) == [" name  n", " 層層  1", " abcd  2"]
    assert table(columns, rows, Look(colour=True))[2] == " \x1b[31mabcd\x1b[0m  2"


def test_cells_are_made_printable_before_they_are_measured() -> None:
    assert table([Column("name"), Column("n")], [["a\x1b[0m\n", "1"]])[1] == " a\\x1b[0m\\n  1"


@pytest.mark.parametrize(
    ("near", "value", "text"),
    [
        (0.0216, 0.0216, "21.6 ms"), (0.0216, 2.0, "2000.0 ms"), (0.0216, 1e-7, "<0.1 ms"), (0.0216, 0.0, "0.0 ms"),
        (5e-6, 5e-6, "5.00 us"), (0.99996e-3, 1e-3, "1.00 ms"), (90.0, 90.0, "90.0 s"), (0.0, 0.0, "0 s"),
        (1e-12, 1e-12, "0.001 ns"),
    ],
)  # fmt: skip
def test_a_column_of_times_has_one_unit(near: float, value: float, text: str) -> None:
    scale = in_seconds(near)
    assert f"{scale(value)} {scale.unit}" == text


def test_a_column_of_sizes_has_one_unit() -> None:
    scale = in_bytes(24 * 2**30)
    assert [scale.unit, *map(scale, (24 * 2**30, 2**20, 0, None))] == ["GiB", "24.0", "<0.1", "0.0", ""]


def test_what_is_invisible_becomes_an_escape() -> None:
    hidden = "\x00\x07\x1b\x7f\x85\x9b\u061c\u200b\u200e\u2028\u202e\u2066\ufeff\ud800\U000e0001"
    shown = printable(f"a{hidden}b")
    assert shown.isascii()
    assert shown.isprintable()
    assert shown.startswith("a\\x00\\x07\\x1b\\x7f\\x85\\x9b\\u061c\\u200b")
    assert printable("Größe 層 ☃") == "Größe 層 ☃"


def test_ascii_forms_lose_nothing_but_beauty() -> None:
    assert ascii_form("a→b…ß") == "a->b...\\xdf"


@pytest.mark.parametrize("width", range(12))
def test_shortened_texts_keep_to_their_width(width: int) -> None:
    for text in ("model.layers.0", "層" * 9, "e\N{COMBINING ACUTE ACCENT}" * 20):
        assert columns_of(shortened(text, width)) <= width
        assert columns_of(cut(text, width)) <= width
