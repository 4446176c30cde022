"""One speaker without a model: what comes in goes out once, whatever is judged."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simuljax.audio import RATE
from simuljax.serve.interpret import (
    AlignAtt,
    Confidence,
    Consensus,
    Greedy,
    Guards,
    Interpreting,
    LocalAgreement,
    Offline,
)
from simuljax.serve.interpret.course import Course
from simuljax.serve.interpret.hypothesis import Hypothesis, InterpretError, Segment, Token
from tests.serve.interpret.made import hypothesis, segment
from tests.serve.interpret.test_guards import noise, syllables

EVERY = (
    Greedy(),
    Offline(),
    Confidence(),
    Consensus(),
    AlignAtt(),
    LocalAgreement(),
    LocalAgreement(hypotheses=3),
)
UNGUARDED = Guards(quiet_db=None, steady_db=None, compression=None, echo_words=None)
PLAIN = Interpreting(language="en", guards=UNGUARDED)
SOUND = np.random.default_rng(0).integers(-9000, 9000, 120 * RATE).astype(np.int16)
SPOKEN = RATE // 2  # a word


def spoken(first, samples):
    """What a perfect model writes: a word each half second, a segment every four."""
    words = range(-(-first // SPOKEN), -(-(first + samples) // SPOKEN))
    segments: list[Segment] = []
    for k in words:
        end = min((k + 1) * SPOKEN, first + samples) - first
        word = Token(text=f"w{k}", ids=(k,), state=(end - 1) // 320)
        old = segments.pop() if segments and k % 4 else None
        start = old.start if old else (k * SPOKEN - first) / RATE
        before = old.words if old else ()
        segments.append(Segment(words=(*before, word), start=start, end=end / RATE))
    return Hypothesis(segments=tuple(segments), states=samples // 320, language="en")


def run(course, sound, chunk, write=spoken):
    """Words and the windows they were judged in."""
    words, windows = [], []

    def listen():
        while window := course.next():
            first = sum(course.left.values())
            windows.append((first, window))
            words.extend(course.judge(write(first, len(window.samples))))

    for k in range(0, len(sound), chunk):
        course.push(sound[k : k + chunk])
        listen()
    course.finish()
    listen()
    return words, windows


@pytest.mark.parametrize("policy", EVERY)
@pytest.mark.parametrize("most_s", [4.0, 30.0])
def test_every_word_is_said_once(policy, most_s):
    course = Course(replace(PLAIN, policy=policy, most_s=most_s))
    words, windows = run(course, SOUND[: 70 * RATE], 4000)
    assert words == [f"w{k}" for k in range(140)]
    assert max(len(window.samples) for _, window in windows) <= most_s * RATE
    assert course.finished and not course.hypothesis and course.left["refused"] == 0


def stops_early(first, samples):
    """A model that leaves what follows its second segment."""
    written = spoken(first, samples)
    return replace(written, segments=written.segments[:2])


@pytest.mark.parametrize("policy", EVERY)
def test_what_a_model_left_at_the_end_is_written_again(policy):
    course = Course(replace(PLAIN, policy=policy))
    words, _ = run(course, SOUND[: 14 * RATE], 4000, stops_early)
    assert words == [f"w{k}" for k in range(28)]
    assert course.finished


def test_a_model_that_writes_nothing_is_not_asked_for_ever():
    course = Course(replace(PLAIN, policy=Offline()))
    words, windows = run(course, SOUND[: 14 * RATE], 4000, lambda *_: Hypothesis())
    assert words == [] and course.finished and len(windows) == 15


def test_a_course_that_trims_too_much_is_noticed():
    class Forgets(Course):
        def _trim(self, count, how):
            super()._trim(count + 100, how)

    forgets = Forgets(replace(PLAIN, policy=Offline(), most_s=4.0))
    words, _ = run(forgets, SOUND[: 10 * RATE], 4000)
    assert words != [f"w{k}" for k in range(20)]


@pytest.mark.parametrize("policy", EVERY)
def test_chunks_of_any_size_give_the_same(policy):
    expected = None
    for chunk in (100, 7000, 16_000, 50_000, 10**6):
        words, windows = run(Course(replace(PLAIN, policy=policy)), SOUND[: 25 * RATE + 77], chunk)
        found = (words, [(first, len(w.samples), w.prompt, w.begun) for first, w in windows])
        expected = expected or found
        assert found == expected


@pytest.mark.parametrize("policy", EVERY)
def test_the_prompt_is_what_was_said_before_the_buffer(policy):
    course = Course(replace(PLAIN, policy=policy, prompt_tokens=6))
    _, windows = run(course, SOUND[: 60 * RATE], 4000)
    for first, window in windows:
        before = -(-first // SPOKEN)
        assert window.prompt == tuple(range(max(0, before - 6), before))
        assert window.begun == tuple(range(before, before + len(window.begun)))
        np.testing.assert_array_equal(window.samples, SOUND[first : first + len(window.samples)])
    assert any(window.begun for _, window in windows) == (
        isinstance(policy, AlignAtt | LocalAgreement)
    )


def test_without_a_prompt():
    _, windows = run(Course(replace(PLAIN, policy=Greedy(), prompt_tokens=0)), SOUND[:50_000], 4000)
    assert not any(window.prompt for _, window in windows)


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


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_sound_is_in_the_buffer_or_has_left_it_for_good(data):
    policies = st.sampled_from(EVERY)
    most_s = data.draw(st.sampled_from([2.5, 4.0, 7.3]))
    plain = Interpreting(policy=data.draw(policies), most_s=most_s)
    course, pushed, left = Course(plain), 0, 0

    def listen():
        nonlocal left
        while window := course.next():
            first = sum(course.left.values())
            assert first >= left and len(window.samples) <= most_s * RATE
            left = first
            np.testing.assert_array_equal(window.samples, SOUND[first:][: len(window.samples)])
            course.judge(data.draw(random_hypotheses(len(window.samples) / RATE)))
        assert sum(course.left.values()) + len(course.buffer) + course.waits == pushed
        assert len(course.buffer) + round(plain.window_s * RATE) <= most_s * RATE or course.finished

    for _ in range(data.draw(st.integers(0, 12))):
        count = data.draw(st.integers(0, 60_000))
        course.push(SOUND[pushed : pushed + count])
        pushed += count
        listen()
        if data.draw(st.booleans()):
            course.change(replace(plain, policy=data.draw(policies)))
    course.finish()
    listen()
    assert course.finished and not course.waits and course.next() is None


def test_windows_that_are_late_may_be_left_out():
    words, windows = run(
        Course(replace(PLAIN, policy=Greedy(), behind="latest")), SOUND[: 70 * RATE], 70 * RATE
    )
    assert words == [f"w{k}" for k in range(140)]
    assert [len(w.samples) // RATE for _, w in windows] == [30, 30, 10]


def test_a_change_holds_from_the_next_window_on():
    course = Course(replace(PLAIN, policy=Offline()))
    course.push(SOUND[: 3 * RATE])
    counts = []
    while window := course.next():
        course.change(replace(PLAIN, policy=Greedy(), language="de"))
        assert window.language == ("de" if counts else "en")
        counts.append(len(course.judge(spoken(sum(course.left.values()), len(window.samples)))))
    assert counts == [0, 4, 2]


@pytest.mark.parametrize("shorter", [{"most_s": 4.0}, {"window_s": 10.0, "most_s": 25.0}])
def test_a_buffer_that_becomes_smaller_loses_nothing(shorter):
    course, words = Course(replace(PLAIN, policy=Offline())), []
    for k in range(60):
        if k == 29:
            course.change(replace(PLAIN, policy=Offline(), **shorter))
        course.push(SOUND[k * RATE : (k + 1) * RATE])
        if k == 59:
            course.finish()
        while window := course.next():
            assert len(window.samples) <= 30 * RATE
            words += course.judge(spoken(sum(course.left.values()), len(window.samples)))
    assert words == [f"w{k}" for k in range(120)]
    assert course.left["refused"] == 0


def test_a_window_does_not_begin_with_more_than_a_model_holds():
    course = Course(replace(PLAIN, policy=AlignAtt()))

    def wordy(first, samples):
        word = Token(text=f"w{first}", ids=tuple(range(90)))
        words = (word,) * (samples // RATE)
        whole = Segment(words=words, start=0.0, end=samples / RATE)
        return Hypothesis(segments=(whole,), states=samples // 320)

    _, windows = run(course, SOUND[: 20 * RATE], RATE, wordy)
    assert 0 < max(len(window.begun) for _, window in windows) <= 270


def test_words_that_are_said_are_not_said_again_when_segments_are_judged_next():
    course = Course(replace(PLAIN, policy=LocalAgreement()))
    course.push(SOUND[: 3 * RATE])
    said = []
    for texts in (["a b c"], ["a b d e"]):
        assert course.next()
        said += course.judge(hypothesis(*texts))
    course.change(replace(PLAIN, policy=Greedy()))
    assert course.next()
    said += course.judge(hypothesis("a b d e"))
    assert said == ["a", "b", "d", "e"]


@pytest.mark.parametrize("hypotheses", [2, 3, 4, 5])
def test_so_many_hypotheses_have_to_agree(hypotheses):
    course = Course(replace(PLAIN, policy=LocalAgreement(hypotheses=hypotheses)))
    course.push(SOUND[: 8 * RATE])
    counts = [len(course.judge(hypothesis("a b c"))) for _ in range(8) if course.next()]
    assert counts == [0] * (hypotheses - 1) + [3] + [0] * (8 - hypotheses)


def test_silence_is_not_asked_about():
    course = Course(Interpreting())
    words, windows = run(course, np.zeros(60 * RATE, np.int16), RATE)
    assert not words and not windows and course.finished
    assert course.left["silent"] + len(course.buffer) == 60 * RATE


def test_noise_is_not_asked_about_and_speech_after_it_is():
    sound = np.concatenate([noise(60.0, -35, colour=1.0), syllables(1.0, -10)])
    _, windows = run(Course(Interpreting(policy=Greedy())), sound, RATE)
    assert len(windows) == 1 and windows[0][0] >= 58 * RATE


def test_what_the_model_takes_for_silence_is_let_go_after_a_while():
    def silent(first, samples):
        return replace(spoken(first, samples), no_speech=0.95)

    for guards, longest_s in ((UNGUARDED, 5), (replace(UNGUARDED, silent_s=None), PLAIN.most_s)):
        course = Course(replace(PLAIN, guards=guards))
        words, windows = run(course, SOUND[: 60 * RATE], RATE, silent)
        assert not words
        assert max(len(window.samples) for _, window in windows) == longest_s * RATE


def test_a_prompt_that_begins_a_loop_is_dropped_and_the_sound_written_again():
    guards = Guards(quiet_db=None, steady_db=None)
    course = Course(Interpreting(policy=Greedy(), guards=guards))
    course.push(SOUND[: 2 * RATE])
    assert course.next() and course.judge(hypothesis("and so")) == ["and", "so"]
    window = course.next()
    assert window and window.prompt
    assert course.judge(hypothesis("and so " * 20)) == []
    again = course.next()
    assert again and not again.prompt
    np.testing.assert_array_equal(again.samples, window.samples)
    assert course.judge(hypothesis("on we go")) == ["on", "we", "go"]


@pytest.mark.parametrize("policy", EVERY)
def test_ten_minutes_of_the_same_text_are_not_said_for_ten_minutes(policy):
    """Each window anew, as a model caught in a loop does."""
    course = Course(Interpreting(policy=policy, window_s=4.0, guards=Guards(steady_db=None)))

    def loop(first, samples):
        return hypothesis("thank you for watching", seconds=samples / RATE)

    words, windows = run(course, np.tile(SOUND, 5), 4 * RATE, loop)
    assert words == ["thank", "you", "for", "watching"]
    assert course.left["refused"] > 0.9 * 600 * RATE
    assert not any(window.prompt for _, window in windows[-10:])


def test_a_text_that_repeats_itself_is_refused_to_the_end():
    course = Course(Interpreting(policy=Greedy(), guards=Guards(steady_db=None)))
    words, _ = run(course, SOUND[: 5 * RATE], RATE, lambda *_: hypothesis("la la " * 30))
    assert words == []


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"window_s": 0.0}, "window_s is 0.0"),
        ({"most_s": 31.0}, "most_s is 31"),
        ({"most_s": 1.5}, "two windows"),
        ({"task": "sing"}, "'sing'"),
        ({"prompt_tokens": -1}, "prompt_tokens"),
        ({"language": "Klingon"}, "no language 'Klingon'"),
    ],
)
def test_impossible_settings_are_refused(given, says):
    with pytest.raises(InterpretError, match=says):
        Interpreting(**given)


def test_the_language_is_settled_after_five_seconds():
    course = Course(Interpreting(policy=Greedy(), guards=UNGUARDED))

    def guessed(first, samples):
        return replace(spoken(first, samples), language="en" if first < 3 * RATE else "de")

    _, windows = run(course, SOUND[: 9 * RATE], RATE, guessed)
    assert [window.language for _, window in windows] == [None] * 5 + ["de"] * 4
