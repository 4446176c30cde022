"""Translate a split with a trained run: in batches, or one utterance at a time in real time.

In batches, every READ encodes the source so far again (`simuljax.decode.simulate`), which gives the
words and delays of a live stream. In real time, utterances go through `Translator.stream`, which
measures the computation.

Translate a split with any model of `simuljax.load`, through its streams.

A Whisper file has no corpus, vocabulary or features of its own. Its utterances go through streams:
many at once, one at a time in real time, or whole. The corpus is a prepared one, or a folder with a
manifest (`data_pipelines.corpora.Manifest`), whose sound files are read as they are.

Translate a split with a cascade: a recogniser, and a text model that reads its words.

In batches, the words of the simulated recogniser are the READs of the simulated text model, and a
target word has the delay of the recognised word that allowed it. In real time, utterances go
through `simuljax.serve.cascade`. Both give the same words and delays.
"""

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from data_pipelines.batches import Examples, Vocabularies, load, make_plan, tokenise_split
from data_pipelines.corpora import Manifest
from data_pipelines.dataset import SUMMARY, Split, open_corpus
from data_pipelines.utterance import Clip
from simuljax.audio import RATE, frame_count, read_audio
from simuljax.batch import Batch
from simuljax.config.data import Budget
from simuljax.config.evaluation import Evaluation
from simuljax.config.fields import ConfigError
from simuljax.config.model import ModelConfig
from simuljax.config.options import given_options, options_of
from simuljax.decode.beam import translate_speech, translate_text
from simuljax.decode.caat import simulate_caat
from simuljax.decode.policies import WaitK
from simuljax.decode.simulate import simulate_speech, simulate_text, usual_listening
from simuljax.eval import Record
from simuljax.models.joint import JointModel
from simuljax.nn.layers import STATISTICS
from simuljax.serve.cascade import Cascade, CascadeStream
from simuljax.serve.run import Run, load_checkpoint, open_run
from simuljax.serve.run_translator import RunTranslator, extract_features, with_step
from simuljax.serve.stream import Word
from simuljax.serve.translator import Translator
from simuljax.text import EOS, Words, WordStream
from simuljax.text.words import read_by_words
from simuljax.train.transfer import Loaded

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
        model = JointModel(with_step(self.run.model, self.chosen.predecision_ms))
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
            stream_in_real_time(translator, self.longest(heard.values()), self.chosen)
        for row, other in heard.items():
            sound = self.sound(other)
            words = stream_in_real_time(translator, sound, self.chosen)
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
    features = extract_features(batch.audio, run.front_end.features, run.front_end.statistics)
    kind = model.config.predecision.kind
    labels = {"words": batch.words, "phonemes": batch.phonemes}.get(kind)
    bank = run.front_end.features.filterbank
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


def stream_in_real_time(
    translator: RunTranslator, sound: np.ndarray, chosen: Evaluation
) -> list[Word]:
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


STREAMS = 16  # recordings at once
_SETTINGS = {  # of an evaluation, beside those of its policy
    *("run", "corpus", "split", "name", "mode", "first", "repeats"),
    *("policy", "read_ms", "task", "language"),
}


@dataclass(frozen=True, kw_only=True)
class Recording:
    """An utterance of a corpus, with its sound on disk."""

    id: str
    transcript: str
    translation: str
    read: Callable[[], np.ndarray]  # int16 samples at 16 kHz


