"""Decode windows: prompts, tries at rising temperatures, and when one will do."""

import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Literal

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from simuljax.errors import SimuljaxError
from simuljax.models.whisper.generate import (
    Generated,
    Prompt,
    Rules,
    beam_search,
    generate,
    make_rules,
    seen_of,
)
from simuljax.models.whisper.model import Memory, Model, nothing_written
from simuljax.models.whisper.spectrogram import log_mel
from simuljax.models.whisper.tokenizer import Task, Tokenizer


@dataclass(frozen=True, kw_only=True)
class Decoding:
    """Settings of decoding a window. Limits that are None do not hold."""

    beams: int = 1  # at temperature 0; above, tokens are sampled
    temperatures: tuple[float, ...] = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)  # tried until one will do
    timestamps: Literal["predict", "none"] = "predict"
    max_tokens: int = 224
    max_initial_timestamp_s: float = 1.0
    suppress: tuple[int, ...] | None = None  # tokens; None: signs that nobody says
    compression_ratio_limit: float | None = 2.4  # above it the text repeats itself
    avg_logprob_limit: float | None = -1.0  # below it the text is a guess
    no_speech_limit: float | None = 0.6  # above it, with a guess for a text, nobody speaks
    seed: int = 0

    def __post_init__(self) -> None:
        if self.beams < 1 or self.max_tokens < 1 or not self.temperatures:
            problem = "beams and max_tokens are from 1, temperatures at least one."
            raise SimuljaxError(f"{self}: {problem}")
        if min(self.temperatures) < 0:
            raise SimuljaxError(f"temperatures are {self.temperatures}; they are from 0")


@dataclass(frozen=True, kw_only=True)
class Context:
    """The task of a window, and the tokens before its text."""

    task: Task = "transcribe"
    language: str = "en"
    prompt: tuple[int, ...] = ()  # text that was said before the window
    prefix: tuple[int, ...] = ()  # the beginning of its own text, timestamps and all
    max_tokens: int | None = None  # of its text, without beams


@dataclass(frozen=True, kw_only=True)
class Decoded:
    """The text of a window, after its prefix."""

    tokens: tuple[int, ...]
    log_probs: tuple[float, ...]  # of the tokens, and of the end if it came
    text: str
    temperature: float
    no_speech_prob: float
    avg_logprob: float
    compression_ratio: float


@jax.jit
def encode_audio(model: Model, samples: Array) -> Memory:
    """Encode windows of samples [B, N] into what the decoder attends to."""
    return encode_mel(model, log_mel(samples, model.config.dimensions.mels))


@jax.jit
def encode_mel(model: Model, mel: Array) -> Memory:
    """Encode windows of spectrograms [B, F, mels] into what the decoder attends to."""
    return model.remember(model.encode(mel))


@partial(jax.jit, static_argnames=("start", "first", "count"))
def language_probs(model: Model, memory: Memory, *, start: int, first: int, count: int) -> Array:
    """Return P(language) [B, count] of the languages with the ids from `first` on."""
    tokens = jnp.full((len(memory[0].key), 1), start, jnp.int32)
    states, *_ = model.write(tokens, nothing_written(model.config, len(tokens), 1), memory)
    return jax.nn.softmax(model.logits(states[:, 0])[:, first : first + count])


def decode(
    model: Model,
    tokenizer: Tokenizer,
    memory: Memory,
    contexts: Sequence[Context],
    options: Decoding,
) -> list[Decoded]:
    """Return the text of windows, one for each context; further rows are idle."""
    rows = len(memory[0].key)
    rules = rules_of(
        tokenizer, options.suppress, options.timestamps, options.max_initial_timestamp_s
    )
    longest = model.config.dimensions.text_positions
    prompt = make_prompt(tokenizer, contexts, options, rules, rows=rows, longest=longest)
    known = (model, memory, prompt, rules)
    results: list[Decoded | None] = [None] * len(contexts)
    for number, temperature in enumerate(options.temperatures):
        wanted = [k for k, r in enumerate(results) if r is None or _is_bad(r, options)]
        if not wanted:
            break
        active = np.isin(np.arange(rows), wanted)
        if temperature == 0 and options.beams > 1:
            found = beam_search(*known, active, limit=options.max_tokens, beams=options.beams)
        else:
            given = (np.full(rows, temperature, np.float32), active, _key(options.seed, number))
            found = generate(*known, *given, limit=options.max_tokens)
        found = jax.device_get(found)
        for k in wanted:
            results[k] = _result(found, k, temperature, tokenizer)
    return [result for result in results if result is not None]


