"""From a batch to the terms of the objective: features, both branches, losses."""

import dataclasses
from collections.abc import Mapping
from typing import Any

import flax.struct
import jax
import jax.numpy as jnp
from flax.core import FrozenDict

from simuljax.audio import FeatureRecord, features_of, frame_count
from simuljax.audio.spec_augment import spec_augment
from simuljax.audio.wave_augment import wave_augment
from simuljax.batch import Batch
from simuljax.config.training import Objective
from simuljax.losses.objective import TermSum, sum_terms, term_values
from simuljax.losses.terms import Branch, Outputs, logged_values
from simuljax.losses.transducer import transducer
from simuljax.models.joint import Decoded, Encoded, JointModel, source_of
from simuljax.nn.layers import STATISTICS, real
from simuljax.nn.monotonic import Decisions, Source
from simuljax.text import BOS, EOS, Words, count_words, ctc_word_counts

BATCH_KEYS: tuple[str, ...] = ("dropout", "noise", "augment", "policy")
WAVE = 0x7FFFFFFF  # apart from the places in a batch, which SpecAugment folds into the same key


@flax.struct.dataclass
class Forward:
    """A pass over a batch: the terms of the loss as sums, and what is only logged."""

    sums: dict[str, TermSum]
    logged: dict[str, TermSum]  # means that are not losses: accuracies, energies
    statistics: Any  # BatchNorm's, as they are after the pass; {} for a model without


@flax.struct.dataclass
class Variables:
    """Variables of a forward pass."""

    params: Any
    statistics: Any  # BatchNorm's
    # Parameters of a text branch that DAR compares speech with; {} where it needs none.
    teacher: Any = flax.struct.field(default_factory=dict)


def forward(
    model: JointModel,
    variables: Variables,
    batch: Batch,
    front_end: FeatureRecord,
    objective: Objective,
    key: jax.Array | None,
    words: Words | None = None,
    *,
    watch: bool = False,
) -> Forward:
    """Return sums of every term over the batch; a key means training, none validation.

    `words` serve models that decide at words, or count those that they write. With `watch` more is
    logged (`logged_values`).
    """
    keys = dict(zip(BATCH_KEYS, jax.random.split(key, 4), strict=True)) if key is not None else {}
    bound = model.bind(
        {"params": variables.params, STATISTICS: variables.statistics},
        rngs={name: keys[name] for name in BATCH_KEYS[:2] if name in keys},
        mutable=[STATISTICS] if keys else False,
    )
    k = draw_k(model, keys.get("policy"))
    speech, text = branches(bound, batch, front_end, objective, k, keys, words)
    teacher = None
    if speech is not None and text is not None and objective.teacher is not None:
        fixed = model.bind({"params": variables.teacher})
        only_text = dataclasses.replace(batch, audio=batch.audio[:, :0])
        _, teacher = branches(fixed, only_text, front_end, objective, k)
    outputs = Outputs(targets=batch.target, speech=speech, text=text, teacher=teacher)
    with jax.named_scope("losses"):
        sums = sum_terms(term_values(objective.terms, outputs))
        dar = bool(objective.weight("dar"))
        logged = sum_terms(logged_values(outputs, objective.matching, dar=dar, watch=watch))
    moved = dict(bound.variables.get(STATISTICS, {}))
    return Forward(sums=sums, logged=logged, statistics=moved)


