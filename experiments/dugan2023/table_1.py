"""Dugan et al. 2023, table 1: when should a model speak that was trained on whole sentences?

    python -m experiments.dugan2023.table_1 FOLDER --model ggml-tiny.bin --to runs/dugan
    python -m experiments.dugan2023.table_1 FOLDER --model ggml-tiny.bin --to runs/dugan-en --task transcribe
    simuljax score runs/dugan/es-1s-consensus-0.5

FOLDER has recordings and manifest.tsv (experiments/dugan2023/recordings.py). Every language in it, windows of
1 and 2 s, six policies of the paper and two more: a cell each. A cell that is finished is not
repeated. Afterwards TO has table.md, figure.png, and a folder for every cell with its logs.

`--aware N` plays N recordings of each language one at a time for the clock.

Run with Whisper base on one H200: experiments/results/whisper. Spanish and French into
English, 14 talks, 32 cells; non-native English, 24 documents, 8 cells.

The paper: Whisper medium, 75 recordings of CoVoST 2, an RTX 2080, a beam of 5, and AL that is off
by one (`--lagging off-by-one`); its offline row is timed on the words of the policy.
"""

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro
from tqdm import tqdm

from experiments.dugan2023.interpreting import Cell, begin, interpret
from experiments.dugan2023.recordings import Recording, read_recordings
from experiments.dugan2023.scores import scores_of
from experiments.dugan2023.table import Scored, draw, write_table
from simuljax.audio import AudioError
from simuljax.cache import enable_compilation_cache
from simuljax.config.fields import ConfigError
from simuljax.decode.policies import (
    AlignAtt,
    Confidence,
    Consensus,
    Greedy,
    LocalAgreement,
    Offline,
)
from simuljax.decode.policy import Policy
from simuljax.eval import RecordError
from simuljax.models import whisper
from simuljax.models.whisper import WeightsError
from simuljax.serve.whisper import WhisperStreaming, WhisperTranslator
from simuljax.voice import VoiceError, voice_for

REFUSALS = (ConfigError, AudioError, RecordError, VoiceError, WeightsError)
ROWS: dict[str, Policy] = {
    "confidence-0.9": Confidence(threshold=0.9),
    "confidence-0.5": Confidence(threshold=0.5),
    "consensus-0.75": Consensus(threshold=0.75),
    "consensus-0.5": Consensus(threshold=0.5),
    "greedy": Greedy(),
    "offline": Offline(),
    "align-att": AlignAtt(),
    "local-agreement": LocalAgreement(),
}

# BLEU and AL_CA in seconds: Whisper medium on CoVoST 2, windows of 1 s and of 2 s.
PUBLISHED: dict[str, dict[str, tuple[tuple[float, float], tuple[float, float]]]] = {
    "ja": {
        "confidence-0.9": ((20.7, 7.2), (21.1, 8.6)),
        "confidence-0.5": ((15.1, 4.9), (18.8, 6.7)),
        "consensus-0.75": ((17.2, 6.8), (21.3, 9.6)),
        "consensus-0.5": ((15.3, 4.8), (20.4, 8.8)),
        "greedy": ((5.7, 3.2), (10.0, 4.9)),
        "offline": ((21.9, 9.5), (21.9, 9.5)),
    },
    "es": {
        "confidence-0.9": ((38.3, 6.4), (41.5, 7.6)),
        "confidence-0.5": ((25.8, 3.5), (28.2, 5.4)),
        "consensus-0.75": ((31.1, 4.6), (41.4, 7.9)),
        "consensus-0.5": ((25.3, 4.1), (35.6, 6.1)),
        "greedy": ((8.6, 2.5), (15.2, 4.1)),
        "offline": ((42.9, 9.6), (42.9, 9.6)),
    },
    "ru": {
        "confidence-0.9": ((36.6, 8.1), (37.4, 9.0)),
        "confidence-0.5": ((28.0, 4.1), (31.8, 5.1)),
        "consensus-0.75": ((27.2, 4.0), (37.0, 8.5)),
        "consensus-0.5": ((21.6, 3.3), (31.3, 6.2)),
        "greedy": ((12.8, 2.4), (17.3, 3.0)),
        "offline": ((36.6, 10.0), (36.6, 10.0)),
    },
    "ar": {
        "confidence-0.9": ((18.8, 6.9), (19.5, 7.6)),
        "confidence-0.5": ((11.7, 4.1), (13.7, 4.7)),
        "consensus-0.75": ((16.4, 6.2), (19.5, 8.7)),
        "consensus-0.5": ((11.0, 3.7), (19.0, 7.3)),
        "greedy": ((3.8, 1.8), (5.9, 3.5)),
        "offline": ((19.7, 9.1), (19.7, 9.1)),
    },
}


