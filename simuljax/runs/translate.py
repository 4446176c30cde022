"""Translate a split: with a trained run, with a cascade of two, or with a Whisper file.

In batches, every READ encodes the source so far again (`simuljax.decode.simulate`), which gives the
words and delays of a live stream. In real time, utterances go through live streams one at a time,
which measures the computation. Both give the same words and delays.

In a cascade, the words of the recogniser are the READs of the text model, and a target word has the
delay of the recognised word that allowed it. A Whisper file has no corpus, vocabulary or features
of its own: its utterances go through streams, from a prepared corpus, or from a folder with a
manifest (`data_pipelines.corpora.Manifest`), whose sound files are read as they are. So do those of
a cascade that begins with Whisper.
"""

from collections.abc import Callable, Iterator, Sequence, Set
from dataclasses import dataclass, fields, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Literal

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
from simuljax.decode.simulate import simulate_speech, simulate_text, usual_listening
from simuljax.eval import Record
from simuljax.eval.long_form import Segment
from simuljax.models.joint import JointModel
from simuljax.nn.layers import STATISTICS
from simuljax.serve.cascade import Cascade, waiting
from simuljax.serve.run import Run, load_checkpoint, open_run
from simuljax.serve.run_translator import RunTranslator, extract_features, with_step
from simuljax.serve.stream import Word
from simuljax.serve.translator import Translator
from simuljax.text import EOS, Words, WordStream
from simuljax.text.words import read_by_words
from simuljax.train.transfer import Loaded

Decoded = tuple[jax.Array, jax.Array, jax.Array]  # tokens, their number, the delay of each


@dataclass(frozen=True, kw_only=True)
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

    @property
    def variables(self) -> dict[str, Any]:
        """Return the parameters and BatchNorm's statistics."""
        return {"params": self.trained.params, STATISTICS: self.trained.statistics}

    @property
    def writer(self) -> Run:
        """Return the run that writes the words."""
        return self.run

    def records(self, done: Set[int]) -> Iterator[list[Record]]:
        """Yield the records of the utterances that are not done, some at a time."""
        if self.chosen.mode == "live":
            yield from self._live(done)
            return
        for rows, batch in self.batches(done):
            words = self.translate(rows, batch)
            yield [
                self._record(int(row), words[i], float(batch.audio_length[i]) * 1000 / RATE)
                for i, row in enumerate(rows)
                if row >= 0 and row not in done
            ]

    def translate(self, rows: np.ndarray, batch: Batch) -> list[list[Word]]:
        """Translate every row of a batch."""
        transcripts = self.examples.split.table.transcript
        texts = [str(transcripts[row]) if row >= 0 else "" for row in rows]
        model = JointModel(with_step(self.run.model, self.chosen.predecision_ms))
        decoded = decode_batch(self.run, model, self.variables, batch, texts, self.chosen)
        tokens, lengths, delays = jax.device_get(decoded)
        ends = [float(length) * 1000 / RATE for length in batch.audio_length]
        if self.chosen.branch == "text":
            ends = [float(len(text.split())) for text in texts]
        return [
            _timed(*self._words(self.run, tokens[i, :n], delays[i, :n], ends[i]))
            for i, n in enumerate(lengths)
        ]

    def _words(
        self, run: Run, tokens: np.ndarray, delays: np.ndarray, end: float
    ) -> tuple[list[str], list[float]]:
        """Return the words that may be written, and their delays."""
        words, known = word_delays(run, tokens, delays, end)
        kept = self.chosen.stammer.begin().push(words)[1]
        pairs = [pair for pair in zip(kept, known, strict=True) if pair[0]]
        return [word for word, _ in pairs], [delay for _, delay in pairs]

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
                batch = replace(batch, audio=audio, audio_length=length)
            yield rows, batch

    def _live(self, done: Set[int]) -> Iterator[list[Record]]:
        """Play every utterance, or its neighbour, to a live stream."""
        shift = -1 if self.chosen.audio == "other" else 0
        played = {row: (row + shift) % len(self) for row in range(len(self)) if row not in done}
        play_one = self.player()
        if played:  # not recorded: compiles every shape before the clock runs
            samples = self.examples.split.table.samples
            play_one(self._sound(max(played.values(), key=lambda row: samples[row])))
        for row, other in played.items():
            sound = self._sound(other)
            yield [self._record(row, play_one(sound), len(sound) * 1000 / RATE)]

    def player(self) -> Callable[[np.ndarray], list[Word]]:
        """Return a function that plays an utterance to a new stream."""
        translator = RunTranslator(self.run, self.trained)

        def play_one(sound: np.ndarray) -> list[Word]:
            stream = translator.stream(**_stream_options(self.chosen))
            return play(stream, sound, lambda: stream.session.push_size)

        return play_one

    def _sound(self, row: int) -> np.ndarray:
        (stored,) = self.examples.split.source.__getitems__([row])
        return stored["audio"]

    def _record(self, row: int, words: Sequence[Word], duration: float) -> Record:
        table, is_text = self.examples.split.table, self.chosen.branch == "text"
        delays = tuple(word.delay_ms for word in words)
        source = len(table.transcript[row].split())
        is_translation = self.writer.config.data.task == "translation"
        transcript = table.transcript[row].lower()
        return Record(
            index=row,
            prediction=" ".join(word.text for word in words),
            # The end of a text is one more READ, but no word.
            delays=tuple(min(delay, source) for delay in delays) if is_text else delays,
            elapsed=tuple(w.elapsed_ms for w in words) if self.chosen.mode == "live" else (),
            reference=table.translation[row] if is_translation else transcript,
            source=table.transcript[row] if is_text else table.id[row],
            source_length=source if is_text else duration,
        )


