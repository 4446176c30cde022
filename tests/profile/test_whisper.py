"""The profile of Whisper: all implementations do the same work."""

import json
from dataclasses import replace

import numpy as np
import pytest

from simuljax.profile import whisper
from simuljax.profile.whisper import (
    Job,
    Ours,
    PeerError,
    Transformers,
    WhisperProfile,
    agreement,
    byte_tokenizer,
    random_model,
    state_dict,
    torch_name,
)
from tests.models.whisper.small import TOKENIZER, hugging_face_name, random_tensors, small_config

CONFIG = small_config(positions=100)  # 2 s


@pytest.fixture(scope="module")
def job():
    samples = whisper.sound(WhisperProfile(seconds=2), 2)
    return Job(model=random_model(CONFIG), tokenizer=TOKENIZER, samples=samples, tokens=6)


def test_all_tokens_are_written(job):
    """None is the end, which would be cheaper."""
    ours = Ours(job)
    tokens = ours.write(ours.encode())
    assert tokens.shape == (2, 6)
    assert (tokens != TOKENIZER.end).all()
    assert not np.isin(tokens, job.forbidden[0]).any()


def test_rows_hear_different_sounds():
    rows = whisper.sound(WhisperProfile(seconds=2), 3)
    assert rows.shape == (3, 32_000) and rows.dtype == np.int16
    assert (rows[0] != rows[1]).any() and (rows[1] != rows[2]).any()


def test_agreement_ends_at_the_first_difference():
    one = np.arange(8).reshape(2, 4)
    other = one.copy()
    other[1, 1] = 99  # what follows was written after another text
    assert agreement(one, one) == 1
    assert agreement(other, one) == pytest.approx((4 + 1) / 8)
    with pytest.raises(ValueError, match=r"\(2, 3\)"):
        agreement(one[:, :3], one)


def test_names_are_those_of_transformers():
    """Every tensor of a file of theirs, and no other; linear maps turned round."""
    sizes = CONFIG.dimensions
    theirs = {hugging_face_name(k): v for k, v in random_tensors(sizes).items()}
    ours = state_dict(random_model(CONFIG))
    assert ours.pop("proj_out.weight") is ours["model.decoder.embed_tokens.weight"]
    assert {k: v.shape for k, v in ours.items()} == {k: v.shape for k, v in theirs.items()}
    assert torch_name("encoder/layers_1/attention/key/kernel") in theirs


def test_a_vocabulary_for_every_size():
    for size in (51_864 + 1, 51_866):
        assert byte_tokenizer(size).size == size


def test_a_peer_that_is_not_there_is_named(job, monkeypatch):
    def missing(name):
        raise ImportError(f"No module named {name!r}")

    monkeypatch.setattr(whisper.importlib, "import_module", missing)
    with pytest.raises(PeerError, match="pip install torch"):
        Transformers(job)


def test_the_report(job, monkeypatch):
    monkeypatch.setattr(whisper, "_model", lambda config: (job.model, job.tokenizer))
    report = whisper.run(WhisperProfile(batches=(2,), seconds=2, tokens=6, rounds=3))
    json.dumps(report)
    (row,) = report["rows"]
    assert row["agreement"] == 1 and row["batch"] == 2
    assert 0 < row["token_ms"]["p50"] <= row["token_ms"]["p99"]
    assert row["real_time_factor"] > 0
    assert "simuljax" in whisper.table(report)


def test_a_row_of_known_times(job):
    """Medians of rounds; the factor is of all the sound of a batch."""
    config = WhisperProfile(batches=(2,), seconds=2, tokens=6, rounds=3)
    times = np.array([[1, 6, 0.0], [2, 12, 0.0], [9, 99, 0.0]])
    row = whisper._row(Ours(job), times, 0.0, 1.0, config)
    assert row["real_time_factor"] == (2 + 12) / (2 * 2)
    assert row["hear_ms"]["p50"] == 2000
    assert row["token_ms"]["p50"] == 2000


@pytest.mark.slow
def test_transformers_writes_the_same(job):
    """The same weights there, if it is installed; and not with one matrix changed."""
    pytest.importorskip("torch")
    pytest.importorskip("transformers")
    long = replace(job, model=random_model(small_config(positions=1500)))
    long = replace(long, samples=whisper.sound(WhisperProfile(), 2))
    ours, theirs = Ours(long), Transformers(long)
    expected = ours.write(ours.encode())
    assert agreement(theirs.write(theirs.encode()), expected) == 1
    other = Transformers(replace(long, model=random_model(long.model.config, seed=1)))
    assert agreement(other.write(other.encode()), expected) < 1
