"""The command `simuljax speak`."""

from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import tyro

from data_pipelines.augmentation import Transform
from data_pipelines.corpora import Spoken
from data_pipelines.corpora.spoken import Engine, text_corpus
from data_pipelines.prepare import Preparation, prepare, worker_count
from data_pipelines.synthesis import check_engines
from simuljax.cli.prepare import show


def speak_command(
    text: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(name="TEXT_CORPUS")],
    to: Path,
    transform: Transform,
    source: str = "en",
    target: str = "de",
    engine: Engine = "espeak",
    seed: int = 0,
    workers: int | None = None,
) -> Callable[[], object]:
    """Turn a text corpus into a speech translation corpus, with the times of words and phonemes.

    Args:
        text: A directory of files like train.en and train.de (also .gz), a tab-separated file
            (also in .gz or .zip), or a directory that `simuljax prepare` built.
        to: The directory to build it in.
        transform: Changes to the training split.
        source: The language that is spoken, and the suffix of its files.
        target: The language of the translations, and the suffix of its files.
        engine: espeak has dozens of robotic voices in many languages, hibari a natural English one;
            both: half of the sentences each, the natural voice at speeds from .85 to 1.2.
        seed: Another seed gives other voices.
        workers: Processes; by default one for each core.
    """
    worker_count(workers)  # checks the number
    check_engines(engine)
    reader = text_corpus(text, source=source, target=target)
    wanted = Preparation(corpus=Spoken(text=reader, engine=engine, seed=seed), transform=transform)
    return lambda: show(prepare(wanted, text, to, workers))
