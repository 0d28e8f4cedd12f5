import csv
import json
import sqlite3
from contextlib import closing
from decimal import Decimal

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from localjudge.errors import ConfigError, DataError, RunError
from localjudge.exports import export_run, join_run
from localjudge.metrics import classifier
from localjudge.records import VERDICT_FIELDS, Status, Verdict
from localjudge.run import run_file
from localjudge.store import RunStore
from tests.test_run import scripted

NASTY = ['=HYPERLINK("http://example.invalid","open")', "+1+cmd", "-2", "@x", "\tx", "\rx", "\nx"]


@pytest.fixture
def folder(tmp_path):
    """A run of two metrics over three rows; one row has failed."""
    verdicts = []
    for place, row in enumerate(["=1", "b", "c,d"]):
        tone = Verdict(
            row,
            "tone",
            Status.OK,
            value="-bad",
            label="-bad",
            score=-1.0,
            probabilities={"-bad": 0.75, "good": 0.25},
            confidence=0.75,
            explanation='+1 "quoted"\nand more, é',
            truncated=place == 1,
            metadata={"order_flip": True},
        )
        text = Verdict(row, "sum", Status.OK, value="The user asked.")
        if place == 2:
            text = Verdict(row, "sum", Status.MISSING_INPUT, error="missing or blank: text")
        verdicts += [(place, tone), (place, text)]
    config = {"metrics": {"tone": "1", "sum": "2"}}
    with RunStore.open(tmp_path / "run", config) as store:
        store.save(verdicts)
        store.finish()
    return tmp_path / "run"


def read_csv(path):
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


WIDE = [
    "id",
    *(f"tone_{part}" for part in ("label", "score", "explanation", "status")),
    *(f"sum_{part}" for part in ("label", "score", "explanation", "status")),
]


def test_the_wide_table_has_one_row_for_each_input_row(folder, tmp_path):
    path = export_run(folder, tmp_path / "wide.jsonl", wide=True)
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    assert [list(row) for row in rows] == [WIDE] * 3
    assert rows[0] == {
        "id": "=1",
        "tone_label": "-bad",
        "tone_score": -1.0,
        "tone_explanation": '+1 "quoted"\nand more, é',
        "tone_status": "ok",
        "sum_label": "The user asked.",
        "sum_score": None,
        "sum_explanation": None,
        "sum_status": "ok",
    }
    assert (rows[2]["sum_label"], rows[2]["sum_status"]) == (None, "missing_input")


def test_the_wide_table_is_the_same_in_every_format(folder, tmp_path):
    lines = export_run(folder, tmp_path / "wide.jsonl", wide=True).read_text(encoding="utf-8")
    table = pq.read_table(export_run(folder, tmp_path / "wide.parquet", wide=True))
    assert table.to_pylist() == [json.loads(line) for line in lines.splitlines()]
    types = {str(table.schema.field(name).type) for name in WIDE if name.endswith("_score")}
    assert types == {"double"}
    cells = read_csv(export_run(folder, tmp_path / "wide.csv", wide=True))
    assert [list(row) for row in cells] == [WIDE] * 3
    assert [row["tone_score"] for row in cells] == ["-1.0"] * 3


def test_without_wide_the_verdicts_are_as_they_are(folder, tmp_path):
    for name in ("verdicts.jsonl", "verdicts.parquet"):
        assert export_run(folder, tmp_path / name).read_bytes() == (folder / name).read_bytes()
    rows = read_csv(export_run(folder, tmp_path / "all.csv"))
    assert len(rows) == 6
    assert list(rows[0]) == list(VERDICT_FIELDS)
    assert json.loads(rows[0]["probabilities"]) == {"-bad": 0.75, "good": 0.25}
    assert json.loads(rows[0]["metadata"]) == {"order_flip": True}
    assert (rows[2]["truncated"], rows[3]["truncated"]) == ("true", "false")
    assert (rows[5]["status"], rows[5]["value"]) == ("missing_input", "")


def test_no_text_in_csv_begins_a_formula_and_numbers_stay_numbers(folder, tmp_path):
    for row in read_csv(export_run(folder, tmp_path / "wide.csv", wide=True)):
        assert row["tone_label"] == "'-bad"
        assert row["tone_explanation"] == '\'+1 "quoted"\nand more, é'
        assert float(row["tone_score"]) == -1
    assert read_csv(tmp_path / "wide.csv")[0]["id"] == "'=1"
    assert read_csv(export_run(folder, tmp_path / "all.csv"))[0]["score"] == "-1.0"


