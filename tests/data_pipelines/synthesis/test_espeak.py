import gzip
import time
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from data_pipelines.synthesis import espeak
from data_pipelines.synthesis.espeak import Mark, spread_ties, word_spans
from data_pipelines.utterance import Span, Voice
from simuljax.voice import VoiceError
from tests.helpers.corpora import spans

ROOT = Path(__file__).parents[3]
CAPTIONS = ROOT / ".." / "shared" / "data" / "text" / "multi30k" / "train.en.gz"
PLAIN = Voice(engine="espeak")
RATE = 16_000


def voice(variant: str, **changes) -> Voice:
    return Voice(engine="espeak", variant=variant, **changes)


def check_times(text: str, said) -> None:
    assert [word.text for word in said.words] == text.split()
    times = [at for word in said.words for at in (word.start_ms, word.end_ms)]
    assert times == sorted(times)
    assert times[0] >= 0 and times[-1] <= said.duration_ms
    assert len(said.phonemes) > 0
    for before, phoneme in pairwise(said.phonemes):
        assert before.end_ms <= phoneme.start_ms <= phoneme.end_ms <= said.duration_ms


def is_loud(samples: np.ndarray) -> np.ndarray:
    loudness = np.abs(samples.astype(float))
    return loudness > 0.05 * loudness.max()


def test_a_sentence():
    said = espeak.speak("A man in the park, with 23 dogs.", PLAIN)
    check_times("A man in the park, with 23 dogs.", said)
    assert said.samples.dtype == np.int16
    assert 2000 < said.duration_ms < 2600
    assert "".join(p.text for p in said.phonemes) == "ɐmˈanɪnðəpˈɑːkwɪðtwˈɛntiθɹˈiːdˈɒɡz"
    spoken = {w.text: "".join(p.text for p in inside(said, w)) for w in said.words}
    assert spoken == {
        "A": "ɐ",
        "man": "mˈan",
        "in": "ɪn",  # the engine joins it to "the"
        "the": "ðə",
        "park,": "pˈɑːk",
        "with": "wɪð",
        "23": "twˈɛntiθɹˈiː",
        "dogs.": "dˈɒɡz",
    }


def inside(said, word):
    return [p for p in said.phonemes if word.start_ms <= (p.start_ms + p.end_ms) / 2 < word.end_ms]


@pytest.mark.parametrize(
    ("language", "text", "spoken"),
    [
        ("de", "Grüße über Äpfel für öde Flüße", "ɡɾˈyːsə ˌyːbɜ ˈɛpfəl fyːɾ ˈøːdə flˈyːsə"),
        ("fr", "été déjà où était Noël", "etˈe deʒˈa u etˈɛ nɔˈɛl"),
        ("en", "naïve “café” ok", "naɪˈiːv kafˈeɪ ˌəʊkˈeɪ"),
        ("en", "😀 smile", "ɡɹˈɪnɪŋfˈeɪs smˈaɪl"),  # four bytes, and two units of UTF-16
        ("en", "cafe\u0301s ok", "kˈeɪfz ˌəʊkˈeɪ"),  # an accent apart, which it does not hear
    ],
)
def test_offsets_count_characters(language, text, spoken):
    said = espeak.speak(text, voice("", language=language))
    check_times(text, said)
    found = ["".join(p.text for p in inside(said, word)) for word in said.words]
    assert found == spoken.split()


@pytest.mark.parametrize(
    "text",
    [
        'a < b & c "quoted" it\'s 3.5 <b>bold</b> - end',
        "well-known, e-mail; A.B.C. U.S.A. i.e. Dr. 1,000 100% $5 10:30",
        "https://a.b/c?d=e [[h@]] \\ ~ ^  spaced \t out \n\n twice  ",
        "nul\0led \x01+50S \x1b[1m text",
        "-- the -- end ... so ...",
        "日本語 ok",
    ],
)
def test_odd_text(text):
    said = espeak.speak(text, voice("f2"))
    check_times(text, said)
    assert said.words[-1].end_ms > 0


