"""Configurations survive the way through JSON, and nothing is read half."""

import dataclasses
import json
import math
from pathlib import Path

import pytest

from simuljax.config.fields import ConfigError
from simuljax.config.json import (
    differences,
    from_json,
    read_json,
    to_json,
    without_defaults,
    write_json,
)
from simuljax.config.model import ModelConfig, Monotonic
from simuljax.config.training import Optimiser, Training
from simuljax.models import presets

DOCUMENTS = [
    presets.dar(),
    presets.simul_mt(),
    presets.ma_s_transformer_big(),
    presets.recogniser(presets.small()),
    dataclasses.replace(presets.tiny(), monotonic=Monotonic(policy="wait_k", wait_k=(1, 9))),
    Training(optimiser=Optimiser(weight_decay=0.1), patience=3),
]


@pytest.mark.parametrize("given", DOCUMENTS, ids=lambda given: type(given).__name__)
def test_every_field_comes_back(given, tmp_path: Path):
    write_json(tmp_path / "config.json", given)
    assert from_json(type(given), read_json(tmp_path / "config.json")) == given


def test_a_typo_is_named_with_its_place_and_the_right_name():
    told = to_json(presets.tiny())
    told["width"]["dropuot"] = told["width"].pop("dropout")
    with pytest.raises(ConfigError, match=r"width\.dropuot.*'dropout'"):
        from_json(ModelConfig, told)


def test_a_missing_field_is_named():
    with pytest.raises(ConfigError, match="lacks asked"):
        from_json(Younger, {"added": 4})


def test_a_field_that_is_younger_than_the_document_is_as_by_default():
    assert from_json(Younger, {"asked": 1}) == Younger(asked=1)


def test_what_was_chosen_does_not_change_with_younger_fields():
    training = Training(optimiser=Optimiser(weight_decay=0.1), patience=3)
    assert without_defaults(training) == {"optimiser": {"weight_decay": 0.1}, "patience": 3}
    assert without_defaults(Younger(asked=0, parts=(Younger(asked=2, added=4),))) == {
        "asked": 0,
        "parts": [{"asked": 2, "added": 4}],
    }


@dataclasses.dataclass(frozen=True, kw_only=True)
class Younger:
    asked: int
    added: int = 3
    parts: tuple["Younger", ...] = ()


@pytest.mark.parametrize(
    ("place", "value", "what"),
    [
        (("width", "heads"), "two", r"width\.heads is 'two'.*type int"),
        (("width", "heads"), True, r"width\.heads is True"),
        (("width", "dtype"), "float8", r"width\.dtype is 'float8'.*float32"),
        (("monotonic", "wait_k"), [3], r"monotonic\.wait_k is \[3\].*list of 2"),
        (("predecision", "step_ms"), 99, r"predecision: step_ms is 99"),
        (("width",), 7, r"width is 7.*object"),
    ],
)
def test_a_wrong_value_is_refused_by_place(place, value, what):
    told = held = to_json(presets.tiny())
    for name in place[:-1]:
        held = held[name]
    held[place[-1]] = value
    with pytest.raises(ConfigError, match=what):
        from_json(ModelConfig, told)


def test_a_number_without_a_point_is_a_float():
    told = json.loads(json.dumps(to_json(Optimiser(clip=10.0))).replace("10.0", "10"))
    assert from_json(Optimiser, told) == Optimiser(clip=10.0)


def test_a_broken_file_is_named(tmp_path: Path):
    (tmp_path / "config.json").write_text('{"model": ')
    with pytest.raises(ConfigError, match=r"config\.json is damaged"):
        read_json(tmp_path / "config.json")


def test_what_is_no_number_is_null(tmp_path: Path):
    given = {"AL": math.nan, "of": [1.5, (math.inf, 2)], "n": 3, "aware": {"YAAL": -math.inf}}
    write_json(tmp_path / "scores.json", given)

    def refuse(constant: str):
        pytest.fail(f"{constant} is no JSON")

    read = json.loads((tmp_path / "scores.json").read_text(), parse_constant=refuse)
    assert read == {"AL": None, "of": [1.5, [None, 2]], "n": 3, "aware": {"YAAL": None}}


def test_files_from_before_may_say_nan(tmp_path: Path):
    (tmp_path / "scores.json").write_text('{"YAAL": NaN}')
    assert math.isnan(read_json(tmp_path / "scores.json")["YAAL"])


def test_differences_name_every_leaf():
    old, new = to_json(presets.tiny()), to_json(presets.tiny())
    new["width"]["heads"], new["speech"] = 4, None
    found = differences(old, new)
    assert "width.heads was 2 and is 4" in found
    assert len(found) == 2
    assert differences(old, old) == []
