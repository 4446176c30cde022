"""Text that comes in words: the oracle, and the live decoder that reads everything anew."""

import functools

import jax.numpy as jnp
import numpy as np
import pytest

from simuljax.config.decoding import Decoding, LengthLimit, Repetition
from simuljax.decode.reencoding import SHORTEST_TEXT, ReencodingTextDecoder, padded
from simuljax.decode.simulate import simulate_text
from simuljax.decode.stream import StreamLimits
from tests.helpers import models
from tests.oracles import simultaneous

SIZE = 16
DECODING = Decoding(
    limit=LengthLimit(ratio=1.2, constant=3), repetition=Repetition(longest=2, times=1)
)


@pytest.fixture(scope="module")
def model():
    model = models.translator()
    return model, models.parameters(model, eager=0.3)


@pytest.fixture(scope="module")
def simulated(model):
    """Of rows like those of `source`: compiled once."""
    return models.fast(functools.partial(simulate_text, model[0], decoding=DECODING))


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


def rows(found):
    """Tokens, delays and reach of each row."""
    arrays = map(np.asarray, (found.tokens, found.delays, found.reach))
    for n, *row in zip(found.lengths, *arrays, strict=True):
        yield [values[:n].tolist() for values in row]


def read_amounts(units, length):
    """Tokens that are there after each READ; the last brings the end."""
    return [*(int(unit) for unit in units if unit < length), int(length)]


def expected_rows(model, variables, tokens, lengths, units, decoding):
    decoder = models.oracle(model, variables, threshold=decoding.threshold)

    @models.fast
    def encode(tokens, heard):
        return model.apply(variables, tokens, heard, train=False, method="encode_text")

    for row, length in enumerate(lengths):
        written = simultaneous.Written()
        for read, amount in enumerate(read_amounts(units[row], length), 1):
            states = encode(tokens[row : row + 1], jnp.array([amount])).states[0, :amount]
            known = simultaneous.every_state(states, amount == length)
            simultaneous.write_on(decoder, written, known, read, decoding, history="recomputed")
        assert written.finished
        yield [written.tokens, written.delays, written.reach]


def test_words_are_read_whole(model, simulated):
    model, variables = model
    reads = set()
    for seed in range(3):
        given = source(seed)
        found = list(rows(simulated(variables, *given)))
        assert found == list(expected_rows(model, variables, *given, DECODING))
        reads |= {delay for _, delays, _ in found for delay in delays}
    assert len(reads) > 4, "too few READs"


@pytest.mark.slow
def test_a_word_of_one_token_is_a_token(model, simulated):
    """READs of one token each give what they give without `units`."""
    tokens, lengths, _ = source(7)
    every = np.minimum(np.arange(1, SIZE + 1), lengths[:, None]).astype(np.int32)
    given = (model[1], tokens, lengths)
    one, other = simulated(*given), simulated(*given, every)
    assert list(rows(one)) == list(rows(other))
    assert one.lengths.sum() > 20


def test_reading_anew_is_what_is_simulated(model, simulated):
    model, variables = model
    limits = StreamLimits(tokens=30)
    decoder = ReencodingTextDecoder(model=model, decoding=DECODING, limits=limits)
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
