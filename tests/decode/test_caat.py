"""CAAT's search against its rule in plain Python; streams in pieces, batches, and one at a time."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from simuljax.config.decoding import Blocks, Decoding, LengthLimit, Repetition
from simuljax.decode.beam import translate_speech
from simuljax.decode.caat import CaatDecoder
from simuljax.decode.context import StreamLimits
from simuljax.decode.reencoding import simulate_speech
from simuljax.text import EOS
from tests.helpers import models
from tests.helpers.streams import HEARD, STATISTICS, Streams, cut, moved, recordings
from tests.helpers.streams import features_of as features_of_samples
from tests.oracles import caat as oracle

GREEDY, BEAM, WIDE = Blocks(inside=1), Blocks(), Blocks(inside=4, across=3, longest=6)
LIMIT, MOST, ROOM = LengthLimit(ratio=0.4, constant=3), 24_000, 40
GUARD = Repetition(longest=2, times=1)


def decoding(blocks: Blocks) -> Decoding:
    return Decoding(limit=LIMIT, blocks=blocks, repetition=GUARD)


class CaatStreams(Streams):
    """Streams whose step is a CAAT's."""

    def __init__(self, blocks: Blocks, *, blank=1.5, seed=4, events=3):
        self.model = models.caat()
        self.batch, self.size, self.compilations = 8, 3200, 0
        self.decoder = CaatDecoder(
            model=self.model,
            features=HEARD,
            decoding=decoding(blocks),
            limits=StreamLimits(states=60, tokens=27, events=events),
        )
        self.variables = models.caat_parameters(self.model, blank=blank, seed=seed)
        self.params = self.decoder.params(self.variables, STATISTICS)
        self.step = jax.jit(self._step, compiler_options=models.FAST)

    def encoded(self, sounds):
        padded = np.stack([np.pad(s, (0, MOST - len(s))) for s in sounds])
        return self.encode(self.variables, padded, jnp.array([len(s) for s in sounds]))

    def by_rule(self, sounds, **options):
        """What each recording's groups commit: tokens, groups from 0."""
        blocks, encoded = self.decoder.decoding.blocks, jax.device_get(self.encoded(sounds))
        return [
            by_rule(self.model, self.variables, states[:length], blocks, **options)
            for states, length in zip(encoded.states, encoded.lengths, strict=True)
        ]


def by_rule(model, variables, states, blocks, **options):
    """Tokens of one source, and in which group each was committed."""
    room, groups = np.zeros((ROOM, 16), np.float32), -(-len(states) // models.CAAT_GROUP)
    room[: len(states)] = states
    texts, tokens, places = [((), 0.0, True)], [], []

    def ask(tokens, reach):
        return models.caat_asked(model, variables, room, list(tokens), reach)

    for group in range(groups):
        reach, last = min((group + 1) * models.CAAT_GROUP, len(states)), group == groups - 1
        limit = min(LIMIT.of(reach), 27)
        how = dataclasses.asdict(blocks) | {"guard": GUARD, "limit": limit} | options
        texts = oracle.search_group(ask, texts, reach, last=last, **how)
        agreed = texts[0][0] if last else oracle.agreed(texts)
        assert agreed[: len(tokens)] == tuple(tokens), "what is committed stays"
        tokens = list(agreed)
        places += [group] * (len(tokens) - len(places))
    return tokens, places


def utterances(streams, seed):
    random = np.random.default_rng(seed)
    sounds = recordings(random, streams.batch, MOST)
    return sounds, [cut(random, len(s), streams.size) for s in sounds]


@pytest.fixture(scope="module")
def streams():
    return CaatStreams(BEAM)


def check(streams, seed):
    sounds, pieces = utterances(streams, seed)
    found, _ = streams.run(sounds, pieces)
    rule = streams.by_rule(sounds)
    assert [row[0] for row in found] == [tokens for tokens, _ in rule]
    lengths = np.asarray(streams.encoded(sounds).lengths)
    expected = [
        [min((group + 1) * models.CAAT_GROUP, n) for group in places]
        for (_, places), n in zip(rule, lengths, strict=True)
    ]
    if streams.decoder.decoding.blocks.across == 1:  # else a token is committed later than found
        assert [row[2] for row in found] == expected
    early = sum(p < max(places) for _, places in rule if places for p in places)
    assert streams.compilations == 1
    return early


def test_a_stream_writes_what_the_rule_says(streams):
    """In pieces of any size, a beam of 5 inside a group."""
    assert check(streams, 1) > 5


def test_a_stream_can_move_to_another_row(streams):
    sounds, pieces = utterances(streams, 1)
    found, _ = streams.run(sounds, pieces)
    rows, *_ = moved(streams, sounds, pieces)
    assert [a + b for a, b in zip(rows[0], rows[5], strict=True)] == found[0] and rows[5][0]


@pytest.mark.slow
def test_greedily():
    assert check(CaatStreams(GREEDY, seed=8, blank=0.0), 0) > 1


@pytest.mark.slow
def test_three_across_groups():
    """The ways to one text count together, and without that it shows."""
    streams = CaatStreams(WIDE, seed=8)
    assert check(streams, 1) > 1
    sounds, _ = utterances(streams, 1)
    assert streams.by_rule(sounds, merge=False) != streams.by_rule(sounds)


def test_a_batch_of_whole_sources_is_what_streams_write(streams):
    """With READs of one size, delays and all."""
    sounds, _ = utterances(streams, 4)
    read = 120 * 16
    pieces = [[min(read, len(s) - n) for n in range(0, len(s), read)] or [0] for s in sounds]
    found, _ = streams.run(sounds, pieces)
    lengths = np.array([len(s) for s in sounds])
    given = (streams.model, streams.variables, features_of(sounds), lengths)
    how = {"decoding": models.changed(decoding(BEAM), read_ms=120), "filterbank": HEARD.filterbank}
    done = jax.device_get(simulate_speech(*given, **how))
    for b, (tokens, heard, reach) in enumerate(found):
        count = int(done.lengths[b])
        assert done.tokens[b, :count].tolist() == tokens
        assert done.reach[b, :count].tolist() == reach
        np.testing.assert_allclose(done.delays[b, :count] * 16, heard)


def features_of(sounds):
    return features_of_samples(np.stack([np.pad(s, (0, MOST - len(s))) for s in sounds]))


def test_offline_it_writes_as_the_last_group_does(streams):
    """Greedily, with everything in sight from the start."""
    sounds, _ = utterances(streams, 5)
    sounds = [s for s in sounds if len(s) > 8_000]
    encoded = jax.device_get(streams.encoded(sounds[:2] * 4))
    frames = 1 + (np.array([len(s) for s in sounds[:2]]) - 400) // 160
    given = (streams.model, streams.variables, features_of(sounds[:2]), frames)
    whole = jax.device_get(translate_speech(*given, decoding=decoding(GREEDY)))
    for b in range(2):
        states, tokens = encoded.states[b, : encoded.lengths[b]], []
        room = np.zeros((ROOM, 16), np.float32)
        room[: len(states)] = states
        while len(tokens) < LIMIT.of(len(states)) and EOS not in tokens:
            log_p = models.caat_asked(streams.model, streams.variables, room, tokens, len(states))
            again = [v for v in range(3, 11) if oracle.repeats((*tokens, v), GUARD)]
            log_p[[1, *again]] = -np.inf
            tokens.append(int(log_p.argmax()))
        assert whole.tokens[b, : int(whole.lengths[b])].tolist() == tokens


def test_more_across_than_inside_is_refused():
    with pytest.raises(ValueError, match="across is 2"):
        Blocks(inside=1, across=2)
