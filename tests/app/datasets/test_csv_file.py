from __future__ import annotations

import io
import itertools

import numpy as np
import pytest

from app.datasets import csv_file
from app.datasets.columns import CategoryColumn, Column, NumberColumn
from app.datasets.csv_file import read_csv, read_features
from app.datasets.table import Table
from app.problems import Problem
from tests.app.datasets.declarations import COLUMNS, CSV

HEADER = b"age,region,outcome\n"
# Stands for what a record holds; no refusal may repeat it.
SECRET = "8675309"


def read(data: bytes) -> Table:
    return read_csv(io.BytesIO(data), COLUMNS, "outcome")


def refusal(data: bytes) -> Problem:
    with pytest.raises(Problem) as caught:
        read(data)
    problem = caught.value
    assert (problem.status, problem.code) == (422, "invalid_csv")
    assert problem.errors
    assert all(item.pointer == "/file" for item in problem.errors)
    return problem


def test_values_land_in_declared_order_whatever_the_order_of_the_file() -> None:
    table = read(b"outcome,age,region\nyes,41,south\nno,-0,north\n")
    assert table.features.tolist() == [[41.0, 1.0], [0.0, 0.0]]
    assert table.labels.tolist() == [1, 0]
    assert table.labels.dtype == np.int64
    assert table.features.dtype == np.float64


def test_rows_without_a_label_are_read_as_those_with_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(csv_file, "_BLOCK_CELLS", 4)
    features = [column for column in COLUMNS if column.name != "outcome"]
    data = b"region,age\n" + b"".join(b"south,%d\n" % age for age in range(100, 200, 20))
    with_label = b"outcome," + data.replace(b"\n", b"\nno,").removesuffix(b"no,")
    assert np.array_equal(read_features(io.BytesIO(data), features), read(with_label).features)
    assert read_features(io.BytesIO(b"age,region\n"), features).shape == (0, 2)
    for wrong, said in ((data + b"south,x\n", "in row 7, column 'age'"), (with_label, "positions 1"), (b"", "empty")):
        with pytest.raises(Problem) as caught:
            read_features(io.BytesIO(wrong), features)
        assert said in caught.value.errors[0].detail.lower()
    passed_over = read_features(io.BytesIO(with_label), features, "outcome")
    assert np.array_equal(passed_over, read(with_label).features)


@pytest.mark.parametrize(
    "data",
    [
        b"\xef\xbb\xbf" + CSV,
        CSV.replace(b"\n", b"\r\n"),
        CSV.rstrip(b"\n"),
        CSV + b"\n\r\n",
        b'"age","region","outcome"\n"40","north","no"\n"50.5",south,yes\n',
        b"age,region,outcome\n 40\t,north,no\n+50.50,south,yes\n",
        b"age,region,outcome\n4e1,north,no\n505E-1,south,yes\n",
        b"age,region,outcome\n40.,north,no\n050.5,south,yes\n",
    ],
    ids=["byte_order_mark", "crlf", "no_last_newline", "blank_end", "quotes", "spaces", "exponents", "zeros"],
)
def test_spellings_of_one_file_are_one_table(data: bytes) -> None:
    table, expected = read(data), read(CSV)
    assert np.array_equal(table.features, expected.features)
    assert np.array_equal(table.labels, expected.labels)
    assert table.content == expected.content


def test_a_file_without_rows_is_accepted() -> None:
    for data in (HEADER, HEADER.rstrip()):
        table = read(data)
        assert table.rows == 0
        assert table.features.shape == (0, 2)


def test_quoted_names_may_hold_commas_quotes_and_letters_of_any_script() -> None:
    columns: list[Column] = [
        NumberColumn(name='size, "net"', type="number", lower=-1.0, upper=1.0),
        CategoryColumn(name="κλάση", type="category", categories=["=1+1", "α, β"]),
    ]
    data = '"size, ""net""",κλάση\n0.5,=1+1\n-0.5,"α, β"\n'.encode()
    table = read_csv(io.BytesIO(data), columns, "κλάση")
    assert table.labels.tolist() == [0, 1]


def test_a_number_as_label_stays_a_number() -> None:
    table = read_csv(io.BytesIO(CSV), COLUMNS, "age")
    assert table.labels.tolist() == [40.0, 50.5]
    assert table.labels.dtype == np.float64
    assert table.features.tolist() == [[0.0, 0.0], [1.0, 1.0]]


