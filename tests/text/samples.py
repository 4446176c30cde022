"""Sentences with everything that makes spelling hard, and vocabularies learned from them."""

from functools import cache
from pathlib import Path
from typing import get_args

import pytest

from simuljax.text import SPECIALS, Vocabulary, VocabularyConfig, learn
from simuljax.text.vocabulary import Kind, PhonemeVocabulary

ENGLISH = (
    'Hello, world! "How are you?" she asked.',
    "It's 5 o'clock, isn't it? We'll see (perhaps tomorrow).",
    "The dogs' house costs $1,250.50; that's 20% more than 1,000.",
    "This is a phrase, and/or two: yes... no!",
    "A state-of-the-art naïve café at 10:30 a.m. in the U.S.",
    'He said: "I can\'t." Then he left the house, and the dog left too.',
    "This is the house that the dog saw; this is the dog that saw the house.",
)
GERMAN = (
    "Das Haus ist schön, aber die Straße ist größer.",
    'Er sagte: „Guten Tag!“ und ging nach Hause; "wie geht\'s?"',
    "Über 3,5 Millionen Menschen (etwa 20%) fahren jeden Tag 12,50 km/h schneller.",
    "Öl, Äpfel, Übermut... das war's für heute!",
    "Das ist die U-Bahn, z.B. die Linie 3.",
    "Das Haus und die Straße und der Mann und die Frau sind schön.",
)
FRENCH = ("L'homme est là : qu'est-ce qu'il dit ?", "C'est l'été, n'est-ce pas ! Il a dit « non ».")
JAPANESE = ("日本語を話します。", "今日は、いい天気ですね!東京へ行きましょう。")
CORPORA = {"en": ENGLISH, "de": GERMAN, "fr": FRENCH, "ja": JAPANESE}

KINDS = get_args(Kind)
SPELLING_KINDS = [kind for kind in KINDS if kind != "phonemes"]

TEXT_DATA = Path(__file__).parents[2] / ".." / "shared" / "data" / "text"


@cache
def vocabulary(kind: Kind, language: str = "en", size: int = 200) -> Vocabulary:
    """Learned once; phonemes are listed, so that no test needs eSpeak NG for it."""
    config = VocabularyConfig(kind=kind, size=size, language=language)
    if kind == "phonemes":
        return PhonemeVocabulary(config=config, pieces=(*SPECIALS, "|", "h", "ə", "l", "ˈəʊ"))
    return learn(CORPORA[language], config)


def real_lines(name: str, count: int) -> list[str]:
    """The first lines of a real corpus; skips the test where there is none."""
    import gzip

    path = TEXT_DATA / name
    if not path.exists():
        pytest.skip(f"{name} is not among the shared data")
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        return [line.strip() for line, _ in zip(lines, range(count), strict=False)]
