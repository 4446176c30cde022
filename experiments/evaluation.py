"""`simuljax evaluate`: a trained run on a split of a corpus, streamed or offline, and its scores.

The split is translated in batches: at every READ what has been heard is encoded and decided anew
(`simuljax.decode.simulate`), which gives the words and delays of a live stream. Results go to
RUN/eval/NAME/: instances.log, scores.json, config.json.
"""

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
import tyro
from tqdm import tqdm

from data_pipelines.batches import Examples, Vocabularies, load
from data_pipelines.feeding import examples_of
from data_pipelines.plan import make_plan
from data_pipelines.prepared import open_corpus
from data_pipelines.shapes import Budget
from experiments.experiment import ExperimentError
from simuljax import document
from simuljax.audio import RATE, frame_count
from simuljax.batch import Batch
from simuljax.decode.offline import translate_speech, translate_text
from simuljax.decode.options import Decoding
from simuljax.decode.simulate import Listening, simulate_speech, simulate_text
from simuljax.eval import Record, score, write_records
from simuljax.eval.records import NAME as LOG
from simuljax.live import hear, with_step
from simuljax.models.translator import Translator
from simuljax.nn.batch_norm import STATISTICS
from simuljax.run import Run, learnt, open_run
from simuljax.text import EOS, WordStream, count_words, word_boundaries
from simuljax.train.average import Loaded


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """What is translated, and how."""

    run: Annotated[Path, tyro.conf.Positional]
    """The directory of a trained run."""
    split: str = "test"
    corpus: Path | None = None
    """A prepared corpus; by default the run's own."""
    name: str | None = None
    """Of the results under RUN/eval/; by default made from what follows."""
    branch: Literal["speech", "text"] = "speech"
    mode: Literal["streamed", "offline"] = "streamed"
    checkpoint: Literal["best", "last", "averaged"] = "best"
    read_ms: int | None = None
    """Speech to a READ; by default the step between decisions."""
    predecision_ms: int | None = None
    """Step between decisions; by default as trained."""
    threshold: float = 0.5
    """On the probability of writing."""
    k: int | None = None
    """Of wait-k."""
    gather: Literal["any", "majority", "mean"] = "any"
    force_finish: bool = False
    avoid_eos_while_reading: bool = False
    audio: Literal["own", "other"] = "own"
    """`other` plays each utterance its neighbour's: a control that must ruin the score."""
    frames: int = 100_000
    """In a batch."""

    def decoding(self) -> Decoding:
        """The choices of decoding."""
        return Decoding(
            gather=self.gather,
            threshold=self.threshold,
            k=self.k,
            force_finish=self.force_finish,
            avoid_eos_while_reading=self.avoid_eos_while_reading,
        )


def evaluate(chosen: Evaluation) -> dict[str, Any]:
    """Translates the split, writes the results and gives the scores."""
    run = open_run(chosen.run)
    trained = learnt(run, chosen.checkpoint)
    model = Translator(with_step(run.model, chosen.predecision_ms))
    examples = spoken(run, chosen)
    records = sorted(
        (
            record
            for batch in tqdm(list(batches(examples, chosen)), desc=chosen.split, unit="batch")
            for record in translated(run, model, trained, batch, examples, chosen)
        ),
        key=lambda record: record.index or 0,
    )
    folder = chosen.run / "eval" / (chosen.name or default_name(chosen))
    folder.mkdir(parents=True, exist_ok=True)
    write_records(folder / LOG, records)
    scores = score(records) | {"steps": list(trained.steps)}
    document.write(folder / "scores.json", scores)
    document.write(folder / "config.json", chosen)
    return scores


def default_name(chosen: Evaluation) -> str:
    """Names the split, the way, and whatever is not as usual."""
    parts = [chosen.split, chosen.branch, chosen.mode]
    if chosen.predecision_ms:
        parts.append(f"{chosen.predecision_ms}ms")
    if chosen.read_ms:
        parts.append(f"read{chosen.read_ms}ms")
    if chosen.threshold != 0.5:
        parts.append(f"p{chosen.threshold:g}")
    if chosen.k:
        parts.append(f"k{chosen.k}")
    if chosen.audio == "other":
        parts.append("other-audio")
    return "-".join(parts)


def spoken(run: Run, chosen: Evaluation) -> Examples:
    """The split with its texts as the run writes them."""
    corpus = open_corpus(chosen.corpus or Path(run.told["corpus"]["directory"]))
    vocabularies = Vocabularies(source=run.source, target=run.target)
    examples = examples_of(corpus[chosen.split], vocabularies, run.told["corpus"]["task"])
    if chosen.branch == "text" and run.model.text is None:
        raise ExperimentError(f"{chosen.run} has no text branch")
    if chosen.branch == "speech" and run.model.speech is None:
        raise ExperimentError(f"{chosen.run} has no speech branch: say --branch text")
    return dataclasses.replace(examples, mute=chosen.branch == "text")