@pytest.mark.parametrize("text", NASTY)
def test_every_beginning_of_a_formula_is_disarmed(tmp_path, text):
    with RunStore.open(tmp_path / "run", {"metrics": {"m": "1"}}) as store:
        store.save([(0, Verdict(text, "m", Status.OK, value=text, label=text, explanation=text))])
        store.finish()
    [wide] = read_csv(export_run(tmp_path / "run", wide=True))
    [verdict] = read_csv(export_run(tmp_path / "run"))
    cells = (wide["id"], wide["m_label"], wide["m_explanation"], verdict["id"], verdict["value"])
    assert cells == (f"'{text}",) * 5
    raw = export_run(tmp_path / "run", tmp_path / "raw.jsonl", wide=True)
    assert json.loads(raw.read_text(encoding="utf-8"))["m_label"] == text


def test_by_default_a_csv_file_is_written_into_the_run_folder(folder):
    assert export_run(folder) == folder / "verdicts.csv"
    assert export_run(folder, wide=True) == folder / "wide.csv"
    assert export_run(folder, wide=True).exists()  # again: it is replaced


@pytest.mark.parametrize("name", ["verdicts.jsonl", "verdicts.parquet", "../run/verdicts.jsonl"])
def test_the_files_of_the_run_itself_are_not_replaced(folder, name):
    before = (folder / "verdicts.jsonl").read_bytes()
    with pytest.raises(ConfigError, match="own files"):
        export_run(folder, folder / name, wide=True)
    assert (folder / "verdicts.jsonl").read_bytes() == before


def test_what_cannot_be_exported_is_told(folder, tmp_path):
    with pytest.raises(ConfigError, match=r"'\.xlsx'") as caught:
        export_run(folder, tmp_path / "a.xlsx")
    assert ".parquet" in caught.value.hint
    with pytest.raises(RunError, match="there is no run here"):
        export_run(tmp_path / "nowhere")
    with pytest.raises(RunError, match="cannot be written"):
        export_run(folder, tmp_path / "nowhere" / "a.csv")


def test_nothing_is_left_under_the_name_if_a_line_is_damaged(folder, tmp_path):
    with (folder / "verdicts.jsonl").open("a") as file:
        file.write("{")
    with pytest.raises(RunError, match="damaged"):
        export_run(folder, tmp_path / "a.csv", wide=True)
    assert not list(tmp_path.glob("a.csv*"))


@pytest.mark.parametrize("format", ["jsonl", "csv", "parquet"])
def test_a_format_names_the_default_file_and_must_fit_the_ending(folder, tmp_path, format):
    assert export_run(folder, wide=True, format=format) == folder / f"wide.{format}"
    same = export_run(folder, tmp_path / f"a.{format}", wide=True)
    assert same.read_bytes() == (folder / f"wide.{format}").read_bytes()
    bare = export_run(folder, tmp_path / "bare", wide=True, format=format)
    assert bare.read_bytes() == same.read_bytes()
    other = "csv" if format == "jsonl" else "jsonl"
    with pytest.raises(ConfigError, match=f"not that of the format {format}"):
        export_run(folder, tmp_path / f"a.{other}", wide=True, format=format)


# Beside the data

TONE = classifier("tone", {"good": "pleased", "-bad": "not"}, inputs=["text"], user="{text}")
ROWS = [
    {"id": 7, "text": "one", "n": 1, "x": 1, "big": 2**60, "flag": True, "tone_label": "mine"},
    {"id": 8, "text": "=two", "n": 2, "x": 0.5, "big": 1, "flag": False, "deep": {"a": [1]}},
    {"id": 9, "text": "", "n": None, "x": 1, "big": 2, "flag": None, "deep": "é", "late": "l"},
]


@pytest.fixture
def judged(tmp_path, toy):
    """A run over rows of many types, and their file."""
    file = tmp_path / "rows.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    return run_rows(tmp_path, toy, file), file


def run_rows(tmp_path, toy, file, **settings):
    judge = scripted(lambda *_: [0.25, 0.75])
    out = tmp_path / "joined"
    return run_file([TONE], file, model=toy, out=out, open_judge=judge, **settings).folder


def test_verdicts_are_put_beside_the_columns_of_the_data(judged):
    folder, file = judged
    path, renamed = join_run(folder, file, format="jsonl")
    assert path == folder / "joined.jsonl"
    assert renamed == {"tone_label": "tone_label_verdict"}
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    for row, given in zip(rows, ROWS, strict=True):
        assert {name: row[name] for name in given} == given
        assert row.keys() - given.keys() == {
            *("tone_label_verdict", "tone_score", "tone_explanation", "tone_status")
        }
    assert [row["tone_label_verdict"] for row in rows] == ["-bad", "-bad", None]
    assert [row["tone_status"] for row in rows] == ["ok", "ok", "missing_input"]
    assert rows[0]["tone_label"] == "mine"


