"""Talks cut at the reference's segments."""

import gzip
import importlib.util
import math

import pytest

from simuljax.errors import MissingExtraError
from simuljax.eval import RecordError, read_records
from simuljax.eval import long_form as longform
from simuljax.eval.long_form import Segment, minimum_error_cut, read_segments, score_longform
from tests.eval.logs import ACL, LOGS, needs_published_log, published
from tests.oracles import evaluation_metrics as oracle

HAS_MWERALIGN = importlib.util.find_spec("mweralign") is not None
needs_mweralign = pytest.mark.skipif(
    not HAS_MWERALIGN, reason="mweralign is not installed (the extra `longform`)"
)

SEGMENTS = [
    Segment(talk="talk.wav", reference="ein Haus", start_ms=500.0, duration_ms=1500.0),
    Segment(talk="talk.wav", reference="das ist gross", start_ms=2000.0, duration_ms=2000.0),
]
# "das" comes before its segment begins; two words come once the talk is over.
TALK = {
    "index": 0,
    "prediction": "ein Haus das ist so gross",
    "delays": [1000.0, 1000.0, 1900.0, 3000.0, 4000.0, 4000.0],
    "elapsed": [1100.0, 1100.0, 2200.0, 3300.0, 4500.0, 4500.0],
    "source": ["somewhere/talk.wav", "samplerate: 16000 Hz"],
    "source_length": 4000.0,
}


def test_a_talk_by_hand():
    scores = score_longform([TALK], SEGMENTS, cut=oracle.minimum_error_cut)
    first = (500 + 500 - 750) / 2
    clipped = [0.0, 1000.0, 2000.0]  # the third word reaches the end of the segment
    second = sum(clipped) / 3 - (0 + 500 + 1000) / 3
    assert scores["StreamLAAL"] == pytest.approx((first + second) / 2)
    early = (-100 + 1000 - 500) / 2
    assert scores["LongYAAL"] == pytest.approx((first + early) / 2)
    assert (scores["n"], scores["skipped"]) == (2, 0)


def test_the_clock_counts_what_was_spent_on_the_words_at_hand():
    first, second = longform.resegment(
        longform.as_records([TALK]), SEGMENTS, unit="word", cut=oracle.minimum_error_cut
    )
    assert first.elapsed == (600.0, 600.0)  # 100 ms for both, of which the second had none
    assert first.clipped_elapsed == (600.0, 600.0)
    # Costs of 200, 0 and 200 ms; the last two words came together.
    assert second.elapsed == (100.0, 1000.0, 2200.0, 2200.0)
    assert second.clipped_elapsed == (100.0, 1000.0, 2200.0, 2200.0)


def test_a_shared_cost_is_clipped_with_its_word():
    """As the published script has it: of 200 ms, 100 lie before the segment and are forgotten."""
    words = {"prediction": "ein Haus das ist", "delays": [1000.0, 1000.0, 1900.0, 1900.0]}
    talk = TALK | words | {"elapsed": [1100.0, 1100.0, 2200.0, 2200.0]}
    (_, second) = longform.resegment(
        longform.as_records([talk]), SEGMENTS, unit="word", cut=lambda *_: [2, 2]
    )
    assert second.clipped_elapsed == (100.0, 0.0)
    assert second.elapsed == (100.0, 100.0)
    assert second.record.delays == (-100.0, -100.0)


def test_a_talk_without_a_clock_and_a_segment_without_a_word():
    quiet = Segment(talk="talk.wav", reference="nichts", start_ms=4000.0, duration_ms=100.0)
    silent = [TALK | {"elapsed": [0] * 6}], [*SEGMENTS, quiet]
    scores = score_longform(*silent, cut=lambda *_: [2, 4, 0])
    assert math.isnan(scores["StreamLAAL_CA"]) and not math.isnan(scores["StreamLAAL"])
    assert (scores["n"], scores["skipped"]) == (3, 1)


def test_characters():
    segments = [
        Segment(talk="t.wav", reference="你好", start_ms=0.0, duration_ms=1000.0),
        Segment(talk="t.wav", reference="再见", start_ms=1000.0, duration_ms=1000.0),
    ]
    talk = {"prediction": "你好再", "delays": [500, 500, 1500], "source": "t.wav"}
    talk |= {"source_length": 2000.0}
    scores = score_longform([talk], segments, cut=oracle.minimum_error_cut)
    assert scores["StreamLAAL"] == pytest.approx(((500 + 500 - 500) / 2 + 500) / 2)
    assert "tok:zh" in scores["signature"]


