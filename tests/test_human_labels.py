import json

import pytest

from localjudge.errors import DataError
from localjudge.human_labels import read_human


@pytest.fixture
def write(tmp_path):
    def write(*rows, name="human.jsonl"):
        path = tmp_path / name
        lines = rows if isinstance(rows[0], str) else map(json.dumps, rows)
        path.write_text("".join(f"{line}\n" for line in lines))
        return path

    return write


def labels_of(human):
    return {row: [each.label for each in ratings] for row, ratings in human.ratings.items()}


def test_ids_and_labels_are_compared_as_text(write):
    jsonl = write({"id": 1, "label": 4}, {"id": " 2 ", "label": 4.0}, {"id": 3, "label": True})
    assert labels_of(read_human(jsonl)) == {"1": ["4"], "2": ["4"], "3": ["true"]}
    table = write("id,label", "1,4", "2, 4 ", name="human.csv")
    assert labels_of(read_human(table)) == {"1": ["4"], "2": ["4"]}


def test_lines_of_one_id_are_several_raters(write):
    human = read_human(
        write({"id": 1, "label": "a"}, {"id": 2, "label": "a"}, {"id": 1, "label": "b"})
    )
    assert labels_of(human) == {"1": ["a", "b"], "2": ["a"]}
    assert [each.rater for each in human.ratings["1"]] == ["1", "2"]
    assert (human.repeated, human.named) == (1, False)


def test_a_list_is_several_raters(write):
    human = read_human(write({"id": 1, "votes": [4, 5, None]}), label_column="votes")
    assert labels_of(human) == {"1": ["4", "5"]}


def test_raters_have_names_if_there_is_a_column(write):
    path = write({"id": 1, "label": "a", "who": "Ann"}, {"id": 1, "label": "b", "who": 7})
    human = read_human(path, rater_column="who")
    assert [(each.rater, each.label) for each in human.ratings["1"]] == [("Ann", "a"), ("7", "b")]
    assert human.named


def test_a_rater_speaks_once_of_a_row(write):
    path = write(*[{"id": 1, "label": label, "who": "Ann"} for label in "ab"])
    with pytest.raises(DataError, match="'Ann' has two labels for the row '1'") as caught:
        read_human(path, rater_column="who")
    assert caught.value.line == 2


def test_lines_without_a_label_are_counted(write):
    human = read_human(
        write({"id": 1, "label": None}, {"id": 2, "label": " "}, {"id": 3, "label": "a"})
    )
    assert (labels_of(human), human.unlabelled) == ({"3": ["a"]}, 2)


def test_a_label_must_be_text_or_an_integer(write):
    with pytest.raises(DataError, match=r"3\.5 is no label") as caught:
        read_human(write({"id": 1, "label": 3.5}))
    assert (caught.value.line, caught.value.field) == (1, "label")


def test_a_missing_column_is_named(write):
    path = write({"id": 1, "labels": "a"})
    with pytest.raises(DataError, match="no such column: 'label'") as caught:
        read_human(path)
    assert "'labels'" in caught.value.hint
    with pytest.raises(DataError, match="who: the row has no such value"):
        read_human(path, label_column="labels", rater_column="who")


def test_clusters_are_read_by_id(write):
    path = write({"id": 1, "label": "a", "doc": 5}, {"id": 2, "label": "a", "doc": 5})
    assert read_human(path, cluster_column="doc").clusters == {"1": "5", "2": "5"}


def test_labels_are_placed_in_the_order_of_the_metric(write):
    human = read_human(write({"id": 1, "label": "yes"}, {"id": 2, "label": "no"}))
    placed = human.placed(("no", "right"), {"yes": "right"})
    assert placed == {"1": [("1", 1)], "2": [("1", 0)]}


def test_labels_that_are_no_answers_are_counted_and_refused(write):
    rows = [{"id": place, "label": label} for place, label in enumerate(["Yes", "Yes", "?", "no"])]
    with pytest.raises(DataError, match=r"'Yes' \(2\), '\?' \(1\)") as caught:
        read_human(write(*rows)).placed(("yes", "no"), {})
    assert "--map-label 'Yes'='yes'" in caught.value.hint


def test_words_for_nothing_are_labels_in_a_table(write):
    table = write("id,label", "1,None", "2,N/A", "3,null", "4,nan", "5,", "6,yes", name="human.csv")
    human = read_human(table)
    labels = {"1": ["None"], "2": ["N/A"], "3": ["null"], "4": ["nan"], "6": ["yes"]}
    assert (labels_of(human), human.unlabelled) == (labels, 1)


def test_a_row_in_two_clusters_is_refused_by_line(write):
    rows = [{"id": 1, "label": "a", "doc": doc} for doc in (5, 5, 6)]
    with pytest.raises(DataError, match="'1' is in two clusters: '5' and '6'") as caught:
        read_human(write(*rows), cluster_column="doc")
    assert caught.value.line == 3
