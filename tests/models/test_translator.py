"""The joint translator: padding, causality, sizes of the papers (docs/models.md), cast weights."""

import dataclasses
import inspect
import re
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from simuljax.config.model import ModelConfig, Monotonic, PreDecision, SpeechConfig, Width
from simuljax.models import presets
from simuljax.models.joint import JointModel, source_of
from simuljax.models.parameters import cast_weights, initialise, parameter_count, weight_bytes
from tests.helpers import models
from tests.helpers.models import fast
from tests.train import small

FRAMES = 36
pytestmark = pytest.mark.usefixtures("quickly")


def built(**changes):
    model = JointModel(small.translator(**changes))
    return model, initialise(model, jax.random.key(0, impl="rbg"))[0]


def speech_logits(model: JointModel, params, features, frames, prefix, labels):
    bound = model.bind({"params": params})
    encoded = bound.encode_speech(features, frames, train=False)
    decisions = bound.speech_decisions(encoded, labels)
    decoded = bound.decode(prefix, encoded, decisions, jnp.int32(2), train=False)
    return decoded.logits, decoded.reading.delays


@pytest.fixture(scope="module")
def inputs():
    random = np.random.default_rng(0)
    features = jnp.asarray(random.normal(size=(2, FRAMES, 80)), jnp.float32)
    labels = jnp.asarray(np.repeat(np.arange(1, 7), 6)[None].repeat(2, 0))
    prefix = jnp.asarray(random.integers(4, small.TARGET, (2, 5)))
    return features, prefix, labels


KINDS = {
    "learnt, fixed": {},
    "chunkwise, learnable": {
        "monotonic": Monotonic(attention="chunkwise", chunk=2),
        "predecision": PreDecision(kind="learnable"),
    },
    "hard, phonemes": {
        "monotonic": Monotonic(attention="hard"),
        "predecision": PreDecision(kind="phonemes", pooling="last"),
    },
}


@pytest.mark.parametrize(
    "kind", [*list(KINDS)[:1], *(pytest.param(k, marks=pytest.mark.slow) for k in list(KINDS)[1:])]
)
def test_padding_company_and_later_targets_have_no_influence(kind, inputs):
    features, prefix, labels = inputs
    model, params = built(**KINDS[kind])
    frames = jnp.array([FRAMES, 21])

    @fast
    def run(features, frames, prefix, labels):
        return speech_logits(model, params, features, frames, prefix, labels)

    together = run(features, frames, prefix, labels)
    rubbish = features.at[1, 21:].set(1e3)
    for one, other in zip(run(rubbish, frames, prefix, labels), together, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-5)
    swapped = run(features[::-1], frames[::-1], prefix[::-1], labels[::-1])
    np.testing.assert_allclose(swapped[0][0], together[0][1], atol=1e-5)
    before, after = together[0], run(features, frames, prefix.at[:, 3].set(4), labels)[0]
    np.testing.assert_allclose(before[:, :3], after[:, :3], atol=1e-6)  # no later target is seen
    assert np.abs(before[:, 3:] - after[:, 3:]).max() > 1e-3


CAAT = models.CAAT_SPEECH
REFUSED = {
    "speech": lambda: small.translator(speech=None, text=None),
    "shared is 7": lambda: small.translator(speech=SpeechConfig(layers=8, shared=7)),
    "a multiple of 40 ms": lambda: PreDecision(step_ms=100),
    "kernel is": lambda: SpeechConfig(kernel=30),
    "shared must be 0": lambda: SpeechConfig(kind="vgg_blstm", layers=5, shared=3),
    "LSTM decoder needs 'offline'": lambda: models.translator(decoder="lstm"),
    "kind='streaming'": lambda: models.caat(speech=dataclasses.replace(CAAT, kind="transformer")),
    "right is 0": lambda: models.caat(speech=dataclasses.replace(CAAT, right=0)),
    "windows are its groups": lambda: models.caat(predecision=PreDecision(kind="every_state")),
    "no monotonic heads": lambda: dataclasses.replace(models.caat().config, monotonic=Monotonic()),
}


@pytest.mark.parametrize("message", REFUSED)
def test_what_cannot_be_built_is_refused(message):
    with pytest.raises(ValueError, match=message):
        REFUSED[message]()


