"""Translate a split in batches, with a trained run or with a cascade of two.

Every READ encodes the source so far again (`simuljax.decode.reencoding`), which gives the words and
delays of a live stream. In a cascade, the words of the recogniser are the READs of the text model,
and a target word has the delay of the recognised word that allowed it.
"""

from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from data_pipelines.batches import Examples, Vocabularies, tokenise_split
from data_pipelines.dataset import Split, open_corpus
from data_pipelines.plan import make_plan
from simuljax.audio import RATE, extract_features, frame_count
from simuljax.batch import Batch
from simuljax.config.decoding import Branch
from simuljax.config.evaluation import Evaluation
from simuljax.config.experiment import Budget
from simuljax.config.fields import ConfigError
from simuljax.config.model import ModelConfig
from simuljax.decode.beam import translate_speech, translate_text
from simuljax.decode.greedy import Written
from simuljax.decode.reencoding import simulate_speech, simulate_text
from simuljax.decode.stammer import RepetitionFilter
from simuljax.eval import Record
from simuljax.eval.spacing import are_unspaced, timed_units
from simuljax.models.joint import JointModel
from simuljax.serve.cascade import waiting
from simuljax.serve.run_translator import RunTranslator
from simuljax.text import EOS, WordStream
from simuljax.text.words import read_by_words
from simuljax.train.run import Run

Timed = list[tuple[str, float]]  # words and their delays


