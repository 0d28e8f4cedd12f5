"""Each format: what it reads, and how it names what it cannot read."""

from __future__ import annotations

import datetime
import json
import os
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from localjudge.errors import DataError
from localjudge.readers import Record, open_source
from localjudge.templates import as_text


def written(path: Path, content: bytes | str) -> Path:
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def read(data: Any, **options: Any) -> Iterator[Record]:
    return open_source(data, **options).records()


def left_out(path: Path) -> tuple[str, ...]:
    return open_source(path).left_out()


def records(data: Any, **options: Any) -> list[dict[str, Any]]:
    return [fields for _, fields in read(data, **options)]


def refusal(path: Path, content: bytes | str) -> DataError:
    with pytest.raises(DataError) as caught:
        list(read(written(path, content)))
    assert caught.value.path == str(path)
    return caught.value


def in_parquet(path: Path, *columns: pa.Array, names: list[str]) -> Path:
    pq.write_table(pa.Table.from_arrays(list(columns), names=names), path)
    return path


# All formats


def test_an_unknown_ending_is_refused_with_the_formats_that_are_read(tmp_path):
    error = refusal(tmp_path / "rows.xlsx", b"PK")
    assert "'.xlsx'" in error.problem
    assert ".jsonl, .ndjson, .json, .csv, .tsv, .parquet" in error.hint


def test_the_case_of_the_ending_does_not_matter(tmp_path):
    assert records(written(tmp_path / "ROWS.JSONL", '{"a": 1}')) == [{"a": 1}]


def test_a_missing_file_is_an_error_with_a_hint(tmp_path):
    with pytest.raises(DataError, match="No such file") as caught:
        list(read(tmp_path / "rows.jsonl"))
    assert "check the path" in caught.value.hint


@pytest.mark.parametrize("name", ["x" * 300 + ".jsonl", "a\0b.jsonl"])
def test_a_name_that_no_file_can_have_is_refused(tmp_path, name):
    with pytest.raises(DataError):
        records(tmp_path / name)


def test_a_pipe_is_refused_and_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "rows.jsonl").symlink_to(tmp_path / "pipe")
    with pytest.raises(DataError, match="is a pipe or a device"):
        records(tmp_path / "rows.jsonl")


def test_rows_are_read_one_by_one(tmp_path):
    path = written(tmp_path / "rows.jsonl", '{"a": 1}\n{"a": 2}\n{torn')
    rows = read(path)
    assert [next(rows), next(rows)] == [(1, {"a": 1}), (2, {"a": 2})]


# Text


@pytest.mark.parametrize(
    ("name", "content"),
    [("rows.jsonl", b'{"id": "1", "a": "x"}\r\n'), ("rows.csv", b"id,a\r\n1,x\r\n")],
)
def test_a_byte_order_mark_and_carriage_returns_are_not_data(tmp_path, name, content):
    path = written(tmp_path / name, b"\xef\xbb\xbf" + content)
    assert records(path) == [{"id": "1", "a": "x"}]


def test_a_bad_byte_is_named_by_line_and_offset(tmp_path):
    content = "id,a\n1,é\n2,".encode() + "“quoted”".encode("cp1252") + b"\n"
    error = refusal(tmp_path / "rows.csv", content)
    assert error.line == 3
    offset = content.index(0x93)
    assert f"0x93 at offset {offset} " in error.problem
    assert "iconv -f WINDOWS-1252 -t UTF-8 rows.csv" in error.hint


def test_the_offset_counts_the_byte_order_mark(tmp_path):
    assert "offset 9 " in refusal(tmp_path / "rows.jsonl", b'\xef\xbb\xbf{"a":"\xff"}').problem


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be"])
def test_utf_16_is_recognised(tmp_path, encoding):
    error = refusal(tmp_path / "rows.csv", "\ufeffid,a\n1,x\n".encode(encoding))
    assert "iconv -f UTF-16 -t UTF-8 rows.csv" in error.hint


# JSON Lines