@pytest.mark.parametrize(
    ("talks", "cut", "problem"),
    [
        ([{"source": "other.wav"}], None, r"not of the same talks: \['other.wav', 'talk.wav'\]"),
        ([{}, {"index": 1}], None, "a talk is there twice"),
        ([{"delays": [1, 2], "elapsed": []}], None, "6 words but 2 delays"),
        ([{}], lambda *_: [2, 3], "6 words were cut into 5"),
    ],
)
def test_logs_and_segments_that_do_not_belong_together(talks, cut, problem):
    given = [TALK | changes for changes in talks]
    with pytest.raises(RecordError, match=problem):
        score_longform(given, SEGMENTS, cut=cut or oracle.minimum_error_cut)


@pytest.mark.skipif(HAS_MWERALIGN, reason="mweralign is installed")
def test_the_missing_package_is_named():
    with pytest.raises(MissingExtraError, match=r"pip install 'simuljax\[longform\]'"):
        score_longform([TALK], SEGMENTS)


@needs_mweralign
def test_words_are_cut_where_the_edit_distance_is_least():
    assert minimum_error_cut([*"abcd"], [["a", "b"], ["c", "d"]]) == [2, 2]
    assert minimum_error_cut([*"axcde"], [["a"], ["c", "d"], ["e"]]) != [5, 0, 0]
    assert minimum_error_cut([*"AbBa"], [["A", "b"], ["B", "a"]]) == [2, 2]
    assert minimum_error_cut([], [["a"], ["b"]]) == [0, 0]
    assert minimum_error_cut([*"ab"], [[], ["a", "b"], []]) == [0, 2, 0]
    assert minimum_error_cut(["a"], [[], []]) == [1, 0]


@needs_mweralign
@needs_published_log
def test_the_published_resegmented_scores():
    records = read_records(ACL / "instances.log.gz")
    lines = LOGS / "acl6060_dev.de.tgt_segments.txt.gz"
    scores = score_longform(records, read_segments(LOGS / "acl6060.yaml.gz", lines))
    for name, (value,) in published("scores.resegmented.tsv").items():
        assert scores[name] == pytest.approx(value, rel=1e-9), name
    assert (scores["n"], scores["skipped"]) == (468, 3)


GOOD = "- {wav: a.wav, offset: 0.5, duration: 1.5}\n"


@pytest.mark.parametrize(
    ("times", "sentence"),
    [
        (b"\x89PNG\r\n\x1a\n\0\0", "times: not UTF-8 text"),
        (gzip.compress(GOOD.encode(), mtime=0)[:-9], "times: the gzip file is damaged"),
        (b"\x1f\x8b\x08rubbish, but it begins well", "times: the gzip file is damaged"),
        (gzip.compress(b"\xff\xfe", mtime=0), "times: not UTF-8 text"),
        (b"wav: a: b", "times: not YAML: mapping values .* at line 1, column 7$"),
        (b"- \x01", "times: not YAML: unacceptable character"),
        (b"- {wav: 2024-99-99}", "times: not YAML: month must be in 1..12"),
        (b"wav: a.wav", "times has no segments, .*lines has 1 lines"),
        (b"", "times has no segments"),
        (b"- a.wav", "a segment needs wav, offset and duration, not 'a.wav'"),
        (b"- {wav: 7, offset: 0, duration: 1}", "times: wav must be the name of a file"),
        (b"- {wav: a.wav, offset: '1', duration: 1}", "offset seconds from 0 on"),
        (b"- {wav: a.wav, offset: .nan, duration: 1}", "offset seconds from 0 on"),
        (b"- {wav: a.wav, offset: -1, duration: 1}", "offset seconds from 0 on"),
        (b"- {wav: a.wav, offset: 0, duration: 0.0}", "duration seconds above 0, not .*0.0"),
    ],
)
def test_segments_that_cannot_be_read(tmp_path, times, sentence):
    (tmp_path / "times").write_bytes(times)
    (tmp_path / "lines").write_text("eins\n")
    with pytest.raises(RecordError, match=sentence) as refused:
        read_segments(tmp_path / "times", tmp_path / "lines")
    assert "\n" not in str(refused.value)


def test_references_may_be_gzipped_and_are_checked(tmp_path):
    times, lines = tmp_path / "times", tmp_path / "lines"
    packed = gzip.compress(b"eins\n", mtime=0)
    wanted = Segment(talk="a.wav", reference="eins", start_ms=500, duration_ms=1500)
    for one, other in ((GOOD.encode(), b"eins\n"), (gzip.compress(GOOD.encode()), packed)):
        times.write_bytes(one)
        lines.write_bytes(other)
        assert read_segments(times, lines) == [wanted]
    for damaged, problem in (
        (packed[:12], "lines: the gzip file is damaged"),
        (b"eins\nzwei\n", r"has 1 segments, .* has 2 lines"),
    ):
        lines.write_bytes(damaged)
        with pytest.raises(RecordError, match=problem):
            read_segments(times, lines)
