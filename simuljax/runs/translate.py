"""Translate a split with a trained run: in batches, or one utterance at a time in real time.

In batches, every READ encodes the source so far again (`simuljax.decode.simulate`), which gives the
words and delays of a live stream. In real time, utterances go through `Translator.stream`, which
measures the computation.
"""

import dataclasses
from collections.abc import Iterable, Iterator, Sequence, Set
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from data_pipelines.batches import Examples, Vocabularies, load, tokenise_split
from data_pipelines.batching import make_plan
from data_pipelines.dataset import open_corpus
from simuljax.audio import RATE, frame_count
from simuljax.batch import Batch
from simuljax.config.data import Budget
from simuljax.config.evaluation import Evaluation
from simuljax.config.fields import ConfigError
from simuljax.decode.caat import simulate_caat
from simuljax.decode.offline import translate_speech, translate_text
from simuljax.decode.simulate import simulate_speech, simulate_text, usual_listening
from simuljax.eval import Record
from simuljax.models.translator import Translator
from simuljax.nn.batch_norm import STATISTICS
from simuljax.serve.run import Run
from simuljax.serve.run_translator import RunTranslator, extract_features, with_step
from simuljax.serve.session import Word
from simuljax.text import EOS, Words, WordStream
from simuljax.text.word_pieces import read_by_words
from simuljax.train.average import Loaded

