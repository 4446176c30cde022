"""Two models in a row: what the second writes, and when, follows from what the first commits."""

import dataclasses
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import simuljax
from simuljax.config.decoding import LengthLimit
from simuljax.serve import cascade
from simuljax.serve.cascade import Cascade, TextReader, check_agreement
from simuljax.serve.run import Run, RunError, load_checkpoint, open_run
from simuljax.serve.run_translator import RunTranslator
from simuljax.serve.stream import Word
from simuljax.serve.web.server import ServeError, ServeOptions, check_options
from simuljax.serve.web.sessions import Limits
from simuljax.text import EOS, VocabularyConfig, learn
from tests.serve.web.servers import running, speak, words_of
from tests.written_runs import PIECES, WORDS, write_run

pytestmark = pytest.mark.slow  # compiles much

READ = 120 * 16  # samples
FEW = {"limit": LengthLimit(ratio=0.3, constant=2)}
SOUND = (np.random.default_rng(0).normal(size=25_600) * 3000).astype(np.int16)
HOW: dict[str, Any] = {"recognising": FEW, "translating": {"k": 2, "limit": LengthLimit(ratio=1.0)}}


@pytest.fixture(scope="module")
def runs(tmp_path_factory) -> dict[str, Path]:
    place = tmp_path_factory.mktemp("runs")
    return {
        "recogniser": write_run(place / "asr", task="transcription", seed=6),
        "translator": write_run(place / "mt", seed=2),
    }


@pytest.fixture(scope="module")
def both(runs) -> Cascade:
    return cascade.load(runs["recogniser"], runs["translator"])


def streamed(stream: Any, size: int = READ, sound: np.ndarray = SOUND) -> list[Word]:
    words = []
    for first in range(0, len(sound), size):
        words += stream.push(sound[first : first + size])
    return words + stream.finish()


def plain(words: list[Word]) -> list[tuple[str, float]]:
    return [(word.text, word.delay_ms) for word in words]


@pytest.fixture(scope="module")
def transcript(both) -> list[Word]:
    """The transcript."""
    return streamed(both.recogniser.stream(**FEW))


def test_it_is_the_text_model_on_what_was_recognised(both, transcript):
    reader = TextReader(both.translator, **HOW["translating"]).stream()
    by_hand = [(w.text, one.delay_ms) for one in transcript for w in reader.push(one.text)]
    by_hand += [(w.text, 1600.0) for w in reader.finish()]
    stream = both.stream(**HOW)
    words = streamed(stream)
    assert plain(words) == by_hand
    assert list(stream.session.recognised) == plain(transcript)
    assert len(transcript) > 10 and len({word.text for word in transcript}) > 3
    assert sum(word.delay_ms < 1600 for word in words) > 4, "all at the end: this shows little"
    assert both.stream(**HOW).session.reader is stream.session.reader  # compiled once


