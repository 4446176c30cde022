"""Policies decide as published, on matrices made by hand; phrases kept too often in a row."""

import itertools

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simuljax.config.decoding import Decoding, Stammer, check_policy
from simuljax.config.model import Monotonic, SpeechConfig
from simuljax.config.options import from_options
from simuljax.decode.greedy import begins_word, words_begun
from simuljax.decode.policies import (
    AlignAtt,
    Convention,
    EDAtt,
    FixedSteps,
    Hypotheses,
    LocalAgreement,
    PolicyError,
    Step,
    WaitK,
)
from simuljax.decode.reencoding import usual_history
from simuljax.decode.stammer import RepetitionFilter
from simuljax.text import EOS, PAD, WordCount, Words, count_words
from tests.helpers import models
from tests.text.samples import vocabulary as sampled

# A row a target, a column a state: the diagonal of a translation that follows its source.
ATTENTION = np.array(
    [
        [0.70, 0.10, 0.10, 0.05, 0.03, 0.02],
        [0.10, 0.50, 0.20, 0.10, 0.06, 0.04],
        [0.05, 0.05, 0.10, 0.60, 0.15, 0.05],
        [0.02, 0.03, 0.05, 0.10, 0.60, 0.20],
        [0.01, 0.02, 0.02, 0.05, 0.20, 0.70],
    ],
    np.float32,
)


def step(length=6, **known):
    rows = {"ended": np.zeros(5, bool), "states": np.full(5, length), "since_read": np.arange(5)}
    return Step(**rows, attention=ATTENTION[None, :, None], **known)


def align_att(frames, length=6):
    return AlignAtt(frames=frames).should_read(step(length)).tolist()


def ed_att(frames, alpha):
    return EDAtt(frames=frames, alpha=alpha).should_read(step()).tolist()


def test_align_att_stops_where_the_most_attended_state_is_among_the_last():
    assert align_att(1) == [False, False, False, False, True]
    assert align_att(2) == [False, False, False, True, True]
    assert align_att(3) == [False, False, True, True, True]
    assert align_att(0) == [False] * 5
    assert align_att(9) == [True] * 5
    assert align_att(1, length=4) == [False, False, True, True, True]  # states beyond are not there


def test_ed_att_stops_where_attention_on_the_last_states_adds_up():
    assert ed_att(2, 0.3) == [False, False, False, True, True]
    assert ed_att(2, 0.2) == [False, False, True, True, True]  # .15 + .05: from alpha on
    assert ed_att(2, 0.21) == [False, False, False, True, True]
    assert ed_att(6, 0.99) == [True] * 5
    assert ed_att(0, 0.01) == [False] * 5


def test_layers_and_heads():
    weights = np.random.default_rng(0).random((3, 2, 4, 5))
    for layer, head in itertools.product((None, 1, 3), ("mean", 1, 4)):
        chosen = weights if layer is None else weights[layer - 1][None]
        chosen = chosen if head == "mean" else chosen[:, :, [head - 1]]
        given = Step(ended=False, states=np.array([5, 5]), since_read=0, attention=weights)
        found = AlignAtt(layer=layer, heads=head).attention(given)
        np.testing.assert_allclose(found, chosen.mean((0, 2)), rtol=1e-6)


def test_wait_k_by_its_two_conventions():
    """The first word of wait-3 follows 3 units, or the 4th (Papi et al. 2022, section 2.1)."""
    needs: dict[Convention, int] = {"stacl": 3, "papi": 4}
    for convention, needed in needs.items():
        for written in range(3):
            waits = wait_k(3, written, convention)
            assert waits == [n < needed + written for n in range(7)]
    assert all(wait_k(2**31 - 1, np.arange(7), "papi"))


def wait_k(k, written, convention):
    """Of 0 to 6 units."""
    known = {"ended": False, "states": 0, "since_read": 0, "begins_word": np.ones(7, bool)}
    step = Step(units=np.arange(7), words=np.full(7, written), **known)
    return WaitK(k=k, convention=convention, units="ctc").should_read(step).tolist()


def test_a_policy_decides_alike_for_one_token_and_for_hypotheses():
    """`commit` is by default everything before the first unit that has to wait."""
    for frames in range(7):
        policy = AlignAtt(frames=frames)
        rows = step()
        whole = Step(
            ended=rows.ended[None],
            states=rows.states[None],
            since_read=rows.since_read[None],
            attention=rows.attention[:, None],
        )
        units = np.arange(5)[None, None]
        waits = policy.should_read(rows).tolist()
        wanted = waits.index(True) if True in waits else 5
        assert policy.commit(Hypotheses(units=units, step=whole)).tolist() == [wanted]


def test_numbers_of_a_policy_are_arrays_and_the_rest_is_compiled():
    policy = EDAtt(frames=3, alpha=0.3, layer=2)
    assert policy.numbers() == {"frames": 3, "alpha": 0.3, "layer": 2}
    other = EDAtt(frames=5, alpha=0.1, layer=1)
    assert policy.template() == other.template() != EDAtt(frames=3, alpha=0.3).template()
    assert hash(policy.template()) == hash(other.template())
    assert policy.template().with_numbers(policy.numbers()) == policy
    assert LocalAgreement(agree=3, beam=2).numbers() == {}  # shapes depend on them


