"""A report on a run: what it says by which rule, and that nothing of a row becomes markup."""

import json
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
from typer.testing import CliRunner

from localjudge.cli import app
from localjudge.errors import ConfigError, DataError, RunError
from localjudge.page import visible
from localjudge.records import Status, Verdict
from localjudge.report import write_report
from localjudge.tables import check_table, open_table
from tests.browser import Browser, find_browser

PAGES = Path(__file__).parents[1] / "localjudge" / "pages"
HOSTILE = [
    "<script>alert(1)</script>",
    "</script></style></title><img src=x onerror=alert(1)>",
    '" onmouseover="alert(1)" x="',
    "' autofocus onfocus='alert(1)",
    "javascript:alert(1)",
    "<a href=javascript:alert(1)>x</a><iframe src=//e.example>",
    "</dd></dl><!-- <svg onload=alert(1)> ]]> {{ 7 * 7 }} {% raw %}",
    "&lt;b&gt; &#60;script&#62; &amp",
    "a\x00b\x07c\x1b[31md\x7fe\x9bf\r\ng\rh",
    "\u202eevil\u202c \u2067x\u2069 \u200f\u200b\ufeff \U000e0041 \ufffe",
]


def label(row, value, chance=0.8, labels=("right", "wrong"), **more):
    chances = {each: (1 - chance) / max(1, len(labels) - 1) for each in labels}
    chances |= {value: chance}
    more = {"metric": "check", "label": value, "confidence": chance} | more
    return Verdict(row, status=Status.OK, value=value, probabilities=chances, **more)


def grade(row, value, expected=None):
    chances = {str(step): 0.6 if step == value else 0.1 for step in range(1, 6)}
    if expected is None:
        expected = sum(int(step) * chance for step, chance in chances.items())
    return Verdict(
        row,
        "grade",
        Status.OK,
        value=value,
        score=float(value),
        probabilities=chances,
        confidence=0.6,
        expected_score=expected,
    )


def failed(row, reason="no JSON", metric="check"):
    return Verdict(row, metric, Status.INVALID_OUTPUT, error=reason)


@pytest.fixture
def run(tmp_path):
    """Write a finished run, as `RunStore.finish` leaves it."""

    def run(*verdicts, **settings):
        folder = tmp_path / "run"
        folder.mkdir(exist_ok=True)
        metrics = {verdict.metric: "0" * 64 for verdict in verdicts}
        (folder / "run.json").write_text(json.dumps({"metrics": metrics} | settings))
        lines = [json.dumps(verdict.to_dict()) + "\n" for verdict in verdicts]
        (folder / "verdicts.jsonl").write_text("".join(lines))
        return folder

    return run


def lines(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.fixture
def people(tmp_path):
    return lambda *rows: lines(tmp_path / "human.jsonl", rows)


class Page(HTMLParser):
    """Everything of a page that is markup, and its text."""

    def __init__(self, text):
        super().__init__()
        self.elements, self.text, self.style = [], "", ""
        self.odd, self._open = [], []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attributes):
        self.elements.append((tag, attributes))
        self._open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.elements.append((tag, attributes))

    def handle_endtag(self, tag):
        while self._open and self._open.pop() != tag:
            pass

    def handle_data(self, data):
        if self._open and self._open[-1] == "style":
            self.style += data
        else:
            self.text += data

    def handle_comment(self, data):
        self.odd.append(data)

    def handle_pi(self, data):
        self.odd.append(data)

    def unknown_decl(self, data):
        self.odd.append(data)


def read(path):
    page = Page(Path(path).read_bytes().decode())
    page.text = " ".join(page.text.split())
    return page


def report(folder, human=None, **options):
    return read(write_report(folder, human=human, resamples=200, **options))


def own_markup():
    """The names of elements and attributes that the templates write."""
    whole = "".join(path.read_text() for path in PAGES.glob("*.html"))
    whole = re.sub(r"\{#.*?#\}|\{%.*?%\}|\{\{.*?\}\}", " ", whole, flags=re.DOTALL)
    found = Page(whole.replace("<!DOCTYPE html>", "")).elements
    return {tag for tag, _ in found}, {name for _, attributes in found for name, _ in attributes}


