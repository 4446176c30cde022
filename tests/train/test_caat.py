"""CAAT learns a few utterances by heart, and then writes them as they are spoken."""

import dataclasses

import jax
import numpy as np
import pytest

from simuljax.audio import Features, features_of
from simuljax.config.decoding import Blocks, Decoding
from simuljax.config.model import ModelConfig, Monotonic, PreDecision, SpeechConfig, Width
from simuljax.config.training import Objective
from simuljax.decode.caat import simulate_caat
from simuljax.decode.simulate import Listening
from simuljax.losses import JointObjective
from simuljax.models.joint import JointModel
from simuljax.serve.run import shapes
from simuljax.train.objective import Variables, forward
from tests.train import small, tones
from tests.train.overfitting import SPEECH_ALONE, compiling_quickly, driver_of, weights_of

pytestmark = pytest.mark.slow  # compiles much

OBJECTIVE = dataclasses.replace(SPEECH_ALONE, transducer=1.0, transducer_delay=1.0)
CAAT = ModelConfig(
    source_vocabulary=tones.VOCABULARY,
    target_vocabulary=tones.VOCABULARY,
    width=Width(model=32, hidden=64, heads=2, dropout=0.0),
    speech=SpeechConfig(
        kind="streaming", layers=2, shared=0, channels=64, chunk=4, left=16, right=2
    ),
    text=None,
    decoder="caat",
    decoder_layers=1,
    joiner_layers=2,
    predecision=PreDecision(step_ms=160),
    monotonic=Monotonic(policy="offline"),
)


@pytest.fixture(scope="module", autouse=True)
def quickly():
    with compiling_quickly():
        yield


def train(batch, objective, updates):
    """Parameters, and the terms of the last validation."""
    driver = driver_of(CAAT, objective, batch)
    state, weights = driver.first(), weights_of(driver)
    for _ in range(updates):
        state, _ = driver.update(state, [batch], weights)
    seen = jax.device_get(driver.validate(state, [batch]))
    return state.params, {name: s.numerator / s.denominator for name, s in seen.sums.items()}


def written(params, batch, blocks):
    """What streams of the batch's utterances would write, and the delays in ms."""
    statistics = tones.heard_in(batch).statistics
    features = features_of(batch.audio, Features(), statistics)
    done = simulate_caat(
        JointModel(CAAT),
        {"params": jax.device_get(params)},
        features,
        batch.audio_length,
        decoding=Decoding(blocks=blocks),
        listening=Listening(read_ms=160),
    )
    lengths = np.asarray(done.lengths)
    return [done.tokens[b, :n].tolist() for b, n in enumerate(lengths)], [
        np.asarray(done.delays[b, :n]) for b, n in enumerate(lengths)
    ]


def test_4_utterances_are_learnt_and_written_while_they_are_spoken():
    batch = tones.utterances(4, seed=3, order="straight")
    params, terms = train(batch, OBJECTIVE, 200)
    print(terms)
    assert terms["transducer"] < 0.1 and terms["st_nll"] < 0.1
    said = [row[:n].tolist() for row, n in zip(batch.target, batch.target_length, strict=True)]
    early = 0
    for blocks in (Blocks(inside=1), Blocks()):
        tokens, delays = written(params, batch, blocks)
        assert tokens == said
        for ms, samples in zip(delays, batch.audio_length, strict=True):
            early += int((ms < samples / 16).sum())
    assert early > 8, "most of it had to wait for the end"


def test_who_is_charged_for_delay_writes_sooner():
    batch = tones.utterances(4, seed=3, order="straight")
    _, free = train(batch, dataclasses.replace(OBJECTIVE, transducer_delay=1e-9), 60)
    _, charged = train(batch, dataclasses.replace(OBJECTIVE, transducer_delay=30.0), 60)
    assert charged["transducer_delay"] < 0.8 * free["transducer_delay"]


def test_only_caat_has_a_lattice():
    objective = Objective(terms=JointObjective(transducer=1.0).terms())
    with pytest.raises(ValueError, match="decoder='caat'"):
        jax.eval_shape(
            lambda: forward(
                JointModel(small.translator()),
                variables_of(small.translator()),
                small.batch(),
                small.HEARD.statistics,
                objective,
                None,
            )
        )


def variables_of(model):
    params, statistics = shapes(model)
    zeros = jax.tree.map(lambda a: np.zeros(a.shape, a.dtype), params)
    return Variables(params=zeros, statistics=statistics)


def test_a_row_without_speech_counts_nothing():
    """And the delay is divided by tokens, as the likelihood is."""
    model = dataclasses.replace(
        CAAT, target_vocabulary=small.TARGET, source_vocabulary=small.SOURCE
    )
    objective = Objective(terms=OBJECTIVE.terms())
    batch, variables = small.batch(), variables_of(model)

    def sums(batch):
        given = (JointModel(model), variables, batch, small.HEARD.statistics, objective, None)
        return forward(*given).sums

    found = jax.jit(sums)(batch)
    tokens = batch.target_length[batch.audio_length > 0].sum()
    for name in ("transducer", "transducer_delay", "st_nll"):
        assert float(found[name].denominator) == tokens
        assert np.isfinite(found[name].numerator) and found[name].numerator > 0