@pytest.mark.slow
def test_two_sources_in_one_pass_are_as_each_alone():
    model = models.translator(decoder_layers=1)
    params, prefix = models.parameters(model), jnp.ones((2, 5), jnp.int32)
    spoken, written = models.states([12, 7], 12), models.states([5, 3], 5)

    def both(bound: JointModel):
        speech = source_of(spoken, bound.speech_decisions(spoken), jnp.int32(2))
        text = source_of(written, bound.text_decisions(written), jnp.int32(2))
        together = bound.decoder(prefix, [speech, text], train=False)
        alone = [bound.decoder(prefix, [one], train=False)[0] for one in (speech, text)]
        return together, alone

    together, alone = fast(lambda params: model.apply(params, method=both))(params)
    for one, other in zip(jax.tree.leaves(together), jax.tree.leaves(alone), strict=True):
        np.testing.assert_allclose(np.asarray(one), np.asarray(other), rtol=1e-5, atol=1e-5)
    assert float(jnp.abs(together[0].logits - together[1].logits).max()) > 1e-3


DOCS = Path(__file__).parents[2] / "docs" / "models.md"
# Name and number of parameters of each preset, with 10,000 source and 10,000 target pieces.
ROWS = re.findall(r"^\| `(\w+)` \|.* ([\d,]{9,}) \|$", DOCS.read_text(), re.MULTILINE)
SIZES = {name: int(count.replace(",", "")) for name, count in ROWS}
# With the vocabularies of the papers: Papi's 5k and 8k, Nguyen's characters, BPE400 and BPE2k. Papi
# gives 32.4M, 35.6M and, without a vocabulary, 212M for the teacher.
PUBLISHED = [
    ("papi_transformer", 5_000, 8_000, 32_357_513),
    ("papi_conformer", 5_000, 8_000, 35_631_753),
    ("papi_teacher", 17_400, 17_400, 211_996_672),
    ("small_conformer", 1_000, 1_000, 17_239_017),
    ("nguyen", 10_000, 100, 156_856_356),
    ("nguyen", 10_000, 400, 157_778_256),
    ("nguyen", 10_000, 2_000, 162_695_056),
]


def sized(name: str, source: int = 10_000, target: int = 10_000) -> ModelConfig:
    model: ModelConfig = getattr(presets, name)()
    return dataclasses.replace(model, source_vocabulary=source, target_vocabulary=target)


@pytest.mark.parametrize(
    "name", [n if n == "dar" else pytest.param(n, marks=pytest.mark.slow) for n in SIZES]
)
def test_has_the_size_that_the_docs_say(name):
    assert parameter_count(sized(name)) == SIZES[name]


def test_the_docs_have_every_preset():
    made = {name for name, made in vars(presets).items() if is_preset(made)}
    assert made == {*SIZES}


def is_preset(made) -> bool:
    own = inspect.isfunction(made) and made.__module__ == presets.__name__
    return own and not made.__name__.startswith("_") and not inspect.signature(made).parameters


@pytest.mark.parametrize(("name", "source", "target", "count"), PUBLISHED)
def test_has_the_size_of_the_paper(name, source, target, count):
    assert parameter_count(sized(name, source, target)) == count


def test_a_recogniser_has_its_head_above_its_own_layers():
    recogniser = presets.recogniser(presets.dar())
    assert recogniser.monotonic.policy == "offline"
    assert recogniser.speech is not None and recogniser.speech.ctc_after == 6


HALF = Width(model=16, hidden=24, heads=2, dropout=0.0, dtype="bfloat16")


def test_half_weights_compute_the_same():
    speech = models.CAAT_SPEECH
    model = models.translator(kind="learnable", width=HALF, speech=speech, decoder_layers=1)
    params = models.parameters(model)["params"]
    cast = cast_weights(params, "bfloat16")

    @jax.jit
    def forward(params):
        bound = model.bind({"params": params})
        features = jax.random.normal(jax.random.key(0), (2, 48, models.FEATURES))
        encoded = bound.encode_speech(features, jnp.array([48, 31]), train=False)
        points = bound.speech_decisions(encoded)
        decoded = bound.decode(
            jnp.ones((2, 5), jnp.int32), encoded, points, jnp.int32(1), train=False
        )
        return dataclasses.asdict(decoded)

    kinds = {
        "/".join(entry.key for entry in path[-2:]): leaf.dtype.name
        for path, leaf in jax.tree_util.tree_leaves_with_path(cast)
    }
    kernels = {kinds[name] for name in kinds if name.endswith("kernel") and "trigger" not in name}
    assert kernels == {"bfloat16"}  # weights are half, and norms and triggers are not
    assert {kinds[name] for name in kinds if name.endswith("scale")} == {"float32"}
    assert kinds["trigger/kernel"] == "float32"
    assert weight_bytes(params) * 0.5 < weight_bytes(cast) < weight_bytes(params) * 0.65
    one, other = jax.tree.leaves(forward(params)), jax.tree.leaves(forward(cast))
    assert len(one) > 2
    for a, b in zip(one, other, strict=True):
        np.testing.assert_array_equal(np.asarray(a, np.float32), np.asarray(b, np.float32))