def check_markup(page):
    elements, attributes = own_markup()
    assert not page.odd
    assert "{{" not in "".join(value or "" for _, each in page.elements for _, value in each)
    for tag, given in page.elements:
        assert tag in elements, tag
        for name, value in given:
            assert name in attributes, name
            if name in ("href", "id"):
                assert re.fullmatch(r"#?(metric-\d+|use|rules|settings|contents)", value)
            if name == "class":
                assert re.fullmatch(r"[a-z0-9 -]+", value), value
    assert "script" not in {tag for tag, _ in page.elements}
    assert not {name for _, given in page.elements for name, _ in given if name.startswith("on")}
    assert not {"src", "style", "action", "srcdoc"} & attributes


@pytest.fixture
def hostile(run, tmp_path):
    """Hostile texts wherever a run, its data and its labels can hold them."""
    labels = tuple(text for text in HOSTILE if "\0" not in text)
    folded = tuple(label.strip() for label in labels)
    rows, verdicts, said = [], [], []
    for place, text in enumerate([*HOSTILE, "x" * 1_000_000 + "<b>"]):
        plain = text.replace("\0", "?")
        row = f"{place} {plain[:60]}"
        rows.append({"id": row, "te<xt": plain, "n": [{"role": "<i>", "content": plain}]})
        answer = folded[place % len(folded)]
        other = folded[(place + 1) % len(folded)]
        verdicts.append(
            label(row, answer, 0.6, folded, metric="<b>m</b>", explanation=text, truncated=True)
        )
        said.append({"id": row, "label": [other, other, answer], "who": "<u>"})
    verdicts.append(failed("last\n<p>", "<h1>" + HOSTILE[-1], "<b>m</b>"))
    rows.append({"id": "last\n<p>", "te<xt": "", "n": None})
    data = lines(tmp_path / "<i>data.jsonl", rows)
    columns = {"<b>m</b>": {"<em>": "te<xt", "turns": "n"}}
    folder = run(
        *verdicts,
        data={"digest": check_table(open_table(data)).digest, "columns": columns},
        info={"model": "/m/<script>", "<li>": HOSTILE[1]},
    )
    return folder, lines(tmp_path / "<s>human.jsonl", said), data


def test_nothing_of_rows_labels_and_names_becomes_markup(hostile):
    folder, human, data = hostile
    page = report(folder, human, data=data)
    check_markup(page)
    for text in HOSTILE[:7]:
        assert text in page.text
    assert "<script>" in page.text and "<h1>" in page.text and "<b>m</b>" in page.text
    assert "999,303 more characters are not shown" in page.text


def test_what_steers_a_text_is_written_out(hostile):
    folder, human, data = hostile
    write_report(folder, human=human, data=data, resamples=200)
    whole = (folder / "report.html").read_bytes().decode()
    assert not re.search("[\0-\x08\x0b-\x1f\x7f-\x9f\u200b\u200f\u202a-\u202e\u2066-\u2069]", whole)
    assert r"a\x00b\x07c\x1b[31md\x7fe\x9bf" in whole
    assert r"\u202eevil\u202c" in whole
    # No run holds half of a surrogate pair; if one came to be there, it would be written out too.
    assert visible("half \ud800 pair \udfff") == r"half \ud800 pair \udfff"


def test_the_page_may_load_nothing_and_has_one_style(hostile):
    folder, human, data = hostile
    page = report(folder, human, data=data)
    [policy] = [
        dict(given)["content"]
        for tag, given in page.elements
        if tag == "meta" and ("http-equiv", "Content-Security-Policy") in given
    ]
    assert policy.startswith("default-src 'none'; style-src 'sha256-")
    assert "unsafe" not in policy
    assert "url(" not in page.style and "@import" not in page.style
    assert [tag for tag, _ in page.elements].count("style") == 1


