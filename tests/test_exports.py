import csv
import json

import pyarrow.parquet as pq
import pytest

from localjudge.errors import ConfigError, RunError
from localjudge.exports import export_run
from localjudge.records import VERDICT_FIELDS, Status, Verdict
from localjudge.store import RunStore

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
    with pytest.raises(RunError, match="no finished verdicts"):
        export_run(tmp_path / "nowhere")
    with pytest.raises(RunError, match="cannot be written"):
        export_run(folder, tmp_path / "nowhere" / "a.csv")


def test_nothing_is_left_under_the_name_if_a_line_is_damaged(folder, tmp_path):
    with (folder / "verdicts.jsonl").open("a") as file:
        file.write("{")
    with pytest.raises(RunError, match="damaged"):
        export_run(folder, tmp_path / "a.csv", wide=True)
    assert not list(tmp_path.glob("a.csv*"))
