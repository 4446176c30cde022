"""Sequence-level distillation: a teacher's translations replace the references, or join them.

A teacher is any command that reads sentences from its standard input, one a line, and writes their
translations to its standard output, one a line. What it says is kept as it comes, so that a
killed run goes on, and every translation records who wrote it.
"""

import shlex
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from tqdm import tqdm

from data_pipelines.utterance import CorpusError, Utterance

LINES_AT_A_TIME = 2000


@dataclass(frozen=True, kw_only=True)
class Teacher:
    """A command that maps lines to lines."""

    command: str

    def translate(self, sentences: Sequence[str]) -> list[str]:
        """The translations, one for each sentence, or an error that says what the command did."""
        try:
            answer = subprocess.run(
                shlex.split(self.command),
                input="".join(f"{sentence}\n" for sentence in sentences),
                capture_output=True,
                text=True,
                encoding="utf-8",
            )
        except (OSError, UnicodeDecodeError) as error:
            raise CorpusError(f"the teacher `{self.command}` cannot be run: {error}") from error
        lines = answer.stdout.removesuffix("\n").split("\n") if answer.stdout else []
        if answer.returncode:
            raise CorpusError(
                f"the teacher `{self.command}` failed with exit status {answer.returncode}: "
                f"{answer.stderr.strip()[-500:]}"
            )
        if len(lines) != len(sentences):
            raise CorpusError(
                f"the teacher `{self.command}` answered {len(sentences)} lines with {len(lines)}: "
                "it must write exactly one line for each it reads"
            )
        return lines


def ask(teacher: Teacher, utterances: Sequence[Utterance], work: Path) -> dict[str, str]:
    """The teacher's translation of every transcript, by id; `work` keeps what it has said."""
    work.mkdir(parents=True, exist_ok=True)
    said: list[str] = []
    for start in tqdm(range(0, len(utterances), LINES_AT_A_TIME), desc="teacher", unit="part"):
        part = [utterance.transcript for utterance in utterances[start : start + LINES_AT_A_TIME]]
        said += _translate_once(part, teacher, work / f"{start:09d}.txt")
    return {utterance.id: line for utterance, line in zip(utterances, said, strict=True)}


def taught(
    utterances: Sequence[Utterance], translations: Mapping[str, str], teacher: Teacher
) -> list[Utterance]:
    """The utterances with the teacher's translations in place of their own."""
    return [
        replace(
            utterance,
            translation=translations[utterance.id],
            translation_origin=f"distilled by {teacher.command}",
        )
        for utterance in utterances
    ]


def _translate_once(sentences: Sequence[str], teacher: Teacher, kept: Path) -> list[str]:
    if not kept.exists():
        lines = teacher.translate([" ".join(sentence.split()) for sentence in sentences])
        unfinished = kept.with_suffix(".unfinished")
        unfinished.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
        unfinished.rename(kept)
    return kept.read_text(encoding="utf-8").split("\n")[:-1]