def test_markup_and_commands_are_read_not_obeyed():
    plain = espeak.speak("slow speed 5 S", PLAIN)
    commanded = espeak.speak("slow \x01" + "5S speed 5 S", PLAIN)
    assert commanded.duration_ms > plain.duration_ms  # "5S" was said; the rate did not change
    same = [espeak.speak(text, PLAIN).words[-1] for text in ("x word", "\x0180P x word")]
    lengths = [word.end_ms - word.start_ms for word in same]
    assert lengths[0] == pytest.approx(lengths[1], rel=0.05)
    assert (
        espeak.speak("<b>end</b>", PLAIN).duration_ms > 2 * espeak.speak("end", PLAIN).duration_ms
    )


def test_words_behind_pauses_start_and_end_with_the_sound():
    text = "Apples, oranges, ice, eggs, animals, and avenues, all of it."
    said = espeak.speak(text, voice("f2"))
    loud, checked = is_loud(said.samples), 0
    for before, word in pairwise(said.words):
        if word.start_ms - before.end_ms > 50:
            middle = round((before.end_ms + word.start_ms) / 2 * RATE / 1000)
            rises = (middle + int(np.argmax(loud[middle:]))) * 1000 / RATE
            falls = (middle - int(np.argmax(loud[middle::-1]))) * 1000 / RATE
            assert rises == pytest.approx(word.start_ms, abs=10)
            assert falls == pytest.approx(before.end_ms, abs=30)
            checked += 1
    assert checked == 6


def test_fricatives_are_where_they_are_said_to_be():
    """The s between vowels is the time of high frequencies, to 15 ms; shifted, it is not."""
    said = espeak.speak("Isa, a sigh, a sea, a saw, assay, oh so icy.", voice("m3"))
    frames = np.lib.stride_tricks.sliding_window_view(said.samples.astype(float), 160)[::16]
    power = np.abs(np.fft.rfft(frames * np.hanning(160))) ** 2
    high, low = power[:, 35:].sum(1), power[:, :20].sum(1)
    hissing = (high > low) & (high > 1e-3 * high.max())  # one per ms, from 5 ms on
    expected = np.zeros(len(hissing), bool)
    for p in said.phonemes:
        if p.text == "s":
            expected[round(p.start_ms - 5) : round(p.end_ms - 5)] = True
    agreement = {d: float(np.mean(np.roll(expected, d) == hissing)) for d in range(-60, 61, 5)}
    assert abs(max(agreement, key=agreement.__getitem__)) <= 15
    assert agreement[0] > agreement[-40] + 0.05 and agreement[0] > agreement[40] + 0.05


def test_what_was_said_before_does_not_matter():
    text = "A man in the park."
    for variant in ("f2", "klatt2", "whisper"):
        first = espeak.speak(text, voice(variant)).samples
        other = espeak.speak("Other words entirely.", voice("klatt4", pitch=20)).samples
        assert np.array_equal(espeak.speak(text, voice(variant)).samples, first)
        again = espeak.speak(text, voice(variant, pitch=20)).samples
        assert not np.array_equal(again, first) and not np.array_equal(other, again)


def test_nor_does_the_second():
    """The engine's own seed is the time in seconds; it is loaded anew for every sentence."""
    text, variants = "A man in the park.", ("f2", "klatt2")
    first, other = (espeak.speak(text, voice(variant)).samples for variant in variants)
    time.sleep(1.1)
    for variant, samples in zip(variants, (first, other), strict=True):
        assert np.array_equal(espeak.speak(text, voice(variant)).samples, samples)
    assert not np.array_equal(first, other)


@pytest.mark.parametrize(
    ("text", "said_by", "message"),
    [
        (" \n", PLAIN, "no text to say"),
        ("...", PLAIN, "nothing to say in '...'"),
        ("ok", voice("nobody"), "no variant 'nobody'.*f2"),
        ("ok", voice("", language="xx"), "no language 'xx'"),
    ],
)
def test_errors_say_what_is_wrong(text, said_by, message):
    with pytest.raises(VoiceError, match=message):
        espeak.speak(text, said_by)
    assert espeak.speak("ok", PLAIN).duration_ms > 100  # and the engine works on


