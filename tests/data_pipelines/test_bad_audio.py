"""Every kind of broken example is left out, counted under its reason, and in no batch."""

import json
import struct
import zipfile
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile

from data_pipelines.batches import iterate
from data_pipelines.dataset import PreparedCorpus, describe
from data_pipelines.prepare import Limits
from data_pipelines.utterance import CorpusError
from simuljax.audio import Features, extract
from simuljax.config.experiment import Budget
from tests.helpers.corpora import RATE, batches_of, build_rows, hum, stored, tree

# id: the reason it must be skipped for
BAD = {
    "truncated": "corrupt audio",
    "2^36 samples": "corrupt audio",
    "rate that no filter fits": "corrupt audio",
    "nothing": "corrupt audio",
    "header only": "no samples",
    "header that promises": "corrupt audio",
    "not a number": "not finite",
    "opposite channels": "opposite channels",
    "mp3 called wav": "corrupt audio",
    "missing": "missing audio file",
    "beyond the end": "truncated",
    "broken member": "corrupt audio",
    "member that expands": "corrupt audio",
    "missing member": "no such file",
    "not an archive": "corrupt audio",
    "no transcript": "empty text",
    "no translation": "empty text",
    "invisible transcript": "empty transcript",
    "invisible translation": "empty translation",
    "too short": "too short",
    "too long": "too long",
    "times backwards": "malformed row",
}
GOOD = ("plain", "float", "8 kHz stereo", "flac in an archive", "words beyond the end", "silence")


def spoil(place: Path) -> None:
    """The files, each in the way its name says."""
    place.mkdir(parents=True)
    plain = hum(0.6)
    for name in ("plain", "truncated", "header that promises"):
        soundfile.write(place / f"{name}.wav", plain, RATE)
    whole = (place / "plain.wav").read_bytes()
    (place / "truncated.wav").write_bytes(whole[:5000])
    (place / "header that promises.wav").write_bytes(whole[:44])
    (place / "header only.wav").write_bytes(
        b"RIFF" + struct.pack("<I", 36) + whole[8:40] + struct.pack("<I", 0)
    )
    (place / "nothing.wav").write_bytes(b"")
    soundfile.write(place / "mp3.mp3", plain / 32768, RATE)
    (place / "mp3.mp3").rename(place / "mp3 called wav.wav")
    fine = (plain / 32768).astype(np.float32)
    soundfile.write(place / "float.wav", fine, RATE, subtype="FLOAT")
    fine[777] = np.nan
    soundfile.write(place / "not a number.wav", fine, RATE, subtype="FLOAT")
    soundfile.write(place / "8 kHz stereo.wav", np.stack([plain[::2], 0 * plain[::2]], 1), 8000)
    soundfile.write(place / "opposite channels.wav", np.stack([plain, -plain], 1), RATE)
    soundfile.write(place / "too short.wav", plain[:1598:2], 8000)
    soundfile.write(place / "too long.wav", hum(2.1), RATE)
    soundfile.write(place / "silence.wav", 0 * plain, RATE)
    soundfile.write(place / "rate that no filter fits.wav", plain, 999_983)
    soundfile.write(place / "2^36 samples.flac", plain, RATE)
    flac = bytearray((place / "2^36 samples.flac").read_bytes())
    flac[21] |= 15  # the count of samples has 36 bits of the STREAMINFO block
    flac[22:26] = b"\xff" * 4
    (place / "2^36 samples.flac").write_bytes(flac)


def pack(place: Path) -> None:
    """An archive with a good member and one whose bytes were changed."""
    soundfile.write(place / "good.flac", hum(0.6), RATE)
    with zipfile.ZipFile(place / "some.zip", "w") as archive:
        archive.write(place / "good.flac", "good.flac")
        archive.write(place / "plain.wav", "bad.wav")
        archive.writestr("bomb.wav", bytes(80_000_000), zipfile.ZIP_DEFLATED)
    data = bytearray((place / "some.zip").read_bytes())
    middle = data.index((place / "plain.wav").read_bytes()) + 9000
    data[middle : middle + 4] = b"oops"
    (place / "some.zip").write_bytes(data)
    (place / "broken.zip").write_bytes(b"PK\x03\x04 and then nothing")


def row(name: str, **changes: Any) -> dict[str, Any]:
    usual = {"id": name, "audio": f"{name}.wav", "transcript": "hum", "translation": "Summen"}
    return usual | changes


