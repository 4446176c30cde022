"""Latency of an utterance, scores of a log, curves of latency against quality."""

import math
import subprocess
import sys
import time
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simuljax import eval as metrics
from simuljax.eval import Record, RecordError, average_runs, curves, read_records, score
from simuljax.eval.curves import Point
from simuljax.eval.scores import (
    LATENCIES,
    edits,
    latencies,
    normalise,
    word_difference,
    word_error_rate,
)
from simuljax.eval.significance import paired_bootstrap
from simuljax.eval.spacing import join_words
from tests.eval.logs import ACL, made_up, needs_published_log, published
from tests.oracles import evaluation_metrics as oracle

KEYS = ["BLEU", "AL", "LAAL", "AP", "DAL", "ATD", "YAAL", "RTF"]
# SimulEval 1.1.4 on `made_up(11, 40)`: by the source, with the clock.
SIMULEVAL = {
    "BLEU": (48.681810062010605, 48.681810062010605),
    "AL": (708.464439033189, 744.0799422799423),
    "LAAL": (834.3473304473305, 868.7601821789322),
    "AP": (0.9205641493206552, 0.9444109742269874),
    "DAL": (906.0305482416413, 935.7977742307896),
    "ATD": (544.4690295815295, 556.5219922438672),
    "RTF": (1.0, 1.0303216298696856),
}


@needs_published_log
def test_the_published_scores_and_those_of_every_talk():
    records = read_records(ACL / "instances.log.gz")
    scores = score(records)
    for name, (value,) in published("scores.tsv").items():
        assert round(scores[name], 3) == value, name
    assert (scores["n"], scores["skipped"], scores["profile"]) == (5, 0, "simuleval-1.1")
    assert "tok:13a" in scores["signature"]
    each = latencies(records)
    for name, values in published("metrics.tsv").items():
        assert [round(talk[name], 3) for talk in each if talk] == values, name


@pytest.mark.parametrize("aware", [False, True])
def test_simuleval_itself(aware):
    scores = score(made_up(11, 40), computation_aware=aware)
    for name, values in SIMULEVAL.items():
        assert scores[name] == pytest.approx(values[aware], rel=1e-9), name


def test_a_faulty_record_leaves_the_others_in_characters():
    words = ("猫在桌子上睡觉", "我父亲喝绿茶", "孩子们去上学")
    good = [
        Record(
            index=index,
            prediction=words[index % 3],
            reference=words[index % 3],
            delays=tuple(1000.0 + 100 * place for place in range(len(words[index % 3]))),
            source_length=4000.0,
        )
        for index in range(16)
    ]
    faulty = [replace(good[0], delays=(*good[0].delays, 1700.0)), *good[1:]]
    scores, others = score(good), score(faulty)
    assert scores["BLEU"] == others["BLEU"] == pytest.approx(100)
    assert "tok:zh" in others["signature"]
    assert latencies(faulty)[1:] == latencies(good)[1:]
    assert paired_bootstrap(good, faulty).difference.value == 0


@pytest.mark.parametrize("profile", ["simuleval-1.1", "simuleval-1.0"])
def test_means_of_the_oracle(profile):
    records = made_up(5)
    scores = score(records, profile=profile)
    for name, metric in oracle.METRICS.items():
        values = []
        for r in records:
            lengths = r["source_length"], len(r["reference"].split())
            values.append(metric(r["delays"], *lengths, profile))
        known = [value for value in values if not math.isnan(value)]
        assert scores[name] == pytest.approx(sum(known) / len(known), rel=1e-9), name
    assert scores["profile"] == profile


def test_the_clock_replaces_the_source():
    records = made_up(5)
    aware = score(records, computation_aware=True)
    moved = [r | {"delays": r["elapsed"]} for r in records]
    for name in ("AL", "LAAL", "AP", "DAL", "YAAL", "RTF"):
        assert aware[name] == score(moved)[name]
    assert aware["ATD"] > score(records)["ATD"]
    assert list(aware) == [*KEYS, "n", "skipped", "profile", "signature"]


def test_utterances_without_a_word_or_a_clock_are_left_out_and_counted():
    records = made_up(5)
    silent = {"prediction": "", "delays": [], "elapsed": [], "index": 99}
    silent |= {"source_length": 500.0, "source": ["x.wav"], "reference": "ja " * 100}
    both = score([*records, silent])
    alone = score(records)
    assert (both["n"], both["skipped"]) == (21, 1)
    assert [both[name] for name in KEYS[1:]] == [alone[name] for name in KEYS[1:]]
    assert both["BLEU"] < alone["BLEU"]  # its words are missing all the same
    aware = score([records[0], *(r | {"elapsed": []} for r in records[1:])], computation_aware=True)
    assert aware["skipped"] == 19
    assert aware["AL"] == score(records[:1], computation_aware=True)["AL"]