def test_values_outside_their_bounds_are_clipped_and_counted() -> None:
    table = read(HEADER + b"-1,north,no\n120,north,no\n120.0001,south,yes\n1e300,south,yes\n")
    assert table.features[:, 0].tolist() == [0.0, 120.0, 120.0, 120.0]
    assert table.values_clipped == 3


CELL_FAULTS = [
    ("empty", "", "empty_cell"),
    ("spaces", "   ", "empty_cell"),
    ("text", f"about {SECRET}", "not_a_number"),
    ("formula", f'"=SUM({SECRET},1)"', "not_a_number"),
    ("command", f"@cmd|{SECRET}", "not_a_number"),
    ("two_numbers", f"1 {SECRET}", "not_a_number"),
    ("underscore", "8_675_309", "not_a_number"),
    ("hexadecimal", "0x8675309", "not_a_number"),
    ("decimal_comma", f'"{SECRET},5"', "not_a_number"),
    ("other_digits", "８６７５３０９", "not_a_number"),
    ("boolean", "True", "not_a_number"),
    ("only_signs", "+-", "not_a_number"),
    ("exponent_alone", "e5", "not_a_number"),
    ("quoted_newline", f'"{SECRET}\n1"', "not_a_number"),
    ("nan", "nan", "not_finite"),
    ("signed_nan", " -NaN", "not_finite"),
    ("infinity", "Infinity", "not_finite"),
    ("negative_infinity", "-inf", "not_finite"),
    ("overflow", "1e400", "not_finite"),
    ("negative_overflow", "-8675309e999", "not_finite"),
    ("long_overflow", "9" * 400, "not_finite"),
]


@pytest.mark.parametrize(
    ("cell", "code"), [fault[1:] for fault in CELL_FAULTS], ids=[fault[0] for fault in CELL_FAULTS]
)
def test_number_cells_are_refused_by_row_and_column_and_never_quoted(cell: str, code: str) -> None:
    problem = refusal(HEADER + b"1,north,no\n" + f"{cell},south,yes\n".encode() + b"2,north,no\n")
    (item,) = problem.errors
    assert item.code == code
    assert "row 3, column 'age'" in item.detail
    text = repr(problem.body("id"))
    for secret in (SECRET, "675", "SUM", "８", "99"):
        assert secret not in text


@pytest.mark.parametrize(
    ("cell", "code"),
    [("", "empty_cell"), ("West", "unknown_category"), (" south", "unknown_category"), ("=1+1", "unknown_category")],
)
def test_category_cells_are_refused_by_row_and_column_and_never_quoted(cell: str, code: str) -> None:
    problem = refusal(HEADER + f"1,{cell},no\n".encode())
    (item,) = problem.errors
    assert item.code == code
    assert "row 2, column 'region'" in item.detail
    assert "West" not in repr(problem.body("id"))
    assert "=1+1" not in repr(problem.body("id"))


def test_faults_are_told_in_the_order_of_the_file_and_twenty_of_them() -> None:
    problem = refusal(HEADER + b"x,west,no\n" * 15)
    assert len(problem.errors) == 20
    assert [item.code for item in problem.errors[:3]] == ["not_a_number", "unknown_category", "not_a_number"]
    assert "row 11" in problem.errors[-1].detail


STRUCTURE_FAULTS = [
    ("nothing", b"", "header_missing"),
    ("blank_lines", b"\n\n", "header_missing"),
    ("mark_alone", b"\xef\xbb\xbf", "header_missing"),
    ("blank_first", b"\n" + CSV, "ragged_row"),
    ("too_few_cells", HEADER + b"8675309,north\n", "ragged_row"),
    ("too_many_cells", HEADER + b"8675309,north,no,\n", "ragged_row"),
    ("blank_line_inside", HEADER + b"1,north,no\n\n8675309,north,no\n", "ragged_row"),
    ("column_missing", b"age,region\n8675309,north\n", "column_missing"),
    ("column_undeclared", b"age,region,outcome,8675309\n1,north,no,2\n", "column_undeclared"),
    ("column_repeated", b"age,age,region,outcome\n8675309,2,north,no\n", "column_repeated"),
    ("header_case", b"Age,region,outcome\n8675309,north,no\n", "column_missing"),
    ("no_header", b"8675309,north,no\n1,south,yes\n", "column_missing"),
    ("semicolons", b"age;region;outcome\n8675309;north;no\n", "column_missing"),
    ("nul", HEADER + b"8675309\0,north,no\n", "nul_byte"),
    ("latin_1", HEADER + b"8675309,n\xf6rd,no\n", "not_utf8"),
    ("utf_16", CSV.decode().encode("utf-16"), "nul_byte"),
    ("surrogate", HEADER + b"8675309,\xed\xa0\x80,no\n", "not_utf8"),
    ("zip", b"PK\x03\x04\xff\xfe8675309", "not_utf8"),
    ("open_quote", HEADER + b'"8675309,north,no\n', "malformed_row"),
    ("text_after_quote", HEADER + b'"8675309"1,north,no\n', "malformed_row"),
    ("huge_cell", HEADER + b"8675309" * 30_000 + b",north,no\n", "malformed_row"),
    ("old_line_ends", CSV.replace(b"\n", b"\r"), "malformed_row"),
    ("huge_line", HEADER + b"8675309," * 600_000, "line_too_long"),
]


