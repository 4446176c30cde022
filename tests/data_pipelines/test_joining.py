"""Joined recordings hold every utterance once, with its text, its times and pauses."""

from dataclasses import replace

import numpy as np
import pytest

from data_pipelines.batches import Host, labels
from data_pipelines.input import init_run, open_input
from data_pipelines.joining import JoinedSplit, join
from simuljax.config.data import DataConfig, Joining
from simuljax.config.fields import ConfigError
from simuljax.text import VocabularyConfig
from tests.helpers.corpora import BUDGET, assert_same_batch

RATE = 16_000
SEVERAL = Joining(utterances=4, seconds=5.0, pause_s=(0.1, 0.3), lead_s=(0.0, 0.2))
CUT = Joining(lead_s=(-0.2, -0.05), trail_s=(-0.1, -0.1))


def joined(hums, config: Joining, seed: int = 0) -> JoinedSplit:
    made = join(hums["train"], config, seed)
    assert isinstance(made, JoinedSplit)
    return made


def test_every_utterance_is_heard_once_where_its_words_are(hums):
    split, given = joined(hums, SEVERAL), hums["train"]
    members = [member for each in split.recordings for member in each.members]
    assert sorted(members) == list(range(len(given)))
    assert {len(each.members) for each in split.recordings} == {1, 2, 3, 4}
    examples = split.read(range(len(split)))
    for row, (example, recording) in enumerate(zip(examples, split.recordings, strict=True)):
        audio, at, words = example["audio"], 0, []
        assert len(audio) == split.table.samples[row]
        for member, silence in zip(recording.members, recording.silence, strict=False):
            start = at + silence * 16
            assert not audio[at:start].any()
            (stored,) = given.read([member])
            at = start + len(stored["audio"])
            np.testing.assert_array_equal(audio[start:at], stored["audio"])
            words.append(stored["word_ms"] + start / 16)
        assert at == len(audio)  # no trail
        np.testing.assert_allclose(example["word_ms"], np.concatenate(words), atol=1e-3)
        lead, *pauses, _ = recording.silence
        assert 0 <= lead <= 200 and all(100 <= pause <= 300 for pause in pauses)
        texts = [given.table.translation[member] for member in recording.members]
        assert split.table.translation[row] == " ".join(texts)
        assert split.table.words[row] == len(example["word_ms"])


def test_joined_recordings_are_no_longer_than_asked(hums):
    split = joined(hums, replace(SEVERAL, utterances=40, seconds=3.0, lead_s=(0.0, 0.0)))
    several = np.array([len(each.members) > 1 for each in split.recordings])
    assert several.any() and (split.table.samples[several] <= 3 * RATE).all()


def test_beginnings_and_ends_are_cut_a_quarter_at_most(hums):
    split, given = joined(hums, CUT), hums["train"]
    for example, recording in zip(split.read(range(len(split))), split.recordings, strict=True):
        (stored,) = given.read(recording.members)
        whole, (lead, trail) = stored["audio"], recording.silence
        assert -min(200, len(whole) // 64) <= lead <= -min(50, len(whole) // 64)
        assert trail == -min(100, len(whole) // 64)
        audio = example["audio"]
        np.testing.assert_array_equal(audio, whole[-lead * 16 : len(whole) + trail * 16])
        times = example["word_ms"]
        assert (times >= 0).all() and times.max() <= len(audio) / 16
        inside = (stored["word_ms"] >= -lead) & (stored["word_ms"] <= len(whole) / 16 + trail)
        np.testing.assert_allclose(times[inside], stored["word_ms"][inside] + lead, atol=1e-3)
        frames = labels(times, len(audio) // 160)
        assert frames.max() <= len(times)


def test_recordings_follow_from_the_seed(hums):
    one, same, other = (joined(hums, SEVERAL, seed) for seed in (0, 0, 1))
    assert one.recordings == same.recordings != other.recordings


def test_nothing_is_done_to_text_or_without_the_option(hums, text):
    assert join(hums["train"], Joining(), 0) is hums["train"]
    assert join(text["train"], SEVERAL, 0) is text["train"]


def test_a_range_that_is_upside_down_is_refused():
    with pytest.raises(ConfigError, match="pause_s"):
        Joining(pause_s=(1.0, 0.5))


def test_a_run_reads_joined_batches_from_disk_and_device(hums, tmp_path):
    small, budget = VocabularyConfig(kind="characters"), replace(BUDGET, frames=3000)
    config = DataConfig(
        directory=hums.directory, source=small, target=small, budget=budget, joining=SEVERAL
    )
    init_run(config, tmp_path)
    inputs = [
        open_input(replace(config, held=held), tmp_path, seed=3, host=Host(), devices=1)
        for held in ("disk", "device")
    ]
    for _ in range(inputs[0].steps_per_epoch):
        read, held = (next(each.train) for each in inputs)
        assert_same_batch(held, read)
    alone = open_input(replace(config, joining=Joining()), tmp_path, seed=3, host=Host(), devices=1)
    one, several = ([*each.valid()] for each in (alone, inputs[0]))
    for plain, same in zip(one, several, strict=True):  # validation is on utterances
        assert_same_batch(same, plain)
