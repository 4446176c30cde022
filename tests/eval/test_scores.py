"""A whole log: what SimulEval makes of it."""

import math
import subprocess
import sys

import numpy as np
import pytest

from simuljax.eval import Record, RecordError, average_runs, read_records, score
from simuljax.eval.scores import (
    LATENCIES,
    edits,
    latencies,
    normalise,
    word_difference,
    word_error_rate,
)
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
    assert "tok:char" in score([record | {"reference": "こんにちは"}])["signature"]


def test_logs_that_cannot_be_scored():
    records = made_up(7, 4)
    for given, aware, problem in (
        ([], False, "no records"),
        ([r | {"elapsed": []} for r in records], True, "no record has elapsed"),
        ([*records[:2], records[2] | {"source_length": 0}], False, "record 2: source_length must"),
        ([*records[:3], records[3] | {"reference": None}], False, "1 records have no reference"),
        ([records[0] | {"elapsed": [1.0]}], True, r"record 0: there are \d+ delays but 1 elapsed"),
    ):
        with pytest.raises(RecordError, match=problem):
            score(given, computation_aware=aware)
    with pytest.raises(ValueError, match=r"profile is '1\.1'"):
        score(records, profile="1.1")  # pyright: ignore[reportArgumentType]


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


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Hello, World!", ["hello", "world"]),
        ("I’m <NAME>, like the car [laughs]...", ["i'm", "like", "the", "car"]),
        ("twenty-one 3.5 1,000 %", ["twenty", "one", "3.5", "1,000"]),
        ("Um, uh hmm the 'quoted' word", ["the", "quoted", "word"]),
        ("Été à l'été — no_name", ["été", "à", "l'été", "no", "name"]),
        ("... - !", []),
    ],
)
def test_normalised_words(text, words):
    assert normalise(text) == words


def fewest(a, b):
    """The definition."""
    if not a or not b:
        return len(a) + len(b)
    same = fewest(a[:-1], b[:-1]) + (a[-1] != b[-1])
    return min(same, fewest(a[:-1], b) + 1, fewest(a, b[:-1]) + 1)


def test_word_errors_are_the_fewest_edits_of_all_words_together():
    rng = np.random.default_rng(0)
    for _ in range(40):
        one, other = ("".join(rng.choice([*"abc"], rng.integers(0, 6))) for _ in range(2))
        assert edits(one, other) == fewest(one, other)
    assert word_error_rate([(["a"] * 9, ["a"] * 9), (["b"], ["c"])]) == pytest.approx(10)
    assert word_error_rate([(["a"], ["a", "b", "c"])]) == pytest.approx(200)
    assert math.isnan(word_error_rate([]))
