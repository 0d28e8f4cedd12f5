"""A report as one HTML page. All markup stands in `pages/`; no other code writes any."""

from __future__ import annotations

import re
from base64 import b64encode
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

from localjudge import charts, findings, glossary
from localjudge.statistics.figures import Figure

if TYPE_CHECKING:
    from localjudge.report import Report

_PAGES = Path(__file__).parent / "pages"
# What steers a text, or is not seen but may be read by a model, and what no page may hold. Joiners
# stay, for scripts and emoji need them.
_UNSEEN = re.compile(
    "[\0-\x08\x0b-\x1f\x7f-\x9f\xad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff"
    "\ufdd0-\ufdef\ufffe\uffff\ud800-\udfff\U000e0000-\U000e007f]"
)


def render(report: Report) -> str:
    """Return the page, which needs no other file and no network."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    pages = Environment(
        loader=FileSystemLoader(_PAGES),
        autoescape=True,
        finalize=_shown,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    pages.filters |= {
        "clip": clip,
        "count": lambda rows: f"{rows:,}",
        "interval": _interval,
        "meaning": glossary.meaning,
        "number": findings.number,
        "of": lambda rows, one: f"{rows:,} {one}{'' if rows == 1 else 's'}",
        "percent": findings.percent,
        "title_of": glossary.title,
    }
    style = (_PAGES / "report.css").read_text(encoding="utf-8")
    page = pages.get_template("report.html")
    # The policy lets the browser load nothing, and take no style but this one.
    digest = b64encode(sha256(style.encode()).digest()).decode()
    return page.render(
        report=report,
        charts=charts,
        headline=findings.headline,
        rules=findings.RULES,
        style=style,
        style_digest=digest,
    )


@dataclass(frozen=True, slots=True)
class Clipped:
    """The beginning of a text, and how many characters of it are left out."""

    text: str
    left_out: int


def clip(text: Any, length: int) -> Clipped:
    """Return the first `length` characters of a text."""
    whole = str(text)
    return Clipped(whole[:length], max(0, len(whole) - length))


def visible(text: str) -> str:
    """Return a text with what steers it, and what is not seen, written out: `\\u202e`."""
    return _UNSEEN.sub(
        lambda match: match[0].encode("unicode_escape").decode(), text.replace("\r\n", "\n")
    )


def _shown(value: Any) -> Any:
    """Make every text visible that a template prints, but what templates wrote themselves."""
    return visible(value) if isinstance(value, str) and not hasattr(value, "__html__") else value


def _interval(figure: Figure) -> str:
    if figure.low is None or figure.high is None:
        return ""
    return f"{findings.number(figure.low, 3)} to {findings.number(figure.high, 3)}"
