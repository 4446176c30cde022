"""Sequence-level distillation: a teacher's translations replace the references, or join them.

A teacher is a trained run, given by its directory, or any command that reads sentences from its
standard input, one per line, and writes their translations to its standard output, one per line.
Translations are stored as they come, so that an interrupted preparation continues, and every
translation records its author.
"""

import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import IO, TypeAlias

from tqdm import tqdm

from data_pipelines.dataset import write_atomically
from data_pipelines.utterance import CorpusError, Utterance

LINES_AT_A_TIME = 2000
SHOWN = 500  # characters of a failed teacher's error output
RUN_FILE = "config.json"  # every run has it
WHO = "who"  # the author of the stored translations


@dataclass(frozen=True, kw_only=True)
class CommandTeacher:
    """A command that maps lines to lines; it is started again for every part."""

    command: str

    @property
    def name(self) -> str:
        return self.command

    def translate(self, parts: Sequence[Sequence[str]]) -> Iterator[list[str]]:
        """Yield the translations of each part, one for each sentence."""
        return map(self._translate_part, parts)

    def _translate_part(self, sentences: Sequence[str]) -> list[str]:
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
                f"{answer.stderr.strip()[-SHOWN:]}"
            )
        if len(lines) != len(sentences):
            raise CorpusError(
                f"the teacher `{self.command}` answered {len(sentences)} lines with {len(lines)}: "
                "it must write exactly one line for each line it reads"
            )
        return lines


@dataclass(frozen=True, kw_only=True)
class RunTeacher:
    """A run that translates text, in a process of its own (`simuljax.serve.teacher`).

    The process loads and compiles once for all parts, and frees the device when it ends.
    """

    run: Path
    name: str  # the run, its updates and its beam

    @classmethod
    def from_run(cls, run: Path) -> "RunTeacher":
        """Check that the run can translate text, and get its name."""
        answer = subprocess.run([*_teach(run), "--who"], capture_output=True, encoding="utf-8")
        if answer.returncode:
            raise CorpusError(f"{run} cannot teach: {answer.stderr.strip()[-SHOWN:]}")
        return cls(run=run, name=answer.stdout.strip())

    def translate(self, parts: Sequence[Sequence[str]]) -> Iterator[list[str]]:
        """Yield the parts as the process writes them."""
        with tempfile.TemporaryFile() as lines, tempfile.TemporaryFile() as said:
            for sentence in (sentence for part in parts for sentence in part):
                lines.write(f"{sentence}\n".encode())
            lines.seek(0)
            command = [*_teach(self.run), "--lines", str(LINES_AT_A_TIME)]
            with subprocess.Popen(
                command, stdin=lines, stdout=subprocess.PIPE, stderr=said
            ) as process:
                assert process.stdout is not None
                try:
                    for part in parts:
                        yield self._answers(process.stdout, len(part), said)
                finally:
                    process.kill()  # it is done, or its answers are not wanted any more

    def _answers(self, stdout: IO[bytes], count: int, said: IO[bytes]) -> list[str]:
        answers = [line.decode().removesuffix("\n") for line in islice(stdout, count)]
        if len(answers) < count:
            said.seek(0)
            why = said.read().decode(errors="replace").strip()[-SHOWN:]
            raise CorpusError(f"the teacher {self.run} stopped: {why or 'it printed no error'}")
        return answers


def _teach(run: Path) -> list[str]:
    return [sys.executable, "-m", "simuljax.serve.teacher", str(run)]


Teacher: TypeAlias = CommandTeacher | RunTeacher


def teacher_of(given: str) -> Teacher:
    """Return the teacher: a directory is a run, anything else a command."""
    place = Path(given)
    if (place / RUN_FILE).is_file():
        return RunTeacher.from_run(place)
    if place.is_dir():
        raise CorpusError(
            f"{place} is no run (there is no {RUN_FILE}): give the directory that `simuljax train` "
            "wrote, or a command"
        )
    return CommandTeacher(command=given)


def translate_transcripts(
    teacher: Teacher, utterances: Sequence[Utterance], work: Path
) -> dict[str, str]:
    """Return the teacher's translation of every transcript, by id; `work` stores them."""
    work.mkdir(parents=True, exist_ok=True)
    _check_author(teacher, work)
    starts = range(0, len(utterances), LINES_AT_A_TIME)
    stored = {start: work / f"{start:09d}.txt" for start in starts}
    missing = [start for start in starts if not stored[start].exists()]
    parts = [
        [" ".join(u.transcript.split()) for u in utterances[start : start + LINES_AT_A_TIME]]
        for start in missing
    ]
    known = len(utterances) - sum(map(len, parts))
    with tqdm(desc="teacher", unit="sentence", total=len(utterances), initial=known) as bar:
        for start, lines in zip(missing, teacher.translate(parts) if parts else (), strict=True):
            write_atomically(stored[start], "".join(f"{line}\n" for line in lines))
            bar.update(len(lines))
    texts = [path.read_text(encoding="utf-8") for path in stored.values()]
    said = [line for text in texts for line in text.split("\n")[:-1]]
    return {utterance.id: line for utterance, line in zip(utterances, said, strict=True)}


def distilled(utterances: Sequence[Utterance], work: Path, teacher: Teacher) -> list[Utterance]:
    """Return the utterances with the teacher's translations in place of their own."""
    said, origin = translate_transcripts(teacher, utterances, work), f"distilled by {teacher.name}"
    return [replace(u, translation=said[u.id], translation_origin=origin) for u in utterances]


def _check_author(teacher: Teacher, work: Path) -> None:
    """Record the teacher; refuse to mix its translations with another's or a younger run's."""
    author = work / WHO
    if author.exists() and author.read_text(encoding="utf-8") != teacher.name:
        raise CorpusError(
            f"{work} has translations by {author.read_text(encoding='utf-8')}, and the teacher"
            f" is now {teacher.name}: remove that directory to translate everything again"
        )
    author.write_text(teacher.name, encoding="utf-8")
