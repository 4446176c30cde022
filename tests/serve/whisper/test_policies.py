"""Each policy on hypotheses made by hand: order, first refusal, thresholds at equality."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simuljax.decode.policies import (
    AlignAtt,
    Confidence,
    Consensus,
    Greedy,
    LocalAgreement,
    Offline,
    similarity,
)
from simuljax.serve.whisper.hypothesis import Hypothesis, hypotheses_for
from simuljax.serve.whisper.session import judge
from tests.serve.whisper.made import attending, hypothesis, segment

EVERY = (
    Greedy(),
    Offline(),
    Confidence(),
    Confidence(by="log_probability"),
    Consensus(),
    AlignAtt(),
    LocalAgreement(),
)


def committed(policy, now, before=()):
    """Units of the newest hypothesis; `before` are hypotheses, the latest last."""
    before = [before] if isinstance(before, Hypothesis) else list(before)
    (count,) = policy.commit(hypotheses_for(policy, now, before))
    return count


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


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        ("kitten", "sitting", 0.615385),
        ("", "", 1.0),
        ("", "a", 0.0),
        ("abc", "abc", 1.0),
        ("abc", "def", 0.0),
        ("ab", "ba", 0.5),
    ],
)
def test_similarity(first, second, expected):
    assert similarity(first, second) == pytest.approx(expected, abs=5e-7)


@given(st.text("abc é", max_size=70), st.text("abc é", max_size=70))
def test_similarity_is_by_insertions_and_deletions(first, second):
    together = len(first) + len(second)
    expected = 1 - indel(first, second) / together if together else 1.0
    assert similarity(first, second) == pytest.approx(expected)
    assert similarity(first, second) == similarity(second, first)


def test_greedy_says_all_and_offline_nothing():
    now = hypothesis("a b", "c")
    assert committed(Greedy(), now) == 2
    assert committed(Offline(), now, now) == 0


SURE = Confidence(threshold=math.exp(math.log(0.75)), by="log_probability")


@pytest.mark.parametrize(
    ("policy", "no_speech", "probability", "said"),
    [
        *((Confidence(), 0.49, 1.0, 1), (Confidence(), 0.5, 1.0, 0), (Confidence(), 0.51, 1.0, 0)),
        *((SURE, 0.99, 0.76, 1), (SURE, 0.99, 0.75, 0), (SURE, 0.99, 0.74, 0)),
    ],
)
def test_confidence_is_greater_than_the_threshold(policy, no_speech, probability, said):
    now = segment("a", log_probability=math.log(probability), no_speech=no_speech)
    assert committed(policy, Hypothesis(segments=(now,))) == said


def test_the_first_refusal_stops():
    by = [segment("a", log_probability=p) for p in (-0.1, -0.2, -2.0, -0.1)]
    policy = Confidence(by="log_probability")
    assert committed(policy, Hypothesis(segments=tuple(by))) == 2
    before = hypothesis("one", "two", "xyz", "four")
    assert committed(Consensus(), hypothesis("one", "two", "abc", "four"), before) == 2


def test_consensus_at_its_threshold():
    now, before = hypothesis("ab"), hypothesis("ba")  # similar by 0.5
    assert committed(Consensus(threshold=0.5), now, before) == 1
    assert committed(Consensus(threshold=0.501), now, before) == 0


def test_consensus_needs_a_segment_at_the_same_place():
    now = hypothesis("one", "two")
    assert committed(Consensus(threshold=0), now) == 0
    assert committed(Consensus(threshold=0), now, hypothesis("one")) == 1
    assert committed(Consensus(), now, hypothesis("two", "one")) == 0


@pytest.mark.parametrize(
    ("frames", "said"), [(0, 4), (1, 3), (9, 3), (10, 1), (40, 1), (41, 0), (99, 0)]
)
def test_alignatt_stops_at_the_first_word_that_attends_to_the_end(frames, said):
    now = attending(9, 40, 39, 49, total=50)
    assert committed(AlignAtt(frames=frames), now, ()) == said


def test_local_agreement():
    now = hypothesis("the cat sat", "on a mat")
    before = [hypothesis("the cat sat on", "the mat")]
    assert committed(LocalAgreement(), now, []) == 0
    assert committed(LocalAgreement(), now, before) == 4
    assert committed(LocalAgreement(agree=3), now, before) == 0
    longer = [hypothesis("the dog"), *before]
    assert committed(LocalAgreement(agree=3), now, longer) == 1
    assert committed(LocalAgreement(agree=2), now, longer) == 4


def test_agreement_is_on_words_not_on_marks():
    now, before = hypothesis("So, Ask not!"), hypothesis("so ask Not what")
    assert committed(LocalAgreement(), now, [before]) == 3
    assert committed(LocalAgreement(), hypothesis("-"), [hypothesis("!")]) == 0


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
def test_at_the_end_everything_is_said(policy):
    assert judge(policy, FOUR, [], least_s=math.inf) == (4, 2)


@pytest.mark.parametrize("policy", EVERY)
def test_of_nothing_nothing_is_said(policy):
    for least_s in (0.0, 1.0, math.inf):
        assert judge(policy, Hypothesis(), [], least_s=least_s) == (0, 0)
