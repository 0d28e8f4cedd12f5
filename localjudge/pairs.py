"""`KEY=VALUE` texts of the command line."""

from __future__ import annotations

from collections.abc import Iterable

from localjudge.errors import ConfigError


def pairs(texts: Iterable[str], option: str, form: str) -> dict[str, str]:
    """Read the texts as a mapping.

    Args:
        texts: The texts.
        option: What they were given by, for errors.
        form: What they should look like.

    Raises:
        ConfigError: one is of another form, or a key is given twice.
    """
    read: dict[str, str] = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not (key and equals and value):
            raise ConfigError(f"{text!r} is not of the form {form}", field=option)
        if key in read:
            raise ConfigError(f"{key!r} is given twice", field=option)
        read[key] = value
    return read
