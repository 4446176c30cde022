"""The model's side: windows of sound to hypotheses, many at once."""

import string
from collections.abc import Iterator, Sequence

import numpy as np

from simuljax.audio import RATE
from simuljax.models.whisper import Context, Decoded, Tokenizer, Whisper
from simuljax.models.whisper.bound import Heard
from simuljax.models.whisper.config import HOP
from simuljax.models.whisper.decoding import decode, hear
from simuljax.models.whisper.languages import UNSPACED, language_code
from simuljax.models.whisper.timing import align_text
from simuljax.models.whisper.transcribe import Request, Transcriber, stack, with_prefix
from simuljax.serve.interpret.course import Window
from simuljax.serve.interpret.hypothesis import Hypothesis, Segment, Token
from simuljax.serve.interpret.policies import AlignAtt
from simuljax.serve.interpret.settings import Interpreting

_STATE = 2 * HOP  # samples


def write(
    whisper: Whisper, windows: Sequence[Window], interpreting: Interpreting, *, rows: int
) -> list[Hypothesis]:
    """Of each window, in one call of `rows` rows; those beyond the windows are idle."""
    request = Request(window=interpreting.padding)
    heard = hear(whisper.model, stack([w.samples for w in windows], rows, request))
    contexts = _contexts(whisper, windows, heard, interpreting)
    decoded = [
        with_prefix(result, context.prefix)
        for result, context in zip(
            decode(whisper.model, whisper.tokenizer, heard, contexts, interpreting.decoding),
            contexts,
            strict=True,
        )
    ]
    states = _states(whisper, heard, decoded, contexts, windows, interpreting)
    return [
        _hypothesis(whisper.tokenizer, *row)
        for row in zip(decoded, states, contexts, windows, strict=True)
    ]


def _contexts(
    whisper: Whisper, windows: Sequence[Window], heard: Heard, interpreting: Interpreting
) -> list[Context]:
    tokenizer = whisper.tokenizer
    languages = [language_code(w.language) if w.language else None for w in windows]
    if not tokenizer.multilingual:
        languages = ["en" for _ in windows]
    if not all(languages):
        probs = Transcriber(whisper.model, tokenizer).languages(heard)
        guesses = [tokenizer.language_codes[int(row.argmax())] for row in probs]
        languages = [known or guess for known, guess in zip(languages, guesses, strict=False)]
    return [
        Context(
            task=interpreting.task,
            language=language or "en",
            prompt=window.prompt,
            prefix=(tokenizer.timestamps.start, *window.begun) if window.begun else (),
        )
        for window, language in zip(windows, languages, strict=True)
    ]


def _states(
    whisper: Whisper,
    heard: Heard,
    decoded: Sequence[Decoded],
    contexts: Sequence[Context],
    windows: Sequence[Window],
    interpreting: Interpreting,
) -> list[np.ndarray]:
    """The encoder state that each token of text attends to most, if the policy asks for it."""
    texts = [[i for i in d.tokens if i < whisper.tokenizer.end] for d in decoded]
    if not isinstance(interpreting.policy, AlignAtt):
        return [np.zeros(len(text), np.int64) for text in texts]
    frames = [len(w.samples) // HOP for w in windows]
    given = (whisper.model, whisper.tokenizer, heard, texts, contexts, frames)
    return [alignment.matrix[:-1].argmax(-1) for alignment in align_text(*given)]


def _hypothesis(
    tokenizer: Tokenizer, decoded: Decoded, states: np.ndarray, context: Context, window: Window
) -> Hypothesis:
    written = "en" if context.task == "translate" else context.language
    parts = split_segments(tokenizer, decoded, len(window.samples) / RATE)
    segments, place = [], 0
    for ids, log_probs, start, end in parts:
        words = words_of(tokenizer, ids, states[place : place + len(ids)], written)
        place += len(ids)
        if start < end and any(map(str.isalnum, tokenizer.decode(ids))):
            segments.append(
                Segment(
                    words=tuple(words),
                    start=start,
                    end=end,
                    log_probability=float(np.mean(log_probs)),
                    no_speech=decoded.no_speech_prob,
                )
            )
    return Hypothesis(
        segments=tuple(segments),
        states=len(window.samples) // _STATE,
        no_speech=decoded.no_speech_prob,
        log_probability=decoded.avg_logprob,
        language=context.language,
    )


Part = tuple[list[int], list[float], float, float]


def split_segments(tokenizer: Tokenizer, decoded: Decoded, seconds: float) -> Iterator[Part]:
    """Ids of text and their log P between timestamps, and these, none after the end of the sound.

    Text after the last timestamp goes to the end.
    """
    ids: list[int] = []
    log_probs: list[float] = []
    start = 0.0
    for token, log_prob in zip(decoded.tokens, decoded.log_probs, strict=False):
        if token < tokenizer.end:
            ids.append(token)
            log_probs.append(log_prob)
        elif token >= tokenizer.timestamps.start:
            now = min(tokenizer.seconds(token), seconds)
            if ids:
                yield ids, log_probs, start, now
                ids, log_probs = [], []
            start = now
    if ids:
        yield ids, log_probs, start, seconds


def words_of(
    tokenizer: Tokenizer, ids: Sequence[int], states: Sequence[int] | np.ndarray, language: str
) -> list[Token]:
    """Words as they are separated by spaces; in a language without, characters.

    Marks of punctuation belong to the word before them, and their attention, which is anywhere, to
    none.
    """
    words: list[Token] = []
    place = 0
    for unit in tokenizer.words(ids, language):
        mark = unit.text.strip() in string.punctuation
        latest = 0 if mark else max(map(int, states[place : place + len(unit.tokens)]))
        place += len(unit.tokens)
        begins = not words or (unit.text.startswith(" ") if language not in UNSPACED else not mark)
        if begins:
            words.append(Token(text=unit.text, ids=unit.tokens, state=latest))
        else:
            last = words.pop()
            words.append(
                Token(
                    text=last.text + unit.text,
                    ids=last.ids + unit.tokens,
                    state=max(last.state, latest),
                )
            )
    stripped = (Token(text=w.text.strip(), ids=w.ids, state=w.state) for w in words)
    return [word for word in stripped if word.text]
