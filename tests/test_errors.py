"""What an error says, and that it cannot steer a terminal."""

from __future__ import annotations

from localjudge.errors import DataError


def test_an_error_says_what_where_and_what_to_do():
    error = DataError("is damaged", path="rows.csv", line=3, field="id", hint="mend it")
    assert str(error) == "rows.csv:3: id: is damaged\n  hint: mend it"


def test_no_text_of_a_user_steers_the_terminal():
    steering = "\x1b[2J\x07\x9b\u202e\u2028\udcff\r"
    error = DataError(steering + "\n  two", path=f"a\n{steering}", field=steering, hint=steering)
    assert str(error).count("\n") == 2
    assert all(char.isprintable() or char == "\n" for char in str(error))
    assert r"\x1b[2J\x07\x9b\u202e\u2028\udcff\r" in str(error)
    assert "très bon 开心" in str(DataError("très bon 开心"))
