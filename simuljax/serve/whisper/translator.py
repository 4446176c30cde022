"""Whisper as a translator: whole recordings, one stream, or many (Dugan et al. 2023).

    stream = simuljax.load("ggml-tiny.bin").stream(policy=Consensus(threshold=0.7), window_s=2)

With every window the sound since the last committed point is encoded anew, and written from the
committed words on; the policy says how much of the text is committed.
"""

import dataclasses
import functools
import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Self

import numpy as np

from simuljax.audio import RATE
from simuljax.audio.filterbank import SHIFT
from simuljax.config.decoding import Beam
from simuljax.config.fields import ConfigError
from simuljax.decode.policies import EDAtt, Policy, PolicyError
from simuljax.errors import unknown
from simuljax.models.whisper import Context, Decoded, Decoding, Tokenizer, Whisper
from simuljax.models.whisper.decoding import decode, encode_audio
from simuljax.models.whisper.model import Memory
from simuljax.models.whisper.timing import align_text
from simuljax.models.whisper.tokenizer import language_code
from simuljax.models.whisper.transcribe import padded_s, stack, with_prefix
from simuljax.serve.translator import Audio, Translator, batch_sizes, batches, samples_of
from simuljax.serve.whisper.hypothesis import (
    Hypothesis,
    Segment,
    silent_samples,
    split_segments,
    words_of,
)
from simuljax.serve.whisper.session import WhisperSession, WhisperStreaming, Window

_STATE = 2 * SHIFT  # samples
COMMON_S, COMMON_TOKENS = 15, 60  # sound of most windows, and text in it that is committed
_FEW, _PER_SECOND = 16, 10.0  # tokens of a window: more are a loop, for which all streams wait


class WhisperTranslator(Translator):
    """Whisper with the settings that its streams have by default."""

    live_settings = {"behind": "latest"}  # noqa: RUF012 (windows are left out when it is late)

    def __init__(self, model: Whisper, settings: WhisperStreaming | None = None):
        self.whisper, self.settings = model, settings or WhisperStreaming()
        tokenizer = model.tokenizer
        self.languages = tuple(tokenizer.language_codes) if tokenizer.multilingual else ("en",)

    @property
    def name(self) -> str:
        return self.whisper.config.name

    def translate(self, audio: Audio, *, rate: int = RATE, beam: int | Beam = 1) -> str:
        """Return the text of a recording, as the settings' task has it; "" for silence."""
        samples = samples_of(audio, rate)
        if silent_samples(samples, self.settings.guards) == len(samples):
            return ""
        found = self.whisper.transcribe(
            samples,
            task=self.settings.task,
            language=self.settings.language,
            decoding=Decoding(beams=beam if isinstance(beam, int) else beam.size),
        )
        return found.text

    def having(self, **overrides: Any) -> Self:
        """Return the model with other settings; `read_ms` is `window_s` in milliseconds."""
        names = [field.name for field in dataclasses.fields(WhisperStreaming)]
        if (read_ms := overrides.pop("read_ms", None)) is not None:
            overrides["window_s"] = read_ms / 1000
        for name in overrides:
            if name not in names:
                raise TypeError(f"a stream of Whisper has no such setting: {unknown(name, names)}")
        return type(self)(self.whisper, dataclasses.replace(self.settings, **overrides))

    def backend(self, **overrides: Any) -> "WhisperBackend":
        return WhisperBackend(self.whisper, self.having(**overrides).settings)


class WhisperBackend:
    """Whisper with the settings of its streams."""

    def __init__(self, model: Whisper, settings: WhisperStreaming):
        check_settings(model, settings)
        self.whisper, self.settings = model, settings

    def open(self) -> WhisperSession:
        return WhisperSession(self.settings, functools.partial(check_settings, self.whisper))

    def rows(self, streams: int) -> Any:
        return WhisperRows(self.whisper, batch_sizes(streams))

    def compile(self, streams: int) -> None:
        """Write windows of all common shapes, so that nobody waits for one to be compiled."""
        settings, token = self.settings, self.whisper.tokenizer.encode(" a")[0]
        room = self.whisper.config.dimensions.text_positions // 2
        forced = min(COMMON_TOKENS, room) if settings.policy.unit == "word" else 0
        lengths = {padded_s(s * RATE, settings.padding): s for s in range(1, COMMON_S)}.values()

        def compile_shape(rows: int, seconds: int) -> None:
            for text in {0, forced}:
                window = Window(
                    samples=np.zeros(seconds * RATE, np.int16),
                    prompt=(token,) * settings.prompt_tokens,  # the longest
                    forced=(token,) * text,
                    language=settings.language,
                    settings=settings,
                )
                write(self.whisper, [window], rows=rows, tokens=1)

        shapes = [*itertools.product(batch_sizes(streams), lengths)]
        with ThreadPoolExecutor(len(shapes)) as pool:
            list(pool.map(lambda shape: compile_shape(*shape), shapes))