def test_real_captions():
    if not CAPTIONS.exists():
        pytest.skip("no Multi30k beside the repository")
    lines = gzip.decompress(CAPTIONS.read_bytes()).decode().splitlines()[::250]
    for number, line in enumerate(lines):
        said = espeak.speak(line, voice(["f2", "m3", "klatt4"][number % 3]))
        check_times(line, said)
        for word in said.words:
            if any(c.isalnum() for c in word.text):
                assert word.end_ms - word.start_ms > 10, (line, word)


# Words from marks: every case by hand.


def phonemes(*durations: float, pauses: dict[int, float] | None = None) -> list[Span]:
    """Phonemes one behind the other; `pauses[i]` is the silence before number i."""
    spoken, at = [], 0.0
    for i, duration in enumerate(durations):
        at += (pauses or {}).get(i, 0.0)
        spoken.append(Span(text="a", start_ms=at, end_ms=at + duration))
        at += duration
    return spoken


CASES = {
    "a mark for each word": (
        *("to me", [(0, 0), (3, 2)], phonemes(10, 20, 30, 40, pauses={2: 100})),
        [("to", 0, 30), ("me", 130, 200)],
    ),
    "several marks in one word": (
        *("23 cats", [(0, 0), (1, 1), (3, 2)], phonemes(10, 10, 10, 10)),
        [("23", 0, 20), ("cats", 20, 40)],
    ),
    "joined words share whole phonemes by letters": (
        *("in the x", [(0, 0), (7, 4)], phonemes(23, 64, 46, 67, 10)),
        [("in", 0, 87), ("the", 87, 200), ("x", 200, 210)],
    ),
    "of 23 only the 3 shares with of": (
        *("23 of", [(0, 0), (1, 2)], phonemes(10, 10, 10, 10, 10)),
        [("23", 0, 30), ("of", 30, 50)],
    ),
    "more joined words than phonemes share the time": (
        *("a b cd", [(0, 0)], phonemes(40)),
        [("a", 0, 10), ("b", 10, 20), ("cd", 20, 40)],
    ),
    "every joined word gets a phoneme": (
        *("antidisestablishment a b", [(0, 0)], phonemes(10, 10, 10)),
        [("antidisestablishment", 0, 10), ("a", 10, 20), ("b", 20, 30)],
    ),
    "silent words are empty and in order": (
        *("( a < b .", [(2, 0), (6, 1)], phonemes(10, 10, pauses={1: 50})),
        [("(", 0, 0), ("a", 0, 10), ("<", 10, 10), ("b", 60, 70), (".", 70, 70)],
    ),
    "a hyphen leaves its mark to the next word": (
        *("a - bc", [(0, 0), (2, 1)], phonemes(10, 10)),
        [("a", 0, 10), ("-", 10, 10), ("bc", 10, 20)],
    ),
    "a mark behind an opening quote is not shared": (
        *('c "ok"', [(0, 0), (3, 2)], phonemes(10, 10, 10, 10)),
        [("c", 0, 20), ('"ok"', 20, 40)],
    ),
    "a mark without sound joins its word to the one before": (
        *("um ok no", [(0, 0), (3, 1), (6, 1)], phonemes(10, 10)),
        [("um", 0, 5), ("ok", 5, 10), ("no", 10, 20)],
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_words_from_marks(case):
    text, marks, spoken, expected = CASES[case]
    marked = [Mark(position=position, phoneme=phoneme) for position, phoneme in marks]
    assert spans(word_spans(text, marked, spoken)) == expected


@pytest.mark.parametrize(
    ("starts", "expected"),
    [
        ([0, 10, 20], [0, 10, 20]),
        ([0, 10, 10, 30], [0, 10, 20, 30]),
        ([5, 5, 5], [5, 20, 35]),
        ([50, 50], [50, 50]),
        ([], []),
    ],
)
def test_ties_are_spread(starts, expected):
    assert spread_ties(starts, 50) == expected