def test_the_joined_table_is_typed_in_parquet_and_safe_in_csv(judged):
    folder, file = judged
    table = pq.read_table(join_run(folder, file, format="parquet")[0])
    types = {field.name: str(field.type) for field in table.schema}
    assert types == {
        **{"id": "int64", "text": "string", "n": "int64", "x": "double", "big": "int64"},
        **{"flag": "bool", "tone_label": "string", "deep": "string", "late": "string"},
        **{"tone_label_verdict": "string", "tone_score": "double"},
        **{"tone_explanation": "string", "tone_status": "string"},
    }
    assert table.column("big").to_pylist() == [2**60, 1, 2]
    assert table.column("deep").to_pylist() == [None, '{"a": [1]}', '"é"']
    rows = read_csv(join_run(folder, file)[0])
    assert list(rows[0]) == list(types)
    assert (rows[1]["text"], rows[1]["deep"]) == ("'=two", '{"a": [1]}')
    assert rows[0]["tone_label_verdict"] == "'-bad"
    assert (rows[0]["big"], rows[0]["flag"]) == (str(2**60), "true")


def test_data_without_ids_get_their_numbers(tmp_path, toy):
    file = tmp_path / "rows.csv"
    file.write_text("text,tone_score,tone_score_verdict\na,x,y\nb,x,y\n")
    path, renamed = join_run(run_rows(tmp_path, toy, file, limit=1), file)
    [row] = read_csv(path)
    assert list(row)[:5] == ["id", "text", "tone_score", "tone_score_verdict", "tone_label"]
    assert (row["id"], row["text"], row["tone_score"]) == ("1", "a", "x")
    assert renamed == {"tone_score": "tone_score_verdict_verdict"}


def test_the_ids_are_those_of_the_column_that_the_run_took(tmp_path, toy):
    file = tmp_path / "rows.csv"
    file.write_text("key,id,text\nk1,,a\nk2,,b\n")
    folder = run_rows(tmp_path, toy, file, id_column="key")
    rows = read_csv(join_run(folder, file)[0])
    assert [(row["key"], row["id"], row["tone_label"]) for row in rows] == [
        ("k1", "", "'-bad"),
        ("k2", "", "'-bad"),
    ]


def test_data_that_are_not_those_of_the_run_are_refused(judged, tmp_path):
    folder, file = judged
    content = file.read_text()
    shorter = content.splitlines()[0] + "\n"
    for other in (content.replace("one", "won"), content.replace("7,", "6,"), shorter):
        file.write_text(other)
        with pytest.raises(DataError, match="is not what this run judged") as caught:
            join_run(folder, file, tmp_path / "joined.csv")
        assert caught.value.path == str(file)
    assert not (tmp_path / "joined.csv").exists()


def stopped(tmp_path, toy, rows, at):
    """A run over `rows` that stops behind the verdicts of the first `at`."""
    file = tmp_path / "rows.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    folder = run_rows(tmp_path, toy, file)
    for name in ("verdicts.jsonl", "verdicts.parquet"):
        (folder / name).unlink()
    with closing(sqlite3.connect(folder / "verdicts.db")) as db, db:
        db.execute("DELETE FROM verdicts WHERE position >= ?", (at,))
    return folder, file


@pytest.mark.parametrize("format", ["jsonl", "csv", "parquet"])
def test_of_an_unfinished_run_what_is_there_is_exported_and_said(tmp_path, toy, format):
    folder, file = stopped(tmp_path, toy, ROWS, 1)
    notes = []
    for wide in (False, True):
        path = tmp_path / f"out.{format}"
        export_run(folder, path, wide=wide, on_note=notes.append)
        assert len(read_any(path)) == 1
    joined, _ = join_run(folder, file, format=format, on_note=notes.append)
    statuses = [row["tone_status"] for row in read_any(joined)]
    assert statuses == ["ok", "" if format == "csv" else None, "" if format == "csv" else None]
    assert notes == ["the run is unfinished: 1 of 3 verdicts are there"] * 3


def read_any(path):
    if path.suffix == ".csv":
        return read_csv(path)
    if path.suffix == ".parquet":
        return pq.read_table(path).to_pylist()
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def test_rows_without_ids_of_an_unfinished_run_keep_their_numbers(tmp_path, toy):
    folder, file = stopped(tmp_path, toy, [{"text": "a"}, {"text": "b"}], 1)
    assert [row["id"] for row in read_csv(join_run(folder, file)[0])] == ["1", "2"]


def test_a_finished_run_is_exported_without_a_note(folder):
    export_run(folder, on_note=lambda _: pytest.fail("a note"))


