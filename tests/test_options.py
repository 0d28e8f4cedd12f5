"""Options of a wrong type are errors that name the option, before anything is loaded."""

from __future__ import annotations

import pytest

from localjudge.errors import ConfigError
from localjudge.options import Options
from localjudge.run import run_file
from tests.test_run import TONE, data, never


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("truncate", value) for value in (["text"], "text", None, {"text": 1}, {1: "head"}, 5)),
        *(("decoding", value) for value in (None, 5, ["direct"], True)),
        *((name, value) for name in ("explain", "think") for value in ("yes", 1, None, [])),
        *(
            (name, value)
            for name in ("explain_tokens", "think_tokens", "permute_labels")
            for value in ("3", 1.5, None, True, 0, -1)
        ),
    ],
)
def test_an_option_of_a_wrong_type_is_named(tmp_path, name, value):
    with pytest.raises(ConfigError) as caught:
        Options.of({name: value})
    assert caught.value.field == name
    with pytest.raises(ConfigError) as caught:
        run_file(
            [TONE],
            data(tmp_path, 1),
            model="none",
            out=tmp_path / "run",
            options={name: value},
            open_judge=never,
        )
    assert caught.value.field == name


@pytest.mark.parametrize("given", [["explain"], "explain", 5])
def test_options_that_are_no_mapping_are_refused(given):
    with pytest.raises(ConfigError) as caught:
        Options.of(given)
    assert caught.value.field == "options"


def test_an_option_whose_name_is_no_text_is_refused():
    with pytest.raises(ConfigError, match="no such option"):
        Options.of({1: 2})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("mapping", value) for value in (["text"], "text=output", {"text": 5}, {1: "output"})),
        *((name, 5) for name in ("data_format", "split", "id_column", "engine")),
        *(("limit", value) for value in ("5", 1.5, True)),
        *(("max_failures", value) for value in ("5", 0.5, True, -1)),
        *(("retry_failed", value) for value in ("no", 0)),
        *(("settings", value) for value in (["dtype"], "dtype=auto")),
        ("prompt_mode", 5),
        *(("metrics", value) for value in (TONE, "tone", ["tone"], [None])),
    ],
)
def test_an_argument_of_a_run_of_a_wrong_type_is_named(tmp_path, name, value):
    arguments = {"metrics": [TONE], "model": "none", "out": tmp_path / "run", "open_judge": never}
    arguments |= {name: value}
    with pytest.raises(ConfigError) as caught:
        run_file(arguments.pop("metrics"), data(tmp_path, 1), **arguments)
    assert caught.value.field == name
    assert not (tmp_path / "run").exists()