def play(stream: Any, sound: np.ndarray, size: Callable[[], int]) -> list[Word]:
    """Push an utterance to a live stream, READ by READ, and return its words."""
    words, start = [], 0
    while start < len(sound):
        end = start + size()
        words += stream.push(sound[start:end])
        start = end
    return words + stream.finish()


def _stream_options(chosen: Evaluation) -> dict[str, Any]:
    return {
        "read_ms": chosen.read_ms,
        "predecision_ms": chosen.predecision_ms,
        "decoding": chosen.decoding(),
    }


def _timed(words: Sequence[str], delays: Sequence[float]) -> list[Word]:
    pairs = zip(words, delays, strict=True)
    return [Word(text=text, delay_ms=delay, elapsed_ms=delay) for text, delay in pairs]


def open_examples(run: Run, chosen: Evaluation) -> Examples:
    """Open the split, with its texts as tokens of the run's vocabularies."""
    corpus = open_corpus(chosen.corpus or run.config.data.directory)
    vocabularies = Vocabularies(source=run.source, target=run.target)
    examples = tokenise_split(corpus[chosen.split], vocabularies, run.config.data.task)
    if not len(examples.split):
        raise ConfigError(f"the split {chosen.split} of {corpus.directory} is empty")
    return replace(examples, text_only=chosen.branch == "text")


