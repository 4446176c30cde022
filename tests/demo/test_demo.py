"""The demo in small, on a corpus of a few sentences; whether it learns is for the demo to show."""

import dataclasses
import math
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

from data_pipelines.dataset import PreparedCorpus
from data_pipelines.utterance import Voice
from simuljax.cli.demo import write_page
from simuljax.demo import run as demo
from simuljax.demo.corpus import LittlePhrasebook, frequent_words
from simuljax.demo.run import DemoConfig
from simuljax.eval.logs import NAME as LOG
from simuljax.eval.logs import read_records
from simuljax.report.figures import draw_alignment
from simuljax.runs.alignment import align_utterance, legible
from simuljax.train.run import open_run
from tests.train.overfitting import compiling_quickly
from tests.train.runs import metrics

SMALL = DemoConfig(sentences=16, held_out=8, updates=2, rows=8)
TERMS = {"st_nll", "mt_nll", "ctc", "kd", "car", "dar", "st_latency", "mt_latency"}


@pytest.fixture(scope="module")
def config(tmp_path_factory) -> DemoConfig:
    return dataclasses.replace(SMALL, out=tmp_path_factory.mktemp("demo") / "not" / "there")


@pytest.fixture(scope="module")
def corpus(config) -> PreparedCorpus:
    return demo.build(config)


@pytest.fixture(scope="module")
def numbers(config, corpus) -> Mapping[str, float]:
    with compiling_quickly():
        return demo.run(config, write_page)


def assert_is_a_picture(path: Path) -> None:
    from matplotlib.image import imread

    assert path.read_bytes().startswith(b"\x89PNG\r\n\x1a\n")
    pixels = imread(path)
    assert min(pixels.shape[:2]) > 300
    assert pixels[..., :3].std() > 0.03, "a blank sheet"


@pytest.mark.slow
def test_the_alignment_is_of_the_utterance(numbers, config, corpus):
    held_out = corpus["test"]
    with compiling_quickly():
        looked = align_utterance(open_run(config.out / "run"), held_out, 1)
    np.testing.assert_allclose(looked.alpha.sum(-1), 1, atol=1e-4)
    assert looked.alpha.shape == (4, len(looked.pieces), len(looked.edges) - 1)
    assert "".join(looked.pieces[:-1]).startswith(held_out.table.translation[1].split()[0][:1])
    seconds = held_out.table.samples[1] / 16_000
    assert (np.diff(looked.edges) > 0).all()
    assert abs(looked.edges[-1] - seconds) < 0.1
    assert len(looked.words) == len(looked.times)
    assert [legible(p) for p in ("▁Haus", "tür", ".", "▁")] == ["Haus", "-tür", ".", "_"]
    assert (looked.times >= 0).all() and (looked.times <= seconds).all()
    assert_is_a_picture(draw_alignment(config.out / "alignment.png", **vars(looked)))


@pytest.mark.slow
def test_the_memoriser_answers_with_its_nearest_sentence(corpus):
    train, test = corpus["train"].table, corpus["test"].table
    assert demo.most_similar_bleu(train, train) == pytest.approx(100)
    assert demo.most_similar_bleu(train, test) < 50


def test_the_little_phrasebook_is_little_and_a_larger_one_begins_with_it():
    splits = LittlePhrasebook(train=60, valid=20, test=20).read().splits
    train, valid, test = ({u.transcript for u in splits[p]} for p in ("train", "valid", "test"))
    assert (len(train), len(valid), len(test)) == (60, 20, 20)
    assert not train & valid | train & test | valid & test
    few, more = (LittlePhrasebook(train=n, valid=0, test=0).read().splits["train"] for n in (9, 30))
    assert list(more[:9]) == list(few)
    assert len({u.audio for u in more}) == 1 and isinstance(few[0].audio, Voice)
    known = frequent_words(200)
    for utterance in more:
        assert len(utterance.transcript.split()) <= 8
        assert known.issuperset(demo.bag(utterance.transcript))


@pytest.mark.slow
def test_the_whole_demo(numbers, config, corpus):
    for name in ("offline_bleu", "streamed_bleu", "other_bleu", "similar_bleu", "seconds"):
        assert math.isfinite(numbers[name]), name
    log = config.out / "run" / "eval" / "test-speech-streamed" / LOG
    wrote = any(record.prediction for record in read_records(log))
    assert math.isfinite(numbers["streamed_laal"]) == wrote, "no words, no lagging"
    assert_is_a_picture(log.parent / "alignment.png")
    assert_is_a_picture(config.out / "report" / "losses.png")
    lines = metrics(config.out / "run")
    for split in ("train", "valid"):
        recorded = next(line["values"] for line in lines if line["split"] == split)
        assert set(recorded) >= TERMS


@pytest.mark.slow
def test_a_second_demo_takes_what_the_first_left(numbers, config, capsys):
    with compiling_quickly():
        again = demo.run(config, write_page)
    for name in numbers.keys() - {"seconds"}:
        np.testing.assert_equal(again[name], numbers[name], name)
    assert "test:" not in capsys.readouterr().err, "something was translated anew"