def test_a_log_of_1_0_gives_the_same_words():
    """With </s> and its entry, both profiles see what they see without them."""
    records = made_up(6)
    ended = [
        r
        | {"prediction": r["prediction"] + " </s>"}
        | {key: [*r[key], r["source_length"]] for key in ("delays", "elapsed")}
        for r in records
    ]
    for profile in ("simuleval-1.1", "simuleval-1.0"):
        for aware in (False, True):
            options = {"profile": profile, "computation_aware": aware}
            assert score(ended, **options) == score(records, **options)
    early = [r | {"delays": [*r["delays"][:-1], 0]} for r in ended]
    late, soon = (score(log, profile="simuleval-1.0")["AP"] for log in (ended, early))
    assert soon < late


def test_text_sources_of_1_0_are_read_to_their_end():
    record = {"prediction": "a b c", "delays": [1, 2, 3], "elapsed": [0, 0, 0]}
    record |= {"reference": "a b c", "source": "x y z", "source_length": 3}
    old = score([record], profile="simuleval-1.0")
    assert old["AL"] == oracle.average_lagging([1, 2, 3], 4, 3, "simuleval-1.0") == 1
    speech = score([record | {"source": "x.wav"}], profile="simuleval-1.0")
    assert speech["AL"] == oracle.average_lagging([1, 2, 3], 3, 3, "simuleval-1.0") != 1
    assert score([record])["AL"] == 1
    with pytest.raises(RecordError, match="a text source has no clock"):
        score([record | {"elapsed": [5, 6, 7]}], computation_aware=True)


def test_characters():
    record = {"prediction": "你好吗", "delays": [300, 600, 900], "reference": "你好 吗"}
    record |= {"source_length": 900, "source": ["x.wav"]}
    scores = score([record])
    assert scores["AL"] == pytest.approx((300 + 600 - 225 + 900 - 450) / 3)
    assert "tok:zh" in scores["signature"]
    for reference in ("こんにちは", "สวัสดี"):
        assert "tok:char" in score([record | {"reference": reference}])["signature"]


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ("so it goes", "so it goes"),
        ("我 都“ 沒有” 辦法 。 今 日", "我都“沒有”辦法。今日"),
        ("我 用 iPhone 15 打“ 電話", "我用 iPhone 15 打“電話"),
        ("ประ เทศ ไทย", "ประเทศไทย"),
        ("안녕하세요 저는", "안녕하세요 저는"),
        ("in 東京 today", "in 東京 today"),
    ],
)
def test_words_are_joined_as_their_script_is_written(words, text):
    assert join_words(["", *words.split()]) == text


def test_logs_that_cannot_be_scored():
    records = made_up(7, 4)
    for wrong, aware, problem in (
        ([], False, "no records"),
        ([r | {"elapsed": []} for r in records], True, "no record has elapsed"),
        ([r | {"elapsed": [0 for _ in r["delays"]]} for r in records], True, "no record has el"),
        ("instances.log", False, "record 0: not a JSON object but 'i'"),
        ([*records[:2], records[2] | {"source_length": 0}], False, "record 2: source_length must"),
        ([*records[:3], records[3] | {"reference": None}], False, "1 records have no reference"),
        ([records[0] | {"elapsed": [1.0]}], True, r"record 0: there are \d+ delays but 1 elapsed"),
    ):
        with pytest.raises(RecordError, match=problem):
            score(wrong, computation_aware=aware)
    with pytest.raises(ValueError, match=r"profile is '1\.1'"):
        score(records, profile="1.1")  # pyright: ignore[reportArgumentType]


def test_an_elapsed_of_zeros_was_not_measured():
    first, second = made_up(7, 2)
    unmeasured = second | {"elapsed": [0] * len(second["delays"])}
    found = score([first, unmeasured], computation_aware=True)
    assert found["skipped"] == 1
    assert found["AL"] == score([first], computation_aware=True)["AL"]


def test_without_references_there_is_no_bleu():
    scores = score([r | {"reference": None} for r in made_up(7, 4)])
    assert math.isnan(scores["BLEU"]) and scores["signature"] == ""
    assert scores["AL"] == scores["LAAL"]
    empty = score([r | {"reference": ""} for r in made_up(7, 4)])
    assert {n: empty[n] for n in LATENCIES} == {n: scores[n] for n in LATENCIES}
    assert math.isnan(empty["BLEU"])
    records = made_up(7, 4)
    records[2] |= {"reference": ""}  # one among others counts as SimulEval has it
    scores = score(records)
    assert scores["BLEU"] > 0
    r = records[2]
    alone = oracle.average_lagging(r["delays"], r["source_length"], 1, "simuleval-1.1")
    rest = sum(score([one])["AL"] for one in records if one is not r)
    assert scores["AL"] == pytest.approx((alone + rest) / 4)