def decode_batch(
    run: Run,
    model: JointModel,
    variables: Any,
    batch: Batch,
    texts: Sequence[str],
    chosen: Evaluation,
) -> Decoded:
    """Return tokens, their number, and the source read when each was written (ms, or words)."""
    decoding, streamed = chosen.decoding(), chosen.mode == "streamed"
    how: dict[str, Any] = {"decoding": decoding} | ({} if streamed else {"beam": chosen.beam})
    words: dict[str, Any] = {"words": Words.of(run.source, run.target)}
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
            if model.config.decoder == "caat" and decoding.policy is None:
                done = simulate_caat(*given, batch.audio_length, **how)
            else:
                done = simulate_speech(*given, batch.audio_length, labels, **how, **words)
    if streamed:
        return done.tokens, done.lengths, done.delays
    return done.tokens, done.lengths, jnp.broadcast_to(jnp.asarray(end)[:, None], done.tokens.shape)


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

    cascade: Cascade

    @property
    def steps(self) -> tuple[int, ...]:
        """Return the updates of both checkpoints."""
        return (*self.trained.steps, *self.cascade.translator.steps)

    @property
    def writer(self) -> Run:
        """Return the run that writes the words."""
        return self.cascade.translator.run

    def translate(self, rows: np.ndarray, batch: Batch) -> list[list[Word]]:
        """Recognise every row of a batch, and translate the transcripts word by word."""
        recognised, translator = self._recognise(batch), self.cascade.translator
        run, texts = translator.run, [" ".join(each.words) for each in recognised]
        how = of_text(self.chosen, run.model)
        decoded = decode_batch(run, translator.network, translator.variables, batch, texts, how)
        tokens, lengths, reads = jax.device_get(decoded)
        found = []
        for i, (each, n) in enumerate(zip(recognised, lengths, strict=True)):
            words, counts = self._words(run, tokens[i, :n], reads[i, :n], len(each.words) + 1)
            delays = [each.at(round(count)) for count in counts]
            found.append(_timed(words, delays) if each.words else [])
        return found

    def _recognise(self, batch: Batch) -> list[Transcript]:
        """Recognise every row; a transcript ends at its end-of-sentence, or with the speech."""
        run = self.run
        model = JointModel(with_step(run.model, self.chosen.predecision_ms))
        decoded = decode_batch(run, model, self.variables, batch, [], self.chosen)
        all_tokens, lengths, all_delays = jax.device_get(decoded)
        found = []
        for i, n in enumerate(lengths):
            tokens, delays = all_tokens[i, :n], all_delays[i, :n]
            duration = float(batch.audio_length[i]) * 1000 / RATE
            words, known = self._words(run, tokens, delays, duration)
            end = float(delays[-1]) if len(tokens) and tokens[-1] == EOS else duration
            found.append(Transcript(words=tuple(words), delays=tuple(known), end=end))
        return found

    def player(self) -> Callable[[np.ndarray], list[Word]]:
        """Return a function that plays an utterance to a new stream."""
        second = translating(self.chosen, self.cascade)

        def play_one(sound: np.ndarray) -> list[Word]:
            stream = self.cascade.stream(
                recognising=_stream_options(self.chosen), translating=second
            )
            return play(stream, sound, lambda: stream.session.size)

        return play_one


def open_cascade(first: RunSplit) -> CascadeSplit:
    """Load the translator that the recogniser's evaluation names."""
    chosen = first.chosen
    assert chosen.then is not None
    if chosen.branch != "speech":
        raise ConfigError("a cascade begins with speech: --then needs --branch speech")
    run = open_run(chosen.then)
    translator = RunTranslator(run, load_checkpoint(run, chosen.checkpoint))
    cascade = Cascade(RunTranslator(first.run, first.trained), translator)
    given = {field.name: getattr(first, field.name) for field in fields(first)}
    return CascadeSplit(**given, cascade=cascade)


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


def translating(chosen: Evaluation, cascade: Cascade) -> dict[str, Any]:
    """Return the settings of the second model in streams of a cascade."""
    return {"decoding": of_text(chosen, cascade.translator.run.model).decoding()}


