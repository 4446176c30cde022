"""Simulated and live texts against passes from scratch on what has been read; words of speech."""

import functools

import jax
import jax.numpy as jnp
import numpy as np

from simuljax.config.decoding import Decoding, LengthLimit, Repetition
from simuljax.decode.context import StreamLimits
from simuljax.decode.reencoding import SHORTEST_TEXT, ReencodingDecoder, padded, simulate_text
from tests.helpers import models
from tests.oracles import simultaneous


def rows(found):
    """Tokens, delays and reach of each row."""
    found = jax.device_get(found)
    for n, *row in zip(found.lengths, found.tokens, found.delays, found.reach, strict=True):
        assert not any(values[n:].any() for values in row)
        yield [values[:n].tolist() for values in row]


SIZE = 16  # tokens of a text
DECODING = Decoding(
    limit=LengthLimit(ratio=1.2, constant=3), repetition=Repetition(longest=2, times=1)
)


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


def expected(model, variables, tokens, lengths, units):
    """By passes from scratch on the words read so far."""
    decoder = models.oracle(model, variables)

    @models.fast
    def encode(tokens, heard):
        return model.apply(variables, tokens, heard, train=False, method="encode_text")

    for row, length in enumerate(lengths):
        written = simultaneous.Written()
        for read, amount in enumerate(read_amounts(units[row], length), 1):
            states = encode(tokens[row : row + 1], np.array([amount])).states
            known = simultaneous.every_state(np.asarray(states)[0, :amount], amount == length)
            simultaneous.write_on(decoder, written, known, read, DECODING, history="recomputed")
        assert written.finished
        yield [written.tokens, written.delays, written.reach]


def test_words_are_read_whole():
    """Simulated and live."""
    model, given = models.translator(), source(11)
    variables = models.parameters(model, eager=0.3)
    simulated = models.fast(functools.partial(simulate_text, model, decoding=DECODING))
    wanted = list(rows(simulated(variables, *given)))
    assert wanted == list(expected(model, variables, *given))
    assert len({delay for _, delays, _ in wanted for delay in delays}) > 4, "too few READs"
    tokens, lengths, units = given

    limits = StreamLimits(tokens=30)
    decoder = ReencodingDecoder(branch="text", model=model, decoding=DECODING, limits=limits)
    learnt, read = decoder.params(variables), models.fast(decoder.read)
    for row, length in enumerate(lengths):
        state, found, finished = decoder.init(1), ([], [], []), False
        for turn, amount in enumerate(read_amounts(units[row], length), 1):
            sent = jnp.asarray(padded(tokens[row, :amount], SHORTEST_TEXT))
            over = jnp.array([amount == length])
            state, events = read(learnt, state, sent, jnp.array([amount]), over)
            said = events.written
            new, finished = int(said.lengths[0]), bool(events.finished[0])
            found[0].extend(np.asarray(said.tokens)[0, :new].tolist())
            found[1].extend([turn] * new)
            found[2].extend(np.asarray(said.reach)[0, :new].tolist())
        assert finished and list(found) == wanted[row]
    assert models.compilations(read) == 1


def test_shapes_are_few():
    sizes = {padded(np.ones(n, np.int32), SHORTEST_TEXT).shape[1] for n in range(200)}
    assert sizes == {32, 64, 128, 256}
    assert padded(np.ones(3, np.int32), SHORTEST_TEXT)[0, :4].tolist() == [1, 1, 1, 0]