ODD_COLUMNS = {
    "date": pa.array([10**8, 1], pa.date32()),
    "moment": pa.array([2**62, 1], pa.timestamp("us")),
    "zone": pa.array([1, 2], pa.timestamp("us", "Foo/Bar")),
    "span": pa.array([10**18, 1], pa.duration("s")),
    "decimal": pa.array([Decimal("1.50"), None], pa.decimal128(10, 2)),
    "category": pa.array(["x", "y"]).dictionary_encode(),
    "list": pa.array([[10**17], [1]], pa.list_(pa.timestamp("ms"))),
    "map": pa.array([[("a", 10**17)], []], pa.map_(pa.string(), pa.timestamp("ms"))),
    "struct": pa.array([{"a": 10**17}, {"a": None}], pa.struct([("a", pa.timestamp("ms"))])),
    "twice": pa.StructArray.from_arrays([pa.array([1, 2]), pa.array([3, 4])], names=["k", "k"]),
    "large": pa.array([2**64 - 1, 1], pa.uint64()),
    "bytes": pa.array([b"x", b"y"]),
}
CARRIED = {
    "zone": ["1", "2"],
    "span": ["1000000000000000000", "0:00:01"],
    "decimal": ["1.50", None],
    "category": ["x", "y"],
    "twice": [[["k", 1], ["k", 3]], [["k", 2], ["k", 4]]],
    "large": [2**64 - 1, 1],
    "bytes": [None, None],
}


@pytest.mark.parametrize("name", ODD_COLUMNS)
def test_a_column_that_python_cannot_hold_is_carried_over(tmp_path, toy, name):
    file = tmp_path / "rows.parquet"
    pq.write_table(pa.table({"text": ["a", "b"], name: ODD_COLUMNS[name]}), file)
    folder = run_rows(tmp_path, toy, file)
    for format in ("csv", "jsonl", "parquet"):
        rows = read_any(join_run(folder, file, format=format)[0])
        assert [row["tone_status"] for row in rows] == ["ok", "ok"]
        assert name == "bytes" or all(name in row for row in rows)
        if format == "jsonl":
            values = [row.get(name) for row in rows]
            assert values == CARRIED.get(name, values)
            shown = json.dumps(values[0])
            assert name in CARRIED or str(2**62) in shown or "out of range" in shown


@pytest.mark.parametrize(
    "change",
    [
        {"info": None},
        {"data": []},
        {"info": {"limit": "3"}},
        {"info": {"data_format": 5}},
        {"info": {"id_column": ["a"]}},
        {"info": {"split": {}}},
    ],
)
def test_a_run_whose_settings_do_not_say_what_it_read_is_not_joined(judged, change):
    folder, file = judged
    settings = json.loads((folder / "run.json").read_text())
    (folder / "run.json").write_text(json.dumps(settings | change))
    with pytest.raises(RunError, match="damaged") as caught:
        join_run(folder, file)
    assert caught.value.path == str(folder / "run.json")


@pytest.mark.parametrize("name", ["verdicts.db", "lock"])
def test_the_database_and_the_lock_are_not_replaced_either(folder, name):
    (folder / name).touch()
    before = (folder / name).read_bytes()
    with pytest.raises(ConfigError, match="own files"):
        export_run(folder, folder / name, format="jsonl")
    assert (folder / name).read_bytes() == before


def test_the_data_are_not_replaced_by_what_is_joined_to_them(judged):
    folder, file = judged
    before = file.read_bytes()
    with pytest.raises(ConfigError, match="the data themselves"):
        join_run(folder, file, file)
    assert file.read_bytes() == before


def test_a_run_with_fewer_verdicts_than_rows_is_not_joined(judged, tmp_path):
    folder, file = judged
    whole = (folder / "verdicts.jsonl").read_text(encoding="utf-8").splitlines(keepends=True)
    (folder / "verdicts.jsonl").write_text("".join(whole[:-2]), encoding="utf-8")
    with pytest.raises(RunError, match="damaged"):
        join_run(folder, file, tmp_path / "joined.csv")


def test_empty_and_late_values_are_the_same_in_every_format(tmp_path, toy):
    file = tmp_path / "rows.jsonl"
    file.write_text(
        '{"id": 1, "text": "a", "meta": {}, "none": null, "list": []}\n'
        '{"id": 2, "text": "b", "meta": {"lang": "de"}, "extra": 7}\n'
    )
    folder = run_rows(tmp_path, toy, file)
    lines, table, cells = (
        read_any(join_run(folder, file, format=format)[0]) for format in ("jsonl", "parquet", "csv")
    )
    assert [row["meta"] for row in lines] == [{}, {"lang": "de"}]
    assert ["extra" in row for row in lines] == [False, True]
    assert [row["meta"] for row in table] == ["{}", '{"lang": "de"}']
    assert [(row["extra"], row["list"], row["none"]) for row in table] == [
        (None, "[]", None),
        (7, None, None),
    ]
    assert [(row["meta"], row["extra"], row["list"]) for row in cells] == [
        ("{}", "", "[]"),
        ('{"lang": "de"}', "7", ""),
    ]
