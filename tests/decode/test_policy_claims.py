"""What policies promise, whatever the model writes."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from simuljax.audio import Filterbank, frame_count
from simuljax.config.decoding import Beam, Decoding, LengthLimit
from simuljax.config.model import Monotonic, PreDecision, SpeechConfig
from simuljax.decode import simulate
from simuljax.decode.beam import translate_speech
from simuljax.decode.policies import FixedSteps, LocalAgreement, PolicyError, WaitK
from simuljax.decode.reencoding import ReencodingDecoder, padded
from simuljax.decode.simulate import Listening, simulate_speech, simulate_text
from simuljax.decode.state import control_of
from simuljax.decode.stream import StreamingDecoder, StreamLimits
from simuljax.models.encoders import Encoded
from simuljax.models.joint import JointModel
from simuljax.nn.subsampling import STRIDE, state_count
from simuljax.serve.run_translator import RunTranslator
from simuljax.text import EOS, Words
from simuljax.text.words import read_by_words
from simuljax.train.transfer import Loaded
from tests.helpers import models, streams
from tests.helpers.streams import DECODING, HEARD, SPEECH, STATISTICS

OFFLINE = Monotonic(policy="offline")
WORDS = Words.of(streams.VOCABULARY, streams.VOCABULARY)
SHORT = 28_800  # samples


@pytest.fixture(scope="module")
def speaker():
    return streams.translator(seed=6, monotonic=OFFLINE)


@pytest.fixture(scope="module")
def heard():
    return streams.material(3, 12, SHORT)


def said(speaker, heard, policy, listening=None, **changes):
    given = (speaker.network, speaker.variables)
    sound = (heard.features[heard.ended], heard.amounts[heard.ended])
    decoding = models.changed(DECODING, policy=policy, **changes)
    how = {"decoding": decoding, "listening": listening, "words": WORDS}
    return jax.device_get(simulate_speech(*given, *sound, **how))


@pytest.mark.slow
def test_a_wait_beyond_the_source_is_offline_decoding(speaker, heard):
    """Word for word; and so is a model without a policy."""
    frames = heard.frames[heard.ended]
    given = (speaker.network, speaker.variables, heard.features[heard.ended], frames)
    whole = jax.device_get(translate_speech(*given, decoding=DECODING))
    for policy in (WaitK(k=10**6, step_ms=120), WaitK(k=60, step_ms=120), None):
        found = said(speaker, heard, policy)
        np.testing.assert_array_equal(found.tokens, whole.tokens)
        there = np.arange(found.tokens.shape[1]) < found.lengths[:, None]
        wanted = np.broadcast_to(heard.amounts[heard.ended][:, None] / 16, there.shape)
        np.testing.assert_array_equal(found.delays[there], wanted[there])
    assert whole.lengths.sum() > 60
    other = said(speaker, heard, WaitK(k=1, step_ms=120))
    assert np.any(other.tokens != whole.tokens), "the wait makes no difference here"


@pytest.mark.slow
def test_a_sweep_over_k_compiles_once(speaker, heard):
    said(speaker, heard, WaitK(k=2, step_ms=120))
    before = models.compilations(simulate._speech)
    delays = [said(speaker, heard, WaitK(k=k, step_ms=120)).delays[:, 0] for k in (1, 3, 5, 7)]
    assert models.compilations(simulate._speech) == before
    for k, first in zip((1, 3, 5, 7), delays, strict=True):  # the first word follows k + 1 units
        total = heard.amounts[heard.ended] / 16
        assert all(first >= np.minimum((k + 1) * 120, total))


@pytest.mark.slow
def test_fixed_steps_hear_g_of_t_and_write_at_most_n(speaker, heard):
    """And other numbers compile nothing."""
    total, compiled, seen = heard.amounts[heard.ended] / 16, [], 0
    for first, step, most in [(200, 100, 1), (333, 77, 2), (100, 30, 3), (5_000, 10, 1)]:
        found = said(speaker, heard, FixedSteps(first_ms=first, step_ms=step, tokens=most))
        compiled.append(models.compilations(simulate._speech))
        for row, count in enumerate(found.lengths):
            delays = found.delays[row, :count]
            steps = np.minimum(first + step * np.arange(2_000), total[row])
            assert np.isin(delays, steps.astype(np.float32)).all()
            live = delays[delays < total[row]]
            assert not len(live) or np.unique(live, return_counts=True)[1].max() <= most
            seen += len(live)
    assert seen > 60 and len(set(compiled)) == 1


@pytest.mark.slow
def test_an_end_that_is_dropped_leaves_no_trace(heard):
    """Wherever a READ writes nothing though it might, the decoder is as it was, bit for bit."""
    speaker = streams.translator(seed=26, monotonic=OFFLINE)
    decoding = models.changed(
        DECODING,
        policy=FixedSteps(first_ms=120, step_ms=120, tokens=30),
        limit=LengthLimit(ratio=1.0, constant=40),
    )
    decoder = ReencodingDecoder(
        model=speaker.network, features=HEARD, decoding=decoding, limits=StreamLimits(tokens=90)
    )
    params, read = decoder.params(speaker.variables, STATISTICS, WORDS), models.fast(decoder.read)
    dropped = kept = 0
    for recording in heard.recordings:
        state = decoder.init(1)
        for amount in streams.reads(len(recording)):
            ended = amount == len(recording)
            given = (jnp.asarray(padded(recording[:amount])), jnp.array([amount]))
            after, events = read(params, state, *given, jnp.array([ended]))
            tokens, _, finished = events.row(0)
            assert ended or (EOS not in tokens and not finished and len(tokens) <= 30)
            if not ended and not tokens:  # neither N nor the limit of length was reached
                pairs = zip(*map(jax.tree.leaves, (state.targets, after.targets)), strict=True)
                assert all(np.array_equal(a, b) for a, b in pairs)
                dropped += 1
            kept, state = kept + len(tokens), after
    assert dropped > 20 and kept > 30, (dropped, kept)


class Recogniser(JointModel):
    """Hears perfectly: the features are labels, and the CTC head says them."""

    def encode_speech(self, features: jax.Array, lengths: jax.Array, *, train: bool) -> Encoded:
        encoded = super().encode_speech(features, lengths, train=train)
        ctc = features[:, ::STRIDE][:, : encoded.states.shape[1]]
        return dataclasses.replace(encoded, ctc=ctc)


@functools.cache
def recogniser():
    """Its decoder sees nothing of the source, so that speech and text are translated alike."""
    size = streams.VOCABULARY.size
    made = models.translator(
        OFFLINE,
        source_vocabulary=size,
        target_vocabulary=size,
        features=size + 1,
        speech=SpeechConfig(layers=2, shared=1, channels=12, ctc_after=1),
    )
    model = Recogniser(made.config)
    variables = models.parameters(model, seed=5)
    cross = variables["params"]["decoder"]["layer"]["cross"]["heads"]["out"]
    cross["kernel"], cross["bias"] = cross["kernel"] * 0, cross["bias"] * 0
    return model, variables


def spoken_labels(random, text: str) -> tuple[np.ndarray, np.ndarray]:
    """Labels of states, blanks between pieces and words; and the states at which words begin."""
    blank, labels, begins = streams.VOCABULARY.size, [], []
    for word in text.split():
        labels += [blank] * random.integers(2, 5)
        begins.append(len(labels))
        for piece in streams.VOCABULARY.encode(word):
            labels += [piece] * random.integers(1, 3) + [blank] * random.integers(1, 3)
    return np.array(labels + [blank] * 6), np.array(begins)


@pytest.mark.parametrize(("k", "convention"), [(1, "stacl"), (2, "papi"), (4, "stacl")])
@pytest.mark.slow
def test_with_perfect_ears_adaptive_wait_k_is_that_of_text(k, convention):
    """Each token is written after as many words, whether these are heard or read."""
    random, (model, variables) = np.random.default_rng(4), recogniser()
    texts = [" ".join(random.choice(list("abcdefghijk"), n)) for n in (3, 8, 5, 1)]
    policy = WaitK(k=k, units="ctc", convention=convention, step_ms=40)
    limit = LengthLimit(ratio=0.0, constant=14)
    decoding = Decoding(policy=policy, force_finish=True, limit=limit)
    both = [spoken_labels(random, text) for text in texts]
    size = max(len(labels) for labels, _ in both)
    features = np.zeros((4, 4 * size, streams.VOCABULARY.size + 1), np.float32)
    for row, (labels, _) in enumerate(both):
        features[row, np.arange(4 * len(labels)), np.repeat(labels, 4)] = 9.0
    samples = np.array([240 + 640 * len(labels) for labels, _ in both])
    given = (model, variables, features, samples)
    heard = simulate_speech(*given, decoding=decoding, words=WORDS, listening=Listening(read_ms=40))
    read = read_by_words(streams.VOCABULARY, texts)
    given = (model, variables, read.tokens, read.lengths, read.units)
    written = simulate_text(*given, decoding=decoding, words=WORDS)
    np.testing.assert_array_equal(heard.tokens, written.tokens)
    early = 0
    for row, (_, begins) in enumerate(both):
        count = int(heard.lengths[row])
        amounts = (np.asarray(heard.delays[row, :count]) * 16).astype(int)
        words = (begins < state_count(frame_count(amounts, Filterbank()))[:, None]).sum(1)
        ended = amounts >= samples[row]
        reads = np.where(ended, len(begins) + 1, words)
        assert reads.tolist() == written.delays[row, :count].tolist()
        early += (~ended).sum()
    assert early > 8


@pytest.mark.slow
def test_a_model_trained_with_masks_of_words_waits_for_words(heard):
    """It attends to all that was heard, and wait-k alone says when; offline it hears everything."""
    speech = SpeechConfig(layers=2, shared=1, channels=12, ctc_after=1)
    masked = Monotonic(policy="wait_k", counts="words", wait_k=(2, 2))
    offline = streams.translator(seed=6, monotonic=OFFLINE, speech=speech)
    at_words = PreDecision(kind="ctc_words", step_ms=120)
    model = dataclasses.replace(offline.run.model, monotonic=masked, predecision=at_words)
    loaded = Loaded(params=offline.variables["params"], statistics={}, steps=(0,))
    made = [
        RunTranslator(
            dataclasses.replace(
                offline.run, config=dataclasses.replace(offline.run.config, model=model)
            ),
            loaded,
        ),
        offline,
    ]
    policy = WaitK(k=1, units="ctc", step_ms=120)
    one, other = (said(each, heard, policy) for each in made)
    np.testing.assert_array_equal(one.tokens, other.tokens)
    np.testing.assert_array_equal(one.delays, other.delays)
    assert len(np.unique(one.delays)) > 8
    played = heard.recordings[1]
    assert made[0].translate(played) == made[1].translate(played) != ""


@pytest.mark.slow
def test_agreement_on_a_beam(speaker, heard):
    """Heard at once it is beam search; in parts nothing is taken back, and words come early."""
    frames = heard.frames[heard.ended]
    given = (speaker.network, speaker.variables, heard.features[heard.ended], frames)
    policy = LocalAgreement(beam=3)
    whole = said(speaker, heard, policy, Listening(read_ms=5_000))
    wanted = translate_speech(*given, decoding=DECODING, beam=Beam(size=3))
    width = min(whole.tokens.shape[1], wanted.tokens.shape[1])
    np.testing.assert_array_equal(whole.tokens[:, :width], wanted.tokens[:, :width])
    parts = said(speaker, heard, policy, Listening(read_ms=120))
    there = np.arange(parts.tokens.shape[1]) < parts.lengths[:, None]
    early = there & (parts.delays < heard.amounts[heard.ended][:, None] / 16)
    assert early.sum() > 10 and (np.diff(parts.delays)[there[:, 1:]] >= 0).all()
    assert not (early & (parts.tokens == EOS)).any()


def test_a_model_that_decides_by_itself_is_refused(heard):
    speaker = streams.translator()
    with pytest.raises(PolicyError, match="decides by itself"):
        said(speaker, heard, WaitK(k=3))
    with pytest.raises(PolicyError, match="decides by itself"):
        StreamingDecoder(
            model=speaker.network, features=HEARD, decoding=Decoding(policy=WaitK(k=3))
        )
    other = streams.translator(monotonic=OFFLINE, speech=SPEECH)
    with pytest.raises(PolicyError, match=r"simuljax\.decode\.reencoding"):
        decoding = Decoding(policy=LocalAgreement())
        StreamingDecoder(model=other.network, features=HEARD, decoding=decoding)
    with pytest.raises(PolicyError, match="counts words"):
        control_of(Decoding(policy=WaitK(k=3)), OFFLINE)
