"""What is in a batch: samples, tokens and labels where they belong, and zeros elsewhere."""

from typing import Any

import numpy as np
import pytest

from data_pipelines.batches import Batches, labels
from data_pipelines.dataset import PreparedCorpus, decode
from simuljax.config.data import Budget
from simuljax.text import EOS, Vocabulary
from tests.data_pipelines.hums import batches_of, build_rows, epoch, letters, real, stored


@pytest.fixture(scope="module")
def batches(hums: PreparedCorpus) -> Batches:
    return batches_of(hums, seed=5)


def test_padding_is_zero_and_lengths_are_right(hums, batches):
    examples, table, spelling = stored(hums["train"]), hums["train"].table, letters(hums)
    for batch in epoch(batches):
        for row, index in enumerate(batch.index):
            audio = examples[index]["audio"] if index >= 0 else np.zeros(0, np.int16)
            assert batch.audio_length[row] == len(audio)
            np.testing.assert_array_equal(batch.audio[row, : len(audio)], audio)
            assert not batch.audio[row, len(audio) :].any()
            said, meant = (table.transcript[index], table.translation[index])
            source, target = (said, meant) if index >= 0 else ("", "")
            check_text(batch.source[row], batch.source_length[row], source, spelling.source)
            check_text(batch.target[row], batch.target_length[row], target, spelling.target)
        assert batch.audio.shape[1] % 1600 == 0
        assert batch.audio.dtype == np.int16 and batch.target.dtype == np.int32


def check_text(tokens: Any, length: Any, text: str, vocabulary: Vocabulary) -> None:
    assert not tokens[length:].any()
    assert vocabulary.decode(tokens) == text
    if text:
        assert tokens[length - 1] == EOS and EOS not in tokens[: length - 1]
        assert length == len(text) + 1  # a character each


def spoken_at(ms: float, spans: np.ndarray) -> int:
    """The oracle: which span holds this moment."""
    inside = [n for n, (start, end) in enumerate(spans, 1) if start <= ms < end]
    return inside[0] if inside else 0


def check_labels(found: Any, spans: np.ndarray) -> None:
    expected = [spoken_at(10 * frame + 12.5, spans) for frame in range(len(found))]
    np.testing.assert_array_equal(found, expected)


def test_word_labels_are_those_of_the_records(hums, batches):
    examples = stored(hums["train"])
    for batch in epoch(batches):
        assert batch.words is not None and batch.words.dtype == np.int16
        assert batch.words.shape[1] == 1 + (batch.audio.shape[1] - 400) // 160
        for row, index in enumerate(batch.index):
            spans = examples[index]["word_ms"] if index >= 0 else np.zeros((0, 2))
            check_labels(batch.words[row], spans)
            assert set(batch.words[row]) == set(range(len(spans) + 1))  # 0: there is silence
    assert epoch(batches)[0].phonemes is None


def test_labels_of_synthesised_speech(spoken):
    batches = batches_of(spoken, budget=Budget(row_multiple=1))
    examples, batch = stored(spoken["train"]), batches[0]
    assert batch.words is not None and batch.phonemes is not None
    for row in range(4):
        record = decode(examples[batch.index[row]])
        assert [word.text for word in record.utterance.words] == record.utterance.transcript.split()
        for found, spans in (
            (batch.words[row], record.utterance.words),
            (batch.phonemes[row], record.utterance.phonemes),
        ):
            check_labels(found, np.array([(span.start_ms, span.end_ms) for span in spans]))
            assert found.max() == len(spans)


def test_labels_at_the_edges():
    spans = np.array([(0, 12.5), (12.5, 22.5), (22.6, 32.4), (40, 40), (52.5, 999)], np.float32)
    assert labels(spans, 6).tolist() == [2, 0, 0, 0, 5, 5]
    assert labels(np.zeros((0, 2), np.float32), 3).tolist() == [0, 0, 0]


def test_a_corpus_without_alignment_has_no_labels(hums):
    batch = batches_of(hums, "valid")[0]
    assert batch.words is None and batch.phonemes is None and batch.audio.shape[1] > 0


def test_text_alone(text):
    batches = batches_of(text)
    assert sorted(row for batch in epoch(batches) for row in real(batch)) == list(range(50))
    for batch in epoch(batches):
        assert batch.audio.shape == (len(batch.index), 0)
        assert not batch.audio_length.any() and batch.words is None
        assert (batch.target_length[batch.index >= 0] > 1).all()


def test_a_corpus_without_transcripts(hums_root, tmp_path):
    rows = [{"audio": str(hums_root / f"train{n}.wav"), "translation": "x"} for n in range(5)]
    batch = batches_of(build_rows(tmp_path, {"train": rows}))[0]
    assert batch.source.shape == (len(batch.index), 0) and not batch.source_length.any()
    assert batch.target_length.max() == 2
