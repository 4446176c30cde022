"""Translate a split with a cascade: a recogniser, and a text model that reads its words.

In batches, the words of the simulated recogniser are the READs of the simulated text model, and a
target word has the delay of the recognised word that allowed it. In real time, utterances go
through `simuljax.serve.cascade`. Both give the same words and delays.
"""

from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass, replace

import jax
import numpy as np

from simuljax.audio import RATE
from simuljax.batch import Batch
from simuljax.config.evaluation import Evaluation
from simuljax.config.fields import ConfigError
from simuljax.config.model import ModelConfig
from simuljax.decode.policies import WaitK
from simuljax.eval import Record
from simuljax.models.translator import Translator as Network
from simuljax.runs.translate import RunSplit, decode_batch, reference, word_delays
from simuljax.serve.cascade import Cascade, CascadeStream
from simuljax.serve.run import Run, learnt, open_run
from simuljax.serve.run_translator import RunTranslator, with_step
from simuljax.serve.session import Word
from simuljax.text import EOS


@dataclass(frozen=True, kw_only=True)
class Transcript:
    """A recognised sentence, with the delays of its words and of its end."""

    words: tuple[str, ...]
    delays: tuple[float, ...]  # ms
    end: float

    def at(self, reads: int) -> float:
        """Return the delay of the n-th READ of the text model; the last READ is the end."""
        return self.delays[reads - 1] if reads <= len(self.words) else self.end


@dataclass(frozen=True, kw_only=True)
class CascadeSplit:
    """A recogniser with its split, and the translator of its transcripts."""

    first: RunSplit
    cascade: Cascade

    @property
    def chosen(self) -> Evaluation:
        """Return the evaluation of both models."""
        return self.first.chosen

    @property
    def steps(self) -> tuple[int, ...]:
        """Return the updates of both checkpoints."""
        return (*self.cascade.recogniser.steps, *self.cascade.translator.steps)

    def __len__(self) -> int:
        return len(self.first)

    def records(self, done: Set[int]) -> Iterator[list[Record]]:
        """Yield the records of the utterances that are not done, some at a time."""
        return self._live(done) if self.chosen.mode == "live" else self._in_batches(done)

    def _in_batches(self, done: Set[int]) -> Iterator[list[Record]]:
        for rows, batch in self.first.batches(done):
            heard = recognise(self.cascade.recogniser, batch, self.chosen)
            words = translate(self.cascade.translator, batch, heard, self.chosen)
            yield [
                self._record(int(row), words[i], float(batch.audio_length[i]) * 1000 / RATE)
                for i, row in enumerate(rows)
                if row >= 0 and row not in done
            ]

    def _live(self, done: Set[int]) -> Iterator[list[Record]]:
        heard = self.first.heard(done)
        if heard:  # not recorded: compiles every shape before the clock runs
            listen(begin(self.cascade, self.chosen), self.first.longest(heard.values()))
        for row, other in heard.items():
            sound = self.first.sound(other)
            words = listen(begin(self.cascade, self.chosen), sound)
            elapsed = tuple(word.elapsed_ms for word in words)
            record = self._record(row, words, len(sound) * 1000 / RATE)
            yield [replace(record, elapsed=elapsed)]

    def _record(self, row: int, words: Sequence[Word], duration: float) -> Record:
        table = self.first.examples.split.table
        return Record(
            index=row,
            prediction=" ".join(word.text for word in words),
            delays=tuple(word.delay_ms for word in words),
            reference=reference(self.cascade.translator.run, table, row),
            source=table.id[row],
            source_length=duration,
        )


def open_cascade(first: RunSplit) -> CascadeSplit:
    """Load the translator that the recogniser's evaluation names."""
    chosen = first.chosen
    assert chosen.then is not None
    if chosen.branch != "speech":
        raise ConfigError("a cascade begins with speech: --then needs --branch speech")
    run = open_run(chosen.then)
    translator = RunTranslator(run, learnt(run, chosen.checkpoint))
    return CascadeSplit(
        first=first, cascade=Cascade(RunTranslator(first.run, first.trained), translator)
    )


def of_text(chosen: Evaluation, model: ModelConfig) -> Evaluation:
    """Return the evaluation of the second model of a cascade; the flags are those of both.

    One that was trained offline waits for k words more than it has written, if k is given.
    """
    assert chosen.then is not None
    k = chosen.then_k
    waits = (
        None if k is None or model.monotonic.policy != "offline" else WaitK(k=k, convention="stacl")
    )
    return Evaluation(
        run=chosen.then,
        branch="text",
        mode="offline" if chosen.mode == "offline" else "streamed",
        k=None if waits else k,
        threshold=chosen.then_threshold,
        gather=chosen.gather,
        force_finish=chosen.force_finish,
        avoid_eos_while_reading=chosen.avoid_eos_while_reading,
        policy=waits,
        beam=chosen.beam if chosen.mode == "offline" else None,
    )


def recognise(recogniser: RunTranslator, batch: Batch, chosen: Evaluation) -> list[Transcript]:
    """Recognise every row of a batch."""
    run, model = recogniser.run, Network(with_step(recogniser.run.model, chosen.predecision_ms))
    decoded = decode_batch(run, model, recogniser.variables, batch, [], chosen)
    tokens, lengths, delays = jax.device_get(decoded)
    durations = np.asarray(batch.audio_length) * 1000 / RATE
    return [
        _transcript(run, tokens[i, :n], delays[i, :n], float(durations[i]))
        for i, n in enumerate(lengths)
    ]


def _transcript(run: Run, tokens: np.ndarray, delays: np.ndarray, duration: float) -> Transcript:
    """Return a transcript; it ends at its end-of-sentence, or where the speech ends."""
    words, heard = word_delays(run, tokens, delays, duration)
    end = float(delays[-1]) if len(tokens) and tokens[-1] == EOS else duration
    return Transcript(words=tuple(words), delays=tuple(heard), end=end)


def translate(
    translator: RunTranslator, batch: Batch, heard: Sequence[Transcript], chosen: Evaluation
) -> list[list[Word]]:
    """Translate transcripts that come word by word."""
    run, texts = translator.run, [" ".join(each.words) for each in heard]
    how = of_text(chosen, run.model)
    decoded = decode_batch(run, translator.network, translator.variables, batch, texts, how)
    tokens, lengths, reads = jax.device_get(decoded)
    return [
        _timed(each, *word_delays(run, tokens[i, :n], reads[i, :n], len(each.words) + 1))
        if each.words
        else []
        for i, (each, n) in enumerate(zip(heard, lengths, strict=True))
    ]


def _timed(heard: Transcript, words: list[str], reads: list[float]) -> list[Word]:
    delays = [heard.at(round(count)) for count in reads]
    return [
        Word(text=text, delay_ms=delay, elapsed_ms=delay)
        for text, delay in zip(words, delays, strict=True)
    ]


def begin(cascade: Cascade, chosen: Evaluation) -> CascadeStream:
    """Open a live stream with the settings of an evaluation."""
    return cascade.stream(
        recognising={
            "read_ms": chosen.read_ms,
            "predecision_ms": chosen.predecision_ms,
            "decoding": chosen.decoding(),
        },
        translating={"decoding": of_text(chosen, cascade.translator.run.model).decoding()},
    )


def listen(stream: CascadeStream, sound: np.ndarray) -> list[Word]:
    """Push an utterance to a live stream, READ by READ, and return its words."""
    words, heard = [], 0
    while heard < len(sound):
        size = stream.read
        words += stream.push(sound[heard : heard + size])
        heard += size
    return words + stream.finish()
