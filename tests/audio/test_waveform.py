"""Recordings of many kinds become the same samples; broken ones are refused with a reason."""

import io
import struct
from typing import get_args

import numpy as np
import pytest
import soundfile
from jaxtyping import config

from simuljax.audio import AudioError, Incoming, as_int16, read_audio
from simuljax.audio.waveform import Reason
from tests.audio.signals import babble, real_talk, tone

VOICE = babble(16_000)


def write(path, samples=VOICE, rate=16_000, *, format=None, subtype=None):
    soundfile.write(path, samples, rate, format=format, subtype=subtype)
    return path


def refused(file, reason, detail, **stretch):
    assert reason in get_args(Reason)
    with pytest.raises(AudioError, match=detail) as caught:
        read_audio(file, **stretch)
    assert caught.value.reason == reason


@pytest.mark.parametrize(
    ("name", "subtype"),
    [
        *((name, None) for name in ("a.wav", "a.flac", "a.aiff", "a.w64", "A.WAV")),
        *(("a.wav", subtype) for subtype in ("PCM_24", "PCM_32", "FLOAT", "DOUBLE")),
    ],
)
def test_lossless_files_come_back_bit_for_bit(tmp_path, name, subtype):
    samples = VOICE / 32768 if subtype else VOICE
    recording = read_audio(write(tmp_path / name, samples, subtype=subtype))
    np.testing.assert_array_equal(recording.samples, VOICE)
    assert recording.samples.dtype == np.int16
    assert (recording.source_rate, recording.channels) == (16_000, 1)


@pytest.mark.parametrize("name", ["a.ogg", "a.mp3"])
def test_lossy_files_sound_alike(tmp_path, name):
    samples = read_audio(write(tmp_path / name)).samples
    assert len(samples) == len(VOICE)
    assert np.corrcoef(samples, VOICE)[0, 1] > 0.95


def test_floats_are_rounded_and_clipped(tmp_path):
    path = write(tmp_path / "a.wav", np.array([0.0, 1.5, -1.5, 1.6 / 32768]), subtype="FLOAT")
    assert read_audio(path).samples.tolist() == [0, 32767, -32768, 2]


def test_channels_are_averaged(tmp_path):
    both = np.stack([VOICE, np.full_like(VOICE, 101)], 1)
    recording = read_audio(write(tmp_path / "a.wav", both))
    assert recording.channels == 2
    np.testing.assert_array_equal(recording.samples, np.rint((VOICE.astype(float) + 101) / 2))


@pytest.mark.parametrize("rate", [8_000, 44_100])
def test_other_rates_are_resampled(tmp_path, rate):
    def wave(rate):
        return np.rint(9000 * np.sin(2 * np.pi * 440 * np.arange(rate) / rate)).astype(np.int16)

    recording = read_audio(write(tmp_path / "a.wav", wave(rate), rate))
    assert recording.source_rate == rate
    assert len(recording.samples) == 16_000
    inner = slice(500, -500)
    np.testing.assert_allclose(recording.samples[inner], wave(16_000)[inner], atol=60)


@pytest.mark.parametrize("name", ["a.wav", "a.flac"])
def test_a_stretch(tmp_path, name):
    path = write(tmp_path / name)
    part = read_audio(path, offset_s=0.25, duration_s=0.5).samples
    np.testing.assert_array_equal(part, VOICE[4_000:12_000])
    np.testing.assert_array_equal(read_audio(path, offset_s=0.9).samples, VOICE[14_400:])


def test_a_stretch_may_end_a_little_after_the_file(tmp_path):
    path = write(tmp_path / "a.wav")
    late = read_audio(path, offset_s=0.5, duration_s=0.59).samples
    np.testing.assert_array_equal(late, VOICE[8_000:])
    refused(path, "truncated", r"ends at 1\.000 s, its stretch at 1\.110 s", duration_s=1.11)


@pytest.mark.parametrize(
    "stretch",
    [
        *({"offset_s": start} for start in (1.0, 7.0, -1.0, float("nan"))),
        *({"duration_s": length} for length in (0.0, float("nan"), 1e-6)),
    ],
    ids=str,
)
def test_a_stretch_without_samples(tmp_path, stretch):
    refused(write(tmp_path / "a.wav"), "no samples", r"a\.wav", **stretch)


def test_a_file_that_is_not_there(tmp_path):
    refused(tmp_path / "a.wav", "no such file", "No such file")
    refused(str(tmp_path), "no such file", "Is a directory")


CONTAINERS = {"a.opus": ("OGG", "OPUS"), "a.sph": ("NIST", None), "a.wave": ("RF64", None)}