def test_runs_are_averaged():
    runs = [score(made_up(8)) | {"AL": value} for value in (1.0, 2.0, 6.0)]
    assert average_runs(runs)["AL"] == 3.0
    assert average_runs(runs)["DAL"] == pytest.approx(runs[0]["DAL"])
    with pytest.raises(ValueError, match="differ in profile"):
        average_runs([runs[0], runs[1] | {"profile": "simuleval-1.0"}])


def test_scoring_imports_no_jax():
    code = "import sys, simuljax.eval, simuljax.cli.score; assert 'jax' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_words_above_the_reference():
    pairs = [("a b c", "a b"), ("", "a b c"), ("a", "b"), ("a", None)]
    records = [Record(prediction=p, delays=(), source_length=1, reference=r) for p, r in pairs]
    assert word_difference(records) == (1 - 3 + 0) / 3
    assert math.isnan(word_difference(records[3:]))
    assert (
        word_difference([Record(prediction="你好", delays=(1, 2), source_length=3, reference="你")])
        == 1
    )


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Hello, World!", ["hello", "world"]),
        ("I’m <NAME>, like the car [laughs]...", ["i'm", "like", "the", "car"]),
        ("twenty-one 3.5 1,000 %", ["twenty", "one", "3.5", "1,000"]),
        ("Um, uh hmm the 'quoted' word", ["the", "quoted", "word"]),
        ("Été à l'été — no_name", ["été", "à", "l'été", "no", "name"]),
        ("... - !", []),
        ("我用iPhone 15打。「กิน」", [*"我用", "iphone", "15", "打", "กิ", "น"]),
    ],
)
def test_normalised_words(text, words):
    assert normalise(text) == words


def test_word_errors_are_the_fewest_edits_of_all_words_together():
    rng = np.random.default_rng(0)
    for _ in range(40):
        one, other = ("".join(rng.choice([*"abc"], rng.integers(0, 6))) for _ in range(2))
        assert edits(one, other) == oracle.edit_distance(one, other)
    assert word_error_rate([(["a"] * 9, ["a"] * 9), (["b"], ["c"])]) == pytest.approx(10)
    assert word_error_rate([(["a"], ["a", "b", "c"])]) == pytest.approx(200)
    assert math.isnan(word_error_rate([]))


METRICS = {
    "AL": metrics.average_lagging,
    "LAAL": metrics.length_adaptive_average_lagging,
    "AP": metrics.average_proportion,
    "DAL": metrics.differentiable_average_lagging,
    "ATD": metrics.average_token_delay,
    "YAAL": metrics.yaal,
}
PROFILES = ("simuleval-1.1", "simuleval-1.0")
both_profiles = pytest.mark.parametrize("profile", PROFILES)
all_metrics = pytest.mark.parametrize("name", list(METRICS))
FIRST = ([1000, 1280, 1560, 2000, 3000, 3000], 6)
SECOND = ([800, 800, 1200, 1600, 1600, 2000, 2400, 2400, 2800, 3000], 5)
PUBLISHED = [
    (FIRST, "simuleval-1.1", {"AL": 768, "LAAL": 768, "AP": 11840 / 18000, "DAL": 1000}),
    (FIRST, "simuleval-1.1", {"ATD": 3100 / 3, "YAAL": 710}),
    (FIRST, "simuleval-1.0", {"AL": 6376 / 7, "LAAL": 6376 / 7, "AP": 14840 / 21000}),
    (FIRST, "simuleval-1.0", {"DAL": 55000 / 49}),
    (SECOND, "simuleval-1.1", {"AL": -840, "LAAL": 510, "AP": 1.24, "DAL": 800, "ATD": 530}),
    (SECOND, "simuleval-1.0", {"AL": 110, "LAAL": 6960 / 11, "AP": 7.2 / 11, "DAL": 800}),
]


@pytest.mark.parametrize(("case", "profile", "expected"), PUBLISHED)
def test_worked_cases(case, profile, expected):
    delays, reference = case
    for name, value in expected.items():
        actual = METRICS[name](delays, 3000, reference, profile=profile)
        assert actual == pytest.approx(value, rel=1e-9), name


@st.composite
def utterances(draw):
    """Delays that rise in steps and may pass the end; a source; a reference's length."""
    source = draw(st.one_of(st.integers(100, 9000), st.floats(50, 9000)))
    steps = draw(st.lists(st.sampled_from([0, 0, 40, 280, 300, 320.5, 1000]), min_size=1))
    start = draw(st.sampled_from([0, 280, 600.25, source]))
    delays = [start + sum(steps[: i + 1]) for i in range(len(steps))]
    return delays, source, draw(st.integers(1, 20))


