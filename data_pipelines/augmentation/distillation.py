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

from tqdm import tqdm

from data_pipelines.dataset import write_atomically
from data_pipelines.utterance import CorpusError, Utterance
from simuljax.config.experiment import CONFIG_FILE

LINES_AT_A_TIME = 2000
SHOWN = 500  # characters of a failed teacher's error output
WHO = "who"  # the author of the stored translations


@dataclass(frozen=True, kw_only=True)
class Teacher:
    """A program that maps lines to lines; its name is stored with every translation."""

    name: str
    command: Sequence[str]
    is_run: bool = False  # loads once for all parts and writes as it goes; others are restarted

    def translate(self, parts: Sequence[Sequence[str]]) -> Iterator[list[str]]:
        """Yield the translations of each part, one for each sentence."""
        if self.is_run:
            lines = self._lines([sentence for part in parts for sentence in part])
            yield from ([*islice(lines, len(part))] for part in parts)
        else:
            yield from ([*self._lines(part)] for part in parts)

    def _lines(self, sentences: Sequence[str]) -> Iterator[str]:
        """Yield the program's lines as it writes them, and end it when no more are wanted."""
        with tempfile.TemporaryFile() as said, tempfile.TemporaryFile() as errors:
            said.write("".join(f"{sentence}\n" for sentence in sentences).encode())
            said.seek(0)
            try:
                process = subprocess.Popen(
                    self.command, stdin=said, stdout=subprocess.PIPE, stderr=errors
                )
            except OSError as error:
                raise self._failed(f"cannot be run: {error}") from error
            count = 0
            with process:
                assert process.stdout is not None
                try:
                    for line in process.stdout:
                        count += 1
                        yield line.decode().rstrip("\r\n")
                except BaseException as error:
                    process.kill()
                    if isinstance(error, UnicodeDecodeError):
                        raise self._failed("writes no UTF-8") from error
                    raise
            errors.seek(0)
            why = errors.read().decode(errors="replace").strip()[-SHOWN:]
        if process.returncode:
            raise self._failed(f"failed with exit status {process.returncode}: {why}")
        if count != len(sentences):
            raise self._failed(
                f"answered {len(sentences)} lines with {count}: it must write exactly one line for "
                "each line it reads"
            )

    def _failed(self, problem: str) -> CorpusError:
        return CorpusError(f"the teacher `{self.name}` {problem}")


def run_command(run: Path) -> list[str]:
    """Return the command that translates text with a run."""
    return [sys.executable, "-m", "simuljax.serve.teacher", str(run)]


def teacher_of(given: str) -> Teacher:
    """Return the teacher: a directory is a run that translates text, anything else a command."""
    place = Path(given)
    if (place / CONFIG_FILE).is_file():
        command = run_command(place)
        answer = subprocess.run([*command, "--who"], capture_output=True, encoding="utf-8")
        if answer.returncode:
            raise CorpusError(f"{place} cannot teach: {answer.stderr.strip()[-SHOWN:]}")
        command += ["--lines", str(LINES_AT_A_TIME)]
        return Teacher(name=answer.stdout.strip(), command=command, is_run=True)
    if place.is_dir():
        raise CorpusError(
            f"{place} is no run (there is no {CONFIG_FILE}): give the directory that "
            "`simuljax train` wrote, or a command"
        )
    return Teacher(name=given, command=shlex.split(given))


def distilled(utterances: Sequence[Utterance], work: Path, teacher: Teacher) -> list[Utterance]:
    """Return the utterances with the teacher's translations, which `work` stores."""
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
    texts = [path.read_bytes().decode() for path in stored.values()]  # a \r ends no line
    said = [line for text in texts for line in text.split("\n")[:-1]]
    origin = f"distilled by {teacher.name}"
    return [
        replace(utterance, translation=line, translation_origin=origin)
        for utterance, line in zip(utterances, said, strict=True)
    ]


def _check_author(teacher: Teacher, work: Path) -> None:
    """Record the teacher; refuse to mix its translations with another's or a younger run's."""
    author = work / WHO
    if author.exists() and author.read_text(encoding="utf-8") != teacher.name:
        raise CorpusError(
            f"{work} has translations by {author.read_text(encoding='utf-8')}, and the teacher"
            f" is now {teacher.name}: remove that directory to translate everything again"
        )
    author.write_text(teacher.name, encoding="utf-8")