def rows() -> list[dict[str, Any]]:
    changes = {
        "2^36 samples": {"audio": "2^36 samples.flac"},
        "beyond the end": {"audio": "plain.wav", "offset_s": 0.3, "duration_s": 0.5},
        "broken member": {"audio": "some.zip", "member": "bad.wav"},
        "member that expands": {"audio": "some.zip", "member": "bomb.wav"},
        "missing member": {"audio": "some.zip", "member": "none.wav"},
        "not an archive": {"audio": "broken.zip", "member": "good.flac"},
        "flac in an archive": {"audio": "some.zip", "member": "good.flac"},
        "no transcript": {"audio": "plain.wav", "transcript": ""},
        "no translation": {"audio": "plain.wav", "translation": ""},
        "invisible transcript": {"audio": "plain.wav", "transcript": "\u00ad\u200b"},
        "invisible translation": {"audio": "plain.wav", "translation": "\ufeff"},
        "times backwards": {"audio": "plain.wav", "words": [["hum", 0.5, 0.1]]},
        "words beyond the end": {
            "audio": "plain.wav",
            "words": [["well now", 0.1, 0.4], ["hum", 0.5, 3.0], ["on", 3, 4]],
        },
    }
    return [row(name, **changes.get(name, {})) for name in (*BAD, *GOOD)]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> PreparedCorpus:
    place = tmp_path_factory.mktemp("bad") / "tree"
    spoil(place)
    pack(place)
    test = [row("long in test", audio="too long.wav"), row("broken in test", audio="nothing.wav")]
    return build_rows(place, {"train": rows(), "test": test}, limits=Limits(max_seconds=2))


def skipped(corpus: PreparedCorpus) -> dict[str, tuple[str, str]]:
    lines = (corpus.directory / "skipped.tsv").read_text().splitlines()
    assert lines[0] == "id\treason\tdetail"
    cells = [line.split("\t") for line in lines[1:]]
    return {name: (reason, detail) for name, reason, detail in cells}


def test_every_bad_example_has_its_reason_and_is_counted(corpus):
    reasons = {name: reason for name, (reason, _) in skipped(corpus).items()}
    assert reasons == BAD | {"broken in test": "corrupt audio"}
    assert corpus.summary["skipped"] == Counter(reasons.values())
    assert json.loads(tree(corpus.directory)["summary.json"]) == corpus.summary
    for reason, count in Counter(reasons.values()).items():
        assert f"{count} {reason}" in describe(corpus.summary)
    # What the reader leaves out belongs to no split's worker.
    by_reader = ("missing audio file", "empty text", "malformed row")
    splits, by_worker = corpus.summary["splits"], [r for r in BAD.values() if r not in by_reader]
    assert splits["train"]["skipped"] == len(by_worker)
    assert (splits["test"]["sentences"], splits["test"]["skipped"]) == (1, 1)
    resampled = {"resampled from 8000 Hz": 1, "mixed down from 2 channels": 1}
    assert corpus.summary["changed"] == resampled


def test_details_say_where_and_what(corpus):
    details = {name: detail for name, (_, detail) in skipped(corpus).items()}
    assert "nothing.wav" in details["nothing"]
    assert "some.zip (bad.wav)" in details["broken member"]
    assert "sample 777" in details["not a number"]
    assert "ends at 0.600 s, its stretch at 0.800 s" in details["beyond the end"]


def test_good_examples_are_as_they_should_be(corpus):
    audio = {e["id"].decode(): e["audio"] for e in stored(corpus["train"])}
    assert tuple(audio) == GOOD
    np.testing.assert_array_equal(audio["plain"], hum(0.6))
    np.testing.assert_allclose(audio["float"], hum(0.6), atol=1)
    np.testing.assert_array_equal(audio["flac in an archive"], hum(0.6))
    half = hum(0.6) / 2
    middle = slice(1000, 8600)  # resampling filters ring at the ends
    np.testing.assert_allclose(audio["8 kHz stereo"][middle], half[middle], atol=40)
    assert not audio["silence"].any()
    assert len(corpus["test"]) == 1 and corpus["test"].table.samples[0] == len(hum(2.1))


def test_alignments_end_with_the_audio(corpus):
    example = stored(corpus["train"])[GOOD.index("words beyond the end")]
    assert example["words"].decode().split() == ["well_now", "hum", "on"]
    np.testing.assert_allclose(example["word_ms"], [(100, 400), (500, 600), (600, 600)], atol=1e-3)


def test_no_bad_example_is_in_a_batch(corpus):
    budget = Budget(frames=1000, tokens=1000, row_multiple=1, shapes=1)
    batches = batches_of(corpus, budget=budget, shuffle=False)
    stream, seen = iterate(batches), []
    for _ in range(batches.plan.steps_per_epoch):
        batch = next(stream)
        assert np.isfinite(extract(batch.audio, Features())).all()
        real = batch.index >= 0
        assert (batch.audio_length[real] >= 1600).all() and (batch.audio_length <= 2 * RATE).all()
        assert (batch.target_length[real] > 1).all() and (batch.source_length[real] > 1).all()
        seen += [corpus["train"].table.id[i] for i in batch.index[real]]
    assert sorted(seen) == sorted(GOOD)


def test_a_corpus_without_a_usable_example_is_an_error(tmp_path):
    place = tmp_path / "tree"
    spoil(place)
    with pytest.raises(CorpusError, match=r"every example was left out: 2 corrupt audio.*nothing"):
        build_rows(place, {"train": [row("nothing"), row("truncated")]}, limits=Limits())