def batches(examples: Examples, chosen: Evaluation) -> Iterator[Batch]:
    """The whole split, in few shapes."""
    budget = Budget(frames=chosen.frames, tokens=chosen.frames, row_multiple=1, shapes=3)
    plan = make_plan(examples.lengths, budget, shuffle=False)
    for planned in plan.epoch(0):
        batch = load(examples, planned.rows, planned.shape)
        if chosen.audio == "other":
            batch = dataclasses.replace(
                batch,
                audio=np.roll(batch.audio, 1, axis=0),
                audio_length=np.roll(batch.audio_length, 1),
            )
        yield batch


def translated(
    run: Run,
    model: Translator,
    trained: Loaded,
    batch: Batch,
    examples: Examples,
    chosen: Evaluation,
) -> Iterator[Record]:
    """The records of a batch."""
    variables = {"params": trained.params, STATISTICS: trained.statistics}
    tokens, lengths, delays = jax.device_get(decode_batch(run, model, variables, batch, chosen))
    table = examples.split.table
    for row, index in enumerate(batch.index):
        if index < 0:
            continue
        count = int(lengths[row])
        is_text = chosen.branch == "text"
        when = delays[row, :count]
        if is_text:
            when = in_words(run, batch.source[row], when)
        words, heard = word_delays(run, tokens[row, :count], when)
        duration = float(batch.audio_length[row]) * 1000 / RATE
        yield Record(
            index=int(index),
            prediction=" ".join(words),
            delays=tuple(heard),
            reference=reference(run, table, int(index)),
            source=table.transcript[int(index)] if is_text else table.id[index],
            source_length=len(table.transcript[int(index)].split()) if is_text else duration,
        )


def decode_batch(
    run: Run, model: Translator, variables: Any, batch: Batch, chosen: Evaluation
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Tokens, their number, and what had been heard when each was written (ms, or tokens)."""
    decoding = chosen.decoding()
    if chosen.branch == "text":
        if chosen.mode == "streamed":
            done = simulate_text(
                model, variables, batch.source, batch.source_length, decoding=decoding
            )
            return done.tokens, done.lengths, done.delays
        whole = translate_text(
            model, variables, batch.source, batch.source_length, decoding=decoding
        )
        return whole.tokens, whole.lengths, _at_end(whole.tokens, batch.source_length)
    features = hear(batch.audio, run.heard.features, run.heard.statistics)
    kind = model.config.predecision.kind
    labels = {"words": batch.words, "phonemes": batch.phonemes}.get(kind)
    if chosen.mode == "streamed":
        listening = Listening(
            read_ms=chosen.read_ms or model.config.predecision.step_ms,
            filterbank=run.heard.features.filterbank,
        )
        done = simulate_speech(
            model,
            variables,
            features,
            batch.audio_length,
            labels,
            decoding=decoding,
            listening=listening,
        )
        return done.tokens, done.lengths, done.delays
    frames = frame_count(batch.audio_length, run.heard.features.filterbank)
    whole = translate_speech(model, variables, features, frames, labels, decoding=decoding)
    return whole.tokens, whole.lengths, _at_end(whole.tokens, batch.audio_length * 1000 / RATE)


def _at_end(tokens: jax.Array, total: Any) -> jax.Array:
    return jnp.broadcast_to(jnp.asarray(total)[:, None], tokens.shape)


def word_delays(run: Run, tokens: np.ndarray, delays: np.ndarray) -> tuple[list[str], list[float]]:
    """The words, and the delay of the token that completed each."""
    stream, words, heard = WordStream.begin(run.target), [], []
    for token, delay in zip(tokens, delays, strict=True):
        if token == EOS:
            break
        stream, new = stream.push([int(token)])
        words += new
        heard += [float(delay)] * len(new)
    rest = stream.finish()
    return words + rest, heard + [float(delays[-1]) if len(delays) else 0.0] * len(rest)


def in_words(run: Run, source: np.ndarray, delays: np.ndarray) -> np.ndarray:
    """Delays in pieces of the source as delays in its words, one that has begun included."""
    words = count_words(word_boundaries(run.source), source, trailing="count")
    return np.asarray(words)[np.maximum(delays.astype(int), 1) - 1]


def reference(run: Run, table: Any, index: int) -> str:
    """What should have been said."""
    is_translation = run.told["corpus"]["task"] == "translation"
    return table.translation[index] if is_translation else table.transcript[index].lower()
