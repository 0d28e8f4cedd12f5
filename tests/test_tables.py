"""Rows in with their ids, and the pass before a run."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from localjudge.errors import ConfigError, DataError
from localjudge.records import Row
from localjudge.tables import TableCheck, check_table, checked_rows, open_table


def jsonl(path: Path, *rows: object) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


# Opening


def test_a_table_can_be_read_as_often_as_asked(tmp_path):
    table = open_table(jsonl(tmp_path / "rows.jsonl", {"id": "a", "q": "x"}, {"id": "b", "r": 1}))
    rows = [Row("a", {"id": "a", "q": "x"}, 1), Row("b", {"id": "b", "r": 1}, 2)]
    assert list(table) == list(table) == rows
    assert table.columns == ("id", "q")


def test_columns_of_csv_and_parquet_are_those_of_the_header(tmp_path):
    (tmp_path / "rows.csv").write_text("id,q,r\n1,,\n")
    pq.write_table(
        pa.table({"id": [1], "q": pa.array([None], pa.string())}), tmp_path / "r.parquet"
    )
    assert open_table(tmp_path / "rows.csv").columns == ("id", "q", "r")
    assert open_table(tmp_path / "r.parquet").columns == ("id", "q")


@pytest.mark.parametrize("content", ["", "\n\n", "\ufeff"])
@pytest.mark.parametrize("name", ["rows.jsonl", "rows.csv"])
def test_a_file_without_rows_is_refused(tmp_path, name, content):
    (tmp_path / name).write_text(content, encoding="utf-8")
    with pytest.raises(DataError, match="has no rows"):
        open_table(tmp_path / name)


def test_a_header_alone_is_no_data(tmp_path):
    (tmp_path / "rows.csv").write_text("id,q\n")
    pq.write_table(pa.table({"id": pa.array([], pa.int64())}), tmp_path / "rows.parquet")
    for name in ("rows.csv", "rows.parquet"):
        with pytest.raises(DataError, match="has no rows"):
            open_table(tmp_path / name)


def test_a_limit_holds_for_reading_and_for_the_check(tmp_path):
    path = jsonl(tmp_path / "rows.jsonl", {"id": 1}, {"id": 2}, {"id": 2})
    table = open_table(path, limit=2)
    assert [row.id for row in table] == ["1", "2"]
    assert check_table(table).rows == 2
    with pytest.raises(ConfigError, match="limit"):
        open_table(path, limit=0)
    assert len([*open_table(path, limit=2**70)]) == 3


# Ids


def test_ids_become_text_and_the_original_stays(tmp_path):
    path = jsonl(tmp_path / "rows.jsonl", {"id": 1}, {"id": "3b"}, {"id": " x "}, {"id": "01"})
    rows = list(open_table(path))
    assert [row.id for row in rows] == ["1", "3b", " x ", "01"]
    assert rows[0].fields == {"id": 1}


def test_another_column_can_hold_the_ids(tmp_path):
    path = jsonl(tmp_path / "rows.jsonl", {"id": None, "span": "s1"}, {"span": "s2"})
    assert [row.id for row in open_table(path, id_column="span")] == ["s1", "s2"]


def test_without_ids_a_row_is_known_by_its_number(tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_text('\n{"q": "x"}\n\n{"q": "y", "id": null}\n')
    assert [(row.id, row.line) for row in open_table(path)] == [("1", 2), ("2", 4)]


def test_an_absent_id_column_is_named_with_the_closest_one(tmp_path):
    path = jsonl(tmp_path / "rows.jsonl", {"Span ID": "1", "q": "x"})
    with pytest.raises(DataError, match="no such column: 'span_id'") as caught:
        open_table(path, id_column="span_id")
    assert "did you mean 'Span ID'" in caught.value.hint


@pytest.mark.parametrize(
    ("row", "problem"),
    [
        ({"id": True}, "not bool"),
        ({"id": 1.0}, "not float"),
        ({"id": ["1"]}, "not list"),
        ({"id": {"a": 1}}, "not dict"),
        ({"id": None}, "the row has no id"),
        ({"q": "x"}, "the row has no id"),
        ({"id": ""}, "blank"),
        ({"id": " \t"}, "blank"),
        ({"id": "a\0"}, "holds a NUL"),
    ],
)
def test_a_row_without_a_usable_id_is_named(tmp_path, row, problem):
    path = jsonl(tmp_path / "rows.jsonl", {"id": "a"}, row)
    with pytest.raises(DataError, match=problem) as caught:
        list(open_table(path))
    assert (caught.value.path, caught.value.line, caught.value.field) == (str(path), 2, "id")


def test_ids_that_begin_after_the_first_row_are_refused(tmp_path):
    path = jsonl(tmp_path / "rows.jsonl", {"q": "x"}, {"id": "b", "q": "y"})
    with pytest.raises(DataError, match="the first row has none") as caught:
        list(open_table(path))
    assert caught.value.line == 2


# The check


def test_the_check_counts_the_rows_and_knows_the_data_again(tmp_path):
    rows = [{"id": "1", "q": "x"}, {"id": "2", "q": "y"}]
    check = check_table(open_table(jsonl(tmp_path / "rows.jsonl", *rows)), ["q"])
    assert check.rows == 2
    (tmp_path / "rows.csv").write_text("id,q\r\n1,x\r\n2,y\r\n")
    assert check_table(open_table(tmp_path / "rows.csv")) == check
    others = [
        [{"id": "1", "q": "x"}, {"id": "2", "q": "z"}],
        [{"id": "2", "q": "y"}, {"id": "1", "q": "x"}],
        [{"id": "1", "q": "x"}, {"id": "2", "q": "y", "r": None}],
        [{"id": 1, "q": "x"}, {"id": "2", "q": "y"}],
        rows[:1],
    ]
    digests = {
        check_table(open_table(jsonl(tmp_path / "rows.jsonl", *other))).digest for other in others
    }
    assert len(digests - {check.digest}) == len(others)


def test_the_digest_depends_on_which_column_holds_the_ids(tmp_path):
    path = jsonl(tmp_path / "rows.jsonl", {"id": "1", "span": "s1"})
    first, second = open_table(path), open_table(path, id_column="span")
    assert check_table(first).digest != check_table(second).digest


def test_the_check_finds_a_line_that_cannot_be_read(tmp_path):
    path = jsonl(tmp_path / "rows.jsonl", {"id": 1}, {"id": 2}, [3])
    table = open_table(path)
    with pytest.raises(DataError) as caught:
        check_table(table)
    assert caught.value.line == 3


def test_a_duplicate_id_is_named_with_both_lines(tmp_path):
    path = jsonl(
        tmp_path / "rows.jsonl",
        *({"id": f"r{number}"} for number in range(50)),
        {"id": "r7", "a": "another answer"},
        {"id": 3},
    )
    with pytest.raises(DataError, match="the id 'r7' was already given on line 8") as caught:
        check_table(open_table(path))
    assert (caught.value.line, caught.value.field) == (51, "id")


def test_a_number_and_its_text_are_one_id(tmp_path):
    path = jsonl(tmp_path / "rows.jsonl", {"id": 1}, {"id": "1"})
    with pytest.raises(DataError, match="already given on line 1"):
        check_table(open_table(path))


def test_ids_that_only_share_a_hash_are_not_duplicates(tmp_path, monkeypatch):
    path = jsonl(tmp_path / "rows.jsonl", *({"id": f"r{number}"} for number in range(50)))
    monkeypatch.setattr("localjudge.tables.hash", lambda id: 7, raising=False)
    assert check_table(open_table(path)).rows == 50


def test_a_required_column_may_appear_in_any_row(tmp_path):
    path = jsonl(tmp_path / "rows.jsonl", {"id": 1}, {"id": 2, "reference": "x"}, {"id": 3})
    assert isinstance(check_table(open_table(path), ["reference"]), TableCheck)


def test_a_required_column_that_is_in_no_row_is_named_with_near_misses(tmp_path):
    (tmp_path / "rows.csv").write_text("id,Reference ,answr\n1,x,y\n")
    with pytest.raises(DataError) as caught:
        check_table(open_table(tmp_path / "rows.csv"), ["reference", "id", "answer", "colour"])
    assert caught.value.problem == "no such column: 'reference', 'answer', 'colour'"
    assert "did you mean 'Reference ' for 'reference'?" in caught.value.hint
    assert "did you mean 'answr' for 'answer'?" in caught.value.hint
    assert "the columns present: 'id', 'Reference ', 'answr'" in caught.value.hint


def test_rows_that_are_gone_by_the_check_are_noticed(tmp_path):
    path = jsonl(tmp_path / "rows.jsonl", {"id": 1})
    table = open_table(path)
    path.write_text("")
    with pytest.raises(DataError, match="has no rows"):
        check_table(table)


@pytest.mark.parametrize(
    ("rows", "line"),
    [
        ([{"id": 1, "q": "x"}], None),
        ([{"id": 1, "q": "x"}, {"id": 2, "q": "z"}], 2),
        ([{"id": 1, "q": "x"}, {"id": "2", "q": "y"}], 2),
        ([{"id": 1, "q": "x"}, {"id": 2, "q": "y"}, {"id": 3, "q": "z"}], 3),
    ],
)
def test_a_file_that_changed_since_the_check_is_noticed_at_its_row(tmp_path, rows, line):
    path = jsonl(tmp_path / "rows.jsonl", {"id": 1, "q": "x"}, {"id": 2, "q": "y"})
    table = open_table(path)
    check = check_table(table)
    assert [*checked_rows(table, check)] == [*table]
    jsonl(path, *rows)
    with pytest.raises(DataError, match="the data changed while") as caught:
        [*checked_rows(table, check)]
    assert caught.value.line == line


def test_a_column_of_bytes_is_refused_only_where_it_is_needed(tmp_path):
    columns = {"id": pa.array([b"1"]), "key": pa.array([1]), "a": pa.array([b"x"])}
    pq.write_table(pa.table(columns), tmp_path / "rows.parquet")
    table = open_table(tmp_path / "rows.parquet", id_column="key")
    assert check_table(table, ["key"]).rows == 1
    with pytest.raises(DataError, match="no such column: 'a'") as caught:
        check_table(table, ["a"])
    assert "'a' holds bytes" in caught.value.hint
    with pytest.raises(DataError, match="no such column: 'id'"):
        open_table(tmp_path / "rows.parquet")


def test_a_date_out_of_range_in_a_column_that_is_not_needed_does_not_stop_a_run(tmp_path):
    columns = {"id": pa.array([1, 2]), "day": pa.array([10**8, 1], pa.date32())}
    pq.write_table(pa.table(columns), tmp_path / "rows.parquet")
    table = open_table(tmp_path / "rows.parquet")
    check = check_table(table, ["day"])
    assert [row.id for row in checked_rows(table, check)] == ["1", "2"]
    with pytest.raises(DataError, match="not Date32Scalar"):
        list(open_table(tmp_path / "rows.parquet", id_column="day"))


def test_a_row_that_is_nested_too_deeply_is_named(tmp_path):
    path = tmp_path / "rows.jsonl"
    for depth in range(900, 1000, 7):
        path.write_text('{"q":' + '{"a":' * depth + "1" + "}" * depth + "}\n")
        try:
            check_table(open_table(path))
        except DataError as error:
            assert error.line == 1


def test_a_required_path_needs_a_column_at_its_root(tmp_path):
    rows = [{"id": "a", "attributes": {"output.value": "x"}, "a.b": {"c": 1}}]
    table = open_table(jsonl(tmp_path / "rows.jsonl", *rows))
    check_table(table, ["attributes.output.value", "a.b.c", "attributes[0]"])
    with pytest.raises(DataError) as caught:
        check_table(table, ["attribute.output.value"])
    assert "did you mean 'attributes' for 'attribute'?" in caught.value.hint


def test_a_missing_column_of_an_input_is_named_with_the_mapping_that_mends_it(tmp_path):
    (tmp_path / "rows.csv").write_text("id,Answer Text,ques\n1,x,y\n")
    with pytest.raises(DataError) as caught:
        check_table(
            open_table(tmp_path / "rows.csv"),
            {"answer text": "answer", "colour": "shade", "ques": "question"},
        )
    assert "--map 'answer=Answer Text' --map shade=COLUMN" in caught.value.hint
    assert "'id', 'Answer Text', 'ques'" in caught.value.hint