def test_json_values_keep_their_types(tmp_path):
    rows = [
        {"id": 1, "answer": 42, "messages": [{"role": "user"}, {"name": "calc", "result": 3}]},
        {"id": 2, "answer": "forty-two", "meta": {}},
        {"id": "3b", "answer": True, "extra": None, "half": 0.5},
    ]
    path = written(tmp_path / "rows.jsonl", "\n".join(map(json.dumps, rows)))
    assert records(path) == rows


def test_only_a_line_feed_ends_a_json_record(tmp_path):
    text = "a\u2028b\u2029c\u0085d\x1ce"
    line = json.dumps({"a": text}, ensure_ascii=False)
    assert records(written(tmp_path / "rows.jsonl", f"{line}\n{line}\n")) == [{"a": text}] * 2


def test_blank_lines_are_skipped_and_counted(tmp_path):
    path = written(tmp_path / "rows.jsonl", '\n{"a": 1}\n \t\r\n{"a": 2}')
    assert list(read(path)) == [(2, {"a": 1}), (4, {"a": 2})]


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ('{"id":"r400","val', "Unterminated string starting at (column 14)"),
        ('{"id":"a"}{"id":"b"}', "Extra data (column 11)"),
        ("[1, 2]", "not list"),
        ('"text"', "not str"),
        ("null", "not NoneType"),
        ('{"id":2,"a":"x","a":"y"}', "'a' stands twice"),
        ('{"id":2,"deep":[{"b":1,"b":1}]}', "'b' stands twice"),
        ("[" * 100_000, "cannot be read"),
        ('{"a":' + "9" * 5000 + "}", "integer string conversion"),
        (r'{"a":"cut \ud83d"}', r"\ud83d is half of a surrogate pair"),
        (r'{"a":["\uDE00"]}', r"\ude00 is half of a surrogate pair"),
        ('{"a":"\0"}', "Invalid control character"),
    ],
)
def test_a_line_that_is_not_one_json_object_is_named(tmp_path, line, problem):
    error = refusal(tmp_path / "rows.jsonl", '{"a":1}\n' + line + "\n")
    assert error.line == 2
    assert problem in error.problem


def test_a_whole_surrogate_pair_is_a_character(tmp_path):
    path = written(tmp_path / "rows.jsonl", r'{"a":"\ud83d\ude00 \\ud83d"}')
    assert records(path) == [{"a": "\U0001f600 \\ud83d"}]


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e999"])
def test_a_number_that_is_not_finite_is_missing_with_a_warning(tmp_path, number):
    path = written(tmp_path / "rows.jsonl", f'{{"a": {number}, "b": [{number}, 1.5]}}')
    with pytest.warns(UserWarning, match="read as missing"):
        assert records(path) == [{"a": None, "b": [None, 1.5]}]


# CSV and TSV


def test_csv_text_is_text_and_only_an_empty_cell_is_missing(tmp_path):
    path = written(tmp_path / "rows.csv", 'id,human\n1,None\n2,N/A\n03,null\n4,\n5,""\n6, \n')
    assert [tuple(row.values()) for row in records(path)] == [
        ("1", "None"),
        ("2", "N/A"),
        ("03", "null"),
        ("4", None),
        ("5", None),
        ("6", " "),
    ]


def test_csv_records_carry_the_line_on_which_they_begin(tmp_path):
    path = written(tmp_path / "rows.csv", 'id,a\r\n1,"x\r\ny, ""z""\n"\r\n\r\n2,b\r\n')
    assert list(read(path)) == [
        (2, {"id": "1", "a": 'x\r\ny, "z"\n'}),
        (6, {"id": "2", "a": "b"}),
    ]


def test_tsv_is_split_at_tabs(tmp_path):
    assert records(written(tmp_path / "rows.tsv", "id\ta\n1\tx, y\n")) == [{"id": "1", "a": "x, y"}]


def test_a_very_large_cell_is_read(tmp_path):
    path = written(tmp_path / "rows.csv", f"id,a\n1,x\n2,{'y' * 140_000}\n3,z\n")
    assert [len(row["a"]) for row in records(path)] == [1, 140_000, 1]


