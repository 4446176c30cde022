"""Run the whole path on a small language, from nothing to a stream that translates.

    make demo-train  2 CPU cores, under six minutes

The demo builds the little phrasebook (`simuljax.demo.corpus`), trains a joint model on it
(`simuljax.demo.experiment`) and translates held-out sentences. One page has the losses, the
attention of the decoder's heads, and quality against latency: demo_out/report/index.html. Another
`make demo-train` resumes from what is there. Expected, give or take a few points:

    200 held-out sentences                BLEU      LAAL
    speech, whole sentences at a time     85.7   1446 ms
    speech, streamed                      77.0    954 ms
    speech, streamed, another's audio      1.2    972 ms
    most similar training sentence        43.3

Two controls stand beside the scores. `another's audio` plays the audio of another sentence: what
is left comes from the language model, not from the audio. `most similar` is a memoriser: it answers
with the translation of the training sentence that shares most words with the transcript.
"""

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import sacrebleu

from data_pipelines.dataset import PreparedCorpus, Table, describe
from data_pipelines.phrasebook.corpus import words
from data_pipelines.prepare import Limits, Preparation, prepare
from simuljax.config.evaluation import Evaluation
from simuljax.demo.corpus import LittlePhrasebook
from simuljax.demo.experiment import demo_experiment
from simuljax.eval.logs import NAME as LOG
from simuljax.eval.logs import Record, read_records
from simuljax.profile.measure import check_positive
from simuljax.runs.evaluate import Models, evaluate
from simuljax.runs.train import train
from simuljax.train.run_log import duration

WritePage = Callable[[Path, Path], Path]  # of a run, into a directory
SHOWN = 5  # translations
OTHER_THRESHOLDS = (0.2, 0.8)  # of writing, for a curve
LONGEST_S = 2.2  # of what is trained on: all is padded to the longest


@dataclass(frozen=True, kw_only=True)
class DemoConfig:
    """Sizes of the demo; an existing output directory must have been made with the same."""

    out: Path = Path("demo_out")
    """Directory of the corpus, the run and the figures."""
    sentences: int = 3_000
    """Training sentences."""
    held_out: int = 200
    """Test sentences; half as many choose the checkpoint."""
    updates: int = 800
    rows: int = 24
    """Sentences per update, a multiple of 8."""

    def __post_init__(self) -> None:
        check_positive(self)
        if self.rows % 8:
            raise ValueError(f"rows is {self.rows}; choose a multiple of 8")


def run(config: DemoConfig, write_page: WritePage) -> dict[str, float]:
    """Build, train, translate and draw; return the numbers of the table."""
    began = time.perf_counter()
    corpus = build(config)
    experiment = demo_experiment(
        config.out / "run", config.out / "corpus", updates=config.updates, rows=config.rows
    )
    train(experiment)
    chosen = {
        "offline": Evaluation(run=experiment.run, mode="offline"),
        "streamed": Evaluation(run=experiment.run),
        "other": Evaluation(run=experiment.run, audio="other"),
    }
    models = Models()
    scores = {name: evaluate(each, models) for name, each in chosen.items()}
    for threshold in OTHER_THRESHOLDS:
        evaluate(replace(chosen["streamed"], threshold=threshold), models)
    similar = most_similar_bleu(corpus["train"].table, corpus["test"].table)
    print(table(scores, similar, len(corpus["test"])))
    print(translations(read_records(chosen["streamed"].folder / LOG), corpus["test"].table))
    page = write_page(experiment.run, config.out / "report")
    print(f"all of it on one page: {page}")
    seconds = time.perf_counter() - began
    print(f"took {duration(seconds)}")
    return {
        **{f"{name}_bleu": score["BLEU"] for name, score in scores.items()},
        "streamed_laal": scores["streamed"]["LAAL"],
        "similar_bleu": similar,
        "seconds": seconds,
    }


def build(config: DemoConfig) -> PreparedCorpus:
    """Build the corpus, or open it if it exists."""
    language = LittlePhrasebook(
        train=config.sentences, valid=max(8, config.held_out // 2), test=config.held_out
    )
    spoken = Preparation(corpus=language, limits=Limits(max_seconds=LONGEST_S))
    corpus = prepare(spoken, None, config.out / "corpus")
    print(describe(corpus.summary), flush=True)
    return corpus


def most_similar_bleu(train: Table, test: Table) -> float:
    """Return the BLEU of a memoriser; similarity is the cosine between bags of words."""
    known = {word: i for i, word in enumerate({w for s in train.transcript for w in bag(s)})}
    memory = np.zeros((len(train), len(known)), np.float32)
    for row, sentence in zip(memory, train.transcript, strict=True):
        for word, count in bag(sentence).items():
            row[known[word]] = count
    memory /= np.linalg.norm(memory, axis=1, keepdims=True)
    queries = [{known[w]: n for w, n in bag(s).items() if w in known} for s in test.transcript]
    nearest = [np.argmax(memory[:, list(q)] @ np.array([*q.values()], np.float32)) for q in queries]
    guesses = [train.translation[int(i)] for i in nearest]
    return sacrebleu.corpus_bleu(guesses, [list(test.translation)]).score


def bag(sentence: str) -> Counter[str]:
    """Count the words of a sentence."""
    return Counter(words(sentence.lower()))


def table(scores: Mapping[str, Mapping[str, float]], similar: float, count: int) -> str:
    """Format BLEU and LAAL of every system, with the controls below."""
    rows = (
        ("speech, whole sentences at a time", "offline"),
        ("speech, streamed", "streamed"),
        ("speech, streamed, another's audio", "other"),
    )
    lines = [f"{f'{count} held-out sentences':36s}{'BLEU':>6s}{'LAAL':>10s}"]
    for what, name in rows:
        lines.append(f"{what:36s}{scores[name]['BLEU']:6.1f}{scores[name]['LAAL']:7.0f} ms")
    return "\n".join([*lines, f"{'most similar training sentence':36s}{similar:6.1f}"])


def translations(records: Sequence[Record], test: Table) -> str:
    """Format a few streamed translations with their transcripts and references."""
    lines = [""]
    for record in records[:SHOWN]:
        lines += [
            f"  transcript  {test.transcript[record.index or 0]}",
            f"  streamed    {record.prediction}",
            f"  reference   {record.reference}",
            "",
        ]
    return "\n".join(lines)
