"""Cells: what is heard once is not heard again, the clock, and the scores."""

import math
import zlib
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import soundfile

from experiments.dugan2023 import interpreting
from experiments.dugan2023.interpreting import Cell, begin, interpret, play
from experiments.dugan2023.recordings import read_recordings
from experiments.dugan2023.scores import scores_of, speak
from experiments.dugan2023.table import Scored, draw, write_table
from simuljax.config.fields import ConfigError
from simuljax.decode.policies import Confidence, Greedy
from simuljax.eval import Record, read_records, write_records
from simuljax.models.whisper import Whisper
from simuljax.serve.session import Word
from simuljax.serve.whisper import Guards, WhisperStreaming, WhisperTranslator
from simuljax.serve.whisper.hypothesis import Hypothesis, Segment, SpelledWord
from simuljax.serve.whisper.translator import WhisperBackend
from simuljax.voice import Espeak
from tests.models.whisper.small import TOKENIZER, small_model

OPEN = Guards(
    quiet_db=None,
    steady_db=None,
    no_speech=None,
    surely_no_speech=None,
    compression=None,
    echo_words=None,
)
SMALL = WhisperStreaming(policy=Greedy(), task="transcribe", language="en", guards=OPEN)


@pytest.fixture(scope="module")
def whisper():
    return Whisper(model=small_model(positions=1500), tokenizer=TOKENIZER)


@pytest.fixture
def cell(tmp_path):
    lines = ["file\tlanguage\treference\tsegments"]
    for i, seconds in enumerate((2.4, 1.7, 3.1)):
        sound = np.random.default_rng(i).normal(0, 3000, int(16_000 * seconds)).astype(np.int16)
        soundfile.write(tmp_path / f"{i}.wav", sound, 16_000)
        lines.append(f"{i}.wav\ten\tthe hat sat\t0.1-1.6")
    (tmp_path / "manifest.tsv").write_text("\n".join(lines) + "\n")
    return Cell(
        row="greedy",
        interpreting=SMALL,
        recordings=tuple(read_recordings(tmp_path)),
        folder=tmp_path / "to" / "en-1s-greedy",
        aware=2,
        batch=2,
    )


class Counting(WhisperTranslator):
    """Writes what a hash of the window says; counts batches, and gives up when there are too many.

    What a model writes is not of interest here; when and how often it is asked is.
    """

    asked = 0
    most = 99

    def stream_all(self, recordings, **how):
        self.asked += 1
        if self.asked > self.most:
            raise KeyboardInterrupt
        return super().stream_all(recordings, **how)

    def backend(self, **overrides):
        return Hashed(self.whisper, replace(self.settings, **overrides))