@pytest.mark.parametrize(
    ("content", "line", "problem"),
    [
        ('id,a\n1,"x\ny"\n2\n', 4, "1 cells, but the header names 2"),
        ("id,a\n1,x,y\n", 2, "3 cells, but the header names 2"),
        ('id,a\n1,x\n2,"never\nclosed\n', 3, "unexpected end of data"),
        ('id,a\n1,"x"y\n', 2, "expected after"),
        ("id,a\r1,x\r", 1, "new-line character"),
        ("id,a\n1,x\0y\n", 2, "NUL"),
        ("id,a,id\n1,x,y\n", 1, "twice"),
        (",a\n1,x\n", 1, "column 1 of the header has no name"),
        ("\na, \n1,x\n", 2, "column 2 of the header has no name"),
    ],
)
def test_a_broken_csv_record_is_named(tmp_path, content, line, problem):
    error = refusal(tmp_path / "rows.csv", content)
    assert (error.line, problem in error.problem) == (line, True), error


def test_a_blank_line_in_a_single_column_is_an_empty_cell(tmp_path):
    path = written(tmp_path / "rows.csv", "\na\nx\n\n\ny\n\n")
    assert list(read(path)) == [
        (3, {"a": "x"}),
        (4, {"a": None}),
        (5, {"a": None}),
        (6, {"a": "y"}),
    ]


@pytest.mark.parametrize(
    ("name", "content", "line"),
    [
        ("rows.csv", 'id,a\n1,"a\n2,b\n3,c"\n4,d\n', 2),
        ("rows.csv", 'id,a,b\r\n"x\r\ny","a,z\r\n2,b,z\r\n3,c",z\r\n', 3),
        ("rows.tsv", 'id\ta\n0\t-\n1\t"open\n2\tb b\n3\tc"\n4\td\n', 3),
    ],
)
def test_a_quotation_mark_that_swallows_rows_is_named(tmp_path, name, content, line):
    error = refusal(tmp_path / name, content)
    assert (error.line, "2 further lines that look like rows" in error.problem) == (line, True)
    assert '"""' in error.hint


@pytest.mark.parametrize(
    "cell", ["First, we go.\nThen, we stop.\nSo, well.", "a\nb,c", "a\nb,c\nd", "1,2\n\n3,4"]
)
def test_lines_of_prose_in_a_cell_are_no_rows(tmp_path, cell):
    path = written(tmp_path / "rows.csv", f'id,a\n1,"{cell}"\n')
    assert records(path) == [{"id": "1", "a": cell}]


# Parquet


def test_parquet_values_become_plain_values(tmp_path):
    moment = datetime.datetime(2024, 2, 29, 12, 30, tzinfo=datetime.UTC)
    columns = {
        "text": pa.array(["é", None]),
        "number": pa.array([2**60, None]),
        "real": pa.array([0.5, float("nan")]),
        "flag": pa.array([True, None]),
        "nested": pa.array([{"a": [float("inf"), 1.0], "b": None}, None]),
        "category": pa.array(["x", "y"]).dictionary_encode(),
        "moment": pa.array([moment, None], pa.timestamp("us", tz="UTC")),
        "fine": pa.array([1, None], pa.timestamp("ns")),
        "day": pa.array([datetime.date(2024, 2, 29), None]),
        "time": pa.array([datetime.time(1, 2, 3), None]),
        "price": pa.array([Decimal("1.50"), None]),
        "length": pa.array([datetime.timedelta(seconds=90), None]),
    }
    path = in_parquet(tmp_path / "rows.parquet", *columns.values(), names=list(columns))
    first, second = records(path)
    assert first == {
        "text": "é",
        "number": 2**60,
        "real": 0.5,
        "flag": True,
        "nested": {"a": [None, 1.0], "b": None},
        "category": "x",
        "moment": "2024-02-29T12:30:00+00:00",
        "fine": "1970-01-01T00:00:00.000000001",
        "day": "2024-02-29",
        "time": "01:02:03",
        "price": "1.50",
        "length": "0:01:30",
    }
    assert second == dict.fromkeys(columns) | {"category": "y"}


