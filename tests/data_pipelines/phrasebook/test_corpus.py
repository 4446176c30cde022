"""The embedded corpus: reproducible, divided without overlap, and not solved by memorising it."""

import hashlib
from collections import Counter
from itertools import islice

import pytest

from data_pipelines.phrasebook import HELD_OUT, PHRASEBOOK_VERSION, Pair, Split, sentences
from data_pipelines.phrasebook.constructions import SHARED
from data_pipelines.phrasebook.corpus import words
from simuljax.demo.corpus import LittlePhrasebook


@pytest.fixture(scope="module")
def train() -> list[Pair]:
    return list(sentences("train", 20_000))


@pytest.fixture(scope="module")
def valid() -> list[Pair]:
    return list(sentences("valid", 300))


@pytest.fixture(scope="module")
def test() -> list[Pair]:
    return list(sentences("test", 500))


PINNED = {  # of 20,000, 300 and 500 sentences, and of the little phrasebook of the demo
    "train": "a6120b2cb8a093aefac67db55e30fb45854e7ef731771b117b81dbcd7c546da6",
    "valid": "9265917e6836b6aa057f4de2578efcd6b744d5f247e980139246c21efe46be53",
    "test": "cca874164e5701d197eacb4e492ace3a7e943bc123b9e5939e7cf5a881106e6f",
    "little": "41f122be9bb6cdafe4fd941d2f23a89dde571b87fc4a2a75a0c26c1225066fa2",
}


def fingerprint(pairs) -> str:
    lines = (f"{p.english}\t{p.german}\t{p.construction}\n" for p in pairs)
    return hashlib.sha256("".join(lines).encode()).hexdigest()


@pytest.fixture(scope="module")
def little() -> list[Pair]:
    listing = LittlePhrasebook(train=100, voice="none").read()
    return [
        Pair(english=u.transcript, german=u.translation, construction=u.id)
        for utterances in listing.splits.values()
        for u in utterances
    ]


@pytest.mark.parametrize("name", PINNED)
def test_the_sentences_are_pinned(name, request):
    """If this fails on purpose, raise PHRASEBOOK_VERSION and pin anew."""
    assert PHRASEBOOK_VERSION == 1
    assert fingerprint(request.getfixturevalue(name)) == PINNED[name]


@pytest.mark.parametrize("split", ["train", "test"])
def test_a_larger_corpus_continues_a_smaller_one_of_the_same_seed(split):
    forty = list(sentences(split, 40, seed=3))
    assert forty == list(islice(sentences(split, 60, seed=3), 40)) != list(sentences(split, 40))
    assert len({pair.english for pair in forty}) == 40


def test_bad_requests_are_refused():
    with pytest.raises(ValueError, match=r"'dev'.*train, valid, test"):
        sentences("dev", 3)  # pyright: ignore[reportArgumentType]
    with pytest.raises(ValueError, match="-1"):
        sentences("train", -1)


def test_either_text_alone_tells_its_split(train, valid, test):
    """Why splits share no text at any size or seed: each text's own hash names the split."""
    below: dict[Split, tuple[list[Pair], int, int]] = {
        "train": (train, 0, 176),
        "valid": (valid, 176, 216),
        "test": (test, 216, 256),
    }
    for split, (pairs, low, high) in below.items():
        for pair in [*pairs, *sentences(split, 100, seed=7)]:
            for said in (pair.english, pair.german):
                assert low <= hashlib.blake2b(said.encode(), digest_size=12).digest()[0] < high


def test_every_word_of_the_test_split_occurs_in_train(train, test):
    asked = [*test, *sentences("test", 100, seed=5)]
    for side in ("english", "german"):
        known = {word for pair in train for word in words(getattr(pair, side))}
        assert not {word for pair in asked for word in words(getattr(pair, side))} - known


def test_held_out_constructions_are_in_test_alone(train, valid, test):
    assert not {p.construction for p in train + valid} & set(HELD_OUT)
    asked = Counter(p.construction for p in test)
    nested = ("that-because", "because-relative")
    assert not {name for name in HELD_OUT if not name.startswith(nested)} - set(asked)
    assert set(nested) <= {name.split("/")[0] for name in asked}
    assert 0.4 < sum(asked[name] for name in HELD_OUT) / len(test) < 0.6


def test_the_parts_of_a_held_out_composition_are_in_train():
    """Every two of frame, form and kind of verb occur together; so the third can be inferred."""
    shown = {tuple(c.name.split("/")) for c in SHARED if "/" in c.name}
    frames = {frame for frame, _, _ in shown}
    for name in HELD_OUT:
        frame, form, kind = name.split("/")
        assert any(s[1:] == (form, kind) for s in shown)
        if frame in frames:
            assert any((s[0], s[1]) == (frame, form) for s in shown), name
            assert any((s[0], s[2]) == (frame, kind) for s in shown), name
        else:
            assert set(frame.split("-")) <= {part for f in frames for part in f.split("-")}
