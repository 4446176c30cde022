"""Batches by step: content, epochs on several hosts, resuming, mixing, device memory."""

import itertools
import json
from dataclasses import replace
from typing import Any

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from data_pipelines import batches as batching
from data_pipelines.batches import (
    ENDLESS,
    Batches,
    Host,
    Mixed,
    gather,
    iterate,
    labels,
    load_resident,
)
from data_pipelines.dataset import PreparedCorpus
from data_pipelines.plan import ROUND, Lengths, cuts, describe_plan, make_plan
from data_pipelines.utterance import CorpusError
from simuljax.batch import Batch
from simuljax.config.experiment import Budget
from simuljax.text import EOS, Vocabulary
from tests.helpers.corpora import (
    BUDGET,
    assert_same_batch,
    batches_of,
    build_rows,
    epoch,
    examples_of,
    letters,
    real,
    stored,
)

FIELDS = tuple(Batch.__dataclass_fields__)


def orders(batches: Batches, number: int) -> list[list[int]]:
    return [batch.index.tolist() for batch in epoch(batches, number)]


@pytest.fixture(scope="module")
def batches(hums: PreparedCorpus) -> Batches:
    return batches_of(hums, seed=5)


def test_epochs_and_seeds_differ(hums, batches):
    assert orders(batches, 0) != orders(batches, 1)
    assert orders(batches, 1) == orders(batches_of(hums, seed=5), 1)
    assert orders(batches, 0) != orders(batches_of(hums, seed=6), 0)
    fixed = batches_of(hums, shuffle=False)
    assert orders(fixed, 0) == orders(fixed, 1)


@pytest.mark.parametrize("count", [2, 4])
def test_hosts_share_an_epoch(hums, batches, count):
    hosts = [batches_of(hums, seed=5, host=Host(index=i, count=count)) for i in range(count)]
    some_host_is_empty = False
    for step in range(2 * batches.plan.steps_per_epoch):
        parts = [host[step] for host in hosts]
        some_host_is_empty |= any((part.index < 0).all() for part in parts)
        whole = batches[step]
        for field in FIELDS:
            if getattr(whole, field) is not None:
                together = np.concatenate([getattr(part, field) for part in parts])
                np.testing.assert_array_equal(together, getattr(whole, field), field)
    assert some_host_is_empty or count == 2  # the case is met