Decoded = tuple[jax.Array, jax.Array, jax.Array]  # tokens, their number, the delay of each


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunSplit:
    """A run with its parameters, a split, and how the split is translated."""

    run: Run
    trained: Loaded
    examples: Examples
    chosen: Evaluation

    def __len__(self) -> int:
        count = len(self.examples.split)
        return min(count, self.chosen.first or count)

    @property
    def steps(self) -> tuple[int, ...]:
        """Return the updates of the checkpoint."""
        return self.trained.steps

    def records(self, done: Set[int]) -> Iterator[list[Record]]:
        """Yield the records of the utterances that are not done, some at a time."""
        return self._live(done) if self.chosen.mode == "live" else self._in_batches(done)

    def _in_batches(self, done: Set[int]) -> Iterator[list[Record]]:
        model = Translator(with_step(self.run.model, self.chosen.predecision_ms))
        variables = {"params": self.trained.params, STATISTICS: self.trained.statistics}
        for rows, batch in self.batches(done):
            said = self.examples.split.table.transcript
            texts = [str(said[row]) if row >= 0 else "" for row in rows]
            decoded = decode_batch(self.run, model, variables, batch, texts, self.chosen)
            tokens, lengths, delays = jax.device_get(decoded)
            durations = [float(length) * 1000 / RATE for length in batch.audio_length]
            is_text = self.chosen.branch == "text"
            ends = [float(len(text.split())) for text in texts] if is_text else durations
            yield [
                self._record(
                    int(row), *word_delays(self.run, tokens[i, :n], delays[i, :n], ends[i]), ms
                )
                for i, (row, n, ms) in enumerate(zip(rows, lengths, durations, strict=True))
                if row >= 0 and row not in done
            ]

    def batches(self, done: Set[int]) -> Iterator[tuple[np.ndarray, Batch]]:
        """Yield rows and batches of few shapes, however much is done already."""
        lengths = self.examples.lengths[np.arange(len(self))]
        # No more rows than utterances, as long as the longest of them.
        tokens = len(self) * int(max(lengths.source.max(), lengths.target.max()))
        size = self.chosen.frames
        budget = Budget(frames=size, tokens=min(size // 4, tokens), row_multiple=1, shapes=3)
        for planned in make_plan(lengths, budget, shuffle=False).epoch(0):
            rows = planned.rows
            if not any(row >= 0 and row not in done for row in rows):
                continue
            batch = load(self.examples, rows, planned.shape)
            if self.chosen.audio == "other":
                order = np.arange(len(rows))
                order[rows >= 0] = np.roll(order[rows >= 0], 1)
                audio, length = batch.audio[order], batch.audio_length[order]
                batch = dataclasses.replace(batch, audio=audio, audio_length=length)
            yield rows, batch

    def _live(self, done: Set[int]) -> Iterator[list[Record]]:
        translator = RunTranslator(self.run, self.trained)
        heard = self.heard(done)
        if heard:  # not recorded: compiles every shape before the clock runs
            listen(translator, self.longest(heard.values()), self.chosen)
        for row, other in heard.items():
            sound = self.sound(other)
            words = listen(translator, sound, self.chosen)
            yield [
                self._record(
                    row,
                    [word.text for word in words],
                    [word.delay_ms for word in words],
                    len(sound) * 1000 / RATE,
                    tuple(word.elapsed_ms for word in words),
                )
            ]

    def heard(self, done: Set[int]) -> dict[int, int]:
        """Map utterances that are not done to the one that is played: itself, or its neighbour."""
        shift = -1 if self.chosen.audio == "other" else 0
        return {row: (row + shift) % len(self) for row in range(len(self)) if row not in done}

    def longest(self, rows: Iterable[int]) -> np.ndarray:
        """Return the samples of the longest utterance."""
        return self.sound(max(rows, key=lambda row: self.examples.split.table.samples[row]))

    def sound(self, row: int) -> np.ndarray:
        """Return the samples of an utterance."""
        (stored,) = self.examples.split.source.__getitems__([row])
        return stored["audio"]

    def _record(
        self,
        row: int,
        words: list[str],
        delays: list[float],
        duration: float,
        elapsed: tuple[float, ...] = (),
    ) -> Record:
        table, is_text = self.examples.split.table, self.chosen.branch == "text"
        source = len(table.transcript[row].split())
        return Record(
            index=row,
            prediction=" ".join(words),
            # The end of a text is one more READ, but no word.
            delays=tuple(min(delay, source) for delay in delays) if is_text else tuple(delays),
            elapsed=elapsed,
            reference=reference(self.run, table, row),
            source=table.transcript[row] if is_text else table.id[row],
            source_length=source if is_text else duration,
        )


def open_examples(run: Run, chosen: Evaluation) -> Examples:
    """Open the split, with its texts as tokens of the run's vocabularies."""
    corpus = open_corpus(chosen.corpus or run.config.data.directory)
    vocabularies = Vocabularies(source=run.source, target=run.target)
    examples = tokenise_split(corpus[chosen.split], vocabularies, run.config.data.task)
    if not len(examples.split):
        raise ConfigError(f"the split {chosen.split} of {corpus.directory} is empty")
    return dataclasses.replace(examples, text_only=chosen.branch == "text")


def decode_batch(
    run: Run,
    model: Translator,
    variables: Any,
    batch: Batch,
    texts: Sequence[str],
    chosen: Evaluation,
) -> Decoded:
    """Return tokens, their number, and the source read when each was written (ms, or words)."""
    how: dict[str, Any] = {"decoding": chosen.decoding()}
    if chosen.mode == "streamed" or chosen.branch == "speech":
        how["words"] = Words.of(run.source, run.target)
    if chosen.branch == "text":
        read = read_by_words(run.source, texts)
        if chosen.mode == "streamed":
            done = simulate_text(model, variables, read.tokens, read.lengths, read.units, **how)
            return done.tokens, done.lengths, done.delays
        how |= {"beam": chosen.beam}
        whole = translate_text(model, variables, read.tokens, read.lengths, **how)
        return whole.tokens, whole.lengths, _at_end(whole.tokens, read.words)
    features = extract_features(batch.audio, run.heard.features, run.heard.statistics)
    kind = model.config.predecision.kind
    labels = {"words": batch.words, "phonemes": batch.phonemes}.get(kind)
    bank = run.heard.features.filterbank
    if chosen.mode == "streamed":
        usual = model.config.predecision.step_ms
        listening = usual_listening(how["decoding"], chosen.read_ms, usual, filterbank=bank)
        how |= {"listening": listening}
        if model.config.decoder == "caat" and how["decoding"].policy is None:
            how.pop("words")
            done = simulate_caat(model, variables, features, batch.audio_length, **how)
            return done.tokens, done.lengths, done.delays
        done = simulate_speech(model, variables, features, batch.audio_length, labels, **how)
        return done.tokens, done.lengths, done.delays
    frames = frame_count(batch.audio_length, bank)
    how |= {"beam": chosen.beam}
    whole = translate_speech(model, variables, features, frames, labels, **how)
    return whole.tokens, whole.lengths, _at_end(whole.tokens, batch.audio_length * 1000 / RATE)


def _at_end(tokens: jax.Array, total: Any) -> jax.Array:
    return jnp.broadcast_to(jnp.asarray(total)[:, None], tokens.shape)


def listen(translator: RunTranslator, sound: np.ndarray, chosen: Evaluation) -> list[Word]:
    """Push an utterance to a live stream, READ by READ, and return its words."""
    stream = translator.stream(
        read_ms=chosen.read_ms, predecision_ms=chosen.predecision_ms, decoding=chosen.decoding()
    )
    words, heard = [], 0
    while heard < len(sound):
        size = stream.session.size
        words += stream.push(sound[heard : heard + size])
        heard += size
    return words + stream.finish()


def word_delays(
    run: Run, tokens: np.ndarray, delays: np.ndarray, end: float
) -> tuple[list[str], list[float]]:
    """Return the words, and the delay of the token that completed each.

    A last word that no token completes, because of the length limit, has the delay `end`.
    """
    stream, words, heard = WordStream.begin(run.target), [], []
    for token, delay in zip(tokens, delays, strict=True):
        if token == EOS:
            break
        stream, new = stream.push([int(token)])
        words += new
        heard += [float(delay)] * len(new)
    rest = stream.finish()
    known = float(delays[-1]) if len(tokens) and tokens[-1] == EOS else end
    return words + rest, heard + [known] * len(rest)


def reference(run: Run, table: Any, index: int) -> str:
    """Return the translation of an utterance, or its transcript if that is the task."""
    is_translation = run.config.data.task == "translation"
    return table.translation[index] if is_translation else table.transcript[index].lower()