def test_the_same_run_gives_the_same_file(run, people, tmp_path):
    folder = run(*(label(str(place), "right") for place in range(9)))
    human = people(*({"id": p, "label": "right" if p % 2 else "wrong"} for p in range(9)))
    report(folder, human, path=tmp_path / "a.html")
    report(folder, human, path=tmp_path / "b.html")
    assert (tmp_path / "a.html").read_bytes() == (tmp_path / "b.html").read_bytes()


def test_without_human_labels_nothing_is_known(run):
    page = report(run(label("0", "right"), failed("1", "cut off"), label("2", "wrong", 0.55)))
    assert "nothing here says whether its verdicts are right" in page.text
    assert "1 of 3 rows have no verdict." in page.text
    assert "What it gets wrong" not in page.text
    assert "cut off" in page.text and "invalid_output" in page.text
    assert "Contents" not in page.text
    check_markup(page)


def test_a_run_of_several_metrics_has_contents(run, people):
    folder = run(label("0", "right"), grade("0", 4), label("1", "wrong"), grade("1", 2))
    human = people({"id": 0, "stars": 4}, {"id": 1, "stars": 5})
    page = report(folder, human, label_column={"grade": "stars"})
    links = [dict(given)["href"] for tag, given in page.elements if tag == "a"]
    assert {"#metric-1", "#metric-2", "#settings", "#rules"} <= set(links)
    assert "No human labels were given for this metric" in page.text
    assert "The judge's grade against people's" in page.text


def test_a_metric_that_answers_with_text_shows_its_first_texts(run):
    texts = [
        Verdict(str(place), "llm_summarization", Status.OK, value="The user asks. " * (place + 1))
        for place in range(30)
    ]
    page = report(run(*texts))
    assert "no figure here says whether a text is right" in page.text
    assert "Let people label" not in page.text
    assert "texts of 3 to 90 words, 46.5 in the median" in page.text
    assert "The first 20 are shown; 10 are left out." in page.text


def test_rows_that_all_failed_have_reasons_and_no_verdict_on_use(run, people):
    folder = run(*(failed(str(place), metric="toxicity") for place in range(30)))
    human = people(*({"id": place, "label": "toxic"} for place in range(30)))
    page = report(folder, human)
    assert "It cannot be told whether it agrees with people: no row has a verdict." in page.text
    assert "30 of 30 rows have no verdict." in page.text
    assert "20 are listed, the first of each status; 10 are left out." in page.text
    assert "No value: no row has a verdict." in page.text
    check_markup(page)


def test_a_frequent_failure_does_not_hide_a_rare_one(run):
    rare = Verdict("rare", "check", Status.INPUT_TOO_LONG, error="9,000 tokens")
    page = report(run(*(failed(str(place)) for place in range(50)), rare))
    assert "9,000 tokens" in page.text
    assert "11 are listed, the first of each status; 40 are left out." in page.text


def test_one_class_has_figures_with_their_reasons(run, people):
    folder = run(*(label(str(place), "right") for place in range(9)))
    page = report(folder, people(*({"id": place, "label": "right"} for place in range(9))))
    assert "It cannot be told whether it agrees with people: one class only" in page.text
    assert "None: no verdict differs from people's label." in page.text
    assert "people never give this label" in page.text


def test_rows_without_a_label_are_counted(run, people):
    folder = run(*(label(str(place), "right" if place % 2 else "wrong") for place in range(9)))
    page = report(folder, people({"id": 1, "label": "wrong"}, {"id": "x", "label": "right"}))
    assert "Compared: 1 row. 8 rows of the run without a label." in page.text
    assert "1 labelled row not in the run." in page.text


def test_the_surest_disagreements_come_first_with_texts_and_explanation(run, people, tmp_path):
    chances = {"0": 0.6, "1": 0.9, "2": 0.7}
    data = lines(tmp_path / "d.jsonl", [{"id": row, "said": f"text of {row}"} for row in chances])
    digest = check_table(open_table(data)).digest
    folder = run(
        *(label(row, "right", chance, explanation=f"why {row}") for row, chance in chances.items()),
        data={"digest": digest, "rows": 3, "columns": {"check": {"answer": "said"}}},
        info={"data": "/somewhere/private/d.jsonl"},
    )
    human = people(*({"id": row, "label": "wrong"} for row in chances))
    page = report(folder, human, data=data)
    places = [page.text.index(f"text of {row}") for row in "120"]
    assert places == sorted(places)
    assert "why 1" in page.text and "right: 0.90" in page.text
    assert "private" not in page.text
    without = report(folder, human)
    assert "text of 1" not in without.text
    assert "The texts of the rows were not given" in without.text


