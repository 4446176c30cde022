"""Lines in, translations out: a trained run as the teacher of a distilled corpus.

    python -m simuljax.serve.teacher runs/mt < sentences > translations

`simuljax prepare ... --distil runs/mt` calls it so. Sentences of about the same length go through
the beam together; a part is written as soon as it is translated.
"""

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Annotated, Literal

import jax
import numpy as np
import tyro

from simuljax.cache import enable_compilation_cache
from simuljax.config.decoding import Beam
from simuljax.config.fields import ConfigError
from simuljax.decode.beam import translate_text
from simuljax.serve.cascade import check_translator
from simuljax.serve.run_translator import RunTranslator, load_run
from simuljax.text import EOS, VocabularyError
from simuljax.train.checkpoint import CheckpointError
from simuljax.train.run import RunError

REFUSALS = (RunError, CheckpointError, ConfigError, VocabularyError, ValueError, OSError)
SHORTEST = 16  # tokens that a batch has room for at least


@dataclass(frozen=True, kw_only=True)
class Teaching:
    """Translate lines of standard input into lines of standard output."""

    run: Annotated[Path, tyro.conf.Positional]
    """The directory of a trained run with a text branch."""
    beam: int = 5
    """Hypotheses that are followed at once."""
    checkpoint: Literal["best", "last", "averaged"] = "best"
    lines: int = 2_000
    """That are sorted by length, translated and written together."""
    tokens: int = 4_096
    """Tokens of the source in a batch, padding included."""
    who: bool = False
    """Say who would translate, and translate nothing."""


def main(chosen: Teaching) -> None:
    """Translate all lines, or say what is wrong with the run."""
    enable_compilation_cache()
    translator = load_run(chosen.run, chosen.checkpoint)
    check_translator(translator.run)
    if chosen.who:  # all that translations depend on
        steps = "+".join(map(str, translator.steps))
        print(f"{translator.run.directory} (updates {steps}, beam {chosen.beam})")
        return
    for stream in (sys.stdin, sys.stdout):
        stream.reconfigure(encoding="utf-8", newline="\n")  # pyright: ignore
    while some := list(islice(sys.stdin, chosen.lines)):
        for line in translate_lines(translator, some, beam=chosen.beam, tokens=chosen.tokens):
            print(line)
        sys.stdout.flush()


def translate_lines(
    translator: RunTranslator, sentences: Sequence[str], *, beam: int = 5, tokens: int = 4_096
) -> list[str]:
    """Return the translation of every sentence; that of an empty one is empty."""
    pieces = [translator.run.source.encode(sentence) for sentence in sentences]
    translations = [""] * len(sentences)
    for indices, shape in batches([len(ids) + 1 if ids else 0 for ids in pieces], tokens):
        room, lengths = np.zeros(shape, np.int32), np.ones(shape[0], np.int32)
        room[:, 0] = EOS  # of rows without a sentence
        for row, index in enumerate(indices):
            ids = [*pieces[index], EOS]
            room[row, : len(ids)], lengths[row] = ids, len(ids)
        search = Beam(size=beam) if beam > 1 else None
        given = (translator.network, translator.variables, room, lengths)
        whole = jax.device_get(translate_text(*given, beam=search))
        for row, index in enumerate(indices):
            translations[index] = translator.text_of(whole.tokens[row], whole.lengths[row])
    return translations


def batches(lengths: Sequence[int], tokens: int) -> Iterator[tuple[list[int], tuple[int, int]]]:
    """Yield indices and the shape of a batch, the longest first; few shapes: powers of 2."""

    def power_of_2(number: int) -> int:
        return 1 << max(0, number - 1).bit_length()  # the least that is not below the number

    waiting = sorted((i for i, n in enumerate(lengths) if n), key=lambda i: -lengths[i])
    most = power_of_2(len(waiting))
    while waiting:
        size = max(SHORTEST, power_of_2(lengths[waiting[0]]))
        rows = min(most, max(1, tokens // size))
        yield waiting[:rows], (rows, size)
        waiting = waiting[rows:]


if __name__ == "__main__":
    try:
        main(tyro.cli(Teaching))
    except REFUSALS as error:
        sys.exit(f"simuljax: {error}")
