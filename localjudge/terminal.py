"""What people see in a terminal: progress, tables and the summary of a run."""

from __future__ import annotations

import sys
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table
from rich.text import Text

from localjudge.answers import AnswerSpace, Open, Scale
from localjudge.answers import Text as TextAnswer
from localjudge.errors import TokenizerError
from localjudge.messages import Messages
from localjudge.records import Status
from localjudge.tasks import check_asking
from localjudge.templates import CHOICES

if TYPE_CHECKING:
    from collections.abc import Callable

    from transformers import PreTrainedTokenizerFast

    from localjudge.metrics import Metric
    from localjudge.models import ModelFolder
    from localjudge.progress import Progress
    from localjudge.run import RunResult

_FAR = 0.05  # share of rows beyond a head's training from which on it is a warning
_LOW_MASS = 0.1
_PIPE_WIDTH = 1000
_PLAIN_EVERY = 10.0  # seconds between lines where there is no terminal


def console() -> Console:
    """Return a console for standard output; in a pipe its lines are as long as they need be."""
    return Console(highlight=False, width=None if sys.stdout.isatty() else _PIPE_WIDTH)


def printable(text: str, width: int | None = None) -> Text:
    """Return text of a row on one line, without the characters that steer a terminal."""
    line = " ".join(text.split())
    shown = "".join(
        char if unicodedata.category(char) not in ("Cc", "Cf", "Cs", "Co", "Cn") else "\ufffd"
        for char in line
    )
    if width is not None and len(shown) > width:
        shown = shown[: width - 1] + "…"
    return Text(shown)


@contextmanager
def progress_bar(log: Callable[[str], None]) -> Iterator[Callable[[Progress], None]]:
    """Show progress on standard error: a bar on a terminal, otherwise a line now and then.

    Such lines go to `log` too.
    """
    logged = _now_and_then(log)
    with _shown() as show:

        def report(progress: Progress) -> None:
            show(progress)
            logged(progress)

        yield report


@contextmanager
def _shown() -> Iterator[Callable[[Progress], None]]:
    errors = Console(stderr=True, highlight=False)
    if not errors.is_terminal:
        yield _now_and_then(lambda line: errors.print(Text(line)))
        return
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn
    from rich.progress import Progress as Bar

    with Bar(
        TextColumn("judging"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[rate]}"),
        console=errors,
        transient=True,
    ) as bar:
        task = bar.add_task("", total=None, rate="checking the data, loading the model")
        yield lambda progress: bar.update(
            task, total=progress.total, completed=progress.done, rate=_rate(progress)
        )


def _now_and_then(say: Callable[[str], None]) -> Callable[[Progress], None]:
    shown = [-_PLAIN_EVERY]

    def report(progress: Progress) -> None:
        finished = progress.done == progress.total
        if finished or progress.seconds - shown[0] >= _PLAIN_EVERY:
            shown[0] = progress.seconds
            say(f"{progress.done}/{progress.total} verdicts, {_rate(progress)}")

    return report


def _rate(progress: Progress) -> str:
    if progress.seconds_left is None:
        return "judging the first rows"
    failed = f", {progress.failed} failed" if progress.failed else ""
    return f"{pace(progress)}, {duration(progress.seconds_left)} left{failed}"


def pace(progress: Progress) -> str:
    """Return rows and tokens per second, as far as there are any yet."""
    rates = ((progress.rows_per_second, "rows"), (progress.tokens_per_second, "tokens"))
    return ", ".join(_per_second(rate, what) for rate, what in rates if rate is not None)


def _per_second(rate: float, what: str) -> str:
    return f"{rate:,.1f} {what}/s" if rate < 100 else f"{rate:,.0f} {what}/s"