@pytest.mark.parametrize(
    ("data", "code"), [fault[1:] for fault in STRUCTURE_FAULTS], ids=[fault[0] for fault in STRUCTURE_FAULTS]
)
def test_broken_files_are_refused_without_a_word_of_them(data: bytes, code: str) -> None:
    problem = refusal(data)
    assert code in {item.code for item in problem.errors}
    assert "8675309" not in repr(problem.body("id"))


def test_a_header_of_many_undeclared_cells_is_answered_in_a_few_words() -> None:
    problem = refusal(b"," * 1_000_000 + b"age\n")
    assert len(repr(problem.body("id"))) < 2000


def test_rows_and_cells_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(csv_file, "MAX_ROWS", 2)
    assert read(CSV).rows == 2
    assert refusal(CSV + b"1,north,no\n").errors[0].code == "too_many_rows"
    monkeypatch.setattr(csv_file, "MAX_ROWS", 100)
    monkeypatch.setattr(csv_file, "MAX_CELLS", 8)
    assert read(CSV).rows == 2
    assert refusal(CSV + b"1,north,no\n").errors[0].code == "too_many_rows"


def test_blocks_do_not_show_in_the_table(monkeypatch: pytest.MonkeyPatch) -> None:
    data = HEADER + b"".join(
        b"%d,%s,no\n" % (age, region) for age, region in zip(range(99), itertools.cycle([b"north", b"south"]))
    )
    whole = read(data)
    monkeypatch.setattr(csv_file, "_BLOCK_CELLS", 21)
    table = read(data)
    assert np.array_equal(table.features, whole.features)
    assert table.content == whole.content
    assert "row 100," in refusal(data[: data.rindex(b"98")] + b"?,north,no\n").errors[0].detail


def test_content_is_the_same_under_other_names_bounds_orders_and_codes() -> None:
    expected = read(CSV).content
    renamed: list[Column] = [
        CategoryColumn(name="b", type="category", categories=["yes", "maybe", "no"]),
        CategoryColumn(name="c", type="category", categories=["south", "north"]),
        NumberColumn(name="a", type="number", lower=45.0, upper=46.0),
    ]
    table = read_csv(io.BytesIO(b"b,a,c\nno,40,north\nyes,50.5,south\n"), renamed, "c")
    assert table.content == expected
    assert read(HEADER + b"50.5,south,yes\n40,north,no\n").content != expected
    assert read(HEADER + b"40,north,no\n50.5,north,yes\n").content != expected
    assert read(HEADER + b"40,north,no\n50.6,south,yes\n").content != expected


def test_content_tells_values_apart_that_clipping_makes_equal() -> None:
    first, second = read(HEADER + b"500,north,no\n"), read(HEADER + b"600,north,no\n")
    assert np.array_equal(first.features, second.features)
    assert first.content != second.content


def test_content_knows_one_zero() -> None:
    assert read(HEADER + b"-0.0,north,no\n").content == read(HEADER + b"0,north,no\n").content


def test_replacing_one_row_changes_no_other_row() -> None:
    rows = [b"%d,north,no\n" % age for age in range(20)]
    one = read(HEADER + b"".join(rows))
    rows[7] = b"1e9,south,yes\n"
    other = read(HEADER + b"".join(rows))
    assert np.array_equal(np.delete(one.features, 7, axis=0), np.delete(other.features, 7, axis=0))
    assert np.array_equal(np.delete(one.labels, 7), np.delete(other.labels, 7))
