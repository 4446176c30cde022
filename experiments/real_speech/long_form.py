"""Translate an hour of joined sentences with a trained run: are any lost, does memory grow?

    simuljax demo --out demo_out
    python -m experiments.real_speech.long_form demo_out/run --to hour

Hardware: 2 CPU cores, 20 to 40 minutes; needs eSpeak NG and mweralign (`pip install
'simuljax[speech,longform]'`). New sentences of the demo's phrasebook are spoken and joined with
pauses to one recording. `simuljax translate` reads it in a process of its own, whose memory is
noted every 5 s. Writes the recording, the log and summary.json to the folder.
"""

import subprocess
import sys
import time
from pathlib import Path
from resource import getpagesize

import numpy as np
import soundfile
import tyro

from data_pipelines.synthesis.espeak import speak
from data_pipelines.utterance import Voice
from simuljax.audio import RATE
from simuljax.audio.segmentation import Segmenter
from simuljax.config.fields import write_json
from simuljax.config.segmentation import Segmentation
from simuljax.decode.stammer import RepetitionFilter
from simuljax.demo.corpus import LittlePhrasebook
from simuljax.eval import read_records
from simuljax.eval.long_form import Segment, score_longform
from simuljax.text.sentences import ends_sentence


def main(run: tyro.conf.Positional[Path], to: Path, minutes: float = 60.0, pause_s: float = 0.6):
    """Join, translate and score.

    Args:
        run: A trained run.
        to: Folder for the recording and the results.
        minutes: Length of the recording.
        pause_s: Silence after each sentence.
    """
    to.mkdir(parents=True, exist_ok=True)
    talk, log = to / "talk.wav", to / "instances.log"
    samples, segments = make_talk(talk, round(minutes * 60 * RATE), round(pause_s * RATE))
    start = time.perf_counter()
    memory = translate(run, talk, log)
    wall_s = time.perf_counter() - start
    (record,) = read_records(log)
    scores = score_longform([record], segments)
    segmenter = Segmenter(Segmentation())
    parts = segmenter.push(samples) + segmenter.finish()
    after = memory[len(memory) // 10 :]  # the first tenth loads and compiles
    summary = {
        "minutes": len(samples) / RATE / 60,
        "sentences": len(segments),
        "segments_found": sum(part.ends for part in parts),
        "sentences_ended": sum(map(ends_sentence, record.prediction.split())),
        "sentences_without_words": scores["skipped"],
        "words": len(record.delays),
        "stammers": RepetitionFilter().text(record.prediction) != record.prediction,
        "wall_s": wall_s,
        "memory_mb": {"first": after[0], "last": after[-1], "most": max(after)},
        "scores": scores,
    }
    write_json(to / "summary.json", summary)
    print((to / "summary.json").read_text())


def make_talk(file: Path, samples: int, pause: int) -> tuple[np.ndarray, list[Segment]]:
    """Speak new sentences until the recording is long enough."""
    voice = Voice(engine="espeak", language="en-us", words_per_minute=200)
    silence, parts, segments, length = np.zeros(pause, np.int16), [], [], 0
    book = LittlePhrasebook(train=1, valid=1, test=samples // (2 * RATE))
    for pair in book.read(None).splits["test"]:
        if length >= samples:
            break
        spoken = speak(pair.transcript, voice).samples
        segments.append(
            Segment(
                talk=file.name,
                reference=pair.translation,
                start_ms=length * 1000 / RATE,
                duration_ms=len(spoken) * 1000 / RATE,
            )
        )
        parts += [spoken, silence]
        length += len(spoken) + pause
    joined = np.concatenate(parts)
    soundfile.write(file, joined, RATE, subtype="PCM_16")
    return joined, segments


def translate(run: Path, audio: Path, log: Path) -> list[float]:
    """Run `simuljax translate`; return its resident megabytes every 5 s."""
    memory = []
    command = [sys.executable, "-m", "simuljax.cli.main", "translate", str(run), str(audio)]
    command += ["--log", str(log)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
        while process.poll() is None:
            pages = int(Path(f"/proc/{process.pid}/statm").read_text().split()[1])
            memory.append(pages * getpagesize() / 2**20)
            time.sleep(5)
    if process.returncode:
        raise SystemExit(f"simuljax translate failed with status {process.returncode}")
    return [each for each in memory if each]


if __name__ == "__main__":
    tyro.cli(main)
