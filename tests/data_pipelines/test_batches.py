"""Batches by step: whole epochs on any number of hosts, resumed anywhere, mixed as asked."""

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from data_pipelines.batches import ENDLESS, Batches, Host, Mixed, iterate
from data_pipelines.dataset import PreparedCorpus
from simuljax.batch import Batch
from tests.data_pipelines.hums import BUDGET, batches_of, epoch, finished, python, real

FIELDS = tuple(Batch.__dataclass_fields__)


def assert_same(one: Batch, other: Batch) -> None:
    for field in FIELDS:
        left, right = getattr(one, field), getattr(other, field)
        assert (left is None) == (right is None), field
        if left is not None:
            assert left.dtype == right.dtype, field
            np.testing.assert_array_equal(left, right, field)


def orders(batches: Batches, number: int) -> list[list[int]]:
    return [batch.index.tolist() for batch in epoch(batches, number)]


@pytest.fixture(scope="module")
def batches(hums: PreparedCorpus) -> Batches:
    return batches_of(hums, seed=5)


def test_an_epoch_is_every_example_once(batches):
    for number in range(3):
        seen = [row for batch in epoch(batches, number) for row in real(batch)]
        assert sorted(seen) == list(range(37))
    assert len({batch.audio.shape for batch in epoch(batches)}) == 3


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


@pytest.mark.parametrize("count", [1, 2, 4])
def test_any_step_can_be_resumed(hums, count):
    steps = batches_of(hums).plan.steps_per_epoch
    for start in range(0, 20, 3):
        seen: list[int] = []
        for index in range(count):
            batches = batches_of(hums, seed=5, host=Host(index=index, count=count))
            first = iterate(batches, threads=3, ahead=4)
            before = [next(first) for _ in range(start)]
            state = json.loads(json.dumps(first.get_state()))
            second = iterate(batches_of(hums, seed=5, host=batches.host), threads=1, ahead=1)
            second.set_state(state)
            after = [next(second) for _ in range(-start % steps)]
            assert_same(next(first), (after or [next(second)])[0])
            seen += [row for batch in [*before, *after] for row in real(batch)]
        epochs = -(-start // steps)
        assert sorted(seen) == sorted([*range(37)] * epochs)


def test_iteration_may_begin_at_a_step(batches):
    begun = iterate(batches, start=4)
    for step in (4, 5, 6):
        assert_same(next(begun), batches[step])


NEXT = """
import json, sys
from pathlib import Path
import numpy as np
from data_pipelines.batches import Host, iterate
from data_pipelines.dataset import open_corpus
from tests.data_pipelines.hums import batches_of

directory, state, index, to = sys.argv[1:]
host = Host(index=int(index), count=2)
stream = iterate(batches_of(open_corpus(directory), seed=5, host=host))
stream.set_state(json.loads(state))
arrays = {name: value for name, value in vars(next(stream)).items() if value is not None}
np.savez(to, **arrays)
print(json.dumps(stream.get_state()), "tensorflow" in sys.modules)
"""


@pytest.mark.slow
def test_two_hosts_resume_in_new_processes(hums, tmp_path):
    steps = batches_of(hums).plan.steps_per_epoch
    for start in (0, 3, steps + 1):
        running, expected = [], []
        for index in range(2):
            stream = iterate(batches_of(hums, seed=5, host=Host(index=index, count=2)))
            for _ in range(start):
                next(stream)
            arguments = (hums.directory, json.dumps(stream.get_state()), index)
            running.append(python(NEXT, *arguments, tmp_path / f"{index}.npz"))
            expected.append((next(stream), stream.get_state()))
        for index, (batch, state) in enumerate(expected):
            assert finished(running[index]).strip() == f"{json.dumps(state)} False"
            found = dict(np.load(tmp_path / f"{index}.npz"))
            assert_same(Batch(**found), batch)


def test_hosts_that_do_not_divide_the_rows_are_told(hums):
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


@pytest.mark.parametrize("ratio", [0.1, 1 / 3, 1.0, 2.0, 2.5, 7.0])
def test_mixing_keeps_the_ratio_in_every_window(ratio):
    mixed = Mixed(speech=Numbers("speech"), text=Numbers("text"), text_per_speech=ratio)
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
    stream, heard, read = iterate(mixed), [], []
    while len(heard) < 37 or len(read) < 50:
        batch = next(stream)
        (heard if batch.audio.shape[1] else read).extend(real(batch))
    assert sorted(heard[:37]) == list(range(37)) and sorted(read[:50]) == list(range(50))
    again = iterate(Mixed(speech=speech, text=lines, text_per_speech=0.5))
    again.set_state(json.loads(json.dumps(stream.get_state())))
    assert_same(next(again), next(stream))
