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


@pytest.mark.parametrize(("no_speech", "said"), [(0.49, 1), (0.5, 0), (0.51, 0)])
def test_confidence_is_greater_than_the_threshold(no_speech, said):
    now = Hypothesis(segments=(segment("a", no_speech=no_speech),))
    assert committed(Confidence(threshold=0.5), now) == said


@pytest.mark.parametrize(("probability", "said"), [(0.76, 1), (0.75, 0), (0.74, 0)])
def test_confidence_in_the_text(probability, said):
    sure = segment("a", log_probability=math.log(probability), no_speech=0.99)
    policy = Confidence(threshold=math.exp(math.log(0.75)), by="log_probability")
    assert committed(policy, Hypothesis(segments=(sure,))) == said


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


def test_where_words_are_judged_a_segment_is_done_with_once_another_follows():
    now = hypothesis("a b", "c d")
    verdict = judge(LocalAgreement(), now, [hypothesis("a b c d")])
    assert verdict == (4, 1)
    assert judge(LocalAgreement(), now, [hypothesis("a x")]) == (1, 0)


def test_what_is_committed_stays_so():
    now = hypothesis("a b", "c d")
    assert judge(LocalAgreement(), now, [], committed=3) == (3, 1)
    assert judge(Offline(), now, [], committed=1) == (1, 0)


@pytest.mark.parametrize("policy", EVERY)
def test_at_the_end_everything_is_said(policy):
    now = hypothesis("a b", "c d")
    assert judge(policy, now, [], least_s=math.inf) == (4, 2)


@pytest.mark.parametrize(
    ("least_s", "done"), [(0.0, 0), (0.5, 2), (1.5, 2), (2.0, 2), (2.1, 3), (9.0, 3)]
)
def test_what_must_be_done_with_spares_the_last_segment_if_it_can(least_s, done):
    assert judge(Offline(), hypothesis("a", "b", "c"), [], least_s=least_s)[1] == done


def test_a_policy_that_does_enough_is_left_alone():
    now, before = hypothesis("one", "two", "abc"), hypothesis("one", "xyz")
    assert judge(Consensus(), now, [before], least_s=0.9)[1] == 1
    assert judge(Consensus(), now, [before], least_s=1.1)[1] == 2


@pytest.mark.parametrize("policy", EVERY)
def test_of_nothing_nothing_is_said(policy):
    for least_s in (0.0, 1.0, math.inf):
        assert judge(policy, Hypothesis(), [], least_s=least_s) == (0, 0)