def test_a_delay_is_that_of_a_word_that_was_recognised(both, transcript):
    """Of the sound as it was pushed, however that was cut; nothing waits for more than it needs."""
    words = streamed(both.stream(**HOW))
    delays = [word.delay_ms for word in words]
    assert delays == sorted(delays)
    assert set(delays) <= {word.delay_ms for word in transcript} | {1600.0}
    coarse = streamed(both.stream(**HOW), 5 * READ // 2)
    assert [word.text for word in coarse] == [word.text for word in words]
    for word, same in zip(words, coarse, strict=True):
        ends = np.minimum(np.arange(1, 7) * 300.0, 1600.0)  # of pushes
        assert same.delay_ms == ends[ends >= word.delay_ms].min()


def test_the_clock_counts_both(both):
    stream = both.stream(**HOW)
    words = streamed(stream)
    spent = [word.elapsed_ms - word.delay_ms for word in words]
    assert all(np.diff(spent) >= 0) and spent[0] > 0
    alone = both.recogniser.stream(**FEW)
    streamed(alone)
    assert stream.computed_ms > alone.computed_ms > 0
    assert spent[-1] <= stream.computed_ms


def test_the_end(both):
    stream = both.stream(**HOW)
    assert stream.finish() == [], "of nothing there is no translation"
    stream = both.stream(**HOW)
    stream.push(SOUND)
    stream.finish()
    assert stream.finish() == []
    with pytest.raises(ValueError, match="has been finished"):
        stream.push(SOUND)


def test_where_the_transcript_ends_the_text_ends(both, transcript):
    """A recogniser that writes end-of-sentence in place of its last word but some."""
    last = transcript[6]
    piece = PIECES.encode(last.text)
    assert last.text not in [word.text for word in transcript[:6]] and len(piece) == 1
    params = both.recogniser.variables["params"]
    kernel = params["decoder"]["output"]["kernel"]
    swapped = kernel.at[:, jnp.array([EOS, piece[0]])].set(kernel[:, jnp.array([piece[0], EOS])])
    decoder = params["decoder"] | {"output": {"kernel": swapped}}
    hasty = RunTranslator(both.recogniser.run, load_checkpoint(both.recogniser.run))
    hasty.variables = both.recogniser.variables | {"params": params | {"decoder": decoder}}
    stream = Cascade(hasty, both.translator).stream(**HOW)
    words = streamed(stream)
    assert list(stream.session.recognised) == plain(transcript[:6])
    reader = TextReader(both.translator, **HOW["translating"]).stream()
    by_hand = [(w.text, one.delay_ms) for one in transcript[:6] for w in reader.push(one.text)]
    ended = last.delay_ms - 120.0  # the piece is written a READ before the word is complete
    assert plain(words) == by_hand + [(w.text, ended) for w in reader.finish()]


def test_whole_recordings(both):
    transcript = both.recogniser.translate(SOUND)
    assert both.translate(SOUND) == both.translator.translate_text(transcript) != ""


def test_a_text_ends_with_every_sentence(both):
    """Speech, a pause and speech: each segment is translated as if it were alone."""
    loudness = np.repeat([20, 300, 20], [6400, 9600, 12_800])
    draws = (np.random.default_rng(seed).normal(size=len(loudness)) for seed in (1, 2))
    parts = [(draw * loudness).astype(np.int16) for draw in draws]
    alone = [[w.text for w in streamed(both.stream(sentences="pauses"), sound=p)] for p in parts]
    whole = streamed(both.stream(sentences="pauses"), sound=np.concatenate(parts))
    assert [word.text for word in whole] == alone[0] + alone[1] and all(alone)


def test_many_streams_at_once(both, runs):
    """In an engine, by the name that commands take, every stream has the words it has alone."""
    named = simuljax.load(f"{runs['recogniser']}+{runs['translator']}")
    assert named.name == "asr+mt" and isinstance(named, Cascade)
    sounds = [SOUND, SOUND[4000:], SOUND[8000:]]
    alone = [[w.text for w in streamed(both.stream(sentences="pauses"), sound=s)] for s in sounds]
    found = named.stream_all(sounds, streams=2, sentences="pauses")
    assert [[word.text for word in words] for words in found] == alone and all(alone)


def test_it_is_served(both, runs):
    """By the name that the command takes; a socket has the words of a stream."""
    name = Path(f"{runs['recogniser']}+{runs['translator']}")
    options = ServeOptions(streams=1, limits=Limits(load=1e9))
    check_options([name], options)
    with pytest.raises(ServeError, match=r"there is no model .*nothing"):
        check_options([Path(f"{name}/nothing")], options)
    with running(both, streams=2) as live, live.socket() as socket:
        pieces = np.array_split(SOUND, 9)
        words = words_of(speak(socket, pieces))
        assert words == live.alone(pieces) and words


def test_settings_of_sound_are_refused_for_text(both):
    with pytest.raises(TypeError, match="it is about sound"):
        both.stream(translating={"read_ms": 280})


def test_runs_in_the_wrong_place_are_refused(both):
    asr, mt = both.recogniser, both.translator
    with pytest.raises(RunError, match=r"mt was trained to translate, not to transcribe"):
        Cascade(mt, mt)
    with pytest.raises(RunError, match=r"asr was trained to transcribe: it translates nothing"):
        Cascade(asr, asr)


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
