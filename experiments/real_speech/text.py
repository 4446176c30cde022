"""Write the text that the real-speech models are trained on, from data that may be given away.

    python -m experiments.real_speech.text deu-eng.zip --exclude TSV ... --to data/real_speech/text

`deu-eng.zip` holds Tatoeba's English-German pairs (CC BY 2.0 FR). Sentences of the tab-separated
test sets given by --exclude are left out. Writes:

    speech/     train, valid, test: to be spoken. Training recordings have one to four sentences
    text/       train: all pairs, single and joined as in speech/; valid as in speech/

Sentences of the phrasebook's grammar are added to both.
"""

import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import tyro

from data_pipelines import phrasebook
from data_pipelines.corpora import Tsv
from data_pipelines.corpora.reading import EXCLUDED
from data_pipelines.utterance import CorpusError

SPOKEN = 40_000  # pairs of Tatoeba
PHRASEBOOK_SPOKEN, PHRASEBOOK_WRITTEN = 4_000, 20_000
SENTENCES = (0.4, 0.25, 0.2, 0.15)  # probabilities of 1, 2, 3 and 4 to a recording
VALID, TEST = 0.005, 0.0175  # of the sentences; 2,400 and more for a test

Pair = tuple[str, str]


def joined(pairs: Sequence[Pair], seed: int) -> Iterator[Pair]:
    """Join neighbours of the shuffled pairs into recordings of one to four sentences."""
    rng = np.random.default_rng(seed)
    order, start = rng.permutation(len(pairs)), 0
    while start < len(order):
        count = 1 + int(rng.choice(len(SENTENCES), p=SENTENCES))
        some = [pairs[i] for i in order[start : start + count]]
        yield " ".join(source for source, _ in some), " ".join(target for _, target in some)
        start += count


def write(folder: Path, split: str, pairs: Sequence[Pair]) -> None:
    """Write one file for each language."""
    folder.mkdir(parents=True, exist_ok=True)
    for side, suffix in enumerate(("en", "de")):
        lines = "".join(f"{pair[side]}\n" for pair in pairs)
        (folder / f"{split}.{suffix}").write_text(lines, encoding="utf-8")
    print(f"{folder.name}/{split}: {len(pairs):,} pairs")


def main(table: tyro.conf.Positional[Path], to: Path, exclude: tuple[Path, ...] = ()) -> None:
    """Write the text of speech and text corpora."""
    listing = Tsv(exclude=exclude, valid_fraction=VALID, test_fraction=TEST).read(table)
    tatoeba = {
        split: [(each.transcript, each.translation) for each in utterances]
        for split, utterances in listing.splits.items()
    }
    written = phrasebook.sentences("train", PHRASEBOOK_WRITTEN)
    grammar = [(pair.english, pair.german) for pair in written]
    train = tatoeba.get("train", [])
    chosen = np.random.default_rng(0).permutation(len(train))[:SPOKEN]
    spoken = [train[i] for i in chosen] + grammar[:PHRASEBOOK_SPOKEN]
    write(to / "speech", "train", [*joined(spoken, 0)])
    write(to / "text", "train", [*train, *grammar, *joined([*train, *grammar], 1)])
    # One translation of each held-out sentence: the first.
    held_out = {s: [*dict(reversed(tatoeba.get(s, []))).items()][::-1] for s in ("valid", "test")}
    for split, pairs in held_out.items():
        write(to / "speech", split, pairs)
    write(to / "text", "valid", held_out["valid"])
    reasons = Counter(skip.reason for skip in listing.skipped)
    print(f"left out: {reasons.pop(EXCLUDED, 0):,} pairs whose source is in a test set")
    for reason, count in reasons.items():
        print(f"left out: {count:,} pairs, {reason}")


if __name__ == "__main__":
    try:
        tyro.cli(main)
    except CorpusError as error:
        sys.exit(f"text: {error}")
