"""Every error that localjudge raises on purpose, and what the reader can do about it.

LocaljudgeError
├── ConfigError       an option or argument is wrong
├── MetricError       a metric file, or a metric built in code, is wrong
├── DataError         an input file or row cannot be read
├── TemplateError     the model's chat template cannot carry the prompt
├── TokenizerError    the model's tokenizer cannot carry the text or the answers
├── ModelError        a model folder is missing, damaged or not allowed
├── EngineError       the engine is unusable; no further call will succeed
└── RunError          the run folder cannot be used
    ├── RunChanged    it holds a run with other settings
    └── RunLocked     another process is writing to it
"""

from __future__ import annotations

from os import PathLike


class LocaljudgeError(Exception):
    """Base of all localjudge errors.

    Args:
        problem: What is wrong, in one sentence.
        path: File or folder in which it was found.
        line: Line of that file, counted from 1.
        field: Field, column or option concerned.
        hint: What to do about it.
    """

    def __init__(
        self,
        problem: str,
        *,
        path: str | PathLike[str] | None = None,
        line: int | None = None,
        field: str | None = None,
        hint: str | None = None,
    ) -> None:
        self.problem = problem
        self.path = None if path is None else str(path)
        self.line = line
        self.field = field
        self.hint = hint
        super().__init__(str(self))

    @property
    def where(self) -> str:
        """Place of the fault as `file:line: field`, or an empty string."""
        place = self.path or ""
        if self.line is not None:
            place += f":{self.line}" if place else f"line {self.line}"
        return ": ".join(part for part in (place, self.field) if part)

    def __str__(self) -> str:
        where = _escaped(self.where).replace("\n", "\\n")
        text = f"{where}: {self.problem}" if where else self.problem
        return _escaped(f"{text}\n  hint: {self.hint}" if self.hint else text)


def _escaped(text: str) -> str:
    """Escape what would steer a terminal: all that is not printable, but for line breaks."""
    return "".join(
        char if char.isprintable() or char == "\n" else char.encode("unicode_escape").decode()
        for char in text
    )


class ConfigError(LocaljudgeError):
    """An option or argument is wrong."""


class MetricError(LocaljudgeError):
    """A metric file, or a metric built in code, is wrong."""


class DataError(LocaljudgeError):
    """An input file or row cannot be read."""


class DataWarning(UserWarning):
    """Something in the data was read otherwise than it stands there."""


class TemplateError(LocaljudgeError):
    """The model's chat template cannot carry the prompt."""


class TokenizerError(LocaljudgeError):
    """The model's tokenizer cannot carry the text or the answers."""


class ModelError(LocaljudgeError):
    """A model folder is missing, damaged or not allowed."""


class EngineError(LocaljudgeError):
    """The engine is unusable; no further call to it will succeed."""


class RunError(LocaljudgeError):
    """The run folder cannot be used."""


class RunChanged(RunError):
    """The run folder holds a run with other settings."""


class RunLocked(RunError):
    """Another process is writing to the run folder."""