def draw_k(model: JointModel, key: jax.Array | None) -> jax.Array:
    """Return wait-k's k for a batch: drawn from its range in training, else its middle."""
    first, last = model.config.monotonic.wait_k
    if key is None or first == last:
        return jnp.int32((first + last) // 2)
    return jax.random.randint(key, (), first, last + 1)


def branches(
    bound: JointModel,
    batch: Batch,
    front_end: FeatureRecord,
    objective: Objective,
    k: jax.Array,
    keys: Mapping[str, jax.Array] = FrozenDict(),
    words: Words | None = None,
) -> tuple[Branch | None, Branch | None]:
    """Return the speech and text branches of a model bound to its variables.

    With keys as in training. A branch that the model or the batch lacks, or that no term asks for,
    is None.
    """
    config, train, from_speech, from_text = bound.config, bool(keys), None, None
    if config.speech is not None and batch.audio.shape[1]:
        features, frames = speech_features(batch, front_end, objective, keys.get("augment"))
        encoded = bound.encode_speech(features, frames, train=train)
        if config.predecision.kind == "ctc_words" and encoded.ctc is not None:
            counts = ctc_word_counts(encoded.ctc, encoded.lengths, known(words).source)
            encoded = dataclasses.replace(encoded, words=counts)
        labels = batch.words if config.predecision.kind == "words" else batch.phonemes
        from_speech = encoded, bound.speech_decisions(encoded, labels, train=train)
    if config.text is not None and (from_speech is None or objective.needs("text")):
        encoded = bound.encode_text(batch.source, batch.source_length, train=train)
        from_text = encoded, bound.text_decisions(encoded)
    sources = [source_of(*given, k) for given in (from_speech, from_text) if given is not None]
    if from_speech is not None and config.monotonic.counts == "words":
        written = words_before(batch.target, known(words))
        sources[0] = dataclasses.replace(sources[0], written=written)
    decoded = bound.decoder(shift(batch.target), sources, train=train)
    text = None if from_text is None else branch(decoded[-1], *from_text, batch.target_length)
    if from_speech is None:
        return None, text
    encoded, decisions = from_speech
    gate, decided = decisions.gate, real(decisions.count, decisions.ends.shape[1])
    speech = dataclasses.replace(
        branch(decoded[0], encoded, decisions, batch.target_length),
        ctc=encoded.ctc,
        decided=None if gate is None else jnp.where(decided, gate, 0).sum(-1),
        transcript=batch.source,
        transcript_length=jnp.maximum(batch.source_length - 1, 0),  # without end-of-sentence
    )
    if objective.needs("lattice"):
        speech = with_lattice(bound, speech, sources[0], batch, objective, train)
    return speech, text


@jax.named_scope("front_end")
def speech_features(
    batch: Batch, front_end: FeatureRecord, objective: Objective, key: jax.Array | None
) -> tuple[jax.Array, jax.Array]:
    """Return normalised features [B, F, D] and their lengths; augmented if there is a key."""
    audio = batch.audio
    if key is not None and objective.wave_augment.active:
        wave_key = jax.random.fold_in(key, WAVE)
        audio = wave_augment(wave_key, audio, batch.audio_length, objective.wave_augment)
    features = features_of(audio, front_end.features, front_end.statistics)
    frames = frame_count(batch.audio_length, front_end.features.filterbank)
    if key is not None and objective.augment is not None:
        features = spec_augment(key, features, frames, objective.augment)
    return features, frames


def known(words: Words | None) -> Words:
    """Return what words are, or raise an error."""
    if words is None:
        raise ValueError("the model decides at words or counts words: say what they are (`words`)")
    return words


def words_before(target: jax.Array, words: Words) -> jax.Array:
    """Return int32 [B, T]: words before a target's own; for end-of-sentence, all words."""
    count = count_words(words.target, jnp.asarray(target), trailing="count")
    return jnp.where(target == EOS, count, jnp.maximum(count - 1, 0))


def shift(target: jax.Array) -> jax.Array:
    """Return the decoder's input: begin-of-sentence, then the targets."""
    return jnp.pad(target[:, :-1], [(0, 0), (1, 0)], constant_values=BOS)


def branch(
    decoded: Decoded, encoded: Encoded, decisions: Decisions, target_length: jax.Array
) -> Branch:
    """Return a branch as terms see it; an example that it lacks has length 0."""
    reading = decoded.reading
    layers, batch, heads, targets = reading.delays.shape
    return Branch(
        logits=decoded.logits,
        target_length=jnp.where(encoded.lengths > 0, target_length, 0),
        state_length=encoded.lengths,
        delays=reading.delays.swapaxes(0, 1).reshape(batch, layers * heads, targets),
        states=encoded.states,
        energies=reading.energy,
        energy_bias=reading.bias,
        alignment=reading.alpha,
        decision_length=decisions.count,
    )


def with_lattice(
    bound: JointModel,
    speech: Branch,
    source: Source,
    batch: Batch,
    objective: Objective,
    train: bool,
) -> Branch:
    """Add CAAT's lattice and its transducer loss to the speech branch."""
    if bound.config.decoder != "caat":
        if not (objective.weight("transducer") or objective.weight("transducer_delay")):
            return speech  # a term of the user's own has to do without
        raise ValueError(
            f"the transducer counts in the objective, and the decoder is {bound.config.decoder!r}: "
            "train a model with decoder='caat', or set transducer and transducer_delay to 0"
        )
    lattice = bound.decoder.lattice(jnp.asarray(batch.target), source, train=train)
    with jax.named_scope("transducer"):
        paths = transducer(lattice.blank, lattice.label, lattice.groups, speech.target_length)
    return dataclasses.replace(speech, lattice=lattice, transducer=paths)
