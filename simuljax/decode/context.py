"""What all decoding needs: the model with its choices, and the source as far as it is known.

`encode_speech` and `encode_text` encode the first part of a source as a whole, for encoders that
look at all of it. Choices that are arrays are apart, so that a sweep over them compiles once.
"""

import math
from dataclasses import dataclass, field, replace
from typing import Any

import flax.struct
import jax.numpy as jnp
from jax import Array

from simuljax.audio import Features, Statistics
from simuljax.config.decoding import Branch, Decoding, check_policy
from simuljax.config.fields import Checked, setting
from simuljax.config.model import Monotonic
from simuljax.decode.policies import Policy, PolicyError, WaitK
from simuljax.models.encoders import Encoded
from simuljax.models.joint import JointModel
from simuljax.models.parameters import cast_weights
from simuljax.models.streaming import chunking_of, states_after
from simuljax.nn.layers import zero_padding
from simuljax.nn.monotonic import Decisions, Memory, Selection, SourceProgress, progress_of
from simuljax.text import Words
from simuljax.text.words import ctc_word_counts


@flax.struct.dataclass
class Control:
    """The choices of `Decoding` that are arrays, so that a sweep over them compiles once."""

    selection: Selection
    numbers: dict[str, Array]  # of the policy
    words: Words | None = None  # which ids begin and end words


@flax.struct.dataclass
class Context:
    """The model and the choices: what all of decoding needs. What has no array is compiled in."""

    variables: Any  # of `model.apply`
    control: Control
    model: JointModel = flax.struct.field(pytree_node=False)
    decoding: Decoding = flax.struct.field(pytree_node=False)

    @property
    def policy(self) -> Policy | None:
        """Return the policy with its numbers, which are arrays."""
        policy = self.decoding.policy
        return None if policy is None else policy.with_numbers(self.control.numbers)

    def apply(self, *given: Any, method: Any, **options: Any) -> Any:
        return self.model.apply(self.variables, *given, method=method, **options)


def context_of(
    model: JointModel, variables: Any, decoding: Decoding, words: Words | None = None
) -> Context:
    """Return the context of a decoding; policies that count words need `words`."""
    control = control_of(decoding, model.config.monotonic, words)
    return Context(model=model, variables=variables, control=control, decoding=decoding.fixed())


def control_of(decoding: Decoding, monotonic: Monotonic, words: Words | None = None) -> Control:
    """Return the arrays; policies that count words need `words`."""
    k = sum(monotonic.wait_k) // 2 if decoding.k is None else decoding.k
    policy = decoding.policy
    if policy is not None and "words" in policy.needs and words is None:
        raise PolicyError(f"{policy.name} counts words: give words=Words.of(source, target) too")
    numbers = {} if policy is None else policy.numbers()
    dtypes = {n: jnp.int32 if isinstance(v, int) else jnp.float32 for n, v in numbers.items()}
    return Control(
        selection=Selection(
            energy=jnp.float32(math.log(decoding.threshold / (1 - decoding.threshold))),
            k=jnp.int32(k),
            everything=policy is not None,
            weights=policy is not None and "attention" in policy.needs,
        ),
        numbers={name: jnp.asarray(value, dtypes[name]) for name, value in numbers.items()},
        words=words,
    )


@dataclass(frozen=True, kw_only=True)
class StreamLimits(Checked):
    """The sizes of a stream's arrays.

    A source of so many states has ended, whether its sound goes on or not; a sentence of so many
    tokens is cut. With more tokens than events to write, a step leaves the rest to the next one.
    """

    states: int = setting(1500, help="Encoder states of 40 ms; tokens of a text.", low=1)
    tokens: int = setting(300, help="Tokens of a sentence.", low=1)
    events: int = setting(32, help="Tokens of a step.", low=1)


@flax.struct.dataclass
class StreamParams:
    """Everything a step computes with: parameters, statistics of the features, choices."""

    variables: Any  # of `model.apply`
    statistics: Statistics | None  # None: of text
    control: Control