@all_metrics
@both_profiles
@given(utterances())
@settings(max_examples=60, deadline=None, derandomize=True, database=None)
def test_random_utterances(name, profile, utterance):
    delays, source, reference = utterance
    actual = METRICS[name](delays, source, reference, profile=profile)
    expected = oracle.METRICS[name](delays, source, reference, profile)
    assert actual == pytest.approx(expected, rel=1e-9, abs=1e-6, nan_ok=True)


@given(utterances(), st.lists(st.floats(0, 500), min_size=1, max_size=60))
@settings(max_examples=60, deadline=None, derandomize=True, database=None)
def test_token_delay_with_a_clock(utterance, costs):
    delays, source, reference = utterance
    spent = [sum(costs[: i % len(costs) + 1]) for i in range(len(delays))]
    elapsed = [d + s for d, s in zip(delays, spent, strict=True)]
    actual = metrics.average_token_delay(delays, source, reference, elapsed=elapsed)
    if not any(elapsed):
        elapsed = None
    expected = oracle.average_token_delay(delays, source, reference, "simuleval-1.1", elapsed)
    assert actual == pytest.approx(expected, rel=1e-9, abs=1e-6)


@all_metrics
def test_what_cannot_be_measured(name):
    for profile in PROFILES:
        assert math.isnan(METRICS[name]([], 3000, 5, profile=profile)), "there is no word"
    empty, one = (METRICS[name]([500, 700], 3000, words) for words in (0, 1))
    assert empty == one, "an empty reference counts as one word"
    with pytest.raises(ValueError, match="profile is 'simuleval-2'"):
        METRICS[name]([1.0], 3000, 2, profile="simuleval-2")
    if name != "ATD":
        with pytest.raises(ValueError, match="source_length must be positive"):
            METRICS[name]([1.0], 0, 2)


def test_token_delay_of_a_time_that_cannot_be_takes_no_memory():
    """Ten billion milliseconds are 33 million pseudo-tokens; two words need the ends of two."""
    assert metrics.average_token_delay([280, 1e10], 1e10, 2) == (1e10 - 580) / 2
    started = time.perf_counter()
    metrics.average_token_delay([1e10 * k for k in range(1, 2_000)], 1e10, 2_000)
    assert time.perf_counter() - started < 5


ZAIDI = [(7.9, 765), (11.4, 1089), (16.13, 1504), (17.24, 1781), (19.39, 2113), (20.97, 2614)]


def points(pairs):
    return [Point(latency_ms=latency, quality=quality) for quality, latency in pairs]


some_points = st.lists(
    st.tuples(st.integers(0, 40), st.integers(0, 60).map(lambda x: x * 50)), min_size=1
).map(points)
cheap = settings(max_examples=50, deadline=None, derandomize=True, database=None)


def test_regimes_and_the_best_of_each():
    names = [curves.regime(latency) for latency in (-200, 999.9, 1000, 1999, 2000, 9000)]
    assert names == ["low", "low", "medium", "medium", "high", "high"]
    with pytest.raises(ValueError, match="no regime"):
        curves.regime(math.nan)
    best = curves.best_per_regime(points([*ZAIDI, (17.24, 1900)]))
    found = {name: (point.quality, point.latency_ms) for name, point in best.items()}
    assert found == {"low": (7.9, 765), "medium": (17.24, 1781), "high": (20.97, 2614)}


def test_the_best_of_every_bucket():
    best = curves.best_per_bucket(
        points([*ZAIDI, (16.5, 1999), (3.0, 499), (9.0, 500), (9.0, 700)])
    )
    assert [(p.quality, p.latency_ms) for p in best] == [
        (3.0, 499),
        (9.0, 500),
        (11.4, 1089),
        (17.24, 1781),
        (19.39, 2113),
        (20.97, 2614),
    ]


@given(some_points, st.floats(0, 3000))
@cheap
def test_interpolation_is_numpys(line, latency):
    """Count the best of several points at one latency, and nothing outside of the curve."""
    best = {}
    for point in line:
        best[point.latency_ms] = max(point.quality, best.get(point.latency_ms, 0))
    x = sorted(best)
    for at in (latency, x[0], x[-1] + 1):
        expected = np.interp(at, x, [best[i] for i in x], left=np.nan, right=np.nan)
        assert curves.quality_at(line, at) == pytest.approx(expected, nan_ok=True)


@given(some_points)
@cheap
def test_the_frontier_is_what_nothing_beats(line):
    front = curves.frontier(line)
    held = {(p.latency_ms, p.quality) for p in front}
    for point in line:
        beaten = any(
            p.latency_ms <= point.latency_ms and p.quality >= point.quality and p != point
            for p in line
        )
        assert beaten or (point.latency_ms, point.quality) in held
    assert front == sorted(front)