@pytest.mark.parametrize("count", [1, 4])
def test_any_step_can_be_resumed(hums, count):
    steps = batches_of(hums).plan.steps_per_epoch
    for start in range(0, 20, 5):
        seen: list[int] = []
        for index in range(count):
            batches = batches_of(hums, seed=5, host=Host(index=index, count=count))
            first = iterate(batches, threads=3, ahead=4)
            before = [next(first) for _ in range(start)]
            state = json.loads(json.dumps(first.get_state()))
            second = iterate(batches_of(hums, seed=5, host=batches.host), threads=1, ahead=1)
            second.set_state(state)
            after = [next(second) for _ in range(-start % steps)]
            assert_same_batch(next(first), (after or [next(second)])[0])
            seen += [row for batch in [*before, *after] for row in real(batch)]
        epochs = -(-start // steps)
        assert sorted(seen) == sorted([*range(37)] * epochs)


def test_hosts_that_do_not_divide_the_rows_are_refused(hums):
    odd = batches_of(hums, host=Host(index=0, count=3))
    with pytest.raises(ValueError, match=r"rows do not divide among 3 hosts: set row_multiple to"):
        odd[0]
    fitting = replace(BUDGET, row_multiple=3)
    assert len(batches_of(hums, host=Host(index=2, count=3), budget=fitting)[0].index) >= 1


class Numbers:
    """Batches that tell which they are."""

    def __init__(self, kind: str):
        self.kind = kind

    def __len__(self) -> int:
        return ENDLESS

    def __getitem__(self, index: int) -> Any:
        return self.kind, index


@pytest.mark.parametrize("ratio", [0.1, 1 / 3, 1.0, 2.5])
def test_mixing_keeps_the_ratio_in_every_window(ratio):
    numbers: Any = {kind: Numbers(kind) for kind in ("speech", "text")}
    mixed = Mixed(**numbers, text_per_speech=ratio)
    got: list[Any] = [mixed[step] for step in range(3000)]
    for kind in ("speech", "text"):  # neither leaves out or repeats a batch
        steps = [step for what, step in got if what == kind]
        assert steps == list(range(len(steps)))
    texts = np.cumsum([0] + [kind == "text" for kind, _ in got])
    for window in (1, 2, 7, 50, 1000):
        counts = texts[window:] - texts[:-window]
        assert np.abs(counts - window * ratio / (1 + ratio)).max() < 1 + 1e-9
    far: Any = mixed[10**9]
    assert far[1] == pytest.approx(10**9 * (ratio if far[0] == "text" else 1) / (1 + ratio), abs=2)


def test_mixing_covers_both_corpora_and_resumes(hums, text):
    speech, lines = batches_of(hums, seed=1), batches_of(text, seed=2)
    mixed = Mixed(speech=speech, text=lines, text_per_speech=0.5)
    stream, spoken, read = iterate(mixed), [], []
    while len(spoken) < 37 or len(read) < 50:
        batch = next(stream)
        (spoken if batch.audio.shape[1] else read).extend(real(batch))
    assert sorted(spoken[:37]) == list(range(37)) and sorted(read[:50]) == list(range(50))
    again = iterate(Mixed(speech=speech, text=lines, text_per_speech=0.5))
    again.set_state(json.loads(json.dumps(stream.get_state())))
    assert_same_batch(next(again), next(stream))


# The content of a batch: samples, tokens and labels in their places, and zeros elsewhere.


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


# Shapes that waste least, and epochs in which every example comes exactly once.


def speech(n: int, seed: int = 0) -> Lengths:
    random = np.random.default_rng(seed)
    audio = random.gamma(12, 4000, n).astype(np.int64) + 8000
    return Lengths(audio=audio, source=random.integers(2, 30, n), target=random.integers(2, 40, n))


def text(n: int) -> Lengths:
    lengths = speech(n)
    return Lengths(audio=0 * lengths.audio, source=lengths.source, target=lengths.target)


def padding(lengths: np.ndarray, ends: np.ndarray) -> int:
    return int((ends[np.searchsorted(ends, lengths)] - lengths).sum())


@given(st.lists(st.integers(1, 12), min_size=1, max_size=30), st.integers(1, 4))
def test_cuts_waste_no_more_than_any_other_choice(values, count):
    lengths = np.array(values)
    distinct = np.unique(lengths)
    choices = itertools.combinations(distinct[:-1], min(count, len(distinct)) - 1)
    least = min(padding(lengths, np.array([*choice, distinct[-1]])) for choice in choices)
    assert padding(lengths, cuts(lengths, count)) == least
    assert len(cuts(lengths, count)) <= count


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 400), st.integers(0, 5), st.sampled_from([1, 2, 8]))
def test_every_example_comes_once_an_epoch_and_fits_its_shape(n, seed, multiple):
    lengths = speech(n, seed)
    budget = Budget(frames=20_000, tokens=3_000, row_multiple=multiple)
    plan = make_plan(lengths, budget, seed=seed)
    epochs = [plan.epoch(number) for number in range(3)]
    for planned in epochs:
        rows = np.concatenate([each.rows for each in planned])
        assert sorted(rows[rows >= 0]) == list(range(n))  # every example once an epoch
        assert sum((each.rows < 0).any() for each in planned) <= 1
    step = plan.steps_per_epoch + 1
    wanted = [*itertools.chain(*epochs)][step]
    np.testing.assert_array_equal(plan.batch(step).rows, wanted.rows)  # without walking there
    for planned in plan.epoch(0):
        shape, inside = planned.shape, lengths[planned.rows[planned.rows >= 0]]
        assert shape.rows == len(planned.rows) and shape.rows % multiple == 0
        assert shape.audio % ROUND == 0
        assert inside.audio.max() <= shape.audio
        assert inside.source.max() <= shape.source and inside.target.max() <= shape.target
        assert shape.rows * shape.audio <= budget.frames * 160
        assert shape.rows * max(shape.source, shape.target) <= budget.tokens


