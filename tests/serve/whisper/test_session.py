"""One speaker without a model: what comes in goes out once, whatever is judged."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simuljax.audio import RATE
from simuljax.config.fields import ConfigError
from simuljax.decode.policies import (
    AlignAtt,
    Confidence,
    Consensus,
    Greedy,
    LocalAgreement,
    Offline,
)
from simuljax.serve.whisper import Guards, WhisperSession, WhisperStreaming
from simuljax.serve.whisper.hypothesis import Hypothesis, Segment, SpelledWord
from tests.serve.whisper.made import MARK_ID, OPEN, hypothesis, segment
from tests.serve.whisper.test_policies import noise, syllables

EVERY = (
    Greedy(),
    Offline(),
    Confidence(),
    Consensus(),
    AlignAtt(),
    LocalAgreement(),
    LocalAgreement(agree=3),
)
UNGUARDED = replace(OPEN, no_speech=0.6, surely_no_speech=0.9, silent_s=5.0)
PLAIN = WhisperStreaming(language="en", guards=UNGUARDED)
SOUND = np.random.default_rng(0).integers(-9000, 9000, 120 * RATE).astype(np.int16)
SPOKEN = RATE // 2  # a word
WRITTEN = [f"w{k}" for k in range(140)]


def spoken(first, samples):
    """What a perfect model writes: a word each half second, a segment every four."""
    words = range(-(-first // SPOKEN), -(-(first + samples) // SPOKEN))
    segments: list[Segment] = []
    for k in words:
        end = min((k + 1) * SPOKEN, first + samples) - first
        word = SpelledWord(text=f"w{k}", ids=(k,), state=(end - 1) // 320)
        old = segments.pop() if segments and k % 4 else None
        start = old.start if old else (k * SPOKEN - first) / RATE
        before = old.words if old else ()
        segments.append(Segment(words=(*before, word), start=start, end=end / RATE))
    return Hypothesis(segments=tuple(segments), states=samples // 320, language="en")


def run(one, sound, chunk, write=spoken):
    """Words and the windows they were judged in."""
    words, windows = [], []

    def listen():
        while window := one.next():
            first = one.settled
            windows.append((first, window))
            words.extend(one.commit(write(first, len(window.samples))))

    for k in range(0, len(sound), chunk):
        one.push(sound[k : k + chunk])
        listen()
    one.finish()
    listen()
    return words, windows


@pytest.mark.parametrize("policy", EVERY)
@pytest.mark.parametrize("most_s", [4.0, 30.0])
def test_every_word_is_said_once(policy, most_s):
    one = WhisperSession(replace(PLAIN, policy=policy, most_s=most_s))
    words, windows = run(one, SOUND[: 70 * RATE], 4000)
    assert words == WRITTEN[:140]
    assert max(len(window.samples) for _, window in windows) <= most_s * RATE
    assert one.finished and not one.pending


@pytest.mark.parametrize("policy", [Consensus(), LocalAgreement()])
def test_what_a_model_left_at_the_end_is_written_again(policy):
    def stops_early(first, samples):
        written = spoken(first, samples)
        return replace(written, segments=written.segments[:2])

    one = WhisperSession(replace(PLAIN, policy=policy))
    words, _ = run(one, SOUND[: 14 * RATE], 4000, stops_early)
    assert words == WRITTEN[:28] and one.finished


def test_a_model_that_writes_nothing_is_not_asked_for_ever():
    one = WhisperSession(replace(PLAIN, policy=Offline()))
    words, windows = run(one, SOUND[: 14 * RATE], 4000, lambda *_: Hypothesis())
    assert words == [] and one.finished and len(windows) == 15


def test_a_session_that_trims_too_much_is_noticed():
    class Forgets(WhisperSession):
        def _trim(self, count):
            super()._trim(count + 100)

    forgets = Forgets(replace(PLAIN, policy=Offline(), most_s=4.0))
    assert run(forgets, SOUND[: 10 * RATE], 4000)[0] != WRITTEN[:20]


@pytest.mark.parametrize("policy", EVERY)
@pytest.mark.parametrize("count", [6, 0])
def test_the_prompt_is_what_was_said_before_the_buffer(policy, count):
    one = WhisperSession(replace(PLAIN, policy=policy, prompt_tokens=count))
    _, windows = run(one, SOUND[: 60 * RATE], 4000)
    for first, window in windows:
        before = -(-first // SPOKEN)
        assert window.prompt == tuple(range(max(0, before - count), before))
        assert window.forced == tuple(range(before, before + len(window.forced)))
        np.testing.assert_array_equal(window.samples, SOUND[first : first + len(window.samples)])
    assert any(window.forced for _, window in windows) == (
        isinstance(policy, AlignAtt | LocalAgreement)
    )


@st.composite
def random_hypotheses(draw, seconds):
    """Anything a model may write: no segments, many, late or early ones, silence, repetition."""
    ends = sorted(draw(st.lists(st.floats(0.02, max(0.02, seconds)), max_size=4)))
    texts = st.sampled_from(["a", "b c", "d e f", "no " * 30])
    segments = tuple(segment(draw(texts), end) for end in ends)
    states = st.integers(0, 1500)
    segments = tuple(
        replace(s, words=tuple(replace(w, state=draw(states)) for w in s.words)) for s in segments
    )
    shares = st.sampled_from([0.0, 0.4, 0.7, 1.0])
    return Hypothesis(
        segments=segments,
        states=int(seconds * 50),
        no_speech=draw(shares),
        log_probability=-draw(shares),
        language="en",
    )


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_sound_is_in_the_buffer_or_has_left_it_for_good(data):
    policies = st.sampled_from(EVERY)
    most_s = data.draw(st.sampled_from([2.5, 4.0, 7.3]))
    plain = WhisperStreaming(policy=data.draw(policies), most_s=most_s)
    one, pushed, left = WhisperSession(plain), 0, 0

    def listen():
        nonlocal left
        while window := one.next():
            first = one.settled
            assert first >= left and len(window.samples) <= most_s * RATE
            left = first
            np.testing.assert_array_equal(window.samples, SOUND[first:][: len(window.samples)])
            one.commit(data.draw(random_hypotheses(len(window.samples) / RATE)))
        assert one.settled + len(one.buffer) + len(one.waiting) == pushed
        assert len(one.buffer) + round(plain.window_s * RATE) <= most_s * RATE or one.finished

    for _ in range(data.draw(st.integers(0, 12))):
        count = data.draw(st.integers(0, 60_000))
        one.push(SOUND[pushed : pushed + count])
        pushed += count
        listen()
        if data.draw(st.booleans()):
            one.change(replace(plain, policy=data.draw(policies)))
    one.finish()
    listen()
    assert one.finished and not len(one.waiting) and one.next() is None


def test_windows_that_are_late_may_be_left_out():
    one = WhisperSession(replace(PLAIN, policy=Greedy(), behind="latest"))
    words, windows = run(one, SOUND[: 70 * RATE], 70 * RATE)
    assert words == WRITTEN[:140]
    assert [len(w.samples) // RATE for _, w in windows] == [30, 30, 10]


def test_a_change_holds_from_the_next_window_on():
    one = WhisperSession(replace(PLAIN, policy=Offline()))
    one.push(SOUND[: 3 * RATE])
    counts = []
    while window := one.next():
        one.change(replace(PLAIN, policy=Greedy(), language="de"))
        assert window.language == ("de" if counts else "en")
        counts.append(len(one.commit(spoken(one.settled, len(window.samples)))))
    assert counts == [0, 4, 2]


@pytest.mark.parametrize("shorter", [{"most_s": 4.0}, {"window_s": 10.0, "most_s": 25.0}])
def test_a_buffer_that_becomes_smaller_loses_nothing(shorter):
    one, words = WhisperSession(replace(PLAIN, policy=Offline())), []
    for k in range(60):
        if k == 29:
            one.change(replace(PLAIN, policy=Offline(), **shorter))
        one.push(SOUND[k * RATE : (k + 1) * RATE])
        if k == 59:
            one.finish()
        while window := one.next():
            assert len(window.samples) <= 30 * RATE
            words += one.commit(spoken(one.settled, len(window.samples)))
    assert words == WRITTEN[:120]


def test_a_window_does_not_begin_with_more_than_a_model_holds():
    one = WhisperSession(replace(PLAIN, policy=AlignAtt()))

    def wordy(first, samples):
        word = SpelledWord(text=f"w{first}", ids=tuple(range(90)))
        words = (word,) * (samples // RATE)
        whole = Segment(words=words, start=0.0, end=samples / RATE)
        return Hypothesis(segments=(whole,), states=samples // 320)

    _, windows = run(one, SOUND[: 20 * RATE], RATE, wordy)
    assert 0 < max(len(window.forced) for _, window in windows) <= 270


def test_words_that_are_said_are_not_said_again_when_segments_are_judged_next():
    one = WhisperSession(replace(PLAIN, policy=LocalAgreement()))
    one.push(SOUND[: 3 * RATE])
    said = []
    for texts in (["a b c"], ["a b d e"]):
        assert one.next()
        said += one.commit(hypothesis(*texts))
    one.change(replace(PLAIN, policy=Greedy()))
    assert one.next()
    said += one.commit(hypothesis("a b d e"))
    assert said == ["a", "b", "d", "e"]


def test_silence_and_noise_are_not_asked_about_and_speech_after_them_is():
    one = WhisperSession(WhisperStreaming())
    words, windows = run(one, np.zeros(60 * RATE, np.int16), RATE)
    assert not words and not windows and one.finished
    assert one.settled + len(one.buffer) == 60 * RATE
    sound = np.concatenate([noise(60.0, -35, colour=1.0), syllables(1.0, -10)])
    _, windows = run(WhisperSession(WhisperStreaming(policy=Greedy())), sound, RATE)
    assert len(windows) == 1 and windows[0][0] >= 58 * RATE


def test_what_the_model_takes_for_silence_is_let_go_after_a_while():
    def silent(first, samples):
        return replace(spoken(first, samples), no_speech=0.95)

    for guards, longest_s in ((UNGUARDED, 5), (replace(UNGUARDED, silent_s=1e6), PLAIN.most_s)):
        one = WhisperSession(replace(PLAIN, guards=guards))
        words, windows = run(one, SOUND[: 60 * RATE], RATE, silent)
        assert not words
        assert max(len(window.samples) for _, window in windows) == longest_s * RATE


def test_a_prompt_that_begins_a_loop_is_dropped_and_the_sound_written_again():
    guards = Guards(quiet_db=-1e3, steady_db=0.0)
    one = WhisperSession(WhisperStreaming(policy=Greedy(), guards=guards))
    one.push(SOUND[: 2 * RATE])
    assert one.next() and one.commit(hypothesis("and so")) == ["and", "so"]
    window = one.next()
    assert window and window.prompt
    assert one.commit(hypothesis("and so " * 20)) == []
    again = one.next()
    assert again and not again.prompt
    np.testing.assert_array_equal(again.samples, window.samples)
    assert one.commit(hypothesis("on we go")) == ["on", "we", "go"]


@pytest.mark.parametrize("policy", EVERY)
def test_ten_minutes_of_the_same_text_are_not_said_for_ten_minutes(policy):
    """Each window anew, as a model caught in a loop does."""
    guards = Guards(steady_db=0.0)
    one = WhisperSession(WhisperStreaming(policy=policy, window_s=4.0, guards=guards))
    text = "thank you for watching"
    loop = lambda _, samples: hypothesis(text, seconds=samples / RATE)  # noqa: E731
    words, windows = run(one, np.tile(SOUND, 5), 4 * RATE, loop)
    assert words == text.split()
    assert not any(window.prompt for _, window in windows[-10:])


def test_impossible_settings_are_refused():
    given: Any = {"most_s": 1.5}, {"task": "sing"}, {"language": "Klingon"}
    for wrong, says in zip(given, ("two windows", "sing", "no language 'Kling"), strict=True):
        with pytest.raises(ConfigError, match=says):
            WhisperStreaming(**wrong)


def test_the_language_is_settled_after_five_seconds():
    one = WhisperSession(WhisperStreaming(policy=Greedy(), guards=UNGUARDED))

    def guessed(first, samples):
        return replace(spoken(first, samples), language="en" if first < 3 * RATE else "de")

    _, windows = run(one, SOUND[: 9 * RATE], RATE, guessed)
    assert [window.language for _, window in windows] == [None] * 5 + ["de"] * 4


def said(*windows, **given):
    """The words of every window, a second each, and the ids that it began with."""
    one = WhisperSession(replace(PLAIN, policy=AlignAtt(frames=1), **given))
    texts, forced = [], []
    for text in windows:
        one.push(SOUND[:RATE])
        window = one.next()
        assert window
        forced.append(window.forced)
        texts.append(one.commit(hypothesis(text, seconds=30.0, states=1500)))
    return texts, forced


@pytest.mark.parametrize(
    "windows, expected",
    [
        (("we pay.", "we pay attention to"), [["we", "pay"], ["attention", "to"]]),
        (("we pay.", "we pay. Now"), [["we", "pay"], [".", "Now"]]),
        (("we pay.", "we pay?"), [["we", "pay"], ["?"]]),
        (("we pay.", "we pay", "we pay."), [["we", "pay"], [], ["."]]),
        (("we pay.", "we pay now.", "we pay now."), [["we", "pay"], ["now"], ["."]]),
        (("we pay", "we pay. Now"), [["we", "pay"], [".", "Now"]]),
        (("we pay,", "we pay, now"), [["we", "pay,"], ["now"]]),
    ],
)
def test_a_mark_that_has_to_be_confirmed_waits_for_another_word_or_a_second(windows, expected):
    texts, forced = said("we pay.", "we pay. Attention")  # by default it is a guess
    assert texts == [["we", "pay."], ["Attention"]] and MARK_ID in forced[1]
    texts, forced = said(*windows, marks="confirmed")
    assert texts == expected
    assert all((MARK_ID in ids) == ("," in windows[0]) for ids in forced[1:])


def test_a_mark_is_said_before_silence_is_let_go():
    one = WhisperSession(replace(PLAIN, policy=AlignAtt(frames=1), marks="confirmed"))
    words = []
    for no_speech in [0.0, *[0.95] * 6]:
        one.push(SOUND[:RATE])
        assert one.next()
        words += one.commit(hypothesis("we pay.", seconds=30.0, states=1500, no_speech=no_speech))
    assert words == ["we", "pay", "."]


def test_a_mark_is_said_where_nobody_speaks_at_the_end():
    one = WhisperSession(replace(PLAIN, policy=AlignAtt(frames=1), marks="confirmed"))
    chances = iter([0.0, 0.95])

    def write(*_):
        return hypothesis("we pay.", seconds=30.0, states=1500, no_speech=next(chances))

    words, _ = run(one, SOUND[: 3 * RATE // 2], RATE, write)
    assert words == ["we", "pay", "."] and one.finished


def test_with_the_end_of_the_sound_everything_is_said():
    one = WhisperSession(replace(PLAIN, policy=AlignAtt(frames=1), marks="confirmed"))
    texts = iter(["we pay.", "we pay. Now", "we pay. Now."])
    sound = SOUND[: 5 * RATE // 2]
    words, _ = run(one, sound, RATE, lambda *_: hypothesis(next(texts), seconds=2.5, states=125))
    assert words == ["we", "pay", ".", "Now", "."]
