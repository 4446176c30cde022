"""Experiments from files and through JSON: nothing is read half, errors name file and line."""

import dataclasses
import json
import math
import sys
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest

from simuljax.audio.filterbank import FIXED
from simuljax.config.experiment import DataConfig, Experiment, InitFrom, read_experiment
from simuljax.config.fields import (
    ConfigError,
    differences,
    from_json,
    read_json,
    to_json,
    without_defaults,
    write_json,
)
from simuljax.config.loading import load_module, load_object, reference_to
from simuljax.config.model import ModelConfig, Monotonic, PreDecision, SpeechConfig, Width
from simuljax.config.training import Objective, Optimiser, Training
from simuljax.losses import JointObjective
from simuljax.models import presets


def test_a_run_of_an_earlier_version_still_opens(tmp_path: Path):
    joint = JointObjective(distillation=0.1, latency=0.2, decision_teacher="stop")
    terms = joint.terms(distil_after=7, latency_after=9)
    now = Experiment(
        run=tmp_path,
        data=DataConfig(directory=Path("corpus"), task="transcription"),
        model=presets.tiny(),
        training=Training(parallelism="shard_map", objective=Objective(terms=terms)),
        init_from=(InitFrom(run=Path("donor")),),
    )
    stored = to_json(now)
    stored["corpus"], stored["begin"] = stored.pop("data"), stored.pop("init_from")
    stored["corpus"]["features"]["filterbank"] |= FIXED
    stored["training"]["objective"]["features"] = stored["corpus"]["features"]
    stored["training"]["way"] = stored["training"].pop("parallelism")
    stored["model"]["monotonic"]["policy"] = "learnt"
    del stored["training"]["objective"]["terms"]
    stored["training"]["objective"]["joint"] = {"distillation": 0.1, "latency": 0.2}
    stored["training"] |= {"distil_after": 7, "latency_after": 9}
    stored["software"] = {"simuljax": "0.1"}
    (tmp_path / "config.json").write_text(json.dumps(stored))
    assert read_experiment(tmp_path) == now


def test_a_stored_field_that_does_not_exist_is_refused(tmp_path: Path):
    stored = {"data": {"directory": "x"}, "model": {}, "trainning": {}}
    (tmp_path / "config.json").write_text(json.dumps(stored))
    with pytest.raises(ConfigError, match=r"config\.json.*trainning.*'training'"):
        read_experiment(tmp_path)


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


def test_a_document_without_younger_fields():
    """They are as by default, and what was chosen stays the same; other fields must be there."""
    assert from_json(Younger, {"asked": 1}) == Younger(asked=1)
    with pytest.raises(ConfigError, match="lacks asked"):
        from_json(Younger, {"added": 4})
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


def test_a_seed_is_one_that_the_generators_take():
    with pytest.raises(ConfigError, match=r"Training\.seed is 2147483648.*at most 2147483647"):
        Training(seed=2**31)
    greatest = Training(seed=2**31 - 1).seed
    assert jnp.asarray([greatest], jnp.int32)[0] == greatest  # as `simuljax.train.loop` has it


@pytest.mark.parametrize(
    ("place", "value", "what"),
    [
        (("width", "dropuot"), 0.1, r"width\.dropuot.*'dropout'"),
        (("width", "heads"), "two", r"width\.heads is 'two'"),
        (("width", "heads"), True, r"width\.heads is True"),
        (("width", "dropout"), 0.999, r"Width\.dropout is 0\.999.*at most 0\.99"),
        (("width", "dtype"), "float8", r"width\.dtype is 'float8'.*float32"),
        (("monotonic", "wait_k"), [3], r"monotonic\.wait_k is \[3\].*tuple of 2"),
        (("predecision", "step_ms"), 99, r"predecision: step_ms is 99"),
        (("width",), 7, r"width is 7.*Width"),
    ],
)
def test_a_wrong_value_is_refused_by_place(place, value, what):
    told = held = to_json(presets.tiny())
    for name in place[:-1]:
        held = held[name]
    held[place[-1]] = value
    with pytest.raises(ConfigError, match=what):
        from_json(ModelConfig, told)


WAIT_K = Monotonic(policy="wait_k")
STREAMING = SpeechConfig(kind="streaming", layers=1, shared=0)
COSINE = {"schedule": "cosine", "warmup": 10}


@pytest.mark.parametrize(
    ("kind", "given", "what"),
    [
        (Width, {"model": 7, "heads": 1}, r"Width\.model is 7.*even"),
        (ModelConfig, {"width": Width(model=6, heads=2), "speech": STREAMING}, "3 dimensions"),
        (
            ModelConfig,
            {"predecision": PreDecision(kind="learnable"), "monotonic": WAIT_K},
            "wait_k",
        ),
        (SpeechConfig, {"kind": "conformer", "distance_penalty": True}, "no effect on conformer"),
        (Optimiser, COSINE | {"decay_updates": 10}, "decay_updates is 10 and warmup 10"),
        (Optimiser, COSINE | {"final": 0.1}, r"final is 0\.1.*learning_rate, 0\.002"),
        (Optimiser, {"method": "sgd", "weight_decay": 0.1}, r"weight_decay is 0\.1.*sgd"),
    ],
)
def test_settings_that_contradict_each_other_are_refused(kind, given, what):
    with pytest.raises(ConfigError, match=what):
        kind(**given)


