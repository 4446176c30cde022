"""Voices of a corpus, and those of hibari."""

from collections import Counter
from itertools import pairwise

import numpy as np
import pytest

from data_pipelines.corpora import ParallelText, Spoken
from data_pipelines.dataset import Example
from data_pipelines.prepare import Limits, Shard, read_examples
from data_pipelines.synthesis import Hibari, Voices, espeak, synthesise
from data_pipelines.synthesis.speech import Speech
from data_pipelines.synthesis.voices import UNINTELLIGIBLE, speakers
from data_pipelines.utterance import CorpusError, Skip, Utterance, Voice
from simuljax.voice import VoiceError
from simuljax.voice.espeak import variants

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


def test_choices_are_the_same_in_every_process():
    wanted = Voice(engine="espeak", variant="f4", words_per_minute=181, pitch=38)
    assert Voices(seed=5).choose("ü1", "test") == wanted


def test_speakers_of_further_training_splits_and_languages_of_hibari(tmp_path):
    for name in ("train_extra.en", "train_extra.de", "eval.en", "eval.de"):
        (tmp_path / name).write_text("".join(f"So {n}.\n" for n in range(20)))
    splits = Spoken(text=ParallelText()).read(tmp_path).splits
    for split, part in (("train_extra", "train"), ("eval", "test")):
        assert {u.speaker.removeprefix("espeak:") for u in splits[split]} <= {*speakers(part)}
    with pytest.raises(CorpusError, match="hibari speaks English, not 'de': set --engine espeak"):
        Spoken(text=ParallelText(source="de", target="en"), engine="both").read(tmp_path)


def test_a_list_with_failures(tmp_path):
    utterances = [
        utterance("good", audio=Voice(engine="espeak", variant="f2")),
        utterance("dots", "...", Voice(engine="espeak")),
        utterance("variant", audio=Voice(engine="espeak", variant="nobody")),
        utterance("natural", audio=Voice(engine="hibari")),
    ]
    nowhere = {"path": tmp_path, "report": tmp_path, "limits": Limits(), "transcribed": True}
    good, dots, variant, natural = read_examples(Shard(utterances=utterances, **nowhere), Counter())
    assert isinstance(good, Example) and isinstance(natural, Example)
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


VOICE = Voice(engine="hibari")
TEXT = "Hello there, a man in the park. He sat - down; with 23 dogs!"


@pytest.fixture(scope="module")
def engine() -> Hibari:
    return Hibari()


def inside(said, word) -> str:
    middles = [(p.text, (p.start_ms + p.end_ms) / 2) for p in said.phonemes]
    return "".join(text for text, at in middles if word.start_ms <= at < word.end_ms)


def test_two_sentences(engine):
    said = engine.speak(TEXT, VOICE)
    assert [word.text for word in said.words] == TEXT.split()
    times = [at for word in said.words for at in (word.start_ms, word.end_ms)]
    assert times == sorted(times) and times[-1] <= said.duration_ms
    assert said.samples.dtype == np.int16 and 4000 < said.duration_ms < 6500
    phonemes = {word.text: inside(said, word) for word in said.words}
    assert phonemes["Hello"] == "həlˈO" and phonemes["park."] == "pˈɑɹk"
    assert phonemes["-"] == "" and phonemes["23"] == "twˈɛntiθɹˈi"
    for before, phoneme in pairwise(said.phonemes):
        assert before.end_ms <= phoneme.start_ms < phoneme.end_ms


def test_words_fit_the_sound(engine):
    """At the start, at the end, and around the pause between two sentences."""
    said = engine.speak(TEXT, VOICE)
    loudness = np.abs(said.samples.astype(float))
    loud = loudness > 0.03 * loudness.max()
    words = {word.text: word for word in said.words}
    pause = [round(16 * at) for at in (words["park."].end_ms, words["He"].start_ms)]
    assert pause[1] - pause[0] > 16 * 400
    assert not loud[pause[0] + 16 * 40 : pause[1] - 16 * 40].any()
    assert loud[: pause[0]].nonzero()[0][-1] == pytest.approx(pause[0], abs=16 * 60)
    assert (pause[1] + np.argmax(loud[pause[1] :])) == pytest.approx(pause[1], abs=16 * 60)
    edges = loud.nonzero()[0][[0, -1]] / 16
    assert edges[0] == pytest.approx(said.words[0].start_ms, abs=50)
    assert edges[1] == pytest.approx(said.words[-1].end_ms, abs=50)


def test_the_audio_is_the_packages_own(engine):
    """The added output changes nothing."""
    import hibari
    from scipy.signal import resample_poly

    direct = resample_poly(hibari.Hibari()("A man.", seed=0).astype(float), 2, 3) * 32767
    ours = engine.speak("A man.", VOICE).samples  # whatever was said before
    assert len(ours) == len(direct)
    assert np.abs(ours - direct).max() <= 1


@pytest.mark.parametrize(
    ("text", "voice", "message"),
    [
        ("...", VOICE, "nothing to say"),
        ("ok", Voice(engine="hibari", language="de"), "one voice.*'de'"),
        ("ok", Voice(engine="hibari", variant="f2"), "one voice.*'f2'"),
        # The engine reads "upper-class Chinese" with a stray "zero" between the two.
        ("An upper-class Chinese restaurant.", VOICE, "as 5 words and its parts as 4"),
    ],
)
def test_errors_say_what_is_wrong(engine, text, voice, message):
    with pytest.raises(VoiceError, match=message):
        engine.speak(text, voice)