@dataclass(frozen=True, kw_only=True)
class ModelDecoder:
    """A model with its choices: what streams of every kind have in common."""

    model: JointModel
    branch: Branch = "speech"
    features: Features = field(default_factory=Features)
    decoding: Decoding = field(default_factory=Decoding)
    limits: StreamLimits = field(default_factory=StreamLimits)

    def __post_init__(self) -> None:
        check_policy(self.decoding.policy, self.model.config, self.branch)

    def params(
        self, variables: Any, statistics: Statistics | None = None, words: Words | None = None
    ) -> StreamParams:
        """Return what a step takes first, with weights in the type that they are computed with.

        Speech has `statistics`; `words` serve policies that count them.
        """
        control = control_of(self.decoding, self.model.config.monotonic, words)
        cast = cast_weights(variables["params"], self.model.config.width.dtype)
        variables = {**variables, "params": cast}
        return StreamParams(variables=variables, statistics=statistics, control=control)

    def context(self, params: StreamParams) -> Context:
        return Context(
            variables=params.variables,
            control=params.control,
            model=self.model,
            decoding=self.decoding.fixed(),
        )


@flax.struct.dataclass
class Known:
    """The source as far as it is known, projected for every layer."""

    memory: Memory  # layers first
    progress: SourceProgress
    samples: Array | None = None  # int32 [B]: of speech
    units: Array | None = None  # int32 [B]: words of the source, if these are counted

    @property
    def batch(self) -> int:
        return self.progress.lengths.shape[0]

    @property
    def size(self) -> int:
        """Return the most states that a source can have."""
        return self.memory.value.shape[2]


def encode_speech(
    context: Context,
    features: Array,
    frames: Array,
    ended: Array,
    labels: Array | None = None,
    samples: Array | None = None,
) -> Known:
    """Return what is known after the first `frames` [B] of the features [B, F, D].

    Where `ended` [B], that is all of the source. `samples` [B] are noted. `units` are the words in
    the output of the CTC head, if the policy or else the model counts these.
    """

    def encode(model: JointModel) -> tuple[Encoded, Decisions]:
        encoded = model.encode_speech(features, frames, train=False)
        encoded = _count_source_words(context, _complete(model, encoded, frames, ended))
        return encoded, model.speech_decisions(encoded, labels, ended=ended)

    encoded, decisions = context.apply(method=encode)
    units = None if encoded.words is None else encoded.words[:, -1]
    known = known_of(context, encoded, decisions, ended)
    return replace(known, samples=samples, units=units)


def encode_text(context: Context, tokens: Array, lengths: Array, ended: Array) -> Known:
    """Return what is known after the first `lengths` [B] of the tokens [B, L]."""

    def encode(model: JointModel) -> tuple[Encoded, Decisions]:
        encoded = model.encode_text(tokens, lengths, train=False)
        return encoded, model.text_decisions(encoded)

    encoded, decisions = context.apply(method=encode)
    return known_of(context, encoded, decisions, ended)


def remember(context: Context, states: Array, keys: Array) -> Memory:
    """Project states [B, K, D] and decision keys [B, W, D] for the decoder, once per source."""
    return context.apply(method=lambda model: model.decoder.remember(states, keys))


def known_of(context: Context, encoded: Encoded, decisions: Decisions, ended: Array) -> Known:
    """Return the states as the decoder attends to them."""
    memory = remember(context, encoded.states, decisions.keys)
    return Known(memory=memory, progress=progress_of(decisions, encoded.lengths, ended))


def _complete(model: JointModel, encoded: Encoded, frames: Array, ended: Array) -> Encoded:
    """Drop the states of a streaming encoder that still wait for what follows them."""
    speech = model.config.speech
    if speech is None or not speech.is_incremental:
        return encoded
    arrived = states_after(speech, frames)
    complete = chunking_of(speech).complete(arrived) * speech.chunk
    lengths = jnp.where(ended, encoded.lengths, complete)
    return replace(encoded, states=zero_padding(encoded.states, lengths), lengths=lengths)


def _count_source_words(context: Context, encoded: Encoded) -> Encoded:
    """Count the words of the CTC head, if anything needs them."""
    policy, words = context.decoding.policy, context.control.words
    by_policy = policy is not None and "units" in policy.needs
    by_model = words is not None and context.model.config.predecision.kind == "ctc_words"
    if not (by_policy or by_model):
        return encoded
    assert words is not None and encoded.ctc is not None
    trailing = policy.trailing if by_policy and isinstance(policy, WaitK) else "count"
    counted = ctc_word_counts(encoded.ctc, encoded.lengths, words.source, trailing=trailing)
    return replace(encoded, words=counted)
