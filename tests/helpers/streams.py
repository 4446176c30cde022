"""Streams whose step is compiled once, small translators as users meet them, and their oracles.

A word comes with the push that completes the READ it was written after; when that is, is counted
from the pieces alone.
"""

import functools
import itertools
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from simuljax.audio import (
    FeatureRecord,
    Features,
    Filterbank,
    Statistics,
    extract,
    frame_count,
    normalise,
)
from simuljax.config.decoding import Decoding, LengthLimit, Repetition
from simuljax.config.model import SpeechConfig
from simuljax.decode.context import StreamLimits
from simuljax.decode.policies import History
from simuljax.decode.reencoding import simulate_speech
from simuljax.decode.stammer import RepetitionFilter
from simuljax.decode.stream import Chunk, StreamingDecoder
from simuljax.models.streaming import chunking_of
from simuljax.nn.subsampling import state_count
from simuljax.serve.run_translator import RunTranslator, batch_axes, put_rows, take_rows
from simuljax.serve.session import Stream, Tokens, Word
from simuljax.text import EOS, Vocabulary, VocabularyConfig, learn
from simuljax.train.run import Loaded, Run
from tests.helpers import models
from tests.oracles import simultaneous
from tests.oracles.hard_decoder import Heard
from tests.written_runs import experiment_of

HEARD = Features(filterbank=Filterbank(bins=models.FEATURES))
STATISTICS = Statistics(
    mean=np.full(models.FEATURES, 18, np.float32),
    std=np.full(models.FEATURES, 2, np.float32),
    frames=1,
)
DECODING = Decoding(
    limit=LengthLimit(ratio=0.3, constant=3), repetition=Repetition(longest=2, times=1)
)
SPEECH = SpeechConfig(kind="streaming", layers=2, shared=1, channels=12, chunk=4, left=6, right=2)


class Streams:
    """`samples` of a step and `batch` streams, so that everything is compiled once."""

    def __init__(self, batch=8, samples=1600, events=3, states=60, decoding=DECODING, **changes):
        model = models.translator(speech=SPEECH, **changes)
        self.batch, self.size, self.compilations = batch, samples, 0
        self.decoder = StreamingDecoder(
            model=model,
            features=HEARD,
            decoding=decoding,
            limits=StreamLimits(states=states, tokens=21, events=events),
        )
        self.learn(19, 1.0)
        self.step = jax.jit(self._step, compiler_options=models.FAST)

    def learn(self, seed, eager):
        """Other parameters; nothing is compiled."""
        self.variables = models.parameters(self.decoder.model, eager=eager, seed=seed)
        self.params = self.decoder.params(self.variables, STATISTICS)

    def _step(self, params, state, chunk):
        self.compilations += 1  # Python runs this only while JAX traces
        return self.decoder.step(params, state, chunk)

    def start(self):
        return self.decoder.init(self.params, self.batch)

    def run(self, recordings, pieces, state=None):
        """Tokens, samples heard and reach of every recording, and the states after all steps.

        `pieces[b]` are the samples of recording b at each step; the last one ends it.
        """
        states, found = [self.start() if state is None else state], [([], [], []) for _ in pieces]
        starts = np.zeros(len(recordings), int)
        for turn in range(max(map(len, pieces))):
            length = [p[turn] if turn < len(p) else 0 for p in pieces]
            ended = np.array([turn >= len(p) - 1 for p in pieces])
            self.turn(states, found, self.chunk(recordings, starts, length, ended))
            starts += length
        assert all(states[-1].prefix.finished)
        return [list(row) for row in found], states

    def turn(self, states, found, chunk):
        """One step, and further ones without sound while there is more to write."""
        more = True
        while more:
            state, events = self.step(self.params, states[-1], chunk)
            states.append(state)
            collect(found, events)
            more = bool(events.more.any())
            chunk = chunk.replace(length=0 * chunk.length)

    def chunk(self, recordings, starts, length, ended):
        samples = np.full((self.batch, self.size), np.nan, np.float32)
        for b, (start, n) in enumerate(zip(starts, length, strict=True)):
            samples[b, :n] = recordings[b][start : start + n]
        return Chunk(*map(jnp.asarray, (samples, np.int32(length), ended)))

    @functools.cached_property
    def encode(self):
        """Whole recordings of one padded length."""

        def encode(variables, samples, lengths):
            features = normalise(extract(samples, HEARD), STATISTICS)
            frames = frame_count(lengths, HEARD.filterbank)
            return self.decoder.model.apply(
                variables, features, frames, train=False, method="encode_speech"
            )

        return jax.jit(encode, compiler_options=models.FAST)

    def expected(self, recordings, pieces, *, history, size):
        """By the oracle, from one pass over each whole recording."""
        padded = np.stack([np.pad(r, (0, size - len(r))) for r in recordings])
        lengths = jnp.array([len(r) for r in recordings])
        encoded = self.encode(self.variables, padded, lengths)
        decoding, rows = self.decoder.decoding, []
        model, threshold = self.decoder.model, decoding.threshold
        decoder = models.oracle(model, self.variables, threshold=threshold)
        for states, total, cuts in zip(np.asarray(encoded.states), lengths, pieces, strict=True):
            written = simultaneous.Written()
            for samples in np.cumsum(cuts):
                ended = bool(samples == total) and samples == np.sum(cuts)
                known = states[: known_states(int(samples), ended)]
                heard = self.heard(known, ended)
                simultaneous.write_on(
                    decoder, written, heard, int(samples), decoding, history=history
                )
            rows.append([written.tokens, written.delays, written.reach])
        return rows

    def heard(self, states, ended):
        """Where the oracle may decide."""
        kind = self.decoder.model.config.predecision.kind
        if kind == "fixed":
            return simultaneous.fixed_windows(states, models.STEP, ended)
        trigger = self.variables["params"]["trigger"] if kind == "learnable" else None
        return simultaneous.every_state(states, ended, trigger)


