"""The same rows from every kind of place, and what is refused there."""

from __future__ import annotations

import csv
import gzip
import io
import json
import math
import os
import subprocess
import sys
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import datasets
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from datasets import Dataset, DatasetDict
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from localjudge.engines.scripted import ScriptedEngine
from localjudge.errors import ConfigError, DataError, RunChanged
from localjudge.judge import Judge
from localjudge.metrics import classifier
from localjudge.readers import lines, open_source
from localjudge.run import run_file
from localjudge.runs import open_run
from localjudge.tables import check_table, open_table
from localjudge.templates import as_text
from tests.test_run import scripted

Rows = list[dict[str, Any]]


@pytest.fixture(scope="module", autouse=True)
def own_home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Let `datasets` keep its cache here, and draw no progress bars."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LOCALJUDGE_HOME", str(tmp_path_factory.mktemp("home")))
        patch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path_factory.mktemp("cache"))
        datasets.disable_progress_bars()
        yield


def records(data: Any, **options: Any) -> Rows:
    return [fields for _, fields in open_source(data, **options).records()]


def zstd(content: bytes) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, "zstd") as stream:
        stream.write(content)
    packed: bytes = sink.getvalue().to_pybytes()
    return packed


PACK: dict[str, Callable[[bytes], bytes]] = {"gz": gzip.compress, "zst": zstd}


def in_jsonl(rows: Rows, *, ascii_only: bool = False) -> bytes:
    return "".join(json.dumps(row, ensure_ascii=ascii_only) + "\n" for row in rows).encode()


def in_json(rows: Rows, indent: int | None = None) -> bytes:
    return json.dumps(rows, ensure_ascii=False, indent=indent).encode()


def in_cells(rows: Rows, delimiter: str, end: str) -> bytes:
    text = io.StringIO(newline="")
    # Python's writer quotes a carriage return only if it may end a line.
    quoting = csv.QUOTE_ALL if end == "\n" else csv.QUOTE_MINIMAL
    form: dict[str, Any] = {"delimiter": delimiter, "lineterminator": end, "quoting": quoting}
    writer = csv.DictWriter(text, list(rows[0]), **form)
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue().encode()


