"""Simulated texts against passes from scratch on what has been read; speech whole and in parts."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from simuljax.audio import Filterbank, frame_count
from simuljax.config.decoding import Decoding, LengthLimit, Repetition
from simuljax.decode.beam import translate_speech
from simuljax.decode.reencoding import SHORTEST_TEXT, ReencodingDecoder, padded
from simuljax.decode.simulate import Listening, simulate_speech, simulate_text
from simuljax.decode.state import context_of, encode_speech
from simuljax.decode.stream import StreamLimits
from tests.helpers import models
from tests.oracles import decisions, simultaneous

FRAMES = 96
SAMPLES = np.array([240 + 160 * FRAMES, 5_000, 0, 10_000, 15_000, 9_999], np.int32)
DECODING = Decoding(
    limit=LengthLimit(ratio=0.25, constant=4), repetition=Repetition(longest=2, times=1)
)


@pytest.fixture(scope="module")
def model():
    model = models.translator()
    return model, models.parameters(model)


@pytest.fixture(scope="module")
def features():
    size = (len(SAMPLES), FRAMES, models.FEATURES)
    return 2 * np.random.default_rng(5).normal(size=size).astype(np.float32)


def frames_of(samples):
    return frame_count(jnp.asarray(samples), Filterbank())


def rows(found):
    """Tokens, delays and reach of each row."""
    found = jax.device_get(found)
    for n, *row in zip(found.lengths, found.tokens, found.delays, found.reach, strict=True):
        assert not any(values[n:].any() for values in row)
        yield [values[:n].tolist() for values in row]


@pytest.mark.slow
def test_whole_and_in_parts(model, features):
    """One READ of everything is offline decoding; and later sound changes nothing before it."""
    model, variables = model

    def simulated(features, read_ms):
        listening = Listening(read_ms=read_ms)
        given = (model, variables, features, SAMPLES)
        return jax.device_get(simulate_speech(*given, decoding=DECODING, listening=listening))

    frames = frames_of(SAMPLES)
    offline = translate_speech(model, variables, features, frames, decoding=DECODING)
    whole = simulated(features, 2_000)
    np.testing.assert_array_equal(whole.tokens, offline.tokens)
    np.testing.assert_array_equal(whole.reach, offline.delays)
    np.testing.assert_array_equal(whole.delays[:, 0], SAMPLES / 16)
    sign = np.where(np.arange(FRAMES) < 40, 1, -1)[:, None]
    parts, other = simulated(features, 120), simulated(features * sign, 120)
    early = (parts.delays <= 360) & (parts.delays > 0)  # frame 40 ends at 425 ms
    np.testing.assert_array_equal(parts.tokens * early, other.tokens * early)
    assert early.sum() > 5 and np.any(parts.tokens != other.tokens)


STATES = 12  # states


def test_only_a_real_end_triggers_without_a_new_word():
    model = models.translator(kind="words")
    variables, random = models.parameters(model), np.random.default_rng(0)
    features = jnp.asarray(random.normal(size=(STATES, 4 * STATES, models.FEATURES)), jnp.float32)
    of_states = np.cumsum(random.random((STATES, STATES)) < 0.4, 1)
    labels, lengths = jnp.repeat(of_states, 4, axis=1), jnp.arange(1, STATES + 1)

    @models.fast
    def progress_of(variables, ended):
        context = context_of(model, variables, Decoding())
        return encode_speech(context, features, 4 * lengths, ended, labels).progress

    for live in (True, False):
        progress = jax.device_get(progress_of(variables, np.full(STATES, not live)))
        for row, length in enumerate(lengths.tolist()):
            triggers = decisions.label_triggers(of_states[row], length)
            if live:  # the last state counts if it would with another one after it
                longer = decisions.label_triggers(np.append(of_states[row], 99), length + 1)
                triggers = longer[:STATES] & triggers
            ends = progress.ends[row, : progress.count[row]]
            np.testing.assert_array_equal(ends, np.flatnonzero(triggers))


SIZE = 16  # tokens of a text
TEXT = models.changed(DECODING, limit=LengthLimit(ratio=1.2, constant=3))


@pytest.fixture(scope="module")
def reader():
    model = models.translator()
    return model, models.parameters(model, eager=0.3)


@pytest.fixture(scope="module")
def simulated(reader):
    """Of rows like those of `source`: compiled once."""
    return models.fast(functools.partial(simulate_text, reader[0], decoding=TEXT))


def source(seed, rows=6):
    """Tokens, lengths, and how many are there after every word; a row has no words at all."""
    random = np.random.default_rng(seed)
    units = np.zeros((rows, SIZE), np.int32)
    lengths = np.zeros(rows, np.int32)
    for row in range(1, rows):
        pieces = random.integers(1, 3, random.integers(1, 8))
        lengths[row] = pieces.sum() + 1
        units[row] = lengths[row]
        units[row, : len(pieces)] = np.cumsum(pieces)
    tokens = random.integers(3, models.VOCABULARY, (rows, SIZE)).astype(np.int32)
    return tokens * (np.arange(SIZE) < lengths[:, None]), lengths, units


def read_amounts(units, length):
    """Tokens that are there after each READ; the last brings the end."""
    return [*(int(unit) for unit in units if unit < length), int(length)]


def expected_text(reader, tokens, lengths, units, decoding):
    model, variables = reader
    decoder = models.oracle(model, variables, threshold=decoding.threshold)

    @models.fast
    def encode(tokens, heard):
        return model.apply(variables, tokens, heard, train=False, method="encode_text")

    for row, length in enumerate(lengths):
        written = simultaneous.Written()
        for read, amount in enumerate(read_amounts(units[row], length), 1):
            states = encode(tokens[row : row + 1], np.array([amount])).states
            known = simultaneous.every_state(np.asarray(states)[0, :amount], amount == length)
            simultaneous.write_on(decoder, written, known, read, decoding, history="recomputed")
        assert written.finished
        yield [written.tokens, written.delays, written.reach]


@pytest.mark.slow
def test_words_are_read_whole(reader, simulated):
    variables, reads = reader[1], set()
    for seed in range(2):
        given = source(seed)
        found = list(rows(simulated(variables, *given)))
        assert found == list(expected_text(reader, *given, TEXT))
        reads |= {delay for _, delays, _ in found for delay in delays}
    assert len(reads) > 4, "too few READs"


@pytest.mark.slow
def test_a_word_of_one_token_is_a_token(reader, simulated):
    """READs of one token each give what they give without `units`."""
    tokens, lengths, _ = source(7)
    every = np.minimum(np.arange(1, SIZE + 1), lengths[:, None]).astype(np.int32)
    given = (reader[1], tokens, lengths)
    one, other = simulated(*given), simulated(*given, every)
    assert list(rows(one)) == list(rows(other))
    assert one.lengths.sum() > 20


def test_reading_anew_is_what_is_simulated(reader, simulated):
    model, variables = reader
    limits = StreamLimits(tokens=30)
    decoder = ReencodingDecoder(branch="text", model=model, decoding=TEXT, limits=limits)
    learnt, read = decoder.params(variables), models.fast(decoder.read)
    tokens, lengths, units = source(11)
    wanted = list(rows(simulated(variables, tokens, lengths, units)))
    for row, length in enumerate(lengths):
        state, found, finished = decoder.init(1), ([], [], []), False
        for turn, amount in enumerate(read_amounts(units[row], length), 1):
            given = jnp.asarray(padded(tokens[row, :amount], SHORTEST_TEXT))
            over = jnp.array([amount == length])
            state, events = read(learnt, state, given, jnp.array([amount]), over)
            new, _, finished = events.row(0)
            found[0].extend(new)
            found[1].extend([turn] * len(new))
            found[2].extend(np.asarray(events.written.reach)[0, : len(new)].tolist())
        assert finished and list(found) == wanted[row]
    assert models.compilations(read) == 1


def test_shapes_are_few():
    sizes = {padded(np.ones(n, np.int32), SHORTEST_TEXT).shape[1] for n in range(200)}
    assert sizes == {32, 64, 128, 256}
    assert padded(np.ones(3, np.int32), SHORTEST_TEXT)[0, :4].tolist() == [1, 1, 1, 0]