@dataclass(frozen=True, kw_only=True)
class Table:
    """What is interpreted, and how."""

    folder: Annotated[Path, tyro.conf.Positional]
    """Recordings, and manifest.tsv."""
    model: Path
    """Weights of Whisper: .pt, safetensors or ggml."""
    to: Path
    """Where the results go."""
    task: Literal["translate", "transcribe"] = "translate"
    policies: tuple[str, ...] = tuple(ROWS)
    windows: tuple[float, ...] = (1.0, 2.0)
    """In seconds."""
    languages: tuple[str, ...] = ()
    """By default all in the folder."""
    first: int | None = None
    """So many recordings of each language; by default all."""
    aware: int = 0
    """So many of them are also played one at a time, for computation-aware figures."""
    repeats: int = 3
    """Such passes; figures are means over them."""
    batch: int = 16
    """Recordings side by side."""
    padding: Literal["full", "short"] = "full"
    """Of the model's windows: 30 s, or the next 5 s."""
    dtype: Literal["float32", "bfloat16"] = "float32"
    lagging: Literal["simuleval-1.1", "off-by-one"] = "simuleval-1.1"
    """AL in the table: as SimulEval has it, or as the paper's code."""
    speak: bool = False
    """Says the output of the recordings with a clock, and tells when it would be heard."""

    def __post_init__(self) -> None:
        unknown = [name for name in self.policies if name not in ROWS]
        if unknown:
            raise ConfigError(f"there is no policy {unknown[0]!r}; there are {', '.join(ROWS)}")
        if self.speak and not self.aware:
            raise ConfigError("--speak needs recordings that are played alone: give --aware")


def make_table(chosen: Table) -> list[Scored]:
    """Every cell that is not there yet; then the table and the figure."""
    cells = plan(chosen, read_recordings(chosen.folder))
    for cell in cells:
        begin(cell, f"{chosen.model.name}, {chosen.dtype}")
    if any(cell.waiting for cell in cells):
        _interpret(chosen, cells)
    voice = voice_for("en") if chosen.speak else None
    scored = [Scored(cell=cell, scores=scores_of(cell, voice)) for cell in cells]
    write_table(scored, chosen.to / "table.md", lagging=chosen.lagging, published=PUBLISHED)
    draw(scored, chosen.to / "figure.png", lagging=chosen.lagging)
    return scored


def plan(chosen: Table, recordings: list[Recording]) -> list[Cell]:
    """The cells of the table, those of one language together."""
    languages = list(dict.fromkeys(recording.language for recording in recordings))
    absent = [language for language in chosen.languages if language not in languages]
    if absent:
        raise ConfigError(f"{chosen.folder} has nothing in {absent[0]!r}, but {languages}")
    return [cell for one in chosen.languages or languages for cell in _of(chosen, one, recordings)]


def _of(chosen: Table, language: str, recordings: list[Recording]) -> Iterator[Cell]:
    spoken = [recording for recording in recordings if recording.language == language]
    for window in chosen.windows:
        for row in chosen.policies:
            yield Cell(
                row=row,
                interpreting=WhisperStreaming(
                    policy=ROWS[row],
                    window_s=window,
                    task=chosen.task,
                    language=language,
                    padding=chosen.padding,
                ),
                recordings=tuple(spoken[: chosen.first]),
                folder=chosen.to / f"{language}-{window:g}s-{row}",
                aware=min(chosen.aware, len(spoken[: chosen.first])),
                repeats=chosen.repeats,
                batch=chosen.batch,
            )


def _interpret(chosen: Table, cells: list[Cell]) -> None:
    model = whisper.load(chosen.model, dtype=chosen.dtype)
    sound = {r.file: len(r.samples) / 16_000 for cell in cells for r in cell.recordings}
    waiting = [cell for cell in cells if cell.waiting]
    with tqdm(
        total=round(sum(_seconds(cell, sound) for cell in waiting)),
        unit="s",
        bar_format="{desc}{percentage:3.0f}% of {total} s of sound, {elapsed}, {remaining} left",
    ) as bar:
        for cell in waiting:
            bar.set_description(cell.folder.name)
            interpret(cell, WhisperTranslator(model, cell.interpreting), bar.update)


def _seconds(cell: Cell, sound: dict[Path, float]) -> float:
    """Of sound that a cell still has to hear, warming up not counted."""
    every, some = cell.recordings, cell.recordings[: cell.aware]
    heard = [some if log in cell.runs else every for log in cell.waiting]
    return sum(sound[recording.file] for part in heard for recording in part)


def main() -> None:
    """The command."""
    enable_compilation_cache()
    try:
        chosen = tyro.cli(Table)
        make_table(chosen)
    except (*REFUSALS, OSError) as error:
        sys.exit(f"dugan: {error}")
    print((chosen.to / "table.md").read_text())


if __name__ == "__main__":
    main()
