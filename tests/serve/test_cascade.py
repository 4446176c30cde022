"""Two models in a row: what the second writes, and when, follows from what the first commits."""

import dataclasses
import time
import zlib
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import jax.numpy as jnp
import numpy as np
import pytest

import simuljax
from simuljax.audio import RATE
from simuljax.config.decoding import Decoding
from simuljax.config.model import Monotonic
from simuljax.decode.policies import AlignAtt, Greedy, WaitK
from simuljax.models.whisper import Whisper
from simuljax.serve.cascade import (
    LONGEST,
    Cascade,
    TextReader,
    check_agreement,
    check_recogniser,
    check_translator,
    ends_text,
    text_settings,
    texts_of,
)
from simuljax.serve.run_translator import RunTranslator
from simuljax.serve.session import Word
from simuljax.serve.web.server import ServeError, ServeOptions, check_options
from simuljax.serve.whisper import Window
from simuljax.serve.whisper.hypothesis import Hypothesis
from simuljax.text import EOS, VocabularyConfig, learn
from simuljax.train.run import Run, RunError, load_checkpoint, open_run
from tests.helpers.streams import push_all, timed
from tests.models.whisper.small import (
    TOKENIZER,
    ggml_bytes,
    random_tensors,
    small_config,
    small_model,
)
from tests.serve.web.servers import SPEECH, running, speak, words_of
from tests.serve.whisper.made import OPEN, Fake, hypothesis
from tests.serve.whisper.test_policies import noise
from tests.serve.whisper.test_translator import SMALL
from tests.written_runs import PIECES, WORDS, write_run

compiles = pytest.mark.slow

READ = 120 * 16  # samples
LOUDNESS = np.repeat(np.random.default_rng(1).uniform(300, 9000, 40), 800)
SOUND = (np.random.default_rng(1).normal(size=32_000) * LOUDNESS).clip(-32768, 32767)
SOUND = SOUND.astype(np.int16)
END_MS = 2000.0


@pytest.fixture(scope="module")
def runs(tmp_path_factory) -> dict[str, Path]:
    place = tmp_path_factory.mktemp("runs")
    asr = write_run(place / "asr", task="transcription", seed=6, speech=SPEECH)
    return {"recogniser": asr, "translator": write_run(place / "mt", seed=2, speech=None)}


@pytest.fixture(scope="module")
def both(runs) -> Cascade:
    return cast("Cascade", simuljax.load(f"{runs['recogniser']}+{runs['translator']}"))


def streamed(stream: Any, size: int = READ, samples: np.ndarray = SOUND) -> list[Word]:
    return push_all(stream, (samples[k : k + size] for k in range(0, len(samples), size)))


@pytest.fixture(scope="module")
def transcript(both) -> list[Word]:
    return streamed(both.recogniser.stream())