def piped(content: bytes, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Let a new process print the digest of the rows that come through its standard input."""
    code = (
        "import json, sys\n"
        "from localjudge.errors import LocaljudgeError\n"
        "from localjudge.tables import check_table, open_table\n"
        "try:\n"
        "    table = open_table('-', data_format=sys.argv[1] if sys.argv[1:] else None)\n"
        "    print(check_table(table).digest, check_table(table).digest)\n"
        "except LocaljudgeError as error:\n"
        "    sys.exit(str(error))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments],
        input=content,
        capture_output=True,
        env=os.environ | environment,
    )
    return subprocess.CompletedProcess(
        done.args, done.returncode, done.stdout.decode(), done.stderr.decode()
    )


# The same rows everywhere


def _cells() -> st.SearchStrategy[str | None]:
    odd = st.sampled_from(["NA", "null", "None", "nan", "N/A", "01", "1.0", "true", "=1+1", " "])
    text = st.text(st.characters(exclude_characters="\0", exclude_categories=("Cs",)), min_size=1)
    # A cell of several lines may look as if a quotation mark had swallowed rows.
    few_lines = text.filter(lambda cell: cell.count("\n") < 2)
    special = st.text("\"',;\t\r\n\u2028\x85\ufeff\\a{}", min_size=1, max_size=6)
    return st.none() | odd | few_lines | special.filter(lambda cell: cell.count("\n") < 2)


@st.composite
def _tables(draw: st.DrawFn) -> Rows:
    count = draw(st.integers(1, 5))
    return [{"id": f"r{n}", "a": draw(_cells()), "b ä": draw(_cells())} for n in range(count)]


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(rows=_tables(), end=st.sampled_from(["\n", "\r\n"]), mark=st.booleans())
def test_the_same_rows_are_read_from_every_format_and_place(tmp_path_factory, rows, end, mark):
    folder = tmp_path_factory.mktemp("rows")
    bom = b"\xef\xbb\xbf" if mark else b""
    texts = {
        "jsonl": in_jsonl(rows),
        "ndjson": in_jsonl(rows, ascii_only=True),
        "json": in_json(rows),
        "csv": in_cells(rows, ",", end),
        "tsv": in_cells(rows, "\t", end),
    }
    places: list[Any] = []
    for ending, content in texts.items():
        places.append(folder / f"rows.{ending}")
        places[-1].write_bytes(bom + content)
        for packed, pack in PACK.items():
            places.append(folder / f"rows.{ending}.{packed}")
            places[-1].write_bytes(pack(bom + content))
    columns = {name: pa.array([row[name] for row in rows], pa.string()) for name in rows[0]}
    table = pa.table(columns)
    pq.write_table(table, folder / "rows.parquet")
    Dataset(table).save_to_disk(folder / "saved")
    places += [folder / "rows.parquet", folder / "saved", Dataset(table), pd.DataFrame(rows)]
    for place in places:
        assert records(place) == rows, place
    digests = {check_table(open_table(place)).digest for place in places}
    assert len(digests) == 1


_JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=("Cs",))),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("ab\\\"'\n"), inner),
    max_leaves=8,
)


@settings(max_examples=150, deadline=None)
@given(
    rows=st.lists(st.dictionaries(st.text("abc"), _JSON, max_size=3), min_size=1, max_size=6),
    indent=st.none() | st.integers(0, 2),
    ascii_only=st.booleans(),
    chunk=st.integers(1, 40),
)
def test_json_values_are_the_same_in_an_array_and_in_lines(
    tmp_path_factory, rows, indent, ascii_only, chunk
):
    folder = tmp_path_factory.mktemp("rows")
    array = json.dumps(rows, ensure_ascii=ascii_only, indent=indent)
    (folder / "rows.json").write_text(f"\n {array}\r\n", encoding="utf-8")
    (folder / "rows.jsonl").write_bytes(in_jsonl(rows, ascii_only=ascii_only))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lines, "_CHUNK", chunk)
        assert records(folder / "rows.json") == records(folder / "rows.jsonl") == rows


# A JSON array


def refusal(path: Path, content: bytes | str) -> DataError:
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    with pytest.raises(DataError) as caught:
        records(path)
    assert caught.value.path == str(path)
    return caught.value


@pytest.mark.parametrize("chunk", [1, 1 << 18])
@pytest.mark.parametrize(
    ("content", "line", "problem"),
    [
        ('{"a": 1}', 1, "not a JSON array"),
        ("17", 1, "not a JSON array"),
        ('[{"a": 1}\n 2]', 2, "no comma or ] behind record 1"),
        ('[{"a": 1},\n\n 2]', 3, "record 2 is not a JSON object"),
        ('[{"a": 1},\n]', 2, "record 2 is not a JSON object"),
        ('[\n{"a": 1}', 2, "no comma or ] behind record 1"),
        ("[", 1, "record 1 is not a JSON object"),
        ('[{"a": 1},\n{"b":\n "cut', 3, "record 2 is not a JSON object: Unterminated string"),
        ('[{"a": 1},\n{"b"\n: tru', 3, "record 2 is not a JSON object: Expecting value"),
        ('[{"a": 1},\n{"b" 1}' + " " * 99 + "]", 2, "Expecting ':' delimiter (character 6 of it)"),
        ('[{"a":1,\n"a":2}]', 1, "record 1 cannot be read: the key 'a' stands twice"),
        ('[\n{"deep":[{"b":1,"b":1}]}]', 2, "'b' stands twice"),
        ('[\n{"a":"cut \\ud83d"}]', 2, r"\ud83d is half of a surrogate pair"),
        ('[{"a":1}]\n\n[{"a":1}]', 3, "more text behind the array"),
        ('[{"a":"' + "\n" + '"}]', 1, "Invalid control character"),
        ('[{"a":' + "[" * 100_000, 1, "cannot be read"),
        ('[{"a":' + "9" * 5000 + "}]", 1, "integer string conversion"),
    ],
)
def test_a_broken_array_is_named_by_line_and_record(
    tmp_path, monkeypatch, chunk, content, line, problem
):
    monkeypatch.setattr(lines, "_CHUNK", chunk)
    if chunk == 1 and len(content) > 50_000:
        return  # nothing is learnt, slowly
    error = refusal(tmp_path / "rows.json", content)
    assert (error.line, problem in error.problem) == (line, True), error


def test_lines_of_json_in_a_json_file_are_refused_with_the_right_format(tmp_path):
    path = tmp_path / "rows.json"
    assert "jsonl" in refusal(path, '{"a": 1}\n{"a": 2}\n').hint
    assert records(path, data_format="jsonl") == [{"a": 1}, {"a": 2}]
    error = refusal(tmp_path / "rows.jsonl", '[\n{"a": 1}]')
    assert ".json" in error.hint


@pytest.mark.parametrize("chunk", [1, 7, 1 << 18])
def test_a_bad_byte_in_an_array_is_named_by_line_and_offset(tmp_path, monkeypatch, chunk):
    monkeypatch.setattr(lines, "_CHUNK", chunk)
    content = '\ufeff[{"a": "é"},\n {"b": "'.encode() + b'\xe9"}]'
    error = refusal(tmp_path / "rows.json", content)
    offset = content.index(b"\xe9", 15)
    assert (error.line, f"0xe9 at offset {offset} of the file" in error.problem) == (2, True)
    cut = refusal(tmp_path / "rows.json", '[{"a": "é'.encode()[:-1])
    assert (cut.line, "0xc3 at offset 8 " in cut.problem) == (1, True)


def test_a_large_number_in_an_array_is_missing_with_a_warning(tmp_path):
    (tmp_path / "rows.json").write_text('[{"a": NaN, "b": 1e999, "c": 12345678901234567890}]')
    with pytest.warns(UserWarning, match="read as missing"):
        assert records(tmp_path / "rows.json") == [
            {"a": None, "b": None, "c": 12345678901234567890}
        ]


@pytest.mark.parametrize("content", ["[]", " [ ] \n", "", "\ufeff", "\n"])
def test_an_array_without_rows_has_none(tmp_path, content):
    (tmp_path / "rows.json").write_text(content, encoding="utf-8")
    with pytest.raises(DataError, match="has no rows"):
        open_table(tmp_path / "rows.json")


def test_records_of_an_array_stand_on_the_line_on_which_they_begin(tmp_path):
    (tmp_path / "rows.json").write_text('[\n\n{"a":\n1}, {"a":\n2}\n,\n{"a": 3}]')
    positions = [line for line, _ in open_source(tmp_path / "rows.json").records()]
    assert positions == [3, 4, 7]


# Archives


@pytest.mark.parametrize("packed", PACK)
def test_an_archive_that_is_cut_damaged_or_followed_by_something_is_refused(tmp_path, packed):
    content = in_jsonl([{"id": n, "a": os.urandom(20).hex()} for n in range(5000)])
    whole = PACK[packed](content)
    path = tmp_path / f"rows.jsonl.{packed}"
    for broken in (
        whole[:-1],
        whole[: len(whole) // 2],
        whole[:3],
        whole + b"more",
        whole + b"\0" * 512,
        content,
    ):
        error = refusal(path, broken)
        assert "the archive is damaged, cut off or not one" in error.problem
        path.write_bytes(broken)
        with pytest.raises(DataError, match="the archive"):
            check_table(open_table(path))


@pytest.mark.parametrize("packed", PACK)
def test_archives_behind_one_another_are_one_file(tmp_path, packed):
    path = tmp_path / f"ROWS.CSV.{packed.upper()}"
    path.write_bytes(PACK[packed](b"id,a\n1,x\n") + PACK[packed](b"2,y\n"))
    assert records(path) == [{"id": "1", "a": "x"}, {"id": "2", "a": "y"}]


@pytest.mark.parametrize("packed", PACK)
def test_faults_inside_an_archive_are_named_by_its_own_lines(tmp_path, packed):
    path = tmp_path / f"rows.jsonl.{packed}"
    assert refusal(path, PACK[packed](b'{"a": 1}\n\n{"a": 2')).line == 3
    error = refusal(path, PACK[packed](b'{"a": 1}\n{"a": "\xff"}'))
    assert (error.line, "offset 16 of what was compressed" in error.problem) == (2, True)


@pytest.mark.parametrize("name", ["rows.gz", "rows.xlsx.gz", "gz", "rows", ""])
def test_an_ending_that_is_not_known_is_refused(tmp_path, name):
    (tmp_path / "empty").mkdir()
    path = tmp_path / (name or ".jsonl")
    path.write_bytes(gzip.compress(b"x"))
    with pytest.raises(DataError) as caught:
        records(path)
    assert ".gz, .zst" in caught.value.hint or name == ""


def test_a_limit_stops_reading_where_it_says(tmp_path):
    good, bad = in_jsonl([{"id": 1}, {"id": 2}, {"id": 3}]), b"{torn"
    (tmp_path / "rows.jsonl.gz").write_bytes(gzip.compress(good + bad))
    (tmp_path / "rows.jsonl.zst").write_bytes(zstd(good + bad))
    (tmp_path / "rows.json").write_bytes(in_json([{"id": 1}, {"id": 2}, {"id": 3}])[:-1] + bad)
    for path in tmp_path.iterdir():
        table = open_table(path, limit=3)
        assert [row.id for row in table] == ["1", "2", "3"]
        assert check_table(table).rows == 3
        with pytest.raises(DataError):
            check_table(open_table(path))


# Formats that are said


def test_a_format_can_be_said_where_the_name_does_not(tmp_path):
    (tmp_path / "rows.txt").write_bytes(b"id\ta\n1\tNA\n")
    assert records(tmp_path / "rows.txt", data_format="tsv") == [{"id": "1", "a": "NA"}]
    (tmp_path / "rows").write_bytes(zstd(b'{"a": 1}'))
    assert records(tmp_path / "rows", data_format=".JSONL.zst") == [{"a": 1}]


@pytest.mark.parametrize("data_format", ["xlsx", "", "csv.bz2", "gz", "csv.gz.gz"])
def test_a_format_that_is_not_known_is_an_error_of_the_option(tmp_path, data_format):
    (tmp_path / "rows.csv").write_text("a\nx\n")
    for data in (tmp_path / "rows.csv", "-"):
        with pytest.raises(ConfigError, match="not a known format") as caught:
            open_source(data, data_format=data_format)
        assert caught.value.field == "data_format"


def test_options_without_a_meaning_are_refused(tmp_path):
    (tmp_path / "rows.csv").write_text("a\nx\n")
    frame = pd.DataFrame({"a": ["x"]})
    for data, options, field in [
        (tmp_path / "rows.csv", {"split": "train"}, "split"),
        ("-", {"split": "train"}, "split"),
        (saved(tmp_path / "saved", train=[{"a": "x"}]), {"data_format": "csv"}, "data_format"),
        (frame, {"data_format": "csv"}, "data_format"),
        (frame, {"split": "train"}, "split"),
        (Dataset.from_pandas(frame), {"split": "train"}, "split"),
    ]:
        with pytest.raises(ConfigError) as caught:
            open_source(data, **options)
        assert caught.value.field == field


# Standard input

ROWS = [{"id": str(n), "a": "é" * n} for n in range(1, 51)]


@pytest.mark.parametrize(
    ("data_format", "content"),
    [
        (None, in_jsonl(ROWS)),
        ("json", in_json(ROWS, indent=1)),
        ("jsonl.gz", gzip.compress(in_jsonl(ROWS))),
        ("json.zst", zstd(in_json(ROWS))),
    ],
)
def test_standard_input_can_be_read_twice_and_has_the_digest_of_a_file(
    tmp_path, data_format, content
):
    (tmp_path / "rows.jsonl").write_bytes(in_jsonl(ROWS))
    digest = check_table(open_table(tmp_path / "rows.jsonl")).digest
    spool = tmp_path / "spool"
    spool.mkdir()
    done = piped(content, *filter(None, [data_format]), TMPDIR=str(spool))
    assert done.stdout.split() == [digest, digest], done.stderr
    assert not list(spool.iterdir())


def test_parquet_can_come_through_standard_input(tmp_path):
    pq.write_table(pa.Table.from_pylist(ROWS), tmp_path / "rows.parquet")
    digest = check_table(open_table(tmp_path / "rows.parquet")).digest
    done = piped((tmp_path / "rows.parquet").read_bytes(), "parquet")
    assert done.stdout.split() == [digest, digest], done.stderr


def test_what_is_wrong_with_standard_input_is_named():
    assert "standard input:2: not a JSON object" in piped(b'{"a": 1}\n{"a"\n').stderr
    assert "standard input: has no rows" in piped(b"").stderr
    assert "archive is damaged" in piped(gzip.compress(b"{}")[:-3], "jsonl.gz").stderr


def test_two_readings_of_standard_input_keep_their_own_places(monkeypatch):
    class Stdin:
        buffer = io.BytesIO(in_jsonl(ROWS))

    monkeypatch.setattr(sys, "stdin", Stdin)
    source = open_source("-")
    assert all(one == two for one, two in zip(source.records(), source.records(), strict=True))
    monkeypatch.setattr(sys, "stdin", None)
    with pytest.raises(DataError, match="standard input: is closed"):
        open_source("-")


def test_a_temporary_file_without_room_is_named(monkeypatch):
    class Full:
        class buffer:
            @staticmethod
            def read(size: int) -> bytes:
                raise OSError(28, "No space left on device")

    monkeypatch.setattr(sys, "stdin", Full)
    with pytest.raises(DataError, match="No space left") as caught:
        open_source("-")
    assert "TMPDIR" in caught.value.hint


def test_a_pipe_with_a_name_is_refused_with_the_way_to_do_it(tmp_path):
    os.mkfifo(tmp_path / "rows.jsonl")
    for options in ({}, {"data_format": "csv"}):
        with pytest.raises(DataError, match="is a pipe") as caught:
            open_source(tmp_path / "rows.jsonl", **options)
        assert "give - as the data" in caught.value.hint


# Dataset folders


def saved(folder: Path, **splits: Rows) -> Path:
    DatasetDict({name: Dataset.from_list(rows) for name, rows in splits.items()}).save_to_disk(
        folder
    )
    return folder


def test_a_split_of_a_saved_dataset_is_read(tmp_path):
    one = [{"id": "1", "a": "NA"}, {"id": "2", "a": None}]
    folder = saved(tmp_path / "set", train=one, test=one[:1])
    assert records(folder, split="train") == one
    assert records(folder, split="test") == one[:1]
    assert open_source(folder, split="test").path == folder
    for split, problem in [(None, "several splits"), ("dev", "no split 'dev'")]:
        with pytest.raises(ConfigError, match=problem) as caught:
            open_source(folder, split=split)
        assert "train, test" in caught.value.hint
    assert records(saved(tmp_path / "single", train=one)) == one


def test_a_saved_dataset_knows_only_its_own_split(tmp_path):
    rows = [{"id": "1", "a": "x"}]
    Dataset.from_list(rows, split="test").save_to_disk(tmp_path / "set")
    assert records(tmp_path / "set") == records(tmp_path / "set", split="test") == rows
    Dataset.from_list(rows).save_to_disk(tmp_path / "other")
    for name, hint in [("set", "test"), ("other", "leave the split out")]:
        with pytest.raises(ConfigError, match="no split 'train'") as caught:
            open_source(tmp_path / name, split="train")
        assert hint in caught.value.hint


def test_a_folder_of_data_files_is_split_as_datasets_does_and_read_as_it_stands(tmp_path):
    (tmp_path / "train-1.csv").write_bytes(b"\xef\xbb\xbfid,a\r\n1,NA\r\n2,01\r\n")
    (tmp_path / "train-2.csv").write_text("id,a\n3,null\n")
    (tmp_path / "test.csv").write_text("id,a\n1,\n")
    (tmp_path / "README.md").write_text("# Rows\n")
    source = open_source(tmp_path, split="train")
    assert list(source.records()) == [
        (1, {"id": "1", "a": "NA"}),
        (2, {"id": "2", "a": "01"}),
        (3, {"id": "3", "a": "null"}),
    ]
    assert records(tmp_path, split="test") == [{"id": "1", "a": None}]
    with pytest.raises(ConfigError, match="several splits"):
        open_source(tmp_path)


def test_the_readme_of_a_dataset_says_which_files_are_a_split(tmp_path):
    (tmp_path / "gold.jsonl").write_text('{"id": "g"}\n')
    (tmp_path / "rest.jsonl.gz").write_bytes(gzip.compress(b'{"id": "r"}\n'))
    readme = (
        "---\nconfigs:\n- config_name: default\n  data_files:\n  - split: gold\n"
        "    path: gold.jsonl\n  - split: rest\n    path: rest.jsonl.gz\n---\n"
    )
    (tmp_path / "README.md").write_text(readme)
    assert records(tmp_path, split="gold") == [{"id": "g"}]
    assert records(tmp_path, split="rest") == [{"id": "r"}]


def test_a_readme_that_says_how_files_are_read_is_refused(tmp_path):
    (tmp_path / "rows.csv").write_text("id;a\n1;x\n")
    readme = '---\nconfigs:\n- config_name: default\n  data_files: rows.csv\n  sep: ";"\n---\n'
    (tmp_path / "README.md").write_text(readme)
    with pytest.raises(DataError, match="options that are not known: sep"):
        open_source(tmp_path)


def test_a_fault_in_a_file_of_a_folder_names_the_file(tmp_path):
    (tmp_path / "train.jsonl").write_text('{"id": 1}\n{"id"\n')
    with pytest.raises(DataError) as caught:
        records(tmp_path)
    assert (Path(caught.value.path).name, caught.value.line) == ("train.jsonl", 2)


def test_a_folder_that_is_no_dataset_is_refused(tmp_path):
    (tmp_path / "empty").mkdir()
    (tmp_path / "pictures").mkdir()
    (tmp_path / "pictures" / "a.txt").write_text("text")
    damaged = saved(tmp_path / "damaged", train=[{"a": "x"}])
    (damaged / "train" / "state.json").write_text("{")
    code = tmp_path / "code"
    code.mkdir()
    (code / "code.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')")
    for name in ("empty", "pictures", "damaged", "code"):
        with pytest.raises(DataError) as caught:
            records(tmp_path / name)
        assert str(tmp_path / name) in caught.value.path
    assert not (tmp_path / "ran").exists()


def test_a_damaged_file_of_a_saved_dataset_is_an_error_of_ours(tmp_path):
    Dataset.from_list([{"a": "x" * 50}] * 500).save_to_disk(tmp_path / "set")
    [file] = (tmp_path / "set").glob("*.arrow")
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])
    with pytest.raises(DataError):
        records(tmp_path / "set")


# In memory


def test_a_dataset_is_read_in_its_own_order_without_bytes(tmp_path):
    rows = [{"id": n, "a": str(n), "raw": b"x"} for n in range(600)]
    dataset = Dataset.from_list(rows).shuffle(seed=1).select(range(500))
    source = open_source(dataset.with_format("numpy"))
    found = [fields for _, fields in source.records()]
    assert found == [{"id": n, "a": str(n)} for n in dataset["id"]]
    assert source.left_out() == ("raw",)
    assert [fields for _, fields in source.records()] == found


def test_a_dataset_with_values_of_any_type_keeps_them(tmp_path):
    values = [{"role": "user"}, ["x", 1], "text", 3, None, {"name": "calc"}]
    features = datasets.Features({"a": datasets.Json(), "b": datasets.List(datasets.Json())})
    dataset = Dataset.from_dict({"a": values, "b": [values] * 6}, features=features)
    dataset.save_to_disk(tmp_path / "set")
    expected = [{"a": value, "b": values} for value in values]
    assert records(dataset) == records(tmp_path / "set") == expected


def test_a_split_of_a_dataset_dict_is_read():
    data = DatasetDict(train=Dataset.from_list([{"a": 1}]), test=Dataset.from_list([{"a": 2}]))
    assert records(data, split="test") == [{"a": 2}]
    with pytest.raises(ConfigError, match="several splits"):
        open_source(data)


def test_values_of_a_frame_become_plain_values():
    frame = pd.DataFrame(
        {
            "id": np.array([7, 8]),
            "text": ["NA", None],
            "none": [pd.NA, float("nan")],
            "real": [0.5, math.inf],
            "flag": [True, False],
            "moment": [pd.Timestamp("2024-02-29T12:30"), pd.NaT],
            "nested": [{"a": [np.int64(1), math.nan]}, np.array(["x", "y"])],
            "category": pd.Categorical(["x", None]),
            "whole": pd.array([1, None], dtype="Int64"),
        },
        index=["b", "a"],
    )
    assert records(frame) == [
        {
            "id": 7,
            "text": "NA",
            "none": None,
            "real": 0.5,
            "flag": True,
            "moment": "2024-02-29T12:30:00",
            "nested": {"a": [1, None]},
            "category": "x",
            "whole": 1,
        },
        {
            "id": 8,
            "text": None,
            "none": None,
            "real": None,
            "flag": False,
            "moment": None,
            "nested": ["x", "y"],
            "category": None,
            "whole": None,
        },
    ]
    assert [row.id for row in open_table(frame)] == ["7", "8"]


def test_a_value_of_a_frame_that_is_no_text_costs_only_its_row():
    frame = pd.DataFrame({"id": [1, 2], "a": [b"x", "y"]})
    [first, second] = records(frame)
    with pytest.raises(DataError, match="bytes cannot be shown"):
        as_text(first["a"])
    assert second["a"] == "y"
    assert check_table(open_table(frame)).rows == 2


@pytest.mark.parametrize("names", [["a", "a"], [0, "a"], [("a", "b"), "c"]])
def test_a_frame_whose_columns_have_no_names_of_their_own_is_refused(names):
    frame = pd.DataFrame([["x", "y"]])
    frame.columns = pd.Index(names, dtype=object)
    with pytest.raises(DataError):
        open_source(frame)


def test_what_holds_no_rows_is_refused():
    for data in (7, None, b"rows", {"a": [1]}):
        with pytest.raises(DataError, match="cannot be read from"):
            open_source(data)


# Memory


def _large(tmp_path: Path, kind: str) -> Any:
    rows = [{"id": str(n), "a": f"{n} " * 2000} for n in range(2000)]
    path = tmp_path / f"rows.{kind}"
    if kind == "parquet":
        # One row group of small pages; a page is what must be held.
        table, small = pa.Table.from_pylist(rows), {"write_batch_size": 16, "use_dictionary": False}
        pq.write_table(table, path, compression="none", **small)
        return path
    text = {"jsonl": in_jsonl(rows), "json": in_json(rows), "csv": in_cells(rows, ",", "\n")}
    name, _, packed = kind.partition(".")
    path.write_bytes(PACK[packed](text[name]) if packed else text[name])
    return path


@pytest.mark.parametrize("kind", ["jsonl", "json", "json.gz", "csv.zst", "parquet"])
def test_a_large_file_is_never_held_as_a_whole(tmp_path, kind):
    path = _large(tmp_path, kind)  # about 18 MB
    before = pa.total_allocated_bytes()
    tracemalloc.start()
    try:
        held = max(pa.total_allocated_bytes() - before for _ in open_source(path).records())
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert held + peak < 9_000_000


# Through the judge

TONE = classifier("tone", {"good": "pleased", "bad": "not"}, inputs={"text": "a"}, user="{text}")


def _judge(*_: Any, engine: str, settings: Any, **options: Any) -> Judge:
    return Judge(ScriptedEngine(), **options)


def test_a_run_takes_the_same_rows_from_any_place_and_goes_on(tmp_path, toy, monkeypatch):
    class Stdin:
        buffer = io.BytesIO(gzip.compress(in_jsonl(ROWS)))

    def run(data: Any, **options: Any) -> Any:
        out = tmp_path / "run"
        return run_file([TONE], data, model=toy, out=out, open_judge=_judge, **options)

    monkeypatch.setattr(sys, "stdin", Stdin)
    first = run("-", data_format="jsonl.gz")
    assert (first.rows, first.judged) == (50, 50)
    assert json.loads((tmp_path / "run" / "run.json").read_text())["info"]["data"] == (
        "standard input"
    )
    folder = saved(tmp_path / "set", train=ROWS[:1], test=ROWS)
    for data, options in [
        (pd.DataFrame(ROWS), {}),
        (Dataset.from_list(ROWS), {}),
        (folder, {"split": "test"}),
    ]:
        assert run(data, **options).judged == 0
    Stdin.buffer = io.BytesIO(in_jsonl(ROWS[:-1]))
    with pytest.raises(RunChanged, match=r"data\.digest"):
        run("-")


def test_a_judge_takes_tables_in_memory():
    rows = [{"id": "x", "a": "good"}, {"id": "y", "a": None}]
    judge = Judge(ScriptedEngine())
    for table in (rows, pd.DataFrame(rows), Dataset.from_list(rows)):
        verdicts = list(judge.run(TONE, table))
        assert [(v.id, v.status) for v in verdicts] == [("x", "ok"), ("y", "missing_input")]


def test_the_command_reads_standard_input_before_it_looks_for_a_model(tmp_path):
    command = [sys.executable, "-m", "localjudge", "run", "toxicity", "--data", "-"]
    command += ["--data-format", "csv", "--model", "absent", "--out", str(tmp_path / "run")]
    done = subprocess.run(command, input=b"output\nx,y\n", capture_output=True)
    assert done.returncode == 1
    assert b"standard input:2: 2 cells" in done.stderr


# Rows in memory that are odd

DEEP: list[Any] = []
DEEP.append(DEEP)


class Odd:
    """Has no text, no truth and no equality."""

    def __str__(self):
        raise RuntimeError("no text")

    __repr__ = __bool__ = __eq__ = __str__
    __hash__ = None


ODD = {
    "set": {1},
    "object": Odd(),
    "bytes": b"x",
    "key": {(1, 2): 3},
    "bytes key": {b"a": 1},
    "digits": 10**5000,
    "complex": 1j,
    "period": pd.Period("2024-01"),
    "interval": pd.Interval(0, 1),
    "generator": (x for x in [1]),
    "inner": {"a": [Odd()]},
    "array": np.array([Odd()], dtype=object),
    "series": pd.Series([1]),
    "zone": pd.Timestamp("2024-01-01").tz,
    "long": np.longdouble(1),
}
HAS_TEXT = ("zone",)


def frame_with(column: str, cell: Any) -> pd.DataFrame:
    frame = pd.DataFrame({"id": ["a", "b"], "text": ["x", "y"]})
    cells = pd.Series([None, "z"], dtype=object)
    cells.iat[0] = cell
    frame[column] = cells
    return frame


def run_tone(data: Any, out: Path, toy: Path) -> list[str]:
    tone = classifier("tone", {"good": "a", "bad": "b"}, inputs=["text"], user="{text}")
    result = run_file([tone], data, model=toy, out=out, open_judge=scripted())
    return [verdict.status for verdict in open_run(result.folder).verdicts()]


@pytest.mark.parametrize("name", ODD)
@pytest.mark.parametrize("kind", ["frame", "dicts"])
def test_an_odd_cell_costs_the_row_that_needs_it_and_nothing_else(tmp_path, toy, name, kind):
    def data(column: str) -> Any:
        frame = frame_with(column, ODD[name])
        return frame if kind == "frame" else [dict(row) for _, row in frame.iterrows()]

    assert run_tone(data("odd"), tmp_path / "odd", toy) == ["ok", "ok"]
    run_tone(data("text"), tmp_path / "text", toy)
    [first, second] = open_run(tmp_path / "text").verdicts()
    assert (first.status, second.status) == ("missing_input", "ok")
    assert name in HAS_TEXT or "text: a value of type" in first.error


def test_a_cell_that_holds_itself_is_named(tmp_path, toy):
    for data in (frame_with("odd", DEEP), [{"text": "x", "odd": DEEP}]):
        with pytest.raises(DataError, match="holds itself") as caught:
            run_tone(data, tmp_path / "run", toy)
        assert (caught.value.line, caught.value.field) == (1, "odd")


def arrow_column(values: pa.Array) -> pd.Series:
    return pd.Series(pd.arrays.ArrowExtensionArray(pa.chunked_array([values])))


@pytest.mark.parametrize(
    "column",
    [
        arrow_column(pa.array([10**8, 1], pa.date32())),
        arrow_column(pa.array([2**62, 1], pa.timestamp("us"))),
        arrow_column(pa.array([10**18, 1], pa.duration("s"))),
        arrow_column(pa.array([[2**62], [1]], pa.list_(pa.timestamp("us")))),
    ],
)
def test_a_column_of_arrow_in_a_frame_is_read_as_in_parquet(tmp_path, column, toy):
    frame = pd.DataFrame({"id": ["a", "b"], "text": ["x", "y"], "odd": column})
    pq.write_table(pa.table({"odd": pa.array(column)}), tmp_path / "rows.parquet")
    wanted = [row["odd"] for row in records(tmp_path / "rows.parquet")]
    assert [row["odd"] for row in records(frame)][1] == wanted[1]
    assert run_tone(frame, tmp_path / "run", toy) == ["ok", "ok"]
    frame["text"] = column
    assert run_tone(frame, tmp_path / "text", toy) == ["missing_input", "ok"]


def test_a_moment_of_numpy_is_no_number():
    moments = np.array(["2024-02-29T12:30", "NaT"], dtype="datetime64[ns]")
    cells = [moments[0], moments[1], moments, np.timedelta64(90, "s"), np.array(moments[0])]
    [row] = records([{str(place): cell for place, cell in enumerate(cells)}])
    text = "2024-02-29T12:30:00"
    assert list(row.values()) == [text, None, [text, None], "0 days 00:01:30", text]


def test_rows_may_be_a_list_of_dicts_or_anything_that_yields_them(tmp_path, toy):
    rows = [{"id": 7, "text": "a"}, {"id": 8, "text": "b", "more": np.int64(1)}]
    for data in (rows, tuple(rows), iter(rows), (dict(row) for row in rows)):
        assert records(data) == rows
    assert run_tone(iter(rows), tmp_path / "run", toy) == ["ok", "ok"]
    assert run_tone(rows, tmp_path / "run", toy) == ["ok", "ok"]  # the same run, gone on with
    (tmp_path / "rows.jsonl").write_bytes(in_jsonl([{"id": 7, "text": "a"}]))
    assert check_table(open_table(rows[:1])).digest == (
        check_table(open_table(tmp_path / "rows.jsonl")).digest
    )


@pytest.mark.parametrize("rows", [["a"], [{"a": 1}, 5], [{"a": 1}, None], [{1: "a"}]])
def test_a_row_in_a_list_that_is_none_is_named_by_its_number(rows):
    with pytest.raises(DataError) as caught:
        open_source(rows)
    assert caught.value.line == len(rows)
    with pytest.raises(DataError, match="has no rows"):
        open_table([])
    with pytest.raises(ConfigError):
        open_source([{"a": 1}], split="train")


# Several formats in a folder


@pytest.mark.parametrize(
    ("names", "kinds"),
    [
        (["a.csv", "c.jsonl"], ["csv (a.csv)", "jsonl (c.jsonl)"]),
        (["a.csv", "b.csv.gz", "c.jsonl"], ["csv (a.csv)", "jsonl (c.jsonl)"]),
        (["train.csv", "test.jsonl"], ["csv (train.csv)", "jsonl (test.jsonl)"]),
        (["d/train.csv", "d/more.jsonl"], ["csv (d/train.csv)", "jsonl (d/more.jsonl)"]),
        (["x.parquet", "a.jsonl", "b.txt"], ["jsonl (a.jsonl)", "parquet (x.parquet)"]),
    ],
)
def test_a_folder_of_several_formats_is_refused_until_one_is_named(tmp_path, names, kinds):
    for name in names:
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        content = b"a\nx\n" if ".csv" in name else b'{"a": "x"}'
        if name.endswith(".parquet"):
            pq.write_table(pa.table({"a": ["x"]}), path)
        else:
            path.write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    with pytest.raises(ConfigError, match="several formats") as caught:
        open_source(tmp_path)
    assert all(kind in caught.value.problem for kind in kinds)
    assert "--data-format" in caught.value.hint
    for kind in (kind.split()[0] for kind in kinds):
        rows = records(tmp_path, data_format=kind)
        assert rows == [{"a": "x"}] * sum(name.split(".")[1] == kind for name in names)
    with pytest.raises(ConfigError, match="has no tsv files") as caught:
        open_source(tmp_path, data_format="tsv")
    assert caught.value.field == "data_format"


def test_files_that_are_no_rows_and_a_readme_that_says_which_are_do_no_harm(tmp_path):
    (tmp_path / "rows.csv").write_text("a\nx\n")
    (tmp_path / ".hidden.jsonl").write_text("{}")
    (tmp_path / "notes.txt").write_text("text")
    assert records(tmp_path) == [{"a": "x"}]
    (tmp_path / "other.jsonl").write_text('{"a": "y"}')
    readme = "---\nconfigs:\n- config_name: default\n  data_files: other.jsonl\n---\n"
    (tmp_path / "README.md").write_text(readme)
    assert records(tmp_path) == [{"a": "y"}]


# Formats that are likely


@pytest.mark.parametrize(
    ("content", "likely"),
    [
        (b"id,answer\n1,x\n", "csv"),
        (b"\xef\xbb\xbfid,answer\r\n1,x\r\n", "csv"),
        (b"answer\nx\n", "csv"),
        (b'"id","answer"\n', "csv"),
        (b"id\tanswer\n1\tx\n", "tsv"),
        (b'\n [{"a": 1}]', "json"),
        (b"PAR1....", "parquet"),
        (gzip.compress(b"id\n"), "jsonl.gz"),
        (zstd(b"id\n"), "jsonl.zst"),
    ],
)
def test_standard_input_that_is_no_json_lines_gets_a_hint(monkeypatch, content, likely):
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(content)))
    with pytest.raises(DataError) as caught:
        open_table("-")
    assert f"--data-format {likely}" in caught.value.hint


def test_a_broken_line_of_json_on_standard_input_is_named_as_one(monkeypatch):
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(b'{"a": 1\n')))
    with pytest.raises(DataError, match="not a JSON object") as caught:
        open_table("-")
    assert caught.value.line == 1


def test_an_archived_parquet_file_is_refused_with_what_to_do(tmp_path):
    (tmp_path / "rows.parquet.gz").write_bytes(gzip.compress(b"PAR1"))
    with pytest.raises(DataError, match="archive") as caught:
        open_source(tmp_path / "rows.parquet.gz")
    assert "unpack it" in caught.value.hint
    (tmp_path / "rows").write_bytes(b"")
    with pytest.raises(ConfigError, match="archive") as caught:
        open_source(tmp_path / "rows", data_format="parquet.zst")
    assert (caught.value.field, "unpack it" in caught.value.hint) == ("data_format", True)
