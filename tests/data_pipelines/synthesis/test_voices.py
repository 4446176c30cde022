import subprocess
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from data_pipelines.dataset import Record
from data_pipelines.prepare import Limits, Shard, read_records
from data_pipelines.synthesis import Voices, espeak, synthesise
from data_pipelines.synthesis.speech import Speech
from data_pipelines.synthesis.voices import UNINTELLIGIBLE, speakers
from data_pipelines.utterance import Skip, Utterance, Voice
from simuljax.voice.base import VoiceError
from simuljax.voice.espeak import variants

ROOT = Path(__file__).parents[3]
PARTS = ("train", "valid", "test")


def utterance(name: str, text: str = "A man.", audio=None) -> Utterance:
    return Utterance(id=name, transcript=text, translation="Ein Mann.", audio=audio)


def test_parts_share_no_speaker():
    parts = {part: speakers(part) for part in PARTS}
    everyone = [name for part in PARTS for name in parts[part]]
    assert len(set(everyone)) == len(everyone)
    assert set(everyone) == set(variants()) - set(UNINTELLIGIBLE)
    assert len(parts["train"]) > 50 and min(map(len, parts.values())) > 8
    where = {name: part for part in PARTS for name in parts[part]}
    for family in ("klatt", "steph", "robosoft", "iven", "RicishayMax"):  # versions stay together
        together = {part for name, part in where.items() if name.startswith(family)}
        assert len(together) == 1, family
    assert where["Mike"] == where["mike2"] and where["anika"] == where["anikaRobot"]


def test_choices_are_varied_and_in_range():
    voices = Voices(seed=5)
    chosen = [voices.choose(f"id{i}", "train") for i in range(2000)]
    counts = Counter(voice.variant for voice in chosen)
    assert set(counts) == set(speakers("train"))
    assert max(counts.values()) < 3 * 2000 / len(counts)
    assert {voice.words_per_minute for voice in chosen} == set(range(140, 201))
    assert {voice.pitch for voice in chosen} == set(range(30, 71))
    rates, pitches = ([getattr(v, f) for v in chosen] for f in ("words_per_minute", "pitch"))
    assert abs(np.corrcoef(rates, pitches)[0, 1]) < 0.1
    assert chosen != [Voices(seed=6).choose(f"id{i}", "train") for i in range(2000)]


@pytest.mark.slow
def test_choices_are_the_same_in_another_process():
    code = "from data_pipelines.synthesis import Voices; print(Voices(seed=5).choose('ü1', 'test'))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.stdout.strip() == repr(Voices(seed=5).choose("ü1", "test")), done.stderr


def test_a_list_with_failures(tmp_path):
    utterances = [
        utterance("good", audio=Voice(engine="espeak", variant="f2")),
        utterance("dots", "...", Voice(engine="espeak")),
        utterance("variant", audio=Voice(engine="espeak", variant="nobody")),
        utterance("natural", audio=Voice(engine="hibari")),
    ]
    nowhere = {"path": tmp_path, "report": tmp_path, "limits": Limits(), "transcribed": True}
    good, dots, variant, natural = read_records(Shard(utterances=utterances, **nowhere), Counter())
    assert isinstance(good, Record) and isinstance(natural, Record)
    assert [word.text for word in good.utterance.words] == ["A", "man."]
    assert isinstance(dots, Skip) and isinstance(variant, Skip)
    assert dots.id == "dots" and "nothing to say" in dots.detail
    assert {dots.reason, variant.reason} == {"synthesis failed"}
    with pytest.raises(ValueError, match="engine is 'festival'"):
        synthesise("A man.", Voice(engine="festival"))


def test_bad_speech_is_noticed(monkeypatch):
    """A synthesiser that loses a word, or says nothing, or tells times out of order."""
    good = espeak.speak("A man.", Voice(engine="espeak"))

    def results(**changes) -> Speech:
        fields = {"samples": good.samples, "words": good.words, "phonemes": good.phonemes}
        monkeypatch.setattr(espeak, "speak", lambda *_: Speech(**fields | changes))
        return synthesise("A man.", Voice(engine="espeak"))

    assert isinstance(results(), Speech)
    for changes, detail in (
        ({"samples": np.zeros_like(good.samples)}, "silent"),
        ({"samples": good.samples[:0]}, "silent"),
        ({"words": good.words[:1]}, "came out with words"),
        ({"samples": good.samples[:3000]}, "out of order"),
    ):
        with pytest.raises(VoiceError, match=detail):
            results(**changes)
