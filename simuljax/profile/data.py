"""`simuljax profile data`: the rate of the input pipeline beside that of a training step."""

import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from data_pipelines.batches import Batches, Vocabularies, iterate, load_resident, tokenise_split
from data_pipelines.corpora import Phrasebook
from data_pipelines.dataset import open_corpus
from data_pipelines.plan import make_plan
from data_pipelines.prepare import Preparation, prepare
from simuljax.audio import RATE, Features, extract
from simuljax.config.experiment import Budget
from simuljax.profile.measure import check_positive, environment, measure
from simuljax.text import VocabularyConfig, learn

# Forward and backward through 12 layers of width 512 and 2048 at one state in four frames: the work
# of the encoder of Zaidi's model for 10 ms of speech.
ENCODER_FLOPS_PER_FRAME = 6 * 12 * (4 * 512**2 + 2 * 512 * 2048) / 4


@dataclass(frozen=True, kw_only=True)
class DataProfile:
    """Utterances a second through the input pipeline, and the multiple of what training needs."""

    corpus: Path | None = None
    """A prepared corpus; by default a phrasebook of 500 sentences is made for the occasion."""
    frames: int = 40_000
    """Frames of a global batch."""
    batches: int = 30
    """Batches that are timed."""
    threads: int = 8
    """Threads that read ahead."""

    def __post_init__(self) -> None:
        check_positive(self)
        if self.corpus is not None:
            open_corpus(self.corpus)


def run(config: DataProfile) -> dict[str, Any]:
    """Measure reading with one thread and with many, filterbanks, and device-resident batches."""
    with tempfile.TemporaryDirectory() as scratch:
        small = Preparation(corpus=Phrasebook(train=500, valid=1, test=1))
        made = Path(scratch) / "phrasebook"
        corpus = open_corpus(config.corpus) if config.corpus else prepare(small, None, made)
        split = corpus["train"]
        vocabularies = Vocabularies(
            source=learn(split.table.transcript, VocabularyConfig(size=1000)),
            target=learn(split.table.translation, VocabularyConfig(size=1000)),
        )
        examples = tokenise_split(split, vocabularies)
        plan = make_plan(examples.lengths, Budget(frames=config.frames))
        batches = Batches(examples=examples, plan=plan)
        first = iter(batches[step] for step in range(config.batches + 1))
        one = _seconds(first, config.batches, time.process_time)  # however many threads read
        many = _seconds(iterate(batches, threads=config.threads), config.batches)
        resident = Batches(examples=load_resident(examples), plan=plan)
        held = _seconds((resident[step] for step in range(10**9)), config.batches)
        bank = _filterbank_seconds(batches, config.batches)
    rows = np.concatenate([plan.batch(step).rows for step in range(config.batches)])
    rows = rows[rows >= 0]
    spoken_s = plan.lengths.audio[rows].sum() / RATE
    step = matrix_flops() / ENCODER_FLOPS_PER_FRAME  # an upper bound
    seconds = {"one core": one, f"{config.threads} threads": many, "device memory": held}
    return {
        **environment(config),
        "padding": plan.padding,
        "shapes": len(plan.buckets),
        "step_frames_per_s": step,
        "filterbank_times_real_time": spoken_s / bank,
        "rows": [
            {
                "way": way,
                "utterances_per_s": len(rows) / taken,
                "times_real_time": spoken_s / taken,
                "times_step": spoken_s * 100 / taken / step,
            }
            for way, taken in seconds.items()
        ],
    }


def matrix_flops(size: int = 2048) -> float:
    """Measure a large bfloat16 matrix product on the default device, in FLOPs per second."""
    return 2 * size**3 / measure(lambda a: a @ a, jnp.ones((size, size), jnp.bfloat16)).ms * 1e3


def _seconds(source: Any, count: int, clock: Callable[[], float] = time.perf_counter) -> float:
    """Return the seconds of `count` batches, after one that is not timed."""
    source = iter(source)
    jax.block_until_ready(next(source))
    start = clock()
    for _ in range(count):
        jax.block_until_ready(next(source))
    return clock() - start


def _filterbank_seconds(batches: Batches, count: int) -> float:
    compute = jax.jit(lambda audio: extract(audio, Features()))
    audio = [jnp.asarray(batches[step].audio) for step in range(count)]
    jax.block_until_ready([compute(a) for a in audio])  # compile every shape
    start = time.perf_counter()
    jax.block_until_ready([compute(a) for a in audio])
    return time.perf_counter() - start
