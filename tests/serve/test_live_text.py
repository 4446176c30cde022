"""Words in, words out: a live text is what the simulation of it is."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from simuljax.config.decoding import Decoding, LengthLimit, Stammer
from simuljax.config.model import Monotonic
from simuljax.decode.policies import WaitK
from simuljax.decode.reencoding import simulate_text
from simuljax.eval import average_lagging
from simuljax.serve.cascade import TextReader, TextWord
from simuljax.serve.run_translator import RunTranslator
from simuljax.text import EOS, VocabularyError, WordStream
from simuljax.text.words import read_by_words
from simuljax.train.run import Loaded, RunError
from tests.helpers import models, streams
from tests.helpers.models import compilations
from tests.text.samples import vocabulary as sampled
from tests.written_runs import PIECES, WORDS

ANY = Stammer(times=0)  # a random model repeats itself
SOURCES = [*WORDS, "abab", "cddc"]  # the last two are several pieces
TEXTS = [" ".join(np.random.default_rng(i).choice(SOURCES, 3 + 2 * i)) for i in range(5)]
TEXTS += ["", "a"]


def make_translator(monotonic: Monotonic | None = None) -> RunTranslator:
    """A model of text alone, with one layer of each kind."""
    small: Any = {"monotonic": monotonic, "speech": None, "decoder_layers": 1}
    return streams.translator(seed=5, eager=1.5, vocabulary=PIECES, **small)


@pytest.fixture(scope="module")
def made() -> RunTranslator:
    return make_translator()


@pytest.fixture(scope="module")
def reader(made) -> TextReader:
    return TextReader(made, stammer=ANY)


def streamed(reader: TextReader, text: str) -> list[TextWord]:
    return streams.push_all(reader.stream(), text.split())


def simulated(made: RunTranslator, texts: list[str], decoding: Decoding) -> list[list[TextWord]]:
    """As `simuljax evaluate` does it, in one batch."""
    source = read_by_words(made.run.source, texts)
    given = (made.network, made.variables, source.tokens, source.lengths, source.units)
    done = jax.device_get(simulate_text(*given, decoding=decoding, words=made.words))
    return [
        timed(made, done.tokens[row, :n], np.minimum(done.delays[row, :n], source.words[row]))
        for row, n in enumerate(done.lengths)
    ]


def timed(made: RunTranslator, tokens: np.ndarray, delays: np.ndarray) -> list[TextWord]:
    stream, words = WordStream.begin(made.run.target), []
    for token, delay in zip(tokens, delays, strict=True):
        stream, new = stream.push([int(token)] if token != EOS else [])
        new += stream.finish() if token == EOS else []
        words += [TextWord(text=text, delay=int(delay)) for text in new]
    if len(tokens) and tokens[-1] != EOS:
        words += [TextWord(text=text, delay=int(delays[-1])) for text in stream.finish()]
    return words


@pytest.mark.slow
@pytest.mark.parametrize(
    "overrides",
    [
        {},
        {"gather": "majority", "threshold": 0.2, "force_finish": True},
        {"policy": WaitK(k=2, convention="stacl"), "limit": LengthLimit(ratio=1.0, constant=3)},
    ],
)
def test_a_live_text_is_what_the_simulation_of_it_is(made, overrides):
    if "policy" in overrides:
        made = make_translator(Monotonic(policy="offline"))
    wanted = simulated(made, TEXTS, Decoding(**overrides))
    reader = TextReader(made, stammer=ANY, **overrides)
    assert [streamed(reader, text) for text in TEXTS] == wanted
    lengths = [len(text.split()) for text in TEXTS]
    early = [w for n, words in zip(lengths, wanted, strict=True) for w in words if w.delay < n]
    assert len(early) > 3, "nothing was written before the end: this shows little"
    assert compilations(reader.compiled) == 1  # up to 32 pieces
    if "policy" in overrides:  # the first word is begun after the second
        assert min(words[0].delay for words in wanted if words) == 1 < wanted[3][0].delay


@pytest.mark.slow
def test_wait_3_lags_three_words_behind():
    """And one more, for a word ends only where the next begins; here every word is a piece."""
    assert all(len(PIECES.encode(word)) == 1 for word in WORDS)
    made = make_translator(Monotonic(policy="wait_k", wait_k=(3, 3)))
    made.variables = only_writes(made.variables, {PIECES.encode(word)[0] for word in WORDS})
    as_many_as_read = LengthLimit(ratio=1.0, constant=-1)
    reader = TextReader(made, stammer=ANY, limit=as_many_as_read)
    for count in (4, 7, 11):
        words = streamed(reader, " ".join(WORDS[:count]))
        delays = [word.delay for word in words]
        assert delays == [min(4 + i, count) for i in range(count)]
        assert average_lagging(delays, count, count) == pytest.approx(4)


def only_writes(variables: Any, allowed: set[int]) -> Any:
    """A decoder whose last states are all positive on average, and whose other tokens hate that."""
    decoder = dict(variables["params"]["decoder"])
    norm, kernel = decoder["norm"], decoder["output"]["kernel"]
    other = jnp.array([i not in allowed for i in range(kernel.shape[1])])
    decoder["norm"] = {"scale": jnp.ones_like(norm["scale"]), "bias": jnp.ones_like(norm["bias"])}
    decoder["output"] = {"kernel": jnp.where(other, -20.0, kernel)}
    return variables | {"params": variables["params"] | {"decoder": decoder}}


def test_a_push_may_hold_several_words_or_none(reader):
    stream, text = reader.stream(), TEXTS[2]
    assert stream.push("") == stream.push(" ") == []
    words = stream.push(text) + stream.finish()
    assert words == streamed(reader, text)
    assert stream.finish() == []
    with pytest.raises(ValueError, match="begin another"):
        stream.push("abc")


def test_what_is_not_for_text_is_refused(made, reader, monkeypatch):
    with pytest.raises(TypeError, match="'read_ms': it is about sound"):
        TextReader(made, read_ms=280)
    with pytest.raises(TypeError, match="'threshold'"):
        TextReader(made, treshold=0.3)
    monkeypatch.setattr(reader, "most", 4)
    with pytest.raises(ValueError, match="more than 4 pieces"):
        reader.stream().push(TEXTS[1])
    deaf = dataclasses.replace(made.run.model, speech=models.CAAT_SPEECH, text=None)
    run = dataclasses.replace(made.run, config=dataclasses.replace(made.run.config, model=deaf))
    with pytest.raises(RunError, match="no text branch"):
        TextReader(RunTranslator(run, Loaded(params={}, statistics={}, steps=())))
    phonemes = dataclasses.replace(made.run, source=sampled("phonemes"))
    with pytest.raises(VocabularyError, match="not read word by word"):
        TextReader(RunTranslator(phonemes, Loaded(params={}, statistics={}, steps=())))
