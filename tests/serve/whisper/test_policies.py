"""Policies and guards on hypotheses made by hand."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simuljax.audio import RATE
from simuljax.decode.policies import (
    AlignAtt,
    Confidence,
    Consensus,
    Greedy,
    LocalAgreement,
    Offline,
    similarity,
)
from simuljax.serve.whisper.hypothesis import (
    FRAME,
    Guards,
    Hypothesis,
    Loudness,
    hypotheses_for,
    is_echo,
    judge,
    levels,
    nobody_speaks,
    repeats_itself,
    silent_samples,
)
from tests.serve.whisper.made import OPEN, attending, hypothesis, segment

EVERY = (
    Greedy(),
    Offline(),
    Confidence(),
    Confidence(by="log_probability"),
    Consensus(),
    AlignAtt(),
    LocalAgreement(),
)


def indel(first, second):
    """Insertions and deletions, by the table of the textbook."""
    table = [
        [max(i, j) if not i or not j else 0 for j in range(len(second) + 1)]
        for i in range(len(first) + 1)
    ]
    for i in range(1, len(first) + 1):
        for j in range(1, len(second) + 1):
            same = first[i - 1] == second[j - 1]
            table[i][j] = table[i - 1][j - 1] if same else 1 + min(table[i - 1][j], table[i][j - 1])
    return table[-1][-1]


@given(st.text("abc é", max_size=70), st.text("abc é", max_size=70))
def test_similarity_is_by_insertions_and_deletions(first, second):
    together = len(first) + len(second)
    expected = 1 - indel(first, second) / together if together else 1.0
    assert similarity(first, second) == pytest.approx(expected)
    assert similarity(first, second) == similarity(second, first)


def unsure(*log_probabilities, no_speech=0.0):
    parts = [segment("a", log_probability=p, no_speech=no_speech) for p in log_probabilities]
    return Hypothesis(segments=tuple(parts))


BY_WORDS = Confidence(by="log_probability")
SURE = Confidence(threshold=math.exp(math.log(0.75)), by="log_probability")
HALF = hypothesis("ab"), [hypothesis("ba")]  # similar by 0.5
CAT = hypothesis("the cat sat", "on a mat")
CAT_BEFORE = hypothesis("the cat sat on", "the mat")
ATTENDS = attending(9, 40, 39, 49, total=50)
COMMITTED = [  # policy, hypothesis, those before it; units that are committed
    (Greedy(), CAT, [], 2),
    (Offline(), CAT, [CAT], 0),
    # More than the threshold, up to the first refusal.
    *((Confidence(), unsure(0.0, no_speech=p), [], n) for p, n in ((0.49, 1), (0.5, 0), (0.51, 0))),
    *((SURE, unsure(math.log(p)), [], n) for p, n in ((0.76, 1), (0.75, 0), (0.74, 0))),
    (BY_WORDS, unsure(-0.1, -0.2, -2.0, -0.1), [], 2),
    # At least the threshold, with the segment at the same place.
    (Consensus(threshold=0.5), *HALF, 1),
    (Consensus(threshold=0.501), *HALF, 0),
    (Consensus(), hypothesis("one", "two", "abc", "4"), [hypothesis("one", "two", "xyz", "4")], 2),
    (Consensus(threshold=0), CAT, [], 0),
    (Consensus(threshold=0), CAT, [hypothesis("one")], 1),
    (Consensus(), hypothesis("one", "two"), [hypothesis("two", "one")], 0),
    # Up to the first word that attends to the end.
    *((AlignAtt(frames=f), ATTENDS, [], n) for f, n in ((0, 4), (1, 3), (9, 3), (10, 1), (41, 0))),
    # Words that so many hypotheses agree on, whatever their marks.
    (LocalAgreement(), CAT, [], 0),
    (LocalAgreement(), CAT, [CAT_BEFORE], 4),
    (LocalAgreement(agree=3), CAT, [CAT_BEFORE], 0),
    (LocalAgreement(agree=3), CAT, [hypothesis("the dog"), CAT_BEFORE], 1),
    (LocalAgreement(agree=2), CAT, [hypothesis("the dog"), CAT_BEFORE], 4),
    (LocalAgreement(), hypothesis("So, Ask not!"), [hypothesis("so ask Not what")], 3),
    (LocalAgreement(), hypothesis("-"), [hypothesis("!")], 0),
]


@pytest.mark.parametrize(("policy", "now", "before", "count"), COMMITTED)
def test_what_a_policy_commits(policy, now, before, count):
    assert policy.commit(hypotheses_for(policy, now, before))[0] == count


def test_a_policy_sees_all_hypotheses_it_looks_back_at():
    before = [hypothesis(text) for text in "abcd"]
    for count in range(5):
        seen = hypotheses_for(LocalAgreement(agree=4), CAT, before[:count])
        assert len(seen.texts) == min(count, 3) + 1


FOUR = hypothesis("a b", "c d")
JUDGED = [  # policy, hypothesis, those before it, what is known; words committed, segments settled
    # Where words are judged, a segment is settled once another follows it.
    (LocalAgreement(), FOUR, [hypothesis("a b c d")], {}, (4, 1)),
    (LocalAgreement(), FOUR, [hypothesis("a x")], {}, (1, 0)),
    # What is committed stays so.
    (LocalAgreement(), FOUR, [], {"committed": 3}, (3, 1)),
    (Offline(), FOUR, [], {"committed": 1}, (1, 0)),
    # What must be settled spares the last segment if it can.
    *(
        (Offline(), hypothesis("a", "b", "c"), [], {"least_s": least_s}, (done, done))
        for least_s, done in ((0.0, 0), (0.5, 2), (1.5, 2), (2.0, 2), (2.1, 3), (9.0, 3))
    ),
    # A policy that settles enough is left alone.
    *(
        (Consensus(), hypothesis("one", "two", "abc"), [hypothesis("one", "xyz")], least, verdict)
        for least, verdict in (({"least_s": 0.9}, (1, 1)), ({"least_s": 1.1}, (2, 2)))
    ),
]


@pytest.mark.parametrize(("policy", "now", "before", "known", "verdict"), JUDGED)
def test_judge(policy, now, before, known, verdict):
    assert judge(policy, now, before, **known) == verdict


@pytest.mark.parametrize("policy", EVERY)
def test_at_the_end_everything_is_committed_and_of_nothing_nothing(policy):
    assert judge(policy, FOUR, [], least_s=math.inf) == (4, 2)
    for least_s in (0.0, 1.0, math.inf):
        assert judge(policy, Hypothesis(), [], least_s=least_s) == (0, 0)


def noise(seconds, db=-30.0, *, colour=0.0, seed=0):
    """Gaussian noise with a power of 1 / frequency^colour."""
    spectrum = np.fft.rfft(np.random.default_rng(seed).standard_normal(int(seconds * RATE)))
    hertz = np.fft.rfftfreq(int(seconds * RATE), 1 / RATE)
    spectrum *= np.maximum(hertz, 20.0) ** (-colour / 2) * (hertz >= 20)
    sound = np.fft.irfft(spectrum, int(seconds * RATE))
    return (
        np.rint(sound / sound.std() * 32768 * 10 ** (db / 20)).clip(-32768, 32767).astype(np.int16)
    )


def syllables(seconds, db=-30.0, seed=0):
    """Noise that comes four times a second."""
    sound = noise(seconds, db, seed=seed)
    rises = 0.5 - 0.5 * np.cos(2 * np.pi * 4 * np.arange(len(sound)) / RATE)
    return np.rint(sound * rises).astype(np.int16)


def test_levels_of_a_buffer_that_grows_and_is_trimmed_are_those_of_its_sound():
    random, sound = np.random.default_rng(5), syllables(30.0)
    loudness, start, end, kept = Loudness(), 0, 0, 0
    for _ in range(200):
        end = min(len(sound), end + int(random.integers(0, RATE)))
        buffer = sound[start:end]
        differences = levels(np.diff(buffer.astype(np.int32)))
        np.testing.assert_array_equal(loudness.of_differences(buffer), differences)
        np.testing.assert_array_equal(loudness.of(buffer), levels(buffer))
        count = int(random.choice([0, 0, 3 * FRAME, 320])) if len(buffer) > RATE else 0
        loudness.trim(count)
        start, kept = start + count, kept + len(loudness.sound)
    assert start > FRAME and kept > 1000


def test_levels():
    full = np.full(FRAME * 2 + 10, 16384, np.int16)
    full[FRAME : 2 * FRAME] = 0
    np.testing.assert_allclose(levels(full), [-6.02, -120, -6.02], atol=0.01)
    assert len(levels(full[:0])) == 0


@pytest.mark.parametrize("colour", [0.0, 1.0, 2.0])
@pytest.mark.parametrize("db", [-90.0, -20.0])
def test_silence_and_noise_are_no_speech(colour, db):
    for seed in range(10):
        sound = noise(2.5, db, colour=colour, seed=seed)
        assert silent_samples(sound, Guards()) == len(sound), seed


def test_syllables_are_speech_though_noise_is_beside_them():
    for db in (-90, -40, -34):
        sound = syllables(2.0) + noise(2.0, db, seed=1)
        assert silent_samples(sound, Guards()) < FRAME


def test_silence_before_speech_is_found_and_a_moment_of_steady_sound_is_not_judged():
    sound = np.concatenate([noise(1.0, -70), syllables(1.0, -30)])
    assert abs(silent_samples(sound, Guards()) - RATE) <= 2 * FRAME
    assert silent_samples(noise(0.5), Guards()) == 0
    assert silent_samples(sound, OPEN) == silent_samples(noise(2.0), OPEN) == 0


@pytest.mark.parametrize(
    ("no_speech", "log_probability", "silent"),
    [(0.59, -2.0, False), (0.61, -0.51, True), (0.61, -0.49, False), (0.91, -0.1, True)],
)
def test_the_model_may_detect_no_speech(no_speech, log_probability, silent):
    written = Hypothesis(no_speech=no_speech, log_probability=log_probability)
    assert nobody_speaks(written, Guards()) == silent
    assert not nobody_speaks(written, OPEN)


def test_a_text_that_repeats_itself():
    assert repeats_itself("and so on " * 10, Guards())
    assert not repeats_itself("ask not what your country can do for you", Guards())
    assert not repeats_itself("and so on " * 10, OPEN)


@pytest.mark.parametrize(
    ("text", "loops"),
    [
        ("we look for the recipe for the recipe, for the recipe", True),
        ("we look for the recipe for the recipe", False),
        ("for the recipe for the recipe for the recipe of the day", False),  # it went on
        ("no no no no", False),
        ("no no no no no", True),
        ("on and on and on", False),
        ("", False),
    ],
)
def test_a_loop_that_begins(text, loops):
    assert repeats_itself(text, Guards()) == loops


@pytest.mark.parametrize(
    ("said", "words", "echo"),
    [
        ("thank you very much", "thank you very much", True),
        ("i say thank you very much", "thank you very much", True),
        ("thank you very much all", "thank you very much", False),
        ("no no no", "no", False),  # people do
        ("no no no no", "no", True),
        ("thank you", "thank you", False),
        ("thank you thank you", "thank you", True),
        ("a b c d", "a b c d a b c d", True),
        ("a b c d", "a b c d e", False),
        ("i have a dream that one day", "i have a dream", False),
        ("of the people by the people for", "the people", False),
        ("one two three four one two three", "four", True),  # word by word
        ("one two three four one two", "three", False),  # the round is not whole
        ("", "one two three four", False),
        ("one two three four", "", False),
    ],
)
def test_echoes(said, words, echo):
    assert is_echo(words.split(), said.split(), Guards()) == echo
    assert not is_echo(words.split(), said.split(), OPEN)
