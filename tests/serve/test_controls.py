"""Keys that change Whisper's settings while it listens."""

import functools
from types import SimpleNamespace

import pytest

from simuljax.decode.policies import (
    AlignAtt,
    Confidence,
    Consensus,
    Greedy,
    LocalAgreement,
    Offline,
)
from simuljax.serve.live import Controls, after_key, describe
from simuljax.serve.whisper import WhisperStreaming


def after(keys: str, settings: WhisperStreaming) -> WhisperStreaming:
    return functools.reduce(after_key, keys, settings)


def test_p_cycles_through_the_policies_and_keeps_a_threshold():
    start = WhisperStreaming(policy=Confidence(threshold=0.7))
    assert [after("p" * times, start).policy for times in range(7)] == [
        Confidence(threshold=0.7),
        Consensus(threshold=0.7),
        AlignAtt(),
        LocalAgreement(),
        Offline(),
        Greedy(),
        Confidence(),
    ]


@pytest.mark.parametrize(
    ("keys", "before", "policy"),
    [
        ("+", Consensus(), Consensus(threshold=0.55)),
        ("=", Consensus(), Consensus(threshold=0.55)),
        ("---", Confidence(), Confidence(threshold=0.35)),
        ("+" * 30, Consensus(), Consensus(threshold=1.0)),
        ("-" * 30, Consensus(), Consensus(threshold=0.0)),
        ("+" * 30 + "-" * 10, Consensus(), Consensus(threshold=0.5)),
        ("-", AlignAtt(), AlignAtt(frames=20)),
        ("-" * 9, AlignAtt(), AlignAtt(frames=0)),
        ("+", LocalAgreement(), LocalAgreement(agree=3)),
        ("-", LocalAgreement(), LocalAgreement()),
        ("+-", Greedy(), Greedy()),
        ("xq\n?", Offline(), Offline()),
    ],
)
def test_plus_and_minus(keys, before, policy):
    assert after(keys, WhisperStreaming(policy=before)).policy == policy


def test_w_is_one_second_or_two():
    assert [after("w" * times, WhisperStreaming()).window_s for times in range(3)] == [
        1.0,
        2.0,
        1.0,
    ]
    assert after("w", WhisperStreaming(window_s=0.5)).window_s == 1.0


@pytest.mark.parametrize(
    ("policy", "text"),
    [
        (Greedy(), "greedy"),
        (Offline(), "offline"),
        (Confidence(threshold=0.9), "confidence 0.90"),
        (Confidence(by="log_probability"), "confidence 0.50 log_probability"),
        (Consensus(), "consensus 0.50"),
        (AlignAtt(), "alignatt 25"),
        (LocalAgreement(), "local-agreement 2"),
    ],
)
def test_the_status_line_names_the_policy(policy, text):
    assert describe(policy) == text


def test_keys_reach_the_stream():
    changes = []
    session = SimpleNamespace(change=changes.append)
    controls = Controls(SimpleNamespace(session=session), WhisperStreaming())  # pyright: ignore[reportArgumentType]
    for keys in ("", "x", "+w"):
        controls.press(keys)
    wanted = WhisperStreaming(policy=Consensus(threshold=0.55), window_s=2.0)
    assert changes == [wanted]
    assert controls.status == "consensus 0.55  window 2 s"