def test_a_token_that_continues_a_word_is_free():
    """As many tokens of a text begin a word as it has words."""
    vocabulary = sampled("unigram")
    words = Words.of(vocabulary, vocabulary)
    for text in ("the red house", "a red", "house"):
        tokens, count, begun = vocabulary.encode(text), WordCount.begin(()), []
        for token in tokens:
            after = count.push(words.target, jnp.int32(token))
            begun.append(bool(begins_word(count, after, jnp.int32(token))))
            count = after
        total = count_words(words.target, jnp.asarray(tokens), trailing="count")[-1]
        assert sum(begun) == int(total) == int(words_begun(count)) == len(text.split())
        after = count.push(words.target, jnp.int32(EOS))
        assert int(words_begun(after)) == sum(begun), "an end that is dropped moves nothing"
        assert begins_word(count, after, jnp.int32(EOS))
        nothing = WordCount.begin(())
        assert begins_word(nothing, nothing, jnp.int32(PAD)), "no word to go on with"


def test_what_hypotheses_have_in_common():
    hypotheses = [
        [[5, 6, 7, -1], [5, 6, 8, -1]],
        [[5, 6, -1, -1], [5, 6, -1, -1]],
        [[-1, -1, -1, -1], [5, 6, 7, 8]],
        [[4, 6, 7, 8], [5, 6, 7, 8]],
        [[5, 6, 7, 8], [5, 6, 7, 8]],
    ]
    for array in (np.array, jnp.array):
        common = LocalAgreement().commit(Hypotheses(units=array(hypotheses)))
        assert common.tolist() == [2, 2, 0, 0, 4]
        three = Hypotheses(units=array([[[5, 6, 7], [5, 6, 7], [5, 9, 7]]]))
        assert LocalAgreement(agree=3).commit(three).tolist() == [1]
        assert LocalAgreement(agree=2).commit(three).tolist() == [1]


OFFLINE = models.translator(Monotonic(policy="offline")).config
STREAMING = SpeechConfig(kind="streaming", layers=2, shared=1, channels=12)


def chosen(policy, **options):
    return from_options(Decoding, {"policy": policy, **options})


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: chosen("wait-k", k=3, units="words"), "units is 'words'"),
        (lambda: chosen("ed-att", last_frames=2), "needs --alpha"),
        (lambda: chosen("wait-long"), "wait-long"),
        (lambda: check_policy(WaitK(k=3), models.translator().config), "decides by itself"),
        (lambda: check_policy(WaitK(k=3, units="ctc"), OFFLINE), "CTC head"),
        (lambda: check_policy(AlignAtt(frames=2, layer=3), OFFLINE), "layer is 3"),
        (
            lambda: check_policy(FixedSteps(first_ms=1, step_ms=1, tokens=1), OFFLINE, "text"),
            "a text has none",
        ),
    ],
)
def test_what_cannot_be_is_refused(make, said):
    with pytest.raises(PolicyError, match=said):
        make()


def test_a_stream_over_a_streaming_encoder_keeps_its_targets():
    steps, align = FixedSteps(first_ms=100, step_ms=40, tokens=2), AlignAtt(frames=4)
    streams = models.translator(Monotonic(policy="offline"), speech=STREAMING).config
    assert usual_history(align, streams) == usual_history(steps, OFFLINE) == "kept"
    assert usual_history(align, OFFLINE) == usual_history(None, streams) == "recomputed"
    assert usual_history(LocalAgreement(), streams) == "recomputed"


words = st.lists(st.sampled_from(["a", "b", "c", "A,", "7"]), max_size=40)


def most_often(text: list[str], longest: int) -> int:
    """The most times that a phrase with a letter stands in a row, counted the long way."""
    bare, most = [word.strip(",").lower() for word in text], 1
    for start, size in itertools.product(range(len(bare)), range(1, longest + 1)):
        phrase, times = bare[start : start + size], 1
        if len(phrase) < size or not any(word.isalpha() for word in phrase):
            continue
        while bare[start + times * size : start + (times + 1) * size] == phrase:
            times += 1
        most = max(most, times)
    return most


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("einen einen einen einen Hund", "einen einen Hund"),
        ("sehr sehr gut", "sehr sehr gut"),
        ("Nein, nein, nein!", "Nein, nein,"),
        ("auf dem auf dem auf dem auf dem Tisch", "auf dem auf dem auf Tisch"),
        ("a a a b a a a b a a a b a a a b c", "a a b a a b a a c"),
        ("Ein Mann und ein Mann und ein Hund", "Ein Mann und ein Mann und ein Hund"),
        ("im offenenenenenenen Schnee........", "im offenenen Schnee..."),
        ("1000000 Schritte, 0 0 0 0 7", "1000000 Schritte, 0 0 0 0 7"),
        ("Schifffahrt www", "Schifffahrt www"),
        ("  two  spaces stay ", "  two  spaces stay "),
        ("", ""),
    ],
)
def test_texts_by_hand(text, kept):
    assert RepetitionFilter().text(text) == kept
    assert RepetitionFilter(limits=Stammer(times=0)).text(text) == text


@given(words, st.integers(1, 3), st.integers(1, 4))
def test_nothing_is_kept_too_often_and_nothing_else_is_left_out(text, times, longest):
    limits = Stammer(times=times, words=longest)
    found = RepetitionFilter(limits=limits).push(text)[1]
    kept = [word for word in found if word]
    assert most_often(kept, longest) <= times
    assert (kept == text) == (most_often(text, longest) <= times)
    for n, word in enumerate(found):
        assert word in ("", text[n])
        if not word:  # at the earliest with the word that completes one repetition too many
            assert most_often(text[: n + 1], longest) > times or most_often(
                [*(w for w in found[:n] if w), text[n]], longest
            ) > times  # fmt: skip


@given(words, st.data())
def test_words_may_come_in_any_pieces(text, data):
    whole, guard, found = RepetitionFilter().push(text)[1], RepetitionFilter(), []
    while text:
        count = data.draw(st.integers(1, len(text)))
        guard, kept = guard.push(text[:count])
        text, found = text[count:], found + kept
    assert found == whole