@dataclass(frozen=True, kw_only=True)
class RunSplit:
    """A trained run, a split, and how the split is translated; `then` makes it a recogniser."""

    translator: RunTranslator
    examples: Examples
    chosen: Evaluation
    then: RunTranslator | None = None

    def __len__(self) -> int:
        count = len(self.examples.split)
        return min(count, self.chosen.first or count)

    @property
    def steps(self) -> tuple[int, ...]:
        """Return the updates of the checkpoints."""
        return (*self.translator.steps, *(self.then.steps if self.then else ()))

    def records(self, done: Set[int]) -> Iterator[list[Record]]:
        """Yield the records of the utterances that are not done, some at a time."""
        for rows, batch in self.batches(done):
            words = self.translate(rows, batch)
            yield [
                self._record(int(row), words[i], float(batch.audio_length[i]) * 1000 / RATE)
                for i, row in enumerate(rows)
                if row >= 0 and row not in done
            ]

    def translate(self, rows: np.ndarray, batch: Batch) -> list[Timed]:
        """Return the words of every row of a batch."""
        transcripts = self.examples.split.table.transcript
        texts = [str(transcripts[row]) if row >= 0 else "" for row in rows]
        ends = [float(length) * 1000 / RATE for length in batch.audio_length]
        if self.chosen.branch == "text":
            ends = [float(len(text.split())) for text in texts]
        decoded = decode_batch(self.translator, batch, texts, self.chosen)
        written = self._words(self.translator, decoded, ends)
        if self.then is None:
            return written
        for i, n in enumerate(decoded.lengths):
            if n and decoded.tokens[i, n - 1] == EOS:  # it ends there, or else with the speech
                ends[i] = float(decoded.delays[i, n - 1])
        return self._translate_words(self.then, written, ends, batch)

    def _translate_words(
        self, then: RunTranslator, recognised: list[Timed], ends: list[float], batch: Batch
    ) -> list[Timed]:
        """Translate transcripts; a word's delay is that of the recognised word that allowed it."""
        texts = [" ".join(word for word, _ in words) for words in recognised]
        decoded = decode_batch(then, batch, texts, of_text(self.chosen, then.run.model))
        translated = self._words(then, decoded, [len(words) + 1 for words in recognised])
        found = []
        for source, end, target in zip(recognised, ends, translated, strict=True):
            known = [*(delay for _, delay in source), end]  # by the number of READs
            last = len(known)
            timed = [(word, known[min(round(reads), last) - 1]) for word, reads in target]
            found.append(timed if source else [])
        return found

    def _words(
        self, translator: RunTranslator, decoded: Written, ends: Sequence[float]
    ) -> list[Timed]:
        """Return the words that may be written, and their delays."""
        found = []
        rows = zip(decoded.tokens, decoded.lengths, decoded.delays, ends, strict=True)
        for tokens, n, delays, end in rows:
            words, known = word_delays(translator.run, tokens[:n], delays[:n], end)
            kept = RepetitionFilter(limits=self.chosen.stammer).push(words)[1]
            found.append([pair for pair in zip(kept, known, strict=True) if pair[0]])
        return found

    def batches(self, done: Set[int]) -> Iterator[tuple[np.ndarray, Batch]]:
        """Yield rows and batches of few shapes, however much is done already."""
        lengths = self.examples.lengths[np.arange(len(self))]
        # No more rows than utterances, as long as the longest of them.
        tokens = len(self) * int(max(lengths.source.max(), lengths.target.max()))
        size = self.chosen.frames
        tokens = min(max(1, size // 4), tokens)
        budget = Budget(frames=size, tokens=tokens, row_multiple=1, shapes=3)
        try:
            plan = make_plan(lengths, budget, shuffle=False)
        except ValueError as error:
            raise ConfigError(f"frames is {size}: {error}") from None
        for planned in plan.epoch(0):
            rows = planned.rows
            if not any(row >= 0 and row not in done for row in rows):
                continue
            batch = self.examples.load(rows, planned.shape)
            if self.chosen.audio == "other":
                order = np.arange(len(rows))
                order[rows >= 0] = np.roll(order[rows >= 0], 1)
                audio, length = batch.audio[order], batch.audio_length[order]
                batch = replace(batch, audio=audio, audio_length=length)
            yield rows, batch

    @cached_property
    def unspaced(self) -> bool | None:
        """Return True if the references are written without spaces; None if there are none."""
        return are_unspaced(map(self._reference, range(len(self))))

    def source_of(self, row: int) -> str | None:
        """Return what the record of an example names as its source; None beyond the last."""
        table = self.examples.split.table
        held = table.transcript if self.chosen.branch == "text" else table.id
        return held[row] if row < len(self) else None

    def _reference(self, row: int) -> str:
        table, writer = self.examples.split.table, self.then or self.translator
        is_translation = writer.run.config.data.task == "translation"
        return table.translation[row] if is_translation else table.transcript[row].lower()

    def _record(self, row: int, words: Timed, duration: float) -> Record:
        table, is_text = self.examples.split.table, self.chosen.branch == "text"
        source = len(table.transcript[row].split())
        prediction, delays = timed_units(words, self.unspaced)
        return Record(
            index=row,
            prediction=prediction,
            # The end of a text is one more READ, but no word.
            delays=tuple(min(delay, source) if is_text else delay for delay in delays),
            reference=self._reference(row),
            source=self.source_of(row) or "",
            source_length=source if is_text else duration,
        )


def open_examples(run: Run, chosen: Evaluation) -> Examples:
    """Open the split, with its texts as tokens of the run's vocabularies."""
    corpus = open_corpus(chosen.corpus or run.config.data.directory)
    vocabularies = Vocabularies(source=run.source, target=run.target)
    examples = tokenise_split(corpus[chosen.split], vocabularies, run.config.data.task)
    if not len(examples.split):
        raise ConfigError(f"the split {chosen.split} of {corpus.directory} is empty")
    check_source(examples.split, corpus.directory, chosen.branch, chosen.first)
    return replace(examples, text_only=chosen.branch == "text")


def check_source(split: Split, corpus: Path, branch: Branch, first: int | None) -> None:
    """Raise ConfigError if any of the first examples lacks what this branch translates."""
    side = "audio" if branch == "speech" else "transcript"
    held = (split.table.samples if branch == "speech" else split.table.transcript)[:first]
    if lacking := sum(not each for each in held):
        raise ConfigError(
            f"{corpus}, split {split.name}: {lacking:,} of {len(held):,} examples have no {side} "
            "to translate: choose another --corpus"
        )


def decode_batch(
    translator: RunTranslator, batch: Batch, texts: Sequence[str], chosen: Evaluation
) -> Written:
    """Return tokens, on the host; delays count what was read of the source: ms, or words."""
    run, variables = translator.run, translator.variables
    model = JointModel(run.model.with_step(chosen.predecision_ms))
    decoding, streamed = chosen.decoding(), chosen.mode == "streamed"
    how: dict[str, Any] = {"decoding": decoding} | ({} if streamed else {"beam": chosen.beam})
    words: dict[str, Any] = {"words": translator.words}
    end: Any = None
    if chosen.branch == "text":
        read = read_by_words(run.source, texts)
        given = (model, variables, read.tokens, read.lengths)
        if streamed:
            done = simulate_text(*given, read.units, **how, **words)
        else:
            done, end = translate_text(*given, **how), read.words
    else:
        features = extract_features(batch.audio, run.front_end.features, run.front_end.statistics)
        point, bank = model.config.predecision, run.front_end.features.filterbank
        labels = {"words": batch.words, "phonemes": batch.phonemes}.get(point.kind)
        given = (model, variables, features)
        if streamed:
            given = (*given, batch.audio_length, labels)
            done = simulate_speech(*given, filterbank=bank, **how, **words)
        else:
            frames = frame_count(batch.audio_length, bank)
            done = translate_speech(*given, frames, labels, **how, **words)
            end = batch.audio_length * 1000 / RATE
    if end is not None:
        done = replace(done, delays=jnp.broadcast_to(jnp.asarray(end)[:, None], done.tokens.shape))
    return jax.device_get(done)


def word_delays(
    run: Run, tokens: np.ndarray, delays: np.ndarray, end: float
) -> tuple[list[str], list[float]]:
    """Return the words, and the delay of the token that completed each.

    A last word that no token completes, because of the length limit, has the delay `end`.
    """
    stream, words, known = WordStream.begin(run.target), [], []
    for token, delay in zip(tokens, delays, strict=True):
        if token == EOS:
            break
        stream, new = stream.push([int(token)])
        words += new
        known += [float(delay)] * len(new)
    rest = stream.finish()
    last = float(delays[-1]) if len(tokens) and tokens[-1] == EOS else end
    return words + rest, known + [last] * len(rest)


def of_text(chosen: Evaluation, model: ModelConfig) -> Evaluation:
    """Return the evaluation of the second model of a cascade.

    One that was trained offline waits for k words more than it has written, if k is given.
    """
    assert chosen.then is not None
    second = Evaluation(
        run=chosen.then,
        branch="text",
        mode="offline" if chosen.mode == "offline" else "streamed",
        k=chosen.then_k,
        threshold=chosen.then_threshold,
        gather=chosen.gather,
        force_finish=chosen.force_finish,
        avoid_eos_while_reading=chosen.avoid_eos_while_reading,
        stammer=chosen.stammer,
        beam=chosen.beam if chosen.mode == "offline" else None,
    )
    return waiting(second, model)