@dataclass(frozen=True, kw_only=True)
class RecordingsSplit:
    """A model, a split, and how the split is translated."""

    model: Translator
    split: Sequence[Recording]
    chosen: Evaluation
    steps: tuple[int, ...] = ()  # no checkpoint of ours

    def __len__(self) -> int:
        return min(len(self.split), self.chosen.first or len(self.split))

    def records(self, done: Set[int]) -> Iterator[list[Record]]:
        """Yield the records of the utterances that are not done, some at a time."""
        left = [i for i in range(len(self)) if i not in done]
        size = STREAMS if self.chosen.mode == "streamed" else 1
        for start in range(0, len(left), size):
            some = left[start : start + size]
            sound = [self.split[i].read() for i in some]
            yield [
                self._record(i, samples, words)
                for i, samples, words in zip(some, sound, self._words(sound), strict=True)
            ]

    def _words(self, sound: Sequence[np.ndarray]) -> list[list[Word]]:
        overrides = stream_settings(self.chosen)
        if self.chosen.mode == "streamed":
            return self.model.stream_all(sound, streams=STREAMS, **overrides)
        (samples,) = sound
        if self.chosen.mode == "live":
            stream = self.model.stream(**overrides)
            size = stream.session.size
            chunks = [samples[i : i + size] for i in range(0, len(samples), size)]
            return [[*(word for chunk in chunks for word in stream.push(chunk)), *stream.finish()]]
        end = len(samples) * 1000 / RATE
        text = self.model.translate(samples).split()
        return [[Word(text=word, delay_ms=end, elapsed_ms=end) for word in text]]

    def _record(self, index: int, samples: np.ndarray, words: Sequence[Word]) -> Record:
        """Note the words; those committed together, such as a segment's, share their delay."""
        recording, live = self.split[index], self.chosen.mode == "live"
        each = [(text, word) for word in words for text in word.text.split()]
        transcribes = self.chosen.task == "transcribe"
        return Record(
            index=index,
            prediction=" ".join(text for text, _ in each),
            delays=tuple(word.delay_ms for _, word in each),
            elapsed=tuple(word.elapsed_ms for _, word in each) if live else (),
            reference=recording.transcript if transcribes else recording.translation,
            source=recording.id,
            source_length=len(samples) * 1000 / RATE,
        )


def check_settings(chosen: Evaluation) -> None:
    """Refuse settings that would have no effect on a model without a run of ours."""
    own = set() if chosen.policy is None else {*options_of(type(chosen.policy))}
    for name in given_options(chosen).keys() - _SETTINGS - own:
        flag = f"--{name.replace('_', '-')}"
        raise ConfigError(f"{flag} is for trained runs; {chosen.run} is a Whisper model")


def stream_settings(chosen: Evaluation) -> dict[str, Any]:
    """Return the settings of a stream that an evaluation gives; the model has the others."""
    given = {
        "policy": chosen.policy,
        "read_ms": chosen.read_ms,
        "task": chosen.task,
        "language": chosen.language,
    }
    return {name: value for name, value in given.items() if value is not None}


def open_recordings(corpus: Path, split: str) -> list[Recording]:
    """Return the utterances of a prepared corpus, or of a folder with a manifest."""
    if (corpus / SUMMARY).exists():
        held = open_corpus(corpus)[split]
        texts = zip(held.table.id, held.table.transcript, held.table.translation, strict=True)
        return [
            Recording(id=id_, transcript=said, translation=means, read=partial(_stored, held, i))
            for i, (id_, said, means) in enumerate(texts)
        ]
    listed = Manifest().read(corpus).splits
    if split not in listed:
        raise ConfigError(f"{corpus} has no split {split}; it has {', '.join(listed)}")
    return [
        Recording(
            id=each.id,
            transcript=each.transcript,
            translation=each.translation,
            read=partial(_read_clip, each.audio),
        )
        for each in listed[split]
        if isinstance(each.audio, Clip)
    ]


def _stored(split: Split, index: int) -> np.ndarray:
    (example,) = split.source.__getitems__([index])
    return example["audio"]


def _read_clip(clip: Clip) -> np.ndarray:
    if clip.member is not None:
        raise ConfigError(f"{clip.path} is an archive: run `simuljax prepare manifest` first")
    samples = read_audio(clip.path).samples
    start = round(clip.offset_s * RATE)
    end = None if clip.duration_s is None else start + round(clip.duration_s * RATE)
    return samples[start:end]


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
            _stream_cascade(begin(self.cascade, self.chosen), self.first.longest(heard.values()))
        for row, other in heard.items():
            sound = self.first.sound(other)
            words = _stream_cascade(begin(self.cascade, self.chosen), sound)
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
    translator = RunTranslator(run, load_checkpoint(run, chosen.checkpoint))
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
    run, model = recogniser.run, JointModel(with_step(recogniser.run.model, chosen.predecision_ms))
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


def _stream_cascade(stream: CascadeStream, sound: np.ndarray) -> list[Word]:
    """Push an utterance to a live stream, READ by READ, and return its words."""
    words, heard = [], 0
    while heard < len(sound):
        size = stream.read
        words += stream.push(sound[heard : heard + size])
        heard += size
    return words + stream.finish()