STREAMS = 16  # recordings at once
_SETTINGS = {  # of an evaluation, beside those of its policy
    *("run", "corpus", "split", "name", "mode", "first", "repeats", "joined", "joined_pause_ms"),
    *("policy", "read_ms", "task", "language", "stammer_times", "stammer_words"),
}
_OF_TEXT = {  # of the text model that follows
    *("then", "then_k", "then_threshold", "checkpoint"),
    *("gather", "force_finish", "avoid_eos_while_reading"),
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
    """A model, a split, and how its recordings are played to streams."""

    model: Translator
    split: Sequence[Recording]
    chosen: Evaluation
    settings: dict[str, Any]  # of its streams
    steps: tuple[int, ...] = ()  # of the checkpoint, if it is one of ours

    def __len__(self) -> int:
        return len(self.recordings)

    @cached_property
    def recordings(self) -> Sequence[Recording]:
        """Return what is played: the first utterances, or recordings that they are joined to."""
        split, chosen = self.split[: self.chosen.first], self.chosen
        if chosen.joined is None:
            return split
        return join_recordings(split, chosen.joined, chosen.joined_pause_ms)

    def segments(self) -> list[Segment]:
        """Return the places of the utterances in the recordings that they are joined to."""
        chosen, task = self.chosen, "transcription" if self.transcribes else "translation"
        assert chosen.joined is not None
        split = self.split[: chosen.first]
        return joined_segments(split, chosen.joined, chosen.joined_pause_ms, task)

    @property
    def transcribes(self) -> bool:
        """Return True if the model writes the language that is spoken."""
        model = self.model
        if isinstance(model, RunTranslator):
            return model.run.config.data.task == "transcription"
        return self.chosen.task == "transcribe"  # never in a cascade

    def records(self, done: Set[int]) -> Iterator[list[Record]]:
        """Yield the records of the utterances that are not done, some at a time."""
        left = [i for i in range(len(self)) if i not in done]
        size = STREAMS if self.chosen.mode == "streamed" else 1
        for start in range(0, len(left), size):
            some = left[start : start + size]
            sound = [self.recordings[i].read() for i in some]
            yield [
                self._record(i, samples, words)
                for i, samples, words in zip(some, sound, self._words(sound), strict=True)
            ]

    def _words(self, sound: Sequence[np.ndarray]) -> list[list[Word]]:
        overrides = self.settings
        if self.chosen.mode == "streamed":
            return self.model.stream_all(sound, streams=STREAMS, **overrides)
        (samples,) = sound
        if self.chosen.mode == "live":
            stream = self.model.stream(**overrides)
            return [play(stream, samples, lambda: stream.session.push_size)]
        end = len(samples) * 1000 / RATE
        text = self.model.translate(samples).split()
        return [[Word(text=word, delay_ms=end, elapsed_ms=end) for word in text]]

    def _record(self, index: int, samples: np.ndarray, words: Sequence[Word]) -> Record:
        """Note the words; those committed together, such as a segment's, share their delay."""
        recording, live = self.recordings[index], self.chosen.mode == "live"
        each = [(text, word) for word in words for text in word.text.split()]
        return Record(
            index=index,
            prediction=" ".join(text for text, _ in each),
            delays=tuple(word.delay_ms for _, word in each),
            elapsed=tuple(word.elapsed_ms for _, word in each) if live else (),
            reference=recording.transcript if self.transcribes else recording.translation,
            source=recording.id,
            source_length=len(samples) * 1000 / RATE,
        )


def join_recordings(split: Sequence[Recording], count: int, pause_ms: int) -> list[Recording]:
    """Join every `count` recordings to one, with so much silence after each of them."""
    groups = [split[start : start + count] for start in range(0, len(split), count)]
    return [
        Recording(
            id=f"joined-{number}",
            transcript=" ".join(part.transcript for part in parts),
            translation=" ".join(part.translation for part in parts),
            read=partial(_read_joined, parts, pause_ms),
        )
        for number, parts in enumerate(groups)
    ]


def joined_segments(
    split: Sequence[Recording],
    count: int,
    pause_ms: int,
    task: Literal["transcription", "translation"],
) -> list[Segment]:
    """Return the places of recordings in those that `join_recordings` makes of them."""
    segments, start = [], 0.0
    for number, part in enumerate(split):
        start = 0.0 if number % count == 0 else start
        duration = len(part.read()) * 1000 / RATE
        segments.append(
            Segment(
                talk=f"joined-{number // count}",
                reference=part.transcript if task == "transcription" else part.translation,
                start_ms=start,
                duration_ms=duration,
            )
        )
        start += duration + pause_ms
    return segments


def _read_joined(parts: Sequence[Recording], pause_ms: int) -> np.ndarray:
    pause = np.zeros(pause_ms * RATE // 1000, np.int16)
    return np.concatenate([sound for part in parts for sound in (part.read(), pause)])


def check_settings(chosen: Evaluation) -> None:
    """Refuse settings that would have no effect on a model without a run of ours."""
    own = set() if chosen.policy is None else {*options_of(type(chosen.policy))}
    if chosen.then is not None:
        own |= _OF_TEXT
        if chosen.task is not None:
            raise ConfigError("--then: a recogniser transcribes; leave --task out")
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
        "stammer": chosen.stammer,
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
