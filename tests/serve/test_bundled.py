"""Models that come as packages beside the library: found by name, built of two parts, shown."""

import json
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile

import simuljax
from experiments.real_speech.bundle import LARGEST_MB, MODEL, Bundle, bundle, card, without_places
from simuljax.audio import RATE, read_audio
from simuljax.cli import demo, serve, translate
from simuljax.cli.main import main
from simuljax.cli.translate import RunOptions
from simuljax.config.decoding import Decoding
from simuljax.config.model import SpeechConfig
from simuljax.decode.policies import LocalAgreement
from simuljax.errors import SimuljaxError
from simuljax.eval.logs import NAME as LOG
from simuljax.eval.logs import as_records, read_records, write_records
from simuljax.profile.measure import counted_programs
from simuljax.serve import bundled, cascade
from simuljax.serve.bundled import CLIP, BundledError, parts_of, resolve, size_mb, target_language
from simuljax.serve.cascade import Cascade
from simuljax.serve.session import Stream, Word
from simuljax.serve.web.models import Model
from simuljax.serve.web.server import ServeError, ServeOptions, load_models
from simuljax.serve.whisper import WhisperTranslator
from simuljax.train.run import RunError, open_run
from tests.eval.logs import made_up
from tests.helpers.streams import push_all
from tests.models.whisper.small import TOKENS, ggml_bytes, random_tensors, small_config
from tests.serve.whisper.test_translator import SMALL
from tests.written_runs import write_run

here = pytest.mark.skipif(not (MODEL / "translator").exists(), reason="models/en-de is empty")


@pytest.fixture(scope="module")
def models(tmp_path_factory) -> dict[str, Any]:
    """A small Whisper, and a run that translates text."""
    folder = tmp_path_factory.mktemp("models")
    sizes = small_config(positions=1500).dimensions
    (folder / "ggml.bin").write_bytes(ggml_bytes(random_tensors(sizes, seed=5)))
    return {
        "asr": folder / "ggml.bin",
        "mt": write_run(folder / "mt", speech=None),
        "tokens": len(TOKENS),
    }


@pytest.fixture
def beside(models, tmp_path, monkeypatch) -> Path:
    """A repository whose bundled model says something, with a clip of a second."""
    folder = tmp_path / "models"
    (folder / "en-de").mkdir(parents=True)
    for name in ("clip.json", "pyproject.toml", "LICENSE.whisper"):
        shutil.copy(MODEL / name, folder / "en-de")
    sound = np.random.default_rng(0).normal(0, 0.1, RATE)
    soundfile.write(folder / "en-de" / CLIP, sound, RATE)
    bundle(Bundle(**models, to=folder / "en-de"))
    monkeypatch.setattr(bundled, "BESIDE", folder)
    for module in (cascade, translate):  # random numbers write what guards would stop
        monkeypatch.setattr(module, "RECOGNISING", SMALL)
    return folder


def test_a_clone_finds_its_model_and_its_parts_by_name(beside, monkeypatch, tmp_path):
    model = beside / "en-de"
    assert resolve("en-de") == model
    loaded = simuljax.load("en-de")
    assert isinstance(loaded, Cascade) and loaded.name == "en-de"
    assert isinstance(loaded.recogniser, WhisperTranslator)
    assert len(loaded.recogniser.whisper.tokenizer.tokens) == len(TOKENS)
    both = [model / "recogniser", model / "translator"]
    assert parts_of("en-de") == parts_of(model) == both
    assert parts_of(f"{both[0]}+{both[1]}") == both and parts_of(both[1]) == both[1:]
    assert target_language(model) == target_language(both[1]) == "de"
    assert target_language(both[0]) is None
    monkeypatch.chdir(tmp_path)
    (tmp_path / "en-de").mkdir()  # a path that exists is taken as it is
    assert resolve("en-de") == Path("en-de")
    assert resolve("runs/nothing") == Path("runs/nothing")
    for name in ("xx-yy", Path("xx-yy")):
        with pytest.raises(BundledError, match=r"'xx-yy'.*en-de.*simuljax-xx-yy.*make model-wheel"):
            simuljax.load(name)