class Hashed(WhisperBackend):
    def rows(self, streams):
        return self

    def step(self, reads):
        return {row: self._hashed(window.samples) for row, window in reads.items()}

    def _hashed(self, samples):
        words = [
            SpelledWord(text=digit, ids=(int(digit),)) for digit in str(zlib.crc32(samples))[:3]
        ]
        segment = Segment(words=tuple(words), start=0.0, end=len(samples) / 16_000)
        return Hypothesis(segments=(segment,), states=len(samples) // 320)


def test_what_was_heard_is_not_heard_again(whisper, cell):
    begin(cell, "small")
    first, heard = Counting(whisper, SMALL), []
    first.most = 1
    with pytest.raises(KeyboardInterrupt):
        interpret(cell, first, heard.append)
    part = cell.folder / "instances.log.part"
    with part.open("a") as file:
        file.write('{"index": 1, "predic')  # as if killed while it wrote
    second = Counting(whisper, SMALL)
    interpret(cell, second, heard.append)
    assert second.asked == 1 and not part.exists() and not cell.waiting
    assert sum(heard) == pytest.approx(0 + 5.5 + 5.5 + 1.7 + 2.4 + 1.7)

    records = read_records(cell.folder)
    said = Counting(whisper, SMALL).stream_all([r.samples for r in cell.recordings], streams=2)
    assert [r.index for r in records] == [0, 1, 2]
    assert [r.prediction.split() for r in records] == [[w.text for w in words] for words in said]
    assert [list(r.delays) for r in records] == [[w.delay_ms for w in words] for words in said]
    assert all(r.prediction and not r.elapsed for r in records)

    alone = read_records(cell.folder / "aware-1.log")
    assert [(r.prediction, r.delays) for r in alone] == [
        (r.prediction, r.delays) for r in records[:2]
    ]
    assert all(np.all(np.array(r.elapsed) > r.delays) for r in alone)
    interpret(cell, second, heard.append)
    assert second.asked == 1


def test_a_folder_of_something_else_is_refused(cell):
    begin(cell, "small")
    begin(cell, "small")
    other = replace(cell, interpreting=replace(SMALL, policy=Confidence(threshold=0.7)))
    with pytest.raises(ConfigError, match=r"policy\.name was 'greedy' and is 'confidence'"):
        begin(other, "small")
    with pytest.raises(ConfigError, match="model was"):
        begin(cell, "large")


class Scripted:
    """Computes for as many ms on each window as told, and says a word in each."""

    settings = SMALL

    def __init__(self, spent):
        self.spent, self.clock, self.words = list(spent), 0.0, 0

    def stream(self):
        return self

    def push(self, _):
        self.clock += self.spent.pop(0) / 1000
        self.words += 1
        return [Word(text=str(self.words), delay_ms=1000.0 * self.words, elapsed_ms=-1)]

    def finish(self):
        return self.push(None)


def test_the_speaker_goes_on_while_the_model_computes(monkeypatch):
    scripted: Any = Scripted([100, 100, 2500, 100, 100])
    monkeypatch.setattr(interpreting.time, "perf_counter", lambda: scripted.clock)
    words = play(scripted, np.zeros(3 * 16_000 + 8_000, np.int16))
    # windows come at 1, 2, 3, 3.5 s; the end is known at 3.5 s
    assert [w.elapsed_ms for w in words] == pytest.approx([1100, 2100, 5500, 5600, 5700])
    assert [w.delay_ms for w in words] == [1000, 2000, 3000, 4000, 5000]


def written(cell, clock):
    """Logs in which "the" is right, "hat" wrong, and "sat" right."""
    logs = [cell.folder / "instances.log", *cell.runs]
    cell.folder.mkdir(parents=True)
    for log in logs:
        aware = log in cell.runs
        records = [
            Record(
                index=one.index,
                prediction="The cat sat.",
                delays=(1000, 1000, 2000),
                elapsed=(1000 + clock, 1000 + clock, 2000 + clock) if aware else (),
                reference=one.reference,
                source=one.file.name,
                source_length=2400,
            )
            for one in cell.recordings[: cell.aware if aware else None]
        ]
        write_records(log, records)


def test_scores_of_transcripts(cell):
    written(cell, 50)
    scores = scores_of(cell)
    assert scores["WER"] == pytest.approx(100 / 3)
    assert scores["lag"] == pytest.approx(((1000 - 600) + (2000 - 1600)) / 2)
    assert scores["AL"] == pytest.approx((1000 + 200 + 400) / 3)
    assert scores["AL_off_by_one"] == pytest.approx(scores["AL"] + 800)
    clocked = scores["computation_aware"]
    assert clocked["lag"] == pytest.approx(scores["lag"] + 50)
    assert clocked["AL"] == pytest.approx(scores["AL"] + 50)
    assert clocked["n"] == 2 and scores["n"] == 3


def test_without_times_there_is_no_lag(cell):
    written(cell, 50)
    bare = tuple(replace(recording, segments=()) for recording in cell.recordings)
    assert math.isnan(scores_of(replace(cell, recordings=bare))["lag"])


def test_words_committed_together_are_spoken_together(cell):
    written(cell, 50)
    voice = Espeak("en")
    first, second = speak(read_records(cell.runs[0])[0], voice)
    spoken = len(voice.speak("The cat")) / voice.rate * 1000
    assert (first.delay_ms, second.delay_ms) == (1000, 2000)
    assert first.start_ms > 1050 and second.start_ms > max(2050, first.end_ms)
    assert first.end_ms - first.start_ms == pytest.approx(spoken, abs=1)
    scores = scores_of(cell, voice)["computation_aware"]
    assert 1050 < scores["speech_start_offset"] < 1050 + 2000
    assert scores["speech_token_delay"] > 0


def test_one_table_and_one_figure(cell, tmp_path):
    written(cell, 50)
    other = replace(cell, row="offline", folder=cell.folder.with_name("en-1s-offline"), aware=0)
    written(other, 0)
    scored = [Scored(cell=one, scores=scores_of(one)) for one in (cell, other)]
    write_table(scored, tmp_path / "table.md", lagging="simuleval-1.1", published={})
    table = (tmp_path / "table.md").read_text()
    assert "| policy | en 1 s |" in table and "| greedy | 33.3 (0.4) |" in table
    assert "WER (lag in seconds)" in table  # not all have a clock
    assert "| offline | 33.3 (0.4) |" in table and "3 recordings, 0.1 min" in table
    assert draw(scored, tmp_path / "figure.png", lagging="simuleval-1.1").stat().st_size > 5000


def test_the_clock_of_some_is_not_that_of_all(cell, tmp_path):
    written(cell, 50)
    scored = Scored(cell=cell, scores=scores_of(cell))
    assert (scored.timed, scored.computing, scored.length) == (2, pytest.approx(50), 1.0)
    write_table([scored], tmp_path / "table.md", lagging="simuleval-1.1", published={})
    table = (tmp_path / "table.md").read_text()
    assert "WER (lag in seconds)" in table and "the first 2 were played" in table
    assert "| WER | length | lag | lag_CA of 2 | computing ms | said nothing |" in table
    assert "| en | 1 s | greedy | 33.33 | 1.00 | 0.40 | 0.45 | 50 | 0/3 |" in table


def test_translations_beside_the_published(cell, tmp_path):
    translating = replace(SMALL, task="translate")
    cell = replace(cell, aware=3, interpreting=translating)
    written(cell, 50)
    translated = [Scored(cell=cell, scores=scores_of(cell))]
    published = {"en": {"greedy": ((8.6, 2.5), (15.2, 4.1))}}
    write_table(translated, tmp_path / "table.md", lagging="off-by-one", published=published)
    table = (tmp_path / "table.md").read_text()
    assert "BLEU (AL_CA in seconds)" in table and "| greedy | 8.6 (2.5) | 15.2 (4.1) |" in table
    assert "| length | AL | LAAL | AL_CA | computing ms |" in table  # all have a clock


def test_cells_go_from_hasty_to_patient(cell, tmp_path):
    written(cell, 50)
    scores = scores_of(cell)
    late = {"greedy": 700.0, "offline": 16_000.0, "align-att": 1400.0}
    scored = [
        Scored(cell=replace(cell, row=row), scores=scores | {"lag": lag})
        for row, lag in late.items()
    ]
    write_table(scored, tmp_path / "table.md", lagging="simuleval-1.1", published={})
    first, every = (tmp_path / "table.md").read_text().split("## Every cell")
    for part, order in ((first, list(late)), (every, sorted(late, key=lambda row: late[row]))):
        assert sorted(late, key=lambda row: part.index(f"| {row} |")) == order
