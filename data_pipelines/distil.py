"""Sequence-level distillation: a teacher's translations replace the references, or join them.

A teacher is a trained run of ours, named by its directory, or any command that reads sentences from
its standard input, one a line, and writes their translations to its standard output, one a line.
What it says is kept as it comes, so that a killed run goes on, and every translation records who
wrote it.
"""

import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import IO, Protocol

from tqdm import tqdm

from data_pipelines.utterance import CorpusError, Utterance

LINES_AT_A_TIME = 2000
SHOWN = 500  # characters of what a teacher that failed has said
RUN_FILE = "config.json"  # what makes a directory a run
WHO = "who"  # whose translations are kept


class Teacher(Protocol):
    """Whoever translates."""

    @property
    def name(self) -> str:
        """As origins and errors call it."""
        ...

    def translate(self, parts: Sequence[Sequence[str]]) -> Iterator[list[str]]:
        """Of every part in turn its translations, one for each sentence."""
        ...


@dataclass(frozen=True, kw_only=True)
class CommandTeacher:
    """A command that maps lines to lines; it is called anew for every part."""

    command: str

    @property
    def name(self) -> str:
        """The command itself."""
        return self.command

    def translate(self, parts: Sequence[Sequence[str]]) -> Iterator[list[str]]:
        """What the command answers, or an error that says what it did."""
        return map(self._once, parts)

    def _once(self, sentences: Sequence[str]) -> list[str]:
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
                "it must write exactly one line for each it reads"
            )
        return lines


@dataclass(frozen=True, kw_only=True)
class RunTeacher:
    """A text translator that was trained here: `simuljax.serve.teacher`, in a process of its own.

    The device is free again when it has answered, and is loaded and compiled once for all parts.
    """

    run: Path
    name: str  # the run, its updates and its beam

    @classmethod
    def of(cls, run: Path) -> "RunTeacher":
        """The run by the name that it gives itself, or an error that says what it lacks."""
        answer = subprocess.run([*_teach(run), "--who"], capture_output=True, encoding="utf-8")
        if answer.returncode:
            raise CorpusError(f"{run} cannot teach: {answer.stderr.strip()[-SHOWN:]}")
        return cls(run=run, name=answer.stdout.strip())

    def translate(self, parts: Sequence[Sequence[str]]) -> Iterator[list[str]]:
        """Part after part as the process writes them."""
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
                    process.kill()  # it has said all, or nobody listens any more

    def _answers(self, stdout: IO[bytes], count: int, said: IO[bytes]) -> list[str]:
        answers = [line.decode().removesuffix("\n") for line in islice(stdout, count)]
        if len(answers) < count:
            said.seek(0)
            why = said.read().decode(errors="replace").strip()[-SHOWN:]
            raise CorpusError(f"the teacher {self.run} stopped: {why or 'it said nothing'}")
        return answers


def _teach(run: Path) -> list[str]:
    return [sys.executable, "-m", "simuljax.serve.teacher", str(run)]


def teacher_of(given: str) -> Teacher:
    """A directory is a run; anything else is a command."""
    place = Path(given)
    if (place / RUN_FILE).is_file():
        return RunTeacher.of(place)
    if place.is_dir():
        raise CorpusError(
            f"{place} is no run (there is no {RUN_FILE}): give the directory that `simuljax train` "
            "wrote, or a command"
        )
    return CommandTeacher(command=given)


def ask(teacher: Teacher, utterances: Sequence[Utterance], work: Path) -> dict[str, str]:
    """The teacher's translation of every transcript, by id; `work` keeps what it has said."""
    work.mkdir(parents=True, exist_ok=True)
    _sign(teacher, work)
    starts = range(0, len(utterances), LINES_AT_A_TIME)
    missing = [start for start in starts if not _kept(work, start).exists()]
    parts = [_sentences(utterances[start : start + LINES_AT_A_TIME]) for start in missing]
    known = len(utterances) - sum(map(len, parts))
    with tqdm(desc="teacher", unit="sentence", total=len(utterances), initial=known) as bar:
        for start, lines in zip(missing, teacher.translate(parts) if parts else (), strict=True):
            _keep(_kept(work, start), lines)
            bar.update(len(lines))
    texts = [_kept(work, start).read_text(encoding="utf-8") for start in starts]
    said = [line for text in texts for line in text.split("\n")[:-1]]
    return {utterance.id: line for utterance, line in zip(utterances, said, strict=True)}


def taught(
    utterances: Sequence[Utterance], translations: Mapping[str, str], teacher: Teacher
) -> list[Utterance]:
    """The utterances with the teacher's translations in place of their own."""
    return [
        replace(
            utterance,
            translation=translations[utterance.id],
            translation_origin=f"distilled by {teacher.name}",
        )
        for utterance in utterances
    ]


def _sign(teacher: Teacher, work: Path) -> None:
    """Notes who speaks; what another has said, or a run before it was trained on, is not mixed."""
    signature = work / WHO
    if signature.exists() and signature.read_text(encoding="utf-8") != teacher.name:
        raise CorpusError(
            f"{work} keeps translations by {signature.read_text(encoding='utf-8')}, and the teacher"
            f" is now {teacher.name}: remove that directory to have all of them translated anew"
        )
    signature.write_text(teacher.name, encoding="utf-8")


def _sentences(utterances: Sequence[Utterance]) -> list[str]:
    return [" ".join(utterance.transcript.split()) for utterance in utterances]


def _kept(work: Path, start: int) -> Path:
    return work / f"{start:09d}.txt"


def _keep(kept: Path, lines: Sequence[str]) -> None:
    unfinished = kept.with_suffix(".unfinished")
    unfinished.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    unfinished.rename(kept)