def test_a_parquet_time_keeps_its_nanoseconds(tmp_path):
    times = pa.array([1, 1_000, 60 * 10**9, None], pa.time64("ns"))
    path = in_parquet(tmp_path / "rows.parquet", times, names=["a"])
    texts = ["00:00:00.000000001", "00:00:00.000001", "00:01:00", None]
    assert [row["a"] for row in records(path)] == texts


def test_a_parquet_uuid_is_text(tmp_path):
    value = UUID("12345678-1234-5678-1234-567812345678")
    storage = pa.array([value.bytes], pa.binary(16))
    path = in_parquet(
        tmp_path / "rows.parquet",
        pa.ExtensionArray.from_storage(pa.uuid(), storage),
        names=["id"],
    )
    assert records(path) == [{"id": str(value)}]


def test_parquet_rows_are_numbered_across_batches(tmp_path):
    path = in_parquet(tmp_path / "rows.parquet", pa.array(range(600)), names=["n"])
    assert list(read(path)) == [(n + 1, {"n": n}) for n in range(600)]


def test_parquet_columns_with_bytes_are_left_out_and_known(tmp_path):
    path = in_parquet(
        tmp_path / "rows.parquet",
        pa.array(["x", "y"]),
        pa.array([None, b"x"]),
        pa.array([[{"bytes": b"x", "path": "p"}], None]),
        pa.array([b"x", b"x"]).dictionary_encode(),
        names=["a", "blob", "images", "category"],
    )
    assert records(path) == [{"a": "x"}, {"a": "y"}]
    assert left_out(path) == ("blob", "images", "category")
    assert left_out(written(tmp_path / "rows.csv", "a\nx\n")) == ()


def test_a_parquet_file_of_nothing_but_bytes_is_refused(tmp_path):
    path = in_parquet(tmp_path / "rows.parquet", pa.array([None, b"x"]), names=["blob"])
    with pytest.raises(DataError, match="every column holds bytes"):
        records(path)


@pytest.mark.parametrize(
    "column",
    [
        pa.array([10**8, 1], pa.date32()),
        pa.array([2**62, 1], pa.timestamp("us")),
        pa.array([1, 2], pa.timestamp("us", "Foo/Bar")),
        pa.StructArray.from_arrays([pa.array([1, 2]), pa.array([3, 4])], names=["k", "k"]),
    ],
)
def test_a_parquet_value_that_python_cannot_hold_costs_only_the_rows_that_need_it(tmp_path, column):
    path = in_parquet(tmp_path / "rows.parquet", pa.array(["x", "y"]), column, names=["a", "odd"])
    rows = records(path)
    assert [row["a"] for row in rows] == ["x", "y"]
    with pytest.raises(DataError, match="cannot be shown"):
        as_text(rows[0]["odd"])
    if column.type in (pa.date32(), pa.timestamp("us")):
        assert rows[1]["odd"].startswith("1970-01-0")


def test_the_json_type_of_parquet_is_decoded(tmp_path):
    texts = pa.array(['{"a": [1, "NA"]}', '"x"', None])
    column = pa.ExtensionArray.from_storage(pa.json_(), texts)
    path = in_parquet(tmp_path / "rows.parquet", column, names=["a"])
    assert [row["a"] for row in records(path)] == [{"a": [1, "NA"]}, "x", None]


def test_a_parquet_column_named_twice_is_refused(tmp_path):
    path = in_parquet(tmp_path / "rows.parquet", pa.array([1]), pa.array([2]), names=["a", "a"])
    with pytest.raises(DataError, match="names this column twice"):
        records(path)


def test_a_damaged_parquet_file_is_refused(tmp_path):
    path = in_parquet(tmp_path / "rows.parquet", pa.array(["x"] * 1000), names=["a"])
    refusal(path, path.read_bytes()[:-20])
    refusal(path, b"")
    broken = pa.Array.from_buffers(
        pa.string(), 1, [None, pa.array([0, 1], pa.int32()).buffers()[1], pa.py_buffer(b"\xff")]
    )
    with pytest.raises(DataError, match="can't decode byte 0xff"):
        records(in_parquet(path, broken, names=["a"]))