def duration(seconds: float) -> str:
    """Return a time as people say it."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes:02} min"
    return f"{minutes} min {rest:02} s" if minutes else f"{rest} s"


def print_result(result: RunResult) -> None:
    """Print what came of a run: per metric the rows, failures, answers and confidence."""
    out = console()
    for tally in result.tallies:
        out.print(Text(f"\n{tally.metric}", style="bold"))
        out.print(f"  rows        {tally.rows}")
        for status, number in tally.statuses.items():
            style = "" if status == Status.OK else "red"
            out.print(Text(f"  {status:<11} {number}", style=style))
        for value, number in tally.values.items():
            out.print("   ", printable(value), f" {number} ({number / tally.ok:.0%})", sep="")
        if tally.confidence is not None:
            out.print(f"  confidence  {tally.confidence:.2f} on average")
        if tally.order_flips is not None:
            share = f"{tally.order_flips} ({tally.order_flips / tally.ok:.0%})"
            out.print(f"  order flips {share}: which text came first decided, so they are ties")
        if tally.label_flips is not None:
            share = f"{tally.label_flips} ({tally.label_flips / tally.ok:.0%})"
            out.print(f"  label flips {share}: the answer depended on the order of the labels")
        if tally.cut:
            out.print(f"  cut         {tally.cut} explanations ended at their budget")
        if tally.shortened:
            out.print(f"  shortened   {tally.shortened} rows had an input cut to fit the model")
        if tally.beyond:
            part = tally.beyond / tally.ok
            style = "yellow" if part > _FAR else ""
            line = f"{tally.beyond} ({part:.0%}) lie farther out than any row that the head knows"
            out.print(Text(f"  beyond      {line}", style=style))
            if part > _FAR:
                out.print(Text("              label some of these rows, and fit with them", style))
        if tally.answer_mass is not None and tally.answer_mass < _LOW_MASS:
            out.print(
                f"  [yellow]answer mass {tally.answer_mass:.2g} on average: left to itself, the "
                "model would mostly have said something that is no answer[/yellow]"
            )
    if result.judged:
        rate = result.judged / result.seconds if result.seconds else 0.0
        rows = _per_second(rate, "rows")
        out.print(f"\n{result.judged} verdicts in {duration(result.seconds)}, {rows}")
    elif not result.reused:
        out.print("\nnothing left to judge: the run was finished before")
    if result.reused:
        out.print(f"{result.reused} verdicts were taken from the cache")
    for name in ("verdicts.jsonl", "verdicts.parquet"):
        out.print(Text(f"  {result.folder / name}"))


def print_metrics(metrics: Iterable[Metric]) -> None:
    """Print a table of metrics."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in ("metric", "kind", "reads (input=column)", "answers", "better"):
        table.add_column(column, overflow="fold")
    for metric in metrics:
        reads = ", ".join(
            (name if name == column else f"{name}={column}")
            + (" (optional)" if name in metric.optional else "")
            for name, column in metric.inputs.items()
        )
        better = {"maximize": "higher", "minimize": "lower"}.get(metric.direction, "-")
        answers = printable(_in_short(metric.answers))
        table.add_row(printable(metric.name), metric.kind, printable(reads), answers, better)
    console().print(table)


def _in_short(answers: AnswerSpace) -> str:
    if isinstance(answers, Scale):
        return f"{answers.low} to {answers.high}"
    if isinstance(answers, TextAnswer):
        return f"{answers.begins} ... (at most {answers.max_words} words)".lstrip()
    listed = ", ".join(map(str, answers.values))
    if isinstance(answers, Open):
        return f"those in column {answers.column} or of --labels; {listed}"
    return listed


def print_prompt(
    metric: Metric, tokenizer: PreTrainedTokenizerFast | None, *, explain: bool = False
) -> None:
    """Print a metric's file, then its prompt with every input shown as its own name.

    With a tokenizer, the prompt is the text of exactly the tokens that its model gets.

    Raises:
        ConfigError: an explanation is to be shown, and the metric has none.
    """
    check_asking(metric, explain=explain)
    if metric.path is not None:
        _print_section(str(metric.path), metric.path.read_text(encoding="utf-8-sig"))
    values = {name: f"({name})" for name in (*metric.inputs, CHOICES)}
    messages = Messages(metric, explain)
    if tokenizer is None:
        _print_section("system message", messages.system)
        _print_section("user message", messages.user(values))
        return
    from localjudge.encoding import PromptEncoder

    frame = PromptEncoder(tokenizer).frame(messages.system, messages.user_head)
    [prompt] = frame.encode([messages.body(values)])
    if isinstance(prompt, TokenizerError):
        raise prompt
    _print_section(f"prompt, {len(prompt)} tokens", tokenizer.decode(prompt))


def _print_section(title: str, text: str) -> None:
    out = Console(highlight=False, soft_wrap=True)
    out.print(Text(f"# {title}", style="bold"))
    out.print(Text(text.rstrip() + "\n"))


def print_models(models: Sequence[ModelFolder]) -> None:
    """Print the installed models."""
    out = console()
    if not models:
        out.print("no model is installed; `localjudge models add smollm2-135m` installs one")
    for model in models:
        out.print(Text(f"{model.name}  {model.path}"))