# A window takes some milliseconds on a GPU: what is the same for all is put there once.
@lru_cache(maxsize=64)
def _key(seed: int, attempt: int) -> Array:
    return jax.random.fold_in(jax.random.key(seed), attempt)


@lru_cache(maxsize=16)
def rules_of(
    tokenizer: Tokenizer, suppress: tuple[int, ...] | None, timestamps: str, max_initial_s: float
) -> Rules:
    """Return the rules of decoding."""
    suppressed = tokenizer.unspoken if suppress is None else suppress
    return make_rules(tokenizer, suppressed, timestamps, max_initial_s)


def width_for(tokens: int, least: int = 64) -> int:
    """Return the power of two that so many tokens are padded to, so that few programs compile."""
    return max(least, 1 << (tokens - 1).bit_length())


def make_prompt(
    tokenizer: Tokenizer,
    contexts: Sequence[Context],
    options: Decoding,
    rules: Rules,
    *,
    rows: int,
    longest: int,
) -> Prompt:
    """Return the tokens before the text."""
    openings = [_opening(tokenizer, context, options, longest) for context in contexts]
    width = width_for(max(len(ids) for ids, _ in openings), least=128)  # one for most prompts
    tokens = np.full((rows, width), tokenizer.start, np.int32)
    padding, start = np.full(rows, width - 1, np.int32), np.full(rows, width - 1, np.int32)
    for row, (ids, place) in enumerate(openings):
        tokens[row, width - len(ids) :] = ids
        padding[row] = width - len(ids)
        start[row] = padding[row] + place
    everyone = (*contexts, *[Context()] * (rows - len(contexts)))
    seen = seen_of([context.prefix for context in everyone], rules)
    most = np.array([c.max_tokens or options.max_tokens for c in everyone], np.int32)
    # One transfer for all rows.
    tokens, padding, start, seen, most = jax.device_put((tokens, padding, start, seen, most))
    return Prompt(tokens=tokens, padding=padding, start=start, seen=seen, most=most)


def _opening(
    tokenizer: Tokenizer, context: Context, options: Decoding, longest: int
) -> tuple[list[int], int]:
    """Return the tokens before the text, and the place of <|startoftranscript|> among them."""
    ids = tokenizer.opening(context.task, context.language, options.timestamps)
    ids += context.prefix
    if len(ids) >= longest:
        raise SimuljaxError(
            f"a prefix of {len(context.prefix)} tokens leaves no room among {longest}; shorten it"
        )
    room = min(longest // 2 - 1, longest - len(ids) - 2)
    if not context.prompt or room < 1:
        return ids, 0
    before = [tokenizer.previous, *context.prompt[-room:]]
    return before + ids, len(before)


def _result(written: Generated, row: int, temperature: float, tokenizer: Tokenizer) -> Decoded:
    count = int(written.count[row])
    tokens = tuple(int(i) for i in written.tokens[row, :count])
    log_probs = written.log_probs[row]
    text = tokenizer.decode(tokens).strip()
    return Decoded(
        tokens=tokens,
        log_probs=tuple(float(p) for p in log_probs[: count + 1]),
        text=text,
        temperature=temperature,
        no_speech_prob=float(written.no_speech[row]),
        avg_logprob=float(log_probs.sum()) / (count + 1),
        compression_ratio=compression_ratio(text),
    )


def compression_ratio(text: str) -> float:
    """Return how many times smaller zlib makes a text; 0 of none. Repetition makes it large."""
    data = text.encode("utf-8")
    return len(data) / len(zlib.compress(data))


def is_silent(result: Decoded, options: Decoding) -> bool:
    """Return True if nobody seems to speak in a window, and its text is a guess."""
    silence, guess = options.no_speech_limit, options.avg_logprob_limit
    if silence is None or result.no_speech_prob <= silence:
        return False
    return guess is None or result.avg_logprob < guess


def _is_bad(result: Decoded, options: Decoding) -> bool:
    """Return True if a text repeats itself or is a guess, though somebody speaks."""
    most, least = options.compression_ratio_limit, options.avg_logprob_limit
    repeats = most is not None and result.compression_ratio > most
    guess = least is not None and result.avg_logprob < least
    return (repeats or guess) and not is_silent(result, options)