def test_other_data_than_those_of_the_run_are_refused(run, tmp_path):
    folder = run(label("0", "right"), data={"digest": "0", "rows": 1}, info={"data": "d.jsonl"})
    data = lines(tmp_path / "d.jsonl", [{"id": "0", "said": "x"}])
    with pytest.raises(DataError, match="is not what this run judged"):
        report(folder, data=data)
    assert not (folder / "report.html").exists()


def test_what_is_read_is_not_written_over(run, people):
    folder = run(label("0", "right"))
    human = people({"id": 0, "label": "right"})
    for path in (folder / "verdicts.jsonl", folder / "run.json", human):
        before = path.read_bytes()
        with pytest.raises(ConfigError):
            report(folder, human, path=path)
        assert path.read_bytes() == before


def test_a_folder_without_a_finished_run_is_refused(tmp_path, run):
    with pytest.raises(RunError, match="no run here"):
        report(tmp_path / "none")
    folder = run(label("0", "right"))
    (folder / "verdicts.jsonl").unlink()
    with pytest.raises(RunError, match="no finished verdicts"):
        report(folder)


def test_guided_runs_say_that_they_have_no_confidence(run, people):
    verdicts = [
        Verdict(str(p), "toxicity", Status.OK, value="toxic", label="toxic") for p in range(4)
    ]
    human = people(*({"id": p, "label": "toxic" if p else "non-toxic"} for p in range(4)))
    page = report(run(*verdicts), human)
    assert "None can be shown: no compared row has a confidence." in page.text
    assert "Not known: the run has no probabilities." in page.text


def test_raters_are_set_beside_the_judge(run, people):
    sides = ("right", "wrong")
    folder = run(*(label(str(place), sides[(place + (place == 7)) % 2]) for place in range(40)))
    rows = [
        {"id": p, "who": who, "label": sides[(p + (p % 9 == n)) % 2]}
        for p in range(40)
        for n, who in enumerate(("Ann", "Bob", "Cas"))
    ]
    page = report(folder, people(*rows), rater_column="who")
    assert "these rows do not show it to be below a single person" in page.text
    assert "one person against others" in page.text
    assert "Rater by rater" in page.text and "Cas" in page.text


def test_many_labels_are_a_list_of_mistakes_and_not_a_matrix(run, people):
    names = tuple(f"topic {place}" for place in range(60))
    folder = run(*(label(str(p), names[p % 60], 0.5, names) for p in range(90)))
    page = report(folder, people(*({"id": p, "label": names[(p + 1) % 60]} for p in range(90))))
    assert "60 labels are too many for a matrix" in page.text
    assert "20 labels that people give more seldom are left out." in page.text
    assert "20 answers that are given more seldom are left out." in page.text


def test_a_hundred_thousand_rows_make_a_small_file(run, people):
    """Texts are long, every fifth row failed, and every third is another answer than people's."""
    why = "because <&> " * 40
    verdicts = [
        failed(f"row {place}", why)
        if place % 5 == 0
        else label(f"row {place}", "right" if place % 3 else "wrong", 0.9, explanation=why)
        for place in range(100_000)
    ]
    human = people(*({"id": f"row {place}", "label": "right"} for place in range(2_000)))
    path = write_report(run(*verdicts), human=human, min_matched=0, resamples=100)
    assert path.stat().st_size < 200_000
    assert "19,980 are left out" in read(path).text


