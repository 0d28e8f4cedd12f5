"""How a judge asks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Literal, get_args

from localjudge.errors import ConfigError
from localjudge.toml_file import closest
from localjudge.truncation import Part

Decoding = Literal["direct", "guided"]


@dataclass(frozen=True, slots=True)
class Options:
    """How a judge asks.

    Attributes:
        decoding: `direct` reads the probability of each answer; `guided` lets outlines constrain
            the model token by token, and knows no probabilities.
        explain: Whether the model writes an explanation before its verdict.
        explain_tokens: The most tokens of an explanation; a longer one is cut at a whole word.
        think: Whether the model thinks before all that, in the section that its chat template has
            for it.
        think_tokens: The most tokens of its thoughts; longer ones are cut at a whole word.
        permute_labels: In how many orders of its labels a classification is asked.
        truncate: Inputs that are cut where a prompt would be too long, and which part of each is
            cut out: `head`, `tail` or `middle`. By default nothing is: such a row has no verdict.

    Raises:
        ConfigError: an option is out of its range, or two do not go together.
    """

    decoding: Decoding = "direct"
    explain: bool = False
    explain_tokens: int = 120
    think: bool = False
    think_tokens: int = 1024
    permute_labels: int = 1
    truncate: Mapping[str, Part] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_choice("decoding", self.decoding, get_args(Decoding))
        check_mapping("truncate", self.truncate, '{"input": "tail"}')
        for part in self.truncate.values():
            check_choice("truncate", part, get_args(Part))
        for name in ("explain", "think"):
            check_type(name, getattr(self, name), bool)
        for name in ("explain_tokens", "think_tokens", "permute_labels"):
            check_type(name, getattr(self, name), int)
            if getattr(self, name) < 1:
                raise ConfigError(f"{getattr(self, name)} is not positive", field=name)
        if self.permute_labels > 1 and self.decoding == "guided":
            raise ConfigError(
                "guided decoding knows no probabilities, which several orders would be joined by",
                field="permute_labels",
                hint="use decoding `direct`, or ask in one order",
            )

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> Options:
        """Take the options by their names.

        Raises:
            ConfigError: one is unknown; and as above.
        """
        if not isinstance(given, Mapping):
            raise ConfigError(
                f"{given!r} is no mapping",
                field="options",
                hint='give a dict, such as {"explain": True}',
            )
        known = [each.name for each in fields(cls)]
        for name in given:
            if name not in known:
                hint = closest(str(name), known)
                raise ConfigError("there is no such option", field=str(name), hint=hint)
        return cls(**given)


def check_type(name: str, value: object, *kinds: type) -> None:
    """Raise ConfigError unless the option `name` is of one of the types; True is no integer."""
    if type(value) not in kinds and (isinstance(value, bool) or not isinstance(value, kinds)):
        wanted = " or ".join("None" if kind is type(None) else kind.__name__ for kind in kinds)
        raise ConfigError(f"{value!r} is not of the type {wanted}", field=name)


def check_mapping(name: str, value: object, example: str) -> None:
    """Raise ConfigError unless the option `name` is a mapping of text to text."""
    if not isinstance(value, Mapping):
        raise ConfigError(
            f"{value!r} is no mapping", field=name, hint=f"give a dict, such as {example}"
        )
    for each in (*value, *value.values()):
        if not isinstance(each, str):
            raise ConfigError(f"{each!r} is not text", field=name, hint=f"it must be {example}")


def check_choice(name: str, value: object, known: Sequence[str]) -> None:
    """Raise ConfigError unless the option `name` has one of the `known` values."""
    if value not in known:
        raise ConfigError(f"{value!r} is unknown", field=name, hint=closest(str(value), known))