@pytest.mark.parametrize(
    "name", ["a.wav", "a.flac", "a.mp3", "a.ogg", "a.aiff", "a.w64", "a.au", *CONTAINERS]
)
def test_a_file_that_was_cut_off(tmp_path, name):
    form, subtype = CONTAINERS.get(name, (None, None))
    path = write(tmp_path / name, np.tile(VOICE, 20), format=form, subtype=subtype)
    assert read_audio(path).samples.size == 320_000
    whole = path.read_bytes()
    for kept in (0.99, 0.01, 0):
        path.write_bytes(whole[: int(kept * len(whole))])
        refused(path, "corrupt audio", name)


@pytest.mark.parametrize("size", [0xFFFFFFFF, 0x7FFFF000, 0x7FFFFFDB])  # ffmpeg, sox, arecord
def test_the_end_of_a_wav_need_not_be_known(tmp_path, size):
    """A program that writes to a pipe does not know how long the recording will be."""
    path = write(tmp_path / "a.wav")
    data = bytearray(path.read_bytes())
    data[40:44] = struct.pack("<I", size)
    path.write_bytes(data)
    np.testing.assert_array_equal(read_audio(path).samples, VOICE)


def test_a_chunk_before_the_samples_is_stepped_over(tmp_path):
    path = write(tmp_path / "a.wav")
    data = path.read_bytes()
    path.write_bytes(data[:36] + b"LIST" + struct.pack("<I", 3) + b"abc\0" + data[36:])
    np.testing.assert_array_equal(read_audio(path).samples, VOICE)


@pytest.mark.parametrize(
    ("name", "kind", "found"), [("a.wav", "MP3", "MP3"), ("a.mp3", "WAV", "WAV")]
)
def test_a_file_that_is_not_what_its_name_says(tmp_path, name, kind, found):
    data = io.BytesIO()
    soundfile.write(data, VOICE, 16_000, format=kind)
    (tmp_path / name).write_bytes(data.getvalue())
    refused(tmp_path / name, "corrupt audio", f"holds {found}, not {name[2:]}")
    assert len(read_audio(io.BytesIO(data.getvalue())).samples) == 16_000  # no name, no promise


def test_a_stretch_of_a_real_talk():
    whole = read_audio(real_talk()).samples
    part = read_audio(real_talk(), offset_s=20.0, duration_s=5.0).samples
    assert len(part) == 80_000
    same = whole[20 * 16_000 :][:80_000]
    np.testing.assert_allclose(part[2_000:], same[2_000:], atol=40)


def test_samples_that_a_user_holds():
    np.testing.assert_array_equal(as_int16(VOICE, 16_000), VOICE)
    np.testing.assert_array_equal(as_int16(VOICE.astype(np.float32) / 32768, 16_000), VOICE)
    assert as_int16(np.array([1.05, -1.05]), 16_000).tolist() == [32767, -32768]
    assert as_int16(tone(np.full(44_100, 200.0)), 44_100).shape == (16_000,)


@pytest.mark.parametrize(
    ("samples", "rate", "reason", "detail"),
    [
        (VOICE.astype(np.float32), 16_000, "not samples", "scale them to"),
        (VOICE.astype(np.int32), 16_000, "not samples", "give int16"),
        (np.stack([VOICE, VOICE]), 16_000, "not samples", "one channel"),
        (VOICE, 16, "not samples", "samples per second"),
        (VOICE[:0], 16_000, "no samples", "empty"),
        (np.full(9, np.nan, np.float32), 16_000, "not finite", "the array .* at sample 0"),
    ],
)
def test_samples_that_are_none(samples, rate, reason, detail):
    with pytest.raises(AudioError, match=detail) as caught:
        as_int16(samples, rate)
    assert caught.value.reason == reason


def test_a_rate_that_is_no_whole_number():
    config.update("jaxtyping_disable", True)  # or the annotation would refuse it
    try:
        with pytest.raises(AudioError, match=r"a rate of 44100\.0; give"):
            as_int16(VOICE, 44_100.0)  # pyright: ignore[reportArgumentType]
    finally:
        config.update("jaxtyping_disable", False)


# A stream at another rate is the whole recording at another rate.


@pytest.mark.parametrize("rate", [8_000, 11_025, 16_000, 44_100, 96_000])
def test_pieces_give_what_the_whole_gives(rate):
    random = np.random.default_rng(rate)
    sound = random.uniform(-1, 1, rate // 2 + 37).astype(np.float32)
    incoming, cuts = Incoming(rate), np.unique(random.integers(1, len(sound), 40))
    pieces = [incoming.push(piece) for piece in np.split(sound, cuts)]
    np.testing.assert_array_equal(
        np.concatenate([*pieces, incoming.finish()]), as_int16(sound, rate)
    )


@pytest.mark.parametrize("rate", [8_000, 44_100])
def test_little_waits_and_little_is_held(rate):
    incoming, pushed, given = Incoming(rate), 0, 0
    for _ in range(300):
        pushed += 441
        given += len(incoming.push(np.zeros(441, np.float32)))
        assert 0 <= pushed / rate - given / 16_000 < 0.005
        assert len(incoming.held) < 2_000
