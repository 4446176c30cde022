"""Manifests: what they say, and what is told about those that are wrong."""

import numpy as np
import pytest
import soundfile

from experiments.dugan2023.recordings import read_recordings
from simuljax.config.fields import ConfigError

HEAD = "file\tlanguage\treference"


def folder(tmp_path, *lines):
    for name in ("a.wav", "b.flac"):
        soundfile.write(tmp_path / name, np.zeros(1600, np.int16), 16_000)
    (tmp_path / "manifest.tsv").write_text("".join(line + "\n" for line in lines))
    return tmp_path


def test_a_manifest_is_read(tmp_path):
    lines = [f"{HEAD}\tnote", 'a.wav\tspanish\tSay "hi" | now.\tx', "", "b.flac\ten\tHello.\t"]
    one, two = read_recordings(folder(tmp_path, *lines))
    assert (one.language, one.reference, one.segments) == ("es", 'Say "hi" | now.', ())
    assert (two.index, two.file.name, len(two.samples)) == (1, "b.flac", 1600)
    assert one.word_ends_ms == ()


def test_words_are_spread_over_segments(tmp_path):
    line = "a.wav\ten\tOne two. | Three\t0.5-1.5 2-2.4"
    (one,) = read_recordings(folder(tmp_path, f"{HEAD}\tsegments", line))
    assert one.reference == "One two. Three"
    assert one.word_ends_ms == pytest.approx((1000, 1500, 2400))
    assert one.segments[1].start_ms == 2000


def test_times_of_words_count_before_those_of_segments(tmp_path):
    line = "a.wav\ten\tOne two. | Three\t0.5-1.5 2-2.4\t.6 1.4 2.3"
    (one,) = read_recordings(folder(tmp_path, f"{HEAD}\tsegments\tends", line))
    assert one.word_ends_ms == pytest.approx((600, 1400, 2300))


@pytest.mark.parametrize(
    ("lines", "told"),
    [
        (["file\treference", "a.wav\thi"], "line 1: no column 'language'"),
        ([HEAD], "no recordings"),
        ([HEAD, "a.wav\ten"], "line 2: 2 columns, the first line has 3"),
        ([HEAD, "a.wav\ten\tx", "", "c.wav\ten\tx"], r"line 4: there is no recording .*c\.wav"),
        ([HEAD, "a.wav\ten\t "], "line 2: the reference is empty"),
        ([HEAD, "a.wav\tklingon\tx"], "line 2: .*klingon"),
        ([HEAD, "a.wav\ten\tx", "a.wav\ten\tx"], "a.wav is there twice"),
        ([f"{HEAD}\tsegments", "a.wav\ten\tx | y\t0-1"], "line 2: 1 segments.* 2 parts"),
        ([f"{HEAD}\tsegments", "a.wav\ten\tx\t2-1"], "line 2: the segment '2-1' ends before"),
        ([f"{HEAD}\tsegments", "a.wav\ten\tx\t0-one"], "line 2: 'one' is no time"),
        ([f"{HEAD}\tends", "a.wav\ten\tx y\t1"], "line 2: 2 words but 1 ends"),
        ([f"{HEAD}\tends", "a.wav\ten\tx\tnan"], "line 2: 'nan' is no time"),
    ],
)
def test_what_is_wrong_is_told_with_its_line(tmp_path, lines, told):
    with pytest.raises(ConfigError, match=told):
        read_recordings(folder(tmp_path, *lines))


def test_a_folder_without_a_manifest_is_refused(tmp_path):
    with pytest.raises(ConfigError, match=r"manifest\.tsv is missing"):
        read_recordings(tmp_path)
