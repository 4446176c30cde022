"""A streaming translator whose step is compiled once, and recordings fed to it in pieces."""

import functools

import jax
import jax.numpy as jnp
import numpy as np

from simuljax.audio import Features, Filterbank, Statistics, extract, frame_count, normalise
from simuljax.config.decoding import Decoding, LengthLimit, Repetition
from simuljax.config.model import SpeechConfig
from simuljax.decode.stream import Chunk, StreamingDecoder, StreamLimits
from simuljax.models.streaming import chunking_of
from simuljax.nn.subsampling import state_count
from tests.decode import small
from tests.oracles import simultaneous

HEARD = Features(filterbank=Filterbank(bins=small.FEATURES))
STATISTICS = Statistics(
    mean=np.full(small.FEATURES, 18, np.float32),
    std=np.full(small.FEATURES, 2, np.float32),
    frames=1,
)
DECODING = Decoding(
    limit=LengthLimit(ratio=0.3, constant=3), repetition=Repetition(longest=2, times=1)
)
SPEECH = SpeechConfig(kind="streaming", layers=2, shared=1, channels=12, chunk=4, left=6, right=2)


class Streams:
    """`samples` of a step and `batch` streams, so that everything is compiled once."""

    def __init__(self, batch=8, samples=1600, events=3, states=60, decoding=DECODING, **changes):
        model = small.translator(speech=SPEECH, **changes)
        self.batch, self.size, self.compilations = batch, samples, 0
        self.decoder = StreamingDecoder(
            model=model,
            features=HEARD,
            decoding=decoding,
            limits=StreamLimits(states=states, tokens=21, events=events),
        )
        self.learn(19, 1.0)
        self.step = jax.jit(self._step, compiler_options=small.FAST)

    def learn(self, seed, eager):
        """Other parameters; nothing is compiled."""
        self.variables = small.parameters(self.decoder.model, eager=eager, seed=seed)
        self.learnt = self.decoder.params(self.variables, STATISTICS)

    def _step(self, learnt, state, chunk):
        self.compilations += 1  # Python runs this only while JAX traces
        return self.decoder.step(learnt, state, chunk)

    def start(self):
        return self.decoder.init(self.learnt, self.batch)

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
            state, events = self.step(self.learnt, states[-1], chunk)
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

        return jax.jit(encode, compiler_options=small.FAST)

    def expected(self, recordings, pieces, *, history, size):
        """By the oracle, from one pass over each whole recording."""
        padded = np.stack([np.pad(r, (0, size - len(r))) for r in recordings])
        lengths = jnp.array([len(r) for r in recordings])
        encoded = self.encode(self.variables, padded, lengths)
        decoding, rows = self.decoder.decoding, []
        model, threshold = self.decoder.model, decoding.threshold
        decoder = small.oracle(model, self.variables, threshold=threshold)
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
            return simultaneous.fixed_windows(states, small.STEP, ended)
        trigger = self.variables["params"]["trigger"] if kind == "learnable" else None
        return simultaneous.every_state(states, ended, trigger)


def known_states(samples, ended):
    """How many states a stream of so many samples has given out."""
    states = state_count(frame_count(samples, HEARD.filterbank))
    return states if ended else int(chunking_of(SPEECH).complete(jnp.int32(states))) * SPEECH.chunk


def collect(found, events):
    for b, n in enumerate(np.asarray(events.written.count)[: len(found)]):
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
    usual, pieces = random.integers(most // 3, most + 1), []
    while sum(pieces) < length:
        pieces.append(min(int(random.integers(0, usual + 1)), length - sum(pieces)))
    return [*pieces, 0] if not pieces or random.random() < 0.5 else pieces