def known_states(samples, ended):
    """Return the number of states that a stream has given out after so many samples."""
    states = state_count(frame_count(samples, HEARD.filterbank))
    return states if ended else int(chunking_of(SPEECH).complete(jnp.int32(states))) * SPEECH.chunk


def collect(found, events):
    for b, n in enumerate(np.asarray(events.written.lengths)[: len(found)]):
        for values, name in zip(found[b], ("tokens", "delays", "reach"), strict=True):
            values += np.asarray(getattr(events.written, name))[b, :n].tolist()


def recordings(random, count, most):
    """Noise whose colour and loudness change every 100 ms; the second is empty."""
    lengths = random.integers(most // 4, most + 1, count)
    lengths[:4] = most, 0, 400, 500
    return [sound(random, n) for n in lengths]


def sound(random, length):
    parts = []
    for _ in range(-(-length // 1600)):
        noise, tone = random.normal(size=1600), np.sin(np.arange(1600) * random.uniform(0.05, 3))
        parts.append(noise * 10 ** random.uniform(-3, -1.5) + tone * 10 ** random.uniform(-3, -1))
    return np.clip(np.concatenate([np.zeros(0), *parts])[:length], -1, 1).astype(np.float32)


def cut(random, length, most):
    """Random pieces of 0 to `most` samples; the last may be empty."""
    usual, pieces = random.integers(max(1, most // 3), most + 1), []
    while sum(pieces) < length:
        pieces.append(min(int(random.integers(0, usual + 1)), length - sum(pieces)))
    return [*pieces, 0] if not pieces or random.random() < 0.5 else pieces


RATE = 16_000
READ = models.STEP * 640  # samples
GROUP = 64  # READs that are encoded at once
TEXT = [" ".join(pair) for pair in itertools.permutations("abcdefghijk", 2)]
VOCABULARY = learn(TEXT, VocabularyConfig(kind="unigram", size=30))
WHOLE = models.translator().config.speech
ENCODERS = {"incremental": SPEECH, "rereading": WHOLE}

features_of = jax.jit(lambda samples: normalise(extract(samples, HEARD), STATISTICS))


def translator(
    seed: int = 15,
    eager: float = 1.0,
    decide: float = 3.0,
    vocabulary: Vocabulary = VOCABULARY,
    **changes: Any,
) -> RunTranslator:
    """Random parameters; nothing is read from disk."""
    sizes = ("source_vocabulary", "target_vocabulary")
    network = models.translator(**dict.fromkeys(sizes, vocabulary.size), **changes)
    run = Run(
        directory=Path("small"),
        config=experiment_of(Path("small"), network.config, Path("nowhere")),
        front_end=FeatureRecord(features=HEARD, statistics=STATISTICS),
        source=vocabulary,
        target=vocabulary,
    )
    drawn = models.parameters(network, eager=eager, seed=seed, decide=decide)
    return RunTranslator(run, Loaded(params=drawn["params"], statistics={}, steps=(0,)))


def pieces(random: np.random.Generator, length: int) -> list[int]:
    """From 1 sample to 10 s at a time, in logarithms; of some recordings all are models."""
    top, cuts = np.exp(random.uniform(np.log(100), np.log(10 * RATE))), []
    while sum(cuts) < length:
        cuts.append(min(int(np.exp(random.uniform(0, np.log(top)))), length - sum(cuts)))
    return cuts


def reads(length: int) -> list[int]:
    """What has been heard after each READ; the last one says that nothing follows."""
    return [*range(READ, length + 1, READ), length]


@dataclass(frozen=True, kw_only=True)
class Material:
    """Recordings in pieces, and features of what has been heard after each of their READs."""

    recordings: list[np.ndarray]  # int16
    cuts: list[list[int]]
    amounts: np.ndarray  # [P]: of the READs of all recordings
    ended: np.ndarray  # bool [P]
    owner: np.ndarray  # [P]
    features: np.ndarray  # [P, F, D], from exactly so many samples; what follows is not there

    @property
    def frames(self) -> np.ndarray:
        return np.asarray(frame_count(self.amounts, HEARD.filterbank))


@functools.cache
def material(seed: int, count: int, longest: int) -> Material:
    """The first two recordings are so many whole READs."""
    random = np.random.default_rng(seed)
    lengths = random.integers(500, longest + 1, count)
    lengths[:2] = READ, longest // READ * READ
    recordings = [(32767 * sound(random, n)).astype(np.int16) for n in lengths]
    prefixes = [(b, n) for b, total in enumerate(lengths) for n in reads(total)]
    rows = [np.pad(recordings[b][:n], (0, longest - n)) for b, n in prefixes]
    owner, amounts = np.array(prefixes).T
    return Material(
        recordings=recordings,
        cuts=[pieces(random, n) for n in lengths],
        amounts=amounts,
        ended=np.append(owner[1:] != owner[:-1], True),
        owner=owner,
        features=in_groups(features_of, np.stack(rows)),
    )


def in_groups(function: Callable[..., Any], *arrays: np.ndarray) -> Any:
    """The function of arrays [P, ...], GROUP rows at a time."""
    count, found = len(arrays[0]), []
    for first in range(0, count, GROUP):
        rows = [array[first : first + GROUP] for array in arrays]
        rows = [np.pad(a, [(0, GROUP - len(a)), *[(0, 0)] * (a.ndim - 1)]) for a in rows]
        found.append(jax.device_get(function(*rows)))
    return jax.tree.map(lambda *parts: np.concatenate(parts)[:count], *found)


@dataclass
class Said:
    """Tokens and words of one stream."""

    tokens: list[int] = field(default_factory=list)
    reach: int = 0  # states, of all tokens
    pushed: list[int] = field(default_factory=list)  # samples by when each token was written
    words: list[tuple[str, float]] = field(default_factory=list)  # and their delays, ms
    turns: list[int] = field(default_factory=list)  # the READs after which tokens were written


def listened(stream: Stream, recording: np.ndarray, cuts: list[int]) -> Said:
    """A stream fed in pieces; what was pushed is counted here."""
    said, pushed, write = Said(), 0, stream.session.commit

    def noted(written: Tokens) -> list[str]:
        said.tokens += written.ids
        said.pushed += [pushed] * len(written.ids)
        said.reach = max(said.reach, written.reach)
        return write(written)

    stream.session.commit = noted  # pyright: ignore[reportAttributeAccessIssue]
    for size in [*cuts, None]:
        first, pushed = pushed, pushed + (size or 0)
        words = stream.finish() if size is None else stream.push(recording[first:pushed])
        assert all(word.delay_ms == pushed / 16 for word in words)
        said.words += timed(words)
    assert pushed == len(recording)
    return said


def push_all(stream: Any, pieces: Iterable[Any]) -> list[Any]:
    """The words of a stream that is fed in pieces, to the end."""
    return [word for piece in pieces for word in stream.push(piece)] + stream.finish()


def timed(words: Iterable[Word]) -> list[tuple[str, float]]:
    return [(word.text, word.delay_ms) for word in words]


def when(amount: int, cuts: list[int]) -> int:
    """What has been pushed when so much can be heard."""
    return next(int(total) for total in np.cumsum(cuts) if total >= amount)


class Scratch:
    """Every READ by the encoder of training and the oracle, on exactly the sound up to it."""

    def __init__(self, translator: RunTranslator, decoding: Decoding, heard: Material):
        self.translator, self.decoding, self.material = translator, decoding, heard
        network, variables = translator.network, translator.variables
        options = {"threshold": decoding.threshold, "k": decoding.k}
        self.decoder = models.oracle(network, variables, **options)
        self.together = self.apart = 0  # tokens for which heads stood on one decision, on several

        @models.fast
        def encode(features, frames):
            given = (variables, features, frames)
            encoded: Any = network.apply(*given, train=False, method="encode_speech")
            return encoded.states

        self.states = in_groups(encode, heard.features, heard.frames)

    def known(self, read: int) -> Heard:
        """Where the oracle may decide."""
        network, params = self.translator.network, self.translator.variables["params"]
        amount, ended = int(self.material.amounts[read]), bool(self.material.ended[read])
        count = int(state_count(frame_count(amount, HEARD.filterbank)))
        if network.config.speech == SPEECH:
            count = known_states(amount, ended)
        states = self.states[read, :count]
        if network.config.predecision.kind == "fixed":
            return simultaneous.fixed_windows(states, models.STEP, ended)
        return simultaneous.every_state(states, ended, params.get("trigger"))

    def say(self, index: int, history: str) -> Said:
        """What a stream should say of a recording, and after which push."""
        written, cuts = simultaneous.Written(), self.material.cuts[index]
        places = np.flatnonzero(self.material.owner == index).tolist()
        for place in places:
            heard = self.known(place)
            if heard.ended or heard.ends:  # with nothing to decide on, every head waits
                given = (self.decoder, written, heard, place, self.decoding)
                simultaneous.write_on(*given, history=history)
        assert written.finished
        for stands in written.stands:
            alike = len({stand.pointer for layer in stands for stand in layer}) == 1
            self.together, self.apart = self.together + alike, self.apart + (not alike)
        pushed = [when(int(self.material.amounts[place]), cuts) for place in written.delays]
        end = pushed[-1] if EOS in written.tokens else sum(cuts)
        return Said(
            tokens=written.tokens,
            reach=max(written.reach, default=0),
            pushed=pushed,
            words=words_of(written.tokens, pushed, end),
            turns=[place - places[0] for place in written.delays],
        )


def assert_written(
    speaker: RunTranslator,
    decoding: Decoding,
    heard: Material,
    say: Callable[[int], Said],
    history: History | None = None,
) -> list[Said]:
    """Live streams write what `say` finds for every recording; in a batch the same is written.

    A stream does not know that whole READs are all there is, and reads once more.
    """
    said = []
    for index, recording in enumerate(heard.recordings):
        stream = speaker.stream(decoding=decoding, states=300, tokens=100, events=4)
        found, expected = listened(stream, recording, heard.cuts[index]), say(index)
        assert (found.tokens, found.pushed) == (expected.tokens, expected.pushed)
        assert found.words == expected.words
        assert not expected.reach or found.reach == expected.reach
        said.append(expected)
    sound = (heard.features[heard.ended], heard.amounts[heard.ended])
    given = (speaker.network, speaker.variables, *sound)
    how = {"decoding": decoding, "filterbank": HEARD.filterbank, "words": speaker.words}
    done = jax.device_get(simulate_speech(*given, **how, history=history))
    first, step = decoding.reads_ms(models.STEP * 40)
    for index, one in enumerate(said):
        total, count = len(heard.recordings[index]) / 16, int(done.lengths[index])
        if (total - first) % step:
            assert done.tokens[index, :count].tolist() == one.tokens
            delays = [min(first + step * turn, total) for turn in one.turns]
            assert done.delays[index, :count].tolist() == delays
    return said


def words_of(tokens: list[int], times: list[int], end: int) -> list[tuple[str, float]]:
    """A word is there with the first piece of the next one, or with the end."""
    groups, over = [[]], []
    for token, time in zip(tokens, times, strict=True):
        if VOCABULARY.pieces[token].startswith("▁"):
            groups.append([])
            over.append(time)
        if token != EOS:
            groups[-1].append(token)
    timed = zip(groups, [*over, end], strict=True)
    texts = [(VOCABULARY.decode(group), at / 16) for group, at in timed]
    kept = RepetitionFilter().push(text for text, _ in texts)[1]
    return [(text, at) for text, (_, at) in zip(kept, texts, strict=True) if text]


def moved(streams: Streams, sounds, pieces) -> tuple[Any, Any, Any]:
    """What rows write when the first stream goes on in row 5; its old row, anew; a new row."""
    axes, half = batch_axes(lambda n: streams.decoder.init(streams.params, n)), len(pieces[0]) // 2
    put = jax.jit(functools.partial(put_rows, axes=axes))
    take = jax.jit(functools.partial(take_rows, axes=axes))
    new = take(streams.start(), np.array([0]))
    states, rows, start = [streams.start()], [([], [], []) for _ in sounds], 0
    for turn, length in enumerate(pieces[0]):
        if turn == half:
            taken = put(states[-1], np.array([5]), take(states[-1], np.array([0])))
            states.append(put(taken, np.array([0]), new))
        row = 0 if turn < half else 5
        lengths, starts, ended = np.zeros((3, streams.batch), int)
        lengths[row], starts[row], ended[row] = length, start, turn == len(pieces[0]) - 1
        given = (sounds[:1] * streams.batch, starts, lengths, ended > 0)
        streams.turn(states, rows, streams.chunk(*given))
        start += length
    return rows, take(states[-1], np.array([0])), new
