"""From cells to prompt text: placeholders, and the quoted block in which a value stands."""

from __future__ import annotations

import json
import math
import re
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from localjudge.errors import DataError

_LINE_BREAKS = "\n\r\v\f\x1c\x1d\x1e\x85\u2028\u2029"  # where str.splitlines ends a line
CHOICES = "choices"  # the placeholder for a row's own labels
EMPTY = "(empty)"  # in place of a turn's content; unquoted, so that no content can say it
_PLACEHOLDER = re.compile(r"\{\{([A-Za-z_][A-Za-z0-9_]*)\}\}|\{([A-Za-z_][A-Za-z0-9_]*)\}")


def quote(text: str) -> str:
    """Return `text` as a block in which every line begins with `> `; an empty line is `>`.

    Lines end wherever `str.splitlines` ends one, so no character of `text` can begin a line that
    is not quoted. The line breaks themselves stay, and a break at the very end is followed by an
    empty line: taking the marks off gives `text` again, exactly.
    """
    lines = text.splitlines(keepends=True)
    if not text or text[-1] in _LINE_BREAKS:
        lines.append("")
    return "".join(
        [f"> {line}" if line and line[0] not in _LINE_BREAKS else f">{line}" for line in lines]
    )


def as_text(value: Any) -> str | None:
    """Return a cell as the text that a prompt shows, or None if the cell is missing.

    Text stays as it is; booleans and numbers are written as in JSON; a conversation, a list of
    objects with `role` and `content`, becomes numbered turns; other lists and objects become JSON
    with real characters and their keys in the given order. None, NaN and text without a visible
    character are missing, and so are an empty list, an empty object, and a conversation in which
    nothing is said.

    Raises:
        DataError: a value of any other type, which has no one reading as text.
    """
    if isinstance(value, str):
        return None if is_blank(value) else value
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return None
    if isinstance(value, list | dict) and not value:
        return None
    try:
        if isinstance(value, list) and all(_is_turn(item) for item in value):
            return _conversation(value)
        return json.dumps(value, ensure_ascii=False)
    except (TypeError, ValueError) as error:
        raise DataError(
            f"a value of type {type(value).__name__} cannot be shown in a prompt: {error}",
            hint="give the column as text, numbers, or lists and objects of these",
        ) from None


def is_blank(text: str) -> bool:
    """Say whether a text has no visible character."""
    # Characters that steer the text, such as the zero-width space, are not seen either.
    return all(char.isspace() or unicodedata.category(char) in ("Cc", "Cf") for char in text)


def _is_turn(item: Any) -> bool:
    return isinstance(item, dict) and {"role", "content"} <= item.keys()


def _conversation(turns: Sequence[Mapping[str, Any]]) -> str | None:
    """Return the turns, numbered, each with its content quoted so that it cannot begin another."""
    shown, said = [], False
    for number, turn in enumerate(turns, 1):
        facts = {
            key: item
            for key, item in turn.items()
            if key not in ("role", "content") and item is not None
        }
        content = as_text(turn["content"])
        said = said or bool(facts) or content is not None
        about = f"{turn['role']} {json.dumps(facts, ensure_ascii=False)}" if facts else turn["role"]
        # On one line, whatever the role says: a line of its own could pass for a turn.
        shown.append(f"{number}. {' '.join(str(about).splitlines())}:")
        shown.append(EMPTY if content is None else quote(content))
    return "\n".join(shown) if said else None


@dataclass(frozen=True, slots=True)
class Template:
    """A text with placeholders, split once: values are put in, never searched or expanded.

    Attributes:
        head: The text before the first placeholder.
        tail: Each placeholder's name, and the text between it and the next one.
    """

    head: str
    tail: tuple[tuple[str, str], ...]

    @classmethod
    def parse(cls, text: str) -> Template:
        """Split `text`: `{name}` is a placeholder, `{{name}}` prints `{name}`, no brace else."""
        literals, names = [""], []
        end = 0
        for match in _PLACEHOLDER.finditer(text):
            literals[-1] += text[end : match.start()]
            end = match.end()
            if match[1]:
                literals[-1] += f"{{{match[1]}}}"
            else:
                names.append(match[2])
                literals.append("")
        literals[-1] += text[end:]
        return cls(literals[0], tuple(zip(names, literals[1:], strict=True)))

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the placeholders, in order, as often as they occur."""
        return tuple(name for name, _ in self.tail)

    def for_blocks(self) -> Template:
        """Return the template with every placeholder on a line of its own.

        A line break is put where one is lacking; blanks next to it are dropped.
        """
        literals = [self.head, *(literal for _, literal in self.tail)]
        last = len(literals) - 1
        for index, literal in enumerate(literals):
            if index > 0:
                literal = literal.lstrip(" \t")
                if (literal or index < last) and not literal.startswith("\n"):
                    literal = f"\n{literal}"
            if index < last:
                literal = literal.rstrip(" \t")
                if literal and not literal.endswith("\n"):
                    literal = f"{literal}\n"
            literals[index] = literal
        return Template(literals[0], tuple(zip(self.names, literals[1:], strict=True)))

    def fixed(self, values: Mapping[str, str]) -> str:
        """Return the template as text, with some placeholders replaced for good."""
        pieces = [_escape(self.head)]
        for name, literal in self.tail:
            pieces.append(_escape(values[name]) if name in values else f"{{{name}}}")
            pieces.append(_escape(literal))
        return "".join(pieces)

    def fill(self, values: Mapping[str, str]) -> str:
        """Return the text with every placeholder replaced by its value, as it is."""
        pieces = [self.head]
        for name, literal in self.tail:
            pieces.append(values[name])
            pieces.append(literal)
        return "".join(pieces)


def _escape(text: str) -> str:
    """Return `text` so that a template prints it as it is."""
    return _PLACEHOLDER.sub(lambda match: f"{{{match[0]}}}", text)