def test_the_first_of_every_shape():
    plan = make_plan(speech(800), Budget(frames=10_000), seed=0)
    shapes = [planned.shape for planned in plan.epoch(0)]
    assert [shapes.index(shapes[step]) for step in plan.first_steps()] == plan.first_steps()
    assert {shapes[step] for step in plan.first_steps()} == set(shapes)


def test_eight_shapes_are_enough_for_little_padding():
    plan = make_plan(speech(10_000), Budget(), seed=0)
    assert plan.padding["frames"] < 0.12
    one_shape = make_plan(speech(10_000), Budget(shapes=1), seed=0).padding["frames"]
    assert one_shape is not None and one_shape > 0.4
    assert f"{plan.padding['frames']:.1%} of frames" in describe_plan(plan)
    assert "frames" not in make_plan(text(500), Budget(), seed=0).padding


def test_a_budget_that_holds_no_batch_says_so():
    with pytest.raises(ValueError, match=r"does not hold 8 examples of .* raise the budget"):
        make_plan(speech(100), Budget(frames=500))
    with pytest.raises(ValueError, match="the split is empty"):
        make_plan(speech(0), Budget())


def both(corpus: PreparedCorpus, split: str = "train", **options: Any) -> tuple[Any, Batches]:
    read = batches_of(corpus, split, **options)
    return replace(read, examples=load_resident(examples_of(corpus, split))), read


@pytest.mark.parametrize("split", ["train", "valid"])
def test_resident_batches_are_those_that_are_read(hums, split):
    held, read = both(hums, split, seed=4)
    empty = 0
    for step in range(2 * read.plan.steps_per_epoch):
        batch = held[step]
        assert isinstance(batch.audio, jax.Array)
        assert_same_batch(batch, read[step])
        empty += int((np.asarray(batch.index) < 0).sum())
    assert empty  # rows without an example are among them


@pytest.mark.parametrize("kind", ["phonemes", "text", "no transcripts", "host"])
def test_other_corpora_and_hosts(kind, request, hums_root, tmp_path):
    if kind == "no transcripts":  # and times beyond the end
        words = [["m", 0.1, 0.2], ["hm", 0.25, 5.0], ["never", 6, 7]]
        names = {f"Satz {n}": str(hums_root / f"train{n}.wav") for n in range(6)}
        rows = [{"audio": a, "translation": text, "words": words} for text, a in names.items()]
        held, read = both(build_rows(tmp_path, {"train": rows}))
        assert set(np.unique(np.asarray(read[0].words))) == {0, 1, 2}
    elif kind == "phonemes":
        budget = replace(BUDGET, frames=3000)
        held, read = both(request.getfixturevalue("spoken"), budget=budget)
        assert read[0].phonemes is not None
    elif kind == "text":
        held, read = both(request.getfixturevalue("text"))
    else:
        host = Host(index=1, count=2)
        held, read = both(request.getfixturevalue("hums"), host=host)
    for step in range(read.plan.steps_per_epoch):
        assert_same_batch(held[step], read[step])


def test_one_compilation_for_each_shape(hums):
    held, read = both(hums)
    count: Any = gather
    count.clear_cache()
    for step in range(3 * read.plan.steps_per_epoch):
        held[step]
    assert count._cache_size() == len(read.plan.buckets) == 3


def test_a_split_that_is_too_large_is_refused(hums, monkeypatch):
    examples = examples_of(hums)
    gigabytes = hums["train"].table.samples.sum() * 2 / 1e9
    monkeypatch.setattr(batching, "MOST_GB", gigabytes * 1.2)
    load_resident(examples)
    monkeypatch.setattr(batching, "MOST_GB", gigabytes * 0.9)
    with pytest.raises(CorpusError, match=r"split train takes .* set --data.held disk"):
        load_resident(examples)