class WhisperRows:
    """Streams that keep their sound on the host; a step encodes those that have a window."""

    meanwhile: Callable[[], object] = bool  # not called: the host has work during a step

    def __init__(self, model: Whisper, sizes: Sequence[int]):
        self.whisper, self.sizes = model, sizes  # windows that are written together, rising

    def step(self, reads: Mapping[int, Window]) -> dict[int, Hypothesis]:
        """Write the windows of each length together: other padding makes other words."""
        groups: dict[Any, list[int]] = {}
        for row, window in reads.items():
            padding = padded_s(len(window.samples), window.settings.padding)
            groups.setdefault((padding, window.settings), []).append(row)
        written = {}
        for group in groups.values():
            for rows, size in batches(group, self.sizes):
                found = write(self.whisper, [reads[row] for row in rows], rows=size)
                written |= dict(zip(rows, found, strict=True))
        return {row: written[row] for row in reads}


def check_settings(model: Whisper, settings: WhisperStreaming) -> None:
    """Refuse settings that the model cannot have."""
    language = settings.language
    other = language is not None and language_code(language) != "en"
    if not model.tokenizer.multilingual and (settings.task == "translate" or other):
        raise ConfigError(
            f"{model.config.name} transcribes English alone; load a multilingual model, or ask for "
            "task='transcribe', language='en'"
        )
    if language is not None:
        try:
            model.tokenizer.language_id(language)
        except ValueError as error:
            raise ConfigError(str(error)) from None
    check_whisper_policy(settings.policy)


def check_whisper_policy(policy: Policy) -> None:
    """Refuse a policy that no Whisper model can run."""
    if "units" in policy.needs:
        raise PolicyError(f"{policy.name} with units='ctc' needs a CTC head; Whisper has none")
    if policy.first_read_ms is not None:
        raise PolicyError(
            f"{policy.name} has READs of its own; those of a Whisper model are as far apart as its "
            "hypotheses (read_ms, or --window of translate). Use --policy wait-k or alignatt"
        )
    chosen = [n for n in ("layer", "heads") if getattr(policy, n, None) not in (None, "mean")]
    if isinstance(policy, EDAtt) or chosen:
        raise PolicyError(
            f"{policy.name}: Whisper's words are aligned by its alignment heads together, without "
            f"{' and '.join(chosen) or 'a sum of attention'}; use AlignAtt(frames=...)"
        )


def write(
    model: Whisper, windows: Sequence[Window], *, rows: int, tokens: int | None = None
) -> list[Hypothesis]:
    """Write windows of one length and settings in one batch; rows beyond the windows are idle.

    A text has at most `tokens`, by default as many as its sound may have.
    """
    settings, tokenizer = windows[0].settings, model.tokenizer
    memory = encode_audio(model.model, stack([w.samples for w in windows], rows, settings.padding))
    contexts = [
        Context(
            task=settings.task,
            language=language,
            prompt=window.prompt,
            prefix=(tokenizer.timestamps.start, *window.forced) if window.forced else (),
            max_tokens=tokens or _FEW + math.ceil(_PER_SECOND * len(window.samples) / RATE),
        )
        for window, language in zip(windows, _languages(model, windows, memory), strict=True)
    ]
    results = decode(model.model, tokenizer, memory, contexts, settings.decoding)
    pairs = zip(results, contexts, strict=True)
    decoded = [with_prefix(result, context.prefix) for result, context in pairs]
    texts = [[i for i in d.tokens if i < tokenizer.end] for d in decoded]
    states = [np.zeros(len(text), np.int64) for text in texts]
    if "attention" in settings.policy.needs:  # the state that each token attends to most
        frames = [len(w.samples) // SHIFT for w in windows]
        aligned = align_text(model.model, tokenizer, memory, texts, contexts, frames)
        states = [alignment.matrix[:-1].argmax(-1) for alignment in aligned]
    each = zip(decoded, states, contexts, windows, strict=True)
    return [_hypothesis(tokenizer, *one) for one in each]


def _languages(model: Whisper, windows: Sequence[Window], memory: Memory) -> list[str]:
    """Return the code of the language that is spoken in each window, guessed if not known."""
    if not model.tokenizer.multilingual:
        return ["en" for _ in windows]
    known = [language_code(window.language) if window.language else None for window in windows]
    guesses = known if all(known) else model.likely_languages(memory)  # also of idle rows
    return [language or guess or "en" for language, guess in zip(known, guesses, strict=False)]


def _hypothesis(
    tokenizer: Tokenizer, decoded: Decoded, states: np.ndarray, context: Context, window: Window
) -> Hypothesis:
    written = "en" if context.task == "translate" else context.language
    segments, place = [], 0
    for ids, log_probs, start, end in split_segments(
        tokenizer, decoded, len(window.samples) / RATE
    ):
        words = words_of(tokenizer, ids, states[place : place + len(ids)], written)
        place += len(ids)
        if start < end and any(map(str.isalnum, tokenizer.decode(ids))):
            segment = Segment(
                words=tuple(words),
                start=start,
                end=end,
                log_probability=float(np.mean(log_probs)),
                no_speech=decoded.no_speech_prob,
            )
            segments.append(segment)
    return Hypothesis(
        segments=tuple(segments),
        states=len(window.samples) // _STATE,
        no_speech=decoded.no_speech_prob,
        log_probability=decoded.avg_logprob,
        language=context.language,
    )