@compiles
def test_it_is_the_text_model_on_what_was_recognised(both, transcript):
    """However the sound is cut, a word comes with the push of the word that allowed it."""
    reader = TextReader(both.translator).stream()
    by_hand = [(w.text, one.delay_ms) for one in transcript for w in reader.push(one.text)]
    by_hand += [(w.text, END_MS) for w in reader.finish()]
    stream = both.stream()
    words = streamed(stream)
    assert timed(words) == by_hand
    assert list(stream.session.recognised) == timed(transcript)
    assert len(transcript) > 10 and len({word.text for word in transcript}) > 3
    assert sum(word.delay_ms < END_MS for word in words) > 4, "all at the end: this shows little"
    assert both.stream().finish() == [], "of nothing there is no translation"
    assert both.stream().session.reader is stream.session.reader  # compiled once
    ends = np.minimum(np.arange(1, 8) * 300.0, END_MS)  # of pushes
    coarse = [(word.text, ends[ends >= word.delay_ms].min()) for word in words]
    assert timed(streamed(both.stream(), 5 * READ // 2)) == coarse


@compiles
def test_the_clock_counts_both(both, monkeypatch):
    """A translator that takes 20 ms for every READ."""
    read, stream = TextReader.read, both.stream()
    slow = lambda *given, **how: (time.sleep(0.02), read(*given, **how))[1]  # noqa: E731
    monkeypatch.setattr(TextReader, "read", slow)
    spent = [word.elapsed_ms - word.delay_ms for word in streamed(stream)]
    assert all(np.diff(spent) >= 0) and spent[0] > 20
    assert 20 * len(stream.session.recognised) < spent[-1] <= stream.computed_ms


@compiles
def test_where_the_transcript_ends_the_text_ends(both, transcript):
    """A recogniser that writes end-of-sentence in place of its fourth word."""
    last = transcript[3]
    piece = PIECES.encode(last.text)
    assert last.text not in [word.text for word in transcript[:3]] and len(piece) == 1
    params = both.recogniser.variables["params"]
    kernel = params["decoder"]["output"]["kernel"]
    swapped = kernel.at[:, jnp.array([EOS, piece[0]])].set(kernel[:, jnp.array([piece[0], EOS])])
    decoder = params["decoder"] | {"output": {"kernel": swapped}}
    hasty = RunTranslator(both.recogniser.run, load_checkpoint(both.recogniser.run))
    hasty.variables = both.recogniser.variables | {"params": params | {"decoder": decoder}}
    stream: Any = Cascade(hasty, both.translator).stream()
    words = streamed(stream)
    assert list(stream.session.recognised) == timed(transcript[:3])
    reader = TextReader(both.translator).stream()
    by_hand = [(w.text, one.delay_ms) for one in transcript[:3] for w in reader.push(one.text)]
    ended = last.delay_ms - 120.0  # the piece is written a READ before the word is complete
    assert timed(words) == by_hand + [(w.text, ended) for w in reader.finish()]


@compiles
def test_a_whole_recording_is_translated_at_once_and_whispers_by_sentences(
    both, saying, monkeypatch
):
    text = ' abc bcd. "cab dab!" bad'
    for model, parts in ((both, [text]), (saying, ["abc bcd.", '"cab dab!"', "bad"])):
        monkeypatch.setattr(type(model.recogniser), "translate", lambda *_, **how: text)
        alone = [RunTranslator.translate_text(both.translator, part) for part in parts]
        assert model.translate(TALK) == " ".join(alone) and all(alone)


@compiles
def test_a_text_ends_with_every_sentence(both):
    """Speech, a pause and speech: each segment is translated as if it were alone."""
    loudness = np.repeat([20, 300, 20], [6400, 9600, 12_800])
    draws = (np.random.default_rng(seed).normal(size=len(loudness)) for seed in (1, 2))
    parts = [(draw * loudness).astype(np.int16) for draw in draws]
    alone = [[w.text for w in streamed(both.stream(sentences="pauses"), samples=p)] for p in parts]
    whole = streamed(both.stream(sentences="pauses"), samples=np.concatenate(parts))
    assert [word.text for word in whole] == alone[0] + alone[1] and all(alone)


def test_it_is_a_model_by_its_name(both, runs):
    name = Path(f"{runs['recogniser']}+{runs['translator']}")
    assert simuljax.load(name).name == both.name == "asr+mt"
    check_options([name], ServeOptions())
    with pytest.raises(ServeError, match=r"there is no model .*nothing"):
        check_options([Path(f"{name}/nothing")], ServeOptions())


@compiles
@pytest.mark.parametrize("kind", ["both", "saying"])
def test_many_streams_at_once_and_by_sockets(request, kind):
    """Every stream has the words it has alone."""
    cascaded, whole = request.getfixturevalue(kind), SOUND if kind == "both" else TALK
    how = {"sentences": "pauses"} if kind == "both" else {}
    sounds = [whole, whole[4000:], whole[8000:]]
    alone = [[w.text for w in streamed(cascaded.stream(**how), samples=s)] for s in sounds]
    found = cascaded.stream_all(sounds, streams=4, **how)
    assert [[word.text for word in words] for words in found] == alone and all(alone)
    if kind == "both":
        with running(cascaded, streams=4) as live, live.socket() as socket:
            words = words_of(speak(socket, np.array_split(whole, 9)))
        assert [text for text, _ in words] == alone[0]


def test_runs_in_the_wrong_place_are_refused(runs):
    asr, mt = (open_run(runs[name]) for name in ("recogniser", "translator"))
    config = dataclasses.replace(asr.config, data=mt.config.data)
    for check, run, fact in (
        (check_recogniser, mt, "mt has no speech branch"),
        (check_recogniser, dataclasses.replace(asr, config=config), "was trained to translate"),
        (check_translator, asr, "asr was trained to transcribe: it translates nothing"),
    ):
        with pytest.raises(RunError, match=fact):
            check(run)
    with pytest.raises(RunError, match="asr was trained to transcribe"):
        simuljax.load(f"{runs['recogniser']}+{runs['recogniser']}")


def with_target(run: Run, text: str, **config: Any) -> Run:
    target = learn([text], VocabularyConfig(kind="characters", size=40, **config))
    return dataclasses.replace(run, target=target)


def test_what_is_written_must_be_what_is_read(runs):
    recogniser, translator = open_run(runs["recogniser"]), open_run(runs["translator"])
    letters = " ".join(WORDS)
    with pytest.raises(RunError, match=r"asr writes in lower case, and .*mt was trained"):
        check_agreement(with_target(recogniser, letters, lowercase=True), translator)
    with pytest.warns(UserWarning, match=r"asr can write 3 characters that .*never read.*: !,x"):
        check_agreement(with_target(recogniser, f"{letters}, x!"), translator)
    check_agreement(recogniser, translator)  # in silence: a warning is an error here
    both_low = dataclasses.replace(
        translator, source=learn([letters], VocabularyConfig(kind="characters", lowercase=True))
    )
    check_agreement(with_target(recogniser, letters.upper()), both_low)


GIVEN = {"read_ms": 700, "policy": Greedy(), "language": "de", "padding": "short"}
SAYS = [*WORDS[:7], f"{WORDS[7]}.", f"{WORDS[8]}?", f'{WORDS[9]}!"']
TALK = noise(9.2, -20, seed=2)


class Saying(Fake):
    """Writes what a hash of the window says, three sentences in ten words."""

    def written(self, window: Window) -> Hypothesis:
        digits, count = str(zlib.crc32(window.samples.tobytes()))[-3:], len(window.samples)
        text = " ".join(SAYS[int(digit)] for digit in digits)
        return hypothesis(text, seconds=count / RATE, states=count // 320)


@pytest.fixture(scope="module")
def small() -> Whisper:
    return Whisper(model=small_model(positions=1500, seed=5, layers=1), tokenizer=TOKENIZER)


@pytest.fixture(scope="module")
def saying(small, both) -> Cascade:
    """Whisper, as far as its sessions go, before the same translator."""
    return Cascade(Saying(small, SMALL), both.translator)


def translated(both: Cascade, transcript: list[Word], end_ms: float) -> list[tuple[str, float]]:
    """Translate sentence by sentence, by hand."""
    found, reader = [], TextReader(both.translator)
    text = None
    for word in transcript:
        text = text or reader.stream()
        found += [(w.text, word.delay_ms) for w in text.push(word.text)]
        if word.text.strip('"')[-1] in ".?!":
            found += [(w.text, word.delay_ms) for w in text.finish()]
            text = None
    return found + [(w.text, end_ms) for w in (text.finish() if text else [])]


@compiles
def test_whispers_texts_end_with_marks_and_with_the_stream(saying):
    transcript = streamed(saying.recogniser.stream(), RATE, TALK)
    ends = [word.text.strip('"')[-1] in ".?!" for word in transcript]
    assert sum(ends) > 3 and not ends[-1], "this shows little"
    stream = saying.stream()
    words = streamed(stream, RATE, TALK)
    assert timed(words) == translated(saying, transcript, 9200.0)
    assert list(stream.session.recognised) == timed(transcript)
    assert stream.session.finished and stream.pending == ""
    assert sum(word.delay_ms < 9200 for word in words) > 9


@compiles
def test_a_mark_that_comes_late_belongs_to_the_word_before_it(saying):
    """And ends no text after an abbreviation."""
    reader = TextReader(saying.translator)
    at_once, late = reader.stream(), reader.stream()
    at_once.push(f"{SAYS[0]} end.")
    late.push(f"{SAYS[0]} end")
    late.append_mark(".")
    assert late.pieces == at_once.pieces and late.pushed == at_once.pushed
    session = saying.backend().open()
    session.recogniser = SimpleNamespace(commit=list, delay_ms=0.0, sentence_over=False)
    for words in (["Mr"], ["."], [SAYS[0]]):
        session.commit(words)
    assert session.text is not None and session.text.pushed == 2
    session.commit(["."])
    assert session.text is None


@compiles
def test_a_text_ends_after_silence_of_which_nothing_is_written(saying):
    """The last words were recognised before the silence, and only its end shows that."""
    guards = dataclasses.replace(OPEN, quiet_db=-60.0)
    samples = np.concatenate([TALK[: 9 * RATE], np.zeros(27 * RATE // 10, np.int16)])
    transcript = streamed(saying.recogniser.stream(guards=guards), RATE, samples)
    assert transcript[-1].delay_ms == 9000.0 and not ends_text(transcript[-1].text, 1)
    stream = saying.stream(guards=guards)
    words = streamed(stream, RATE, samples)
    assert timed(words) == translated(saying, transcript, 11_700.0)
    assert words[-1].delay_ms == 11_700.0 and stream.session.finished
    engine = saying.engine(streams=1, guards=guards)
    with engine:
        one = engine.open()
        for start in range(0, len(samples), RATE):
            one.push(samples[start : start + RATE], timeout=60)
        one.finish()
        assert [word.text for word in one] == [word.text for word in words]
    assert len(engine.free) == 1
    left = saying.stream()
    left.push(TALK[: 2 * RATE])
    left.session.finished = True  # as when a speaker leaves
    assert not left.session.ready and left.session.next() is None


@compiles
def test_a_model_of_whisper_by_name(runs, tmp_path):
    """A file of weights, with the settings of a recogniser and those that are given."""
    weights = tmp_path / "small.bin"
    weights.write_bytes(ggml_bytes(random_tensors(small_config(positions=1500).dimensions)))
    named = simuljax.load(f"{weights}+{runs['translator']}")
    assert isinstance(named, Cascade) and named.name.endswith("+mt")
    assert named.live_settings == {"behind": "latest"} and named.languages == ()
    usual, other = (
        cast("Any", named.stream(**settings).session).settings for settings in ({}, GIVEN)
    )
    assert usual.task == "transcribe" and isinstance(usual.policy, AlignAtt)
    assert (other.window_s, other.policy, other.language) == (0.7, Greedy(), "de")
    assert (other.padding, other.task) == ("short", "transcribe")


def test_where_a_sentence_ends():
    assert all(ends_text(word, 1) for word in ("so.", "so?", 'so!"', "so.”", "so.)"))
    assert not any(ends_text(word, 1) for word in ("so", "so,", "3.5", ".com", "so:"))
    assert texts_of(" ") == [] and texts_of("ab bc. c") == ["ab bc.", "c"]
    assert texts_of("Mr. J. F. Dulles left. Why?") == ["Mr. J. F. Dulles left.", "Why?"]
    assert [len(text.split()) for text in texts_of("a " * (LONGEST + 2))] == [LONGEST, 2]


@compiles
def test_whisper_writes_capitals(saying, tmp_path):
    """A translator that reads lower case reads them as such; nobody is warned."""
    low = learn(WORDS * 3, VocabularyConfig(kind="bpe", size=80, lowercase=True))
    translator = simuljax.load(write_run(tmp_path / "low", source=low, speech=None))
    reader = TextReader(translator)
    high, plain = reader.stream(), reader.stream()
    assert high.push("ABC Bcd") == plain.push("abc bcd") and high.finish() == plain.finish() != []
    Cascade(saying.recogniser, translator)


def test_a_translator_that_was_trained_offline_waits_for_k_words(runs):
    trained = open_run(runs["translator"])
    model = dataclasses.replace(trained.model, monotonic=Monotonic(policy="offline"))
    config = dataclasses.replace(trained.config, model=model)
    opened = dataclasses.replace(trained, config=config)
    waits = text_settings({"k": 2}, opened).decoding
    assert (waits.policy, waits.k) == (WaitK(k=2, convention="stacl"), None)
    assert text_settings({}, opened).decoding == Decoding()
    assert text_settings({"k": 2}, trained).decoding == Decoding(k=2)
    heard = dataclasses.replace(open_run(runs["recogniser"]), decoding=Decoding(k=4))
    assert text_settings({}, heard).decoding == Decoding()  # of speech, which it has too