@pytest.mark.parametrize("warmup", [0, 4])
def test_the_cosine_reaches_its_last_rate_at_its_last_update(warmup):
    given = {"learning_rate": 1.0, "decay_updates": 10, "final": 0.5}
    schedule = Optimiser(**COSINE | given | {"warmup": warmup}).rate()
    peak, before, end = (np.asarray(schedule(step)).item() for step in (warmup, 9, 10))
    assert peak == 1 and before > 0.51 and end == pytest.approx(0.5)


def test_a_number_without_a_point_is_a_float():
    read = from_json(Optimiser, {"clip": 10})
    assert read == Optimiser(clip=10.0) and type(read.clip) is float


def test_what_is_no_number_is_null(tmp_path: Path):
    given = {"AL": math.nan, "of": [1.5, (math.inf, 2)], "n": 3, "aware": {"YAAL": -math.inf}}
    write_json(tmp_path / "scores.json", given)

    def refuse(constant: str):
        pytest.fail(f"{constant} is no JSON")

    read = json.loads((tmp_path / "scores.json").read_text(), parse_constant=refuse)
    assert read == {"AL": None, "of": [1.5, [None, 2]], "n": 3, "aware": {"YAAL": None}}
    (tmp_path / "scores.json").write_text('{"YAAL": NaN}')  # as earlier versions wrote it
    assert math.isnan(read_json(tmp_path / "scores.json")["YAAL"])
    (tmp_path / "scores.json").write_text('{"YAAL": ')
    with pytest.raises(ConfigError, match=r"scores\.json is damaged"):
        read_json(tmp_path / "scores.json")


def test_differences_name_every_leaf():
    old, new = to_json(presets.tiny()), to_json(presets.tiny())
    new["width"]["heads"], new["speech"] = 4, None
    found = differences(old, new)
    assert "width.heads was 2 and is 4" in found
    assert len(found) == 2
    assert differences(old, old) == []


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


@pytest.fixture
def package(tmp_path, monkeypatch):
    """A file two packages deep that imports its neighbour by its full and its relative name."""
    (tmp_path / "away").mkdir()
    for folder in ("grids_of_mine", "grids_of_mine/inner"):
        write(tmp_path / folder / "__init__.py", "")
    write(tmp_path / "grids_of_mine/inner/recipe.py", "SIZE = 3\n")
    text = "from grids_of_mine.inner.recipe import SIZE\nfrom .recipe import SIZE as ALSO\n"
    monkeypatch.chdir(tmp_path / "away")
    yield write(tmp_path / "grids_of_mine/inner/grid.py", text)
    for name in [name for name in sys.modules if name.startswith("grids_of_mine")]:
        del sys.modules[name]


def test_a_file_inside_packages_loads_from_any_folder(package):
    before = list(sys.path)
    module = load_module(package)
    assert (module.SIZE, module.ALSO) == (3, 3)
    assert sys.path == before


def test_a_file_outside_packages_imports_its_neighbours(tmp_path):
    write(tmp_path / "neighbour_of_mine.py", "SIZE = 4\n")
    file = write(tmp_path / "alone.py", "from neighbour_of_mine import SIZE\n")
    assert load_module(file).SIZE == 4


@pytest.mark.parametrize(
    ("text", "line", "what"),
    [
        ("x = 1\ny = (\n", 2, ""),
        ("x = 1\n\nraise KeyError('z')\n", 3, "KeyError"),
        ("import no_such_module_here\n", 1, "no_such_module_here"),
        ("x = 1\nint('three')\n", 2, "three"),
    ],
)
def test_an_error_names_file_and_line(tmp_path, text, line, what):
    file = write(tmp_path / "broken.py", text)
    with pytest.raises(ConfigError) as refused:
        load_module(file)
    assert f"broken.py, line {line}" in str(refused.value)
    assert what in str(refused.value)


def test_a_wrong_setting_names_its_line_and_field(tmp_path):
    declared = (
        "from dataclasses import dataclass\nfrom simuljax.config.fields import check, setting\n"
        "@dataclass\nclass A:\n    x: int = setting(1, help='', low=1)\n"
        "    def __post_init__(self):\n        check(self)\n"
    )
    write(tmp_path / "declared_here.py", declared)
    text = "from declared_here import A\nA(x=0)\n"
    with pytest.raises(ConfigError, match=r"mine\.py, line 2.*A\.x is 0; it must be at least 1"):
        load_module(write(tmp_path / "mine.py", text))


def test_an_object_is_found_by_its_reference(tmp_path):
    file = write(tmp_path / "mine.py", "class Patient:\n    pass\n")
    found = load_object(f"{file}:Patient")
    assert found.__name__ == "Patient"
    again = load_object(reference_to(found))
    assert again.__qualname__ == "Patient"
    with pytest.raises(ConfigError, match="Patient"):
        load_object(f"{file}:Patinet")


def test_a_missing_or_binary_file_is_refused(tmp_path):
    with pytest.raises(ConfigError, match=r"none\.py"):
        load_module(tmp_path / "none.py")
    binary = tmp_path / "binary.py"
    binary.write_bytes(b"a\0b")
    with pytest.raises(ConfigError, match=r"binary\.py"):
        load_module(binary)