def test_the_command_takes_the_options_of_agree(run, people, tmp_path):
    folder = run(*(label(str(place), "right" if place % 2 else "wrong") for place in range(20)))
    rows = [{"n": p, "said": "Yes" if p % 2 else "No", "who": "Ann"} for p in range(20)]
    arguments = ["report", folder, "--human", people(*rows), "--label-column", "said"]
    arguments += ["--id-column", "n", "--map-label", "Yes=right", "--map-label", "No=wrong"]
    arguments += ["--rater-column", "who", "--resamples", "100", "--out", tmp_path / "r.html"]
    done = CliRunner().invoke(app, list(map(str, arguments)))
    assert done.exit_code == 0, done.output
    assert done.output.strip() == str(tmp_path / "r.html")
    assert "judge and people say the same of all 20 rows" in read(tmp_path / "r.html").text


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    program = find_browser()
    if program is None:
        pytest.skip("there is no Chromium on this machine")
    with Browser(program, tmp_path_factory.mktemp("profile")) as page:
        yield page


# The lowest contrast of any text with what lies behind it, as WCAG 2 computes it.
CONTRAST = """(() => {
  const parse = text => {
    const found = text.match(/[\\d.]+/g).map(Number);
    return found.length < 4 ? [...found, 1] : found;
  };
  const over = (top, below) => [0, 1, 2].map(i => top[i] * top[3] + below[i] * (1 - top[3]));
  const light = rgb => rgb.map(c => c / 255)
    .map(c => c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4)
    .reduce((sum, c, i) => sum + c * [0.2126, 0.7152, 0.0722][i], 0);
  const behind = node => {
    if (!node) return [255, 255, 255];
    const paint = parse(getComputedStyle(node).backgroundColor);
    return paint[3] === 1 ? paint.slice(0, 3) : over(paint, behind(node.parentElement));
  };
  let lowest = [99, ""];
  for (const node of document.body.querySelectorAll("*")) {
    const own = [...node.childNodes].some(c => c.nodeType === 3 && c.data.trim());
    if (!own || node.tagName === "title") continue;
    const style = getComputedStyle(node), svg = node.ownerSVGElement;
    const ink = parse(svg ? style.fill : style.color), ground = behind(svg ? svg : node);
    const [a, b] = [light(over(ink, ground)), light(ground)].sort((x, y) => y - x);
    const contrast = (a + 0.05) / (b + 0.05);
    if (contrast < lowest[0]) lowest = [contrast, node.outerHTML.slice(0, 120)];
  }
  return lowest;
})()"""


@pytest.fixture
def rich(run, people):
    """A page with every kind of chart: labels and grades, failures, several raters."""
    verdicts, rows = [], []
    for p in range(60):
        verdicts += [label(str(p), "right" if p % 4 else "wrong", 0.5 + p / 130)]
        verdicts += [grade(str(p), 1 + p % 5) if p % 7 else failed(str(p), metric="grade")]
        said = ["right", "right" if p % 3 else "wrong", "right" if p % 5 else "wrong"]
        rows.append({"id": p, "label": said, "stars": [1 + p % 5, 1 + p % 4, 1 + p % 3]})
    folder = run(*verdicts, info={"a_setting": "b" * 400})
    columns = {"check": "label", "grade": "stars"}
    return write_report(folder, human=people(*rows), label_column=columns, resamples=200)


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
def test_a_browser_shows_it_without_a_network_and_fits_it_to_the_window(browser, rich, width, dark):
    browser.open(rich, width=width, dark=dark)
    assert browser.problems == []
    assert browser.value("document.documentElement.scrollWidth") <= width
    browser.value("document.querySelectorAll('details').forEach(each => each.open = true)")
    assert browser.value("document.documentElement.scrollWidth") <= width
    assert browser.value("document.querySelectorAll('svg.chart').length") >= 7
    lowest, where = browser.value(CONTRAST)
    assert lowest >= 4.5, where
    paper = browser.value("getComputedStyle(document.body).backgroundColor")
    assert (paper == "rgb(255, 255, 255)") is not dark


def test_hostile_rows_do_nothing_in_a_browser(browser, hostile):
    folder, human, data = hostile
    path = write_report(folder, human=human, data=data, resamples=200)
    browser.open(path, width=390)
    assert browser.problems == []
    assert browser.value("document.scripts.length") == 0
    assert browser.value("document.documentElement.scrollWidth") <= 390
