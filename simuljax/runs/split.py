"""Translate a split in batches, with a trained run or with a cascade of two.

Every READ encodes the source so far again (`simuljax.decode.simulate`), which gives the words and
delays of a live stream. In a cascade, the words of the recogniser are the READs of the text model,
and a target word has the delay of the recognised word that allowed it.
"""

from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from data_pipelines.batches import Examples, Vocabularies, make_plan, tokenise_split
from data_pipelines.dataset import open_corpus
from simuljax.audio import RATE, frame_count
from simuljax.batch import Batch
from simuljax.config.evaluation import Evaluation
from simuljax.config.experiment import Budget
from simuljax.config.fields import ConfigError
from simuljax.config.model import ModelConfig
from simuljax.decode.beam import translate_speech, translate_text
from simuljax.decode.simulate import simulate_speech, simulate_text, usual_listening
from simuljax.eval import Record
from simuljax.models.joint import JointModel
from simuljax.serve.cascade import waiting
from simuljax.serve.run import Run
from simuljax.serve.run_translator import RunTranslator, extract_features, with_step
from simuljax.text import EOS, WordStream
from simuljax.text.words import read_by_words

Decoded = tuple[np.ndarray, np.ndarray, np.ndarray]  # tokens, their number, the delay of each
Timed = list[tuple[str, float]]  # words and their delays


@dataclass(frozen=True, kw_only=True)
class RunSplit:
    """A trained run, a split, and how the split is translated."""

    translator: RunTranslator
    examples: Examples
    chosen: Evaluation

    def __len__(self) -> int:
        count = len(self.examples.split)
        return min(count, self.chosen.first or count)

    @property
    def steps(self) -> tuple[int, ...]:
        return self.translator.steps

    @property
    def writer(self) -> RunTranslator:
        return self.translator

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
        transcripts = self.examples.split.table.transcript
        texts = [str(transcripts[row]) if row >= 0 else "" for row in rows]
        tokens, lengths, delays = decode_batch(self.translator, batch, texts, self.chosen)
        ends = [float(length) * 1000 / RATE for length in batch.audio_length]
        if self.chosen.branch == "text":
            ends = [float(len(text.split())) for text in texts]
        return [
            self._words(self.translator, tokens[i, :n], delays[i, :n], ends[i])
            for i, n in enumerate(lengths)
        ]

    def _words(
        self, translator: RunTranslator, tokens: np.ndarray, delays: np.ndarray, end: float
    ) -> Timed:
        """Return the words that may be written, and their delays."""
        words, known = word_delays(translator.run, tokens, delays, end)
        kept = self.chosen.stammer.begin().push(words)[1]
        return [pair for pair in zip(kept, known, strict=True) if pair[0]]

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
            batch = self.examples.load(rows, planned.shape)
            if self.chosen.audio == "other":
                order = np.arange(len(rows))
                order[rows >= 0] = np.roll(order[rows >= 0], 1)
                audio, length = batch.audio[order], batch.audio_length[order]
                batch = replace(batch, audio=audio, audio_length=length)
            yield rows, batch

    def _record(self, row: int, words: Timed, duration: float) -> Record:
        table, is_text = self.examples.split.table, self.chosen.branch == "text"
        source = len(table.transcript[row].split())
        is_translation = self.writer.run.config.data.task == "translation"
        return Record(
            index=row,
            prediction=" ".join(word for word, _ in words),
            # The end of a text is one more READ, but no word.
            delays=tuple(min(delay, source) if is_text else delay for _, delay in words),
            reference=table.translation[row] if is_translation else table.transcript[row].lower(),
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
    return replace(examples, text_only=chosen.branch == "text")


def decode_batch(
    translator: RunTranslator, batch: Batch, texts: Sequence[str], chosen: Evaluation
) -> Decoded:
    """Return tokens, their number, and the source read when each was written (ms, or words)."""
    run, variables = translator.run, translator.variables
    model = JointModel(with_step(run.model, chosen.predecision_ms))
    decoding, streamed = chosen.decoding(), chosen.mode == "streamed"
    how: dict[str, Any] = {"decoding": decoding} | ({} if streamed else {"beam": chosen.beam})
    words: dict[str, Any] = {"words": translator.words}
    end: Any = None
    if chosen.branch == "text":
        read = read_by_words(run.source, texts)
        text = (model, variables, read.tokens, read.lengths)
        if streamed:
            done = simulate_text(*text, read.units, **how, **words)
        else:
            done, end = translate_text(*text, **how), read.words
    else:
        features = extract_features(batch.audio, run.front_end.features, run.front_end.statistics)
        point, bank = model.config.predecision, run.front_end.features.filterbank
        labels = {"words": batch.words, "phonemes": batch.phonemes}.get(point.kind)
        given = (model, variables, features)
        if not streamed:
            frames = frame_count(batch.audio_length, bank)
            done = translate_speech(*given, frames, labels, **how, **words)
            end = batch.audio_length * 1000 / RATE
        else:
            how["listening"] = usual_listening(
                decoding, chosen.read_ms, point.step_ms, filterbank=bank
            )
            done = simulate_speech(*given, batch.audio_length, labels, **how, **words)
    if streamed:
        return jax.device_get((done.tokens, done.lengths, done.delays))
    ends = jnp.broadcast_to(jnp.asarray(end)[:, None], done.tokens.shape)
    return jax.device_get((done.tokens, done.lengths, ends))


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
class CascadeSplit(RunSplit):
    """A recogniser with its split, and the translator of its transcripts."""

    then: RunTranslator

    @property
    def steps(self) -> tuple[int, ...]:
        """Return the updates of both checkpoints."""
        return (*self.translator.steps, *self.then.steps)

    @property
    def writer(self) -> RunTranslator:
        return self.then

    def translate(self, rows: np.ndarray, batch: Batch) -> list[Timed]:
        """Recognise every row of a batch, and translate the transcripts word by word."""
        recognised, how = self._recognise(batch), of_text(self.chosen, self.then.run.model)
        texts = [" ".join(each.words) for each in recognised]
        tokens, lengths, reads = decode_batch(self.then, batch, texts, how)
        found = []
        for i, (each, n) in enumerate(zip(recognised, lengths, strict=True)):
            words = self._words(self.then, tokens[i, :n], reads[i, :n], len(each.words) + 1)
            found.append([(word, each.at(round(count))) for word, count in words if each.words])
        return found

    def _recognise(self, batch: Batch) -> list[Transcript]:
        """Recognise every row; a transcript ends at its end-of-sentence, or with the speech."""
        decoded, found = decode_batch(self.translator, batch, [], self.chosen), []
        for tokens, n, delays, samples in zip(*decoded, batch.audio_length, strict=True):
            duration = float(samples) * 1000 / RATE
            words = self._words(self.translator, tokens[:n], delays[:n], duration)
            end = float(delays[n - 1]) if n and tokens[n - 1] == EOS else duration
            texts, known = ([text for text, _ in words], [delay for _, delay in words])
            found.append(Transcript(words=tuple(texts), delays=tuple(known), end=end))
        return found


def of_text(chosen: Evaluation, model: ModelConfig) -> Evaluation:
    """Return the evaluation of the second model of a cascade; the flags are those of both.

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