def test_an_installed_wheel_comes_before_the_clone(beside, tmp_path, monkeypatch):
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(build, cwd=beside / "en-de", check=True, capture_output=True)
    (wheel,) = tmp_path.glob("simuljax_en_de-*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path / "site")
    monkeypatch.syspath_prepend(tmp_path / "site")
    assert resolve("en-de") == tmp_path / "site" / "simuljax_models" / "en-de"
    assert (resolve("en-de") / CLIP).exists() and (resolve("en-de") / "README.md").exists()
    assert simuljax.load("en-de").name == "en-de"


def test_the_bundle_forgets_where_it_was_trained(beside, models):
    text = (beside / "en-de" / "translator" / "config.json").read_text()
    assert str(models["mt"]) not in text and open_run(models["mt"]).model.text is not None
    assert without_places({"a": ["/x/y", "b/c", 3]}) == {"a": ["y", "b/c", 3]}


def test_it_reads_text_as_it_was_bundled_unless_told_otherwise(models, beside):
    to, translator = beside / "en-de", beside / "en-de" / "translator"
    bundle(Bundle(**models, to=to, decoding=("threshold=0.4", "force-finish=true")))
    assert open_run(translator).decoding == Decoding(threshold=0.4, force_finish=True)
    chosen = simuljax.load(to).backend(translating={"threshold": 0.3}).reader.decoder.decoding  # pyright: ignore[reportAttributeAccessIssue]
    assert (chosen.threshold, chosen.force_finish) == (0.3, True)
    with pytest.raises(SimuljaxError, match="thresold"):
        bundle(Bundle(**models, to=to, decoding=("thresold=0.4",)))
    (translator / "decoding.json").write_text('{"threshold": 2}')
    with pytest.raises(RunError, match=r"decoding\.json .*threshold"):
        open_run(translator)


def test_a_bundle_of_one_model_is_refused(models, tmp_path):
    for one in ("asr", "mt"):
        with pytest.raises(SimuljaxError, match="give both"):
            bundle(Bundle(**{one: models[one]}, to=tmp_path))
    speaks = write_run(tmp_path / "speech", text=None, speech=SpeechConfig())
    with pytest.raises(RunError, match="no text branch"):
        bundle(Bundle(**models | {"mt": speaks}, to=tmp_path / "new"))
    assert not (tmp_path / "new").exists()


def test_options_that_are_given_replace_stored_ones():
    stored = Decoding(threshold=0.3, read_ms=480)
    chosen = translate.with_stored(RunOptions(read_ms=280), stored)
    assert chosen == RunOptions(threshold=0.3, read_ms=280)
    usual = RunOptions(given=frozenset({"threshold"}))
    assert translate.with_stored(usual, stored).threshold == Decoding().threshold
    policy = RunOptions(policy=LocalAgreement())
    assert translate.with_stored(policy, stored) == policy


def test_the_card_has_the_scores_of_logs(beside, tmp_path):
    write_records(tmp_path / "a.log", as_records(made_up(0, count=5)))
    to = beside / "en-de"
    for _ in range(2):  # a row of the same name is replaced
        bundle(Bundle(scores=(f"some test={tmp_path / 'a.log'}",), to=to))
    (row,) = json.loads((to / "scores.json").read_text())
    low, high = row["interval"]
    text = (to / "README.md").read_text()
    assert row["n"] == 5 and low <= row["BLEU"] <= high
    assert f"| some test | 5 | {row['BLEU']:.1f} [{low:.1f}, {high:.1f}] | {row['AL']} |" in text
    for fact in ("CC BY 2.0 FR", "MIT", "public domain", "cannot do", "with 266 of its tokens"):
        assert fact in text
    with pytest.raises(SimuljaxError, match="needs a name"):
        bundle(Bundle(scores=("a.log",), to=to))


def test_a_model_that_is_too_large_is_refused(models, beside, monkeypatch):
    size = size_mb(beside / "en-de")
    for largest in (size - 0.01, size_mb(beside / "en-de" / "recogniser")):
        monkeypatch.setattr("experiments.real_speech.bundle.LARGEST_MB", largest)
        with pytest.raises(SimuljaxError, match=r"MB in int7.*--tokens"):
            bundle(Bundle(**models, to=beside / "en-de"))
        assert size_mb(beside / "en-de") == size


@pytest.mark.slow
def test_translate_needs_no_model(beside, models, capsys):
    """Live, with settings for both parts of a cascade, and offline."""
    sound = beside / "en-de" / CLIP
    asr, mt = models["asr"], models["mt"]
    given = ["--window", "0.5", "--from", "en", "--padding", "short", "--then-k", "2"]
    texts = []
    for args in ([sound], ["en-de", sound, "--offline"], [f"{asr}+{mt}", sound, *given]):
        main(["translate", *map(str, args)])
        texts.append(capsys.readouterr().out)
    assert "\n" not in texts
    settings = {"window_s": 0.5, "language": "en", "padding": "short", "translating": {"k": 2}}
    stream = simuljax.load(f"{asr}+{mt}").stream(**settings)
    words = push_all(stream, [read_audio(sound).samples])
    assert texts[2].split() == [word.text for word in words] != []


def test_the_language_of_its_voice_is_known(beside, tmp_path, monkeypatch, capsys):
    seen = []
    monkeypatch.setattr(translate, "run_live", lambda live, *_: seen.append(live))
    main(["translate", str(beside / "en-de" / CLIP), "--speak", str(tmp_path / "a.wav")])
    assert seen[0].to == "de"
    for model in ("en-de", str(beside / "en-de" / "translator")):
        given = [model, str(beside / "en-de" / CLIP)]
        main(["translate", *given, "--to", "German"])
        assert seen[-1].to == "de"
        with pytest.raises(SystemExit, match="2"):
            main(["translate", *given, "--to", "fr"])
        assert "--to fr: the model writes de" in capsys.readouterr().err


def test_serve_needs_no_model(beside, monkeypatch):
    """And has the clip of its model."""
    monkeypatch.setattr(serve, "check_options", lambda models, _: None)
    monkeypatch.setattr(serve, "run", lambda models, _: models)
    assert serve.serve_command()() == (beside / "en-de",)
    monkeypatch.setattr(Model, "warm_up", lambda _: None)  # compiles for long
    assert (
        load_models([beside / "en-de"], ServeOptions(streams=1))["en-de"].clip
        == beside / "en-de" / CLIP
    )


def test_serve_without_any_model_says_what_to_do(tmp_path, monkeypatch):
    monkeypatch.setattr(bundled, "BESIDE", tmp_path)
    with pytest.raises(ServeError, match=r"no model is given.*`simuljax serve "):
        serve.serve_command()


def test_the_live_demo(beside, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("simuljax.demo.live.has_loudspeaker", lambda: False)
    demo.live_command(tmp_path / "out")()
    said = capsys.readouterr().out
    (record,) = read_records(tmp_path / "out" / LOG)
    assert record.prediction and record.prediction in said
    for fact in ("Kennedy", "simuljax serve", "--mic", "demo-train", "german.wav"):
        assert fact in said
    page = (tmp_path / "out" / "index.html").read_text()
    for fact in ("ask not what your country", "Fragt nicht", record.prediction.split()[0], "<svg"):
        assert fact in page
    assert page.count("data:audio/flac") == 2 and page.count("<svg") == 1
    ready = (tmp_path / "out" / "instances.speech.jsonl").read_text().splitlines()
    times = {round(1000 * json.loads(line)["ready_s"]) for line in ready}
    assert times <= {round(time) for time in record.elapsed}, "the clock's"
    spoken, _ = soundfile.read(tmp_path / "out" / "german.wav")
    assert np.abs(spoken).max() > 0.01
    assert "-->" in (tmp_path / "out" / "german.srt").read_text()


def test_nothing_is_compiled_after_the_first_sound(beside, tmp_path, monkeypatch):
    """As for a microphone; twelve seconds need longer windows and texts than the first words."""
    push, before = Stream.push, []
    sound = np.random.default_rng(1).normal(0, 3000, 12 * RATE).astype("<i2")
    (tmp_path / "pcm").write_bytes(sound.tobytes())
    with (tmp_path / "pcm").open() as pipe, counted_programs() as programs:

        def noted(stream: Stream, samples: Any) -> list[Word]:
            before.append(len(programs))
            return push(stream, samples)

        monkeypatch.setattr(Stream, "push", noted)
        monkeypatch.setattr("sys.stdin", pipe)
        main(["translate", "-", "--log", str(tmp_path / "log")])
    (record,) = read_records(tmp_path / "log")
    assert record.prediction and record.source_length == 12_000
    assert 0 < before[0] == len(programs)


@here
def test_the_bundled_model_is_small_and_its_card_is_up_to_date():
    assert size_mb(MODEL) <= LARGEST_MB
    assert (MODEL / "README.md").read_text("utf-8") == card(MODEL)
    assert '"/' not in (MODEL / "translator" / "config.json").read_text()


@here
@pytest.mark.slow
def test_the_bundled_model_translates_the_clip():
    translator = simuljax.load("en-de")
    (words,) = translator.stream_all([MODEL / CLIP])
    text = " ".join(word.text for word in words).lower()
    assert len(words) >= 5 and words[0].delay_ms < 11_000
    assert {"land", "nicht", "was", "sie", "ihr", "und", "für"} & {*text.split()}, text
