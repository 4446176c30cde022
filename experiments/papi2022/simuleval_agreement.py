"""The same utterances through `simuljax evaluate` and through SimulEval with our agents.

    python -m experiments.papi2022.simuleval_agreement RUN --to agreement -- --threshold 0.3
    python -m experiments.papi2022.simuleval_agreement RUN --to agreement --branch text -- --threshold 0.3

Both get the same settings, those after `--`. Prints, and writes to TO/agreement-BRANCH.txt, whether
words and delays are the same, and both sets of scores. Needs an environment with simuljax and
SimulEval 1.1.4; a minute or two on 2 CPU cores for 100 utterances of a small model.
"""

import csv
import itertools
import json
import shlex
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import soundfile
import tyro

from data_pipelines.prepared import Split, open_corpus
from simuljax.audio import RATE
from simuljax.eval import Record, read_records
from simuljax.serve.run import Run, open_run

AGENTS = {"speech": "simuljax.serve.agent.SpeechAgent", "text": "simuljax.serve.agent.TextAgent"}
SCORES = ("BLEU", "AL", "LAAL", "AP", "DAL", "ATD")


@dataclass(frozen=True, kw_only=True)
class Agreement:
    """What is compared."""

    run: Annotated[Path, tyro.conf.Positional]
    """The directory of a trained run."""
    to: Path
    """Where sound, logs and the comparison go."""
    branch: Literal["speech", "text"] = "speech"
    corpus: Path | None = None
    """A prepared corpus; by default the run's own."""
    split: str = "test"
    first: int = 100
    """Utterances."""
    checkpoint: Literal["best", "last", "averaged"] = "best"

    @property
    def ours(self) -> Path:
        """Where `simuljax evaluate` leaves its results."""
        return self.run / "eval" / f"simuleval-agreement-{self.branch}"

    @property
    def theirs(self) -> Path:
        """Where SimulEval does."""
        return self.to / f"simuleval-{self.branch}"


def compare(chosen: Agreement, settings: Sequence[str]) -> str:
    """Runs both, and says how they compare."""
    run = open_run(chosen.run)
    corpus = chosen.corpus or Path(run.told["corpus"]["directory"])
    export(open_corpus(corpus)[chosen.split], chosen.first, chosen.to)
    shutil.rmtree(chosen.ours, ignore_errors=True)  # or they would not be made anew
    ours = evaluate_command(chosen, corpus, settings)
    theirs = simuleval_command(chosen, run, settings)
    for given in (ours, theirs):
        subprocess.run([sys.executable, "-X", "utf8", "-m", *given], check=True)
    told = [f"$ {shlex.join(['python', '-m', *given])}" for given in (ours, theirs)]
    return "\n".join([*told, "", *differences(chosen.ours, chosen.theirs)])


def export(split: Split, count: int, folder: Path) -> None:
    """The first utterances as SimulEval wants them: lists of sound files, texts and references."""
    (folder / "audio").mkdir(parents=True, exist_ok=True)
    table, sounds = split.table, []
    for i in range(min(count, len(table))):
        sounds.append((folder / "audio" / f"{i:05d}.wav").resolve())
        soundfile.write(sounds[-1], split.source[i]["audio"], RATE, subtype="PCM_16")
    for name, lines in (
        ("speech", map(str, sounds)),
        ("text", table.transcript[:count]),
        ("references", table.translation[:count]),
    ):
        (folder / f"{name}.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")


def evaluate_command(chosen: Agreement, corpus: Path, settings: Sequence[str]) -> list[str]:
    """Ours."""
    what = ["--corpus", str(corpus), "--split", chosen.split, "--first", str(chosen.first)]
    how = ["--branch", chosen.branch, "--checkpoint", chosen.checkpoint, *settings]
    name = ["--name", chosen.ours.name]
    return ["simuljax.cli.main", "evaluate", str(chosen.run), *what, *how, *name]


def simuleval_command(chosen: Agreement, run: Run, settings: Sequence[str]) -> list[str]:
    """Theirs. A segment has to be a READ for the delays to be the same."""
    source, target = chosen.to / f"{chosen.branch}.txt", chosen.to / "references.txt"
    agent = ["--agent-class", AGENTS[chosen.branch], "--run", str(chosen.run)]
    what = ["--source", str(source), "--target", str(target), "--output", str(chosen.theirs)]
    how = ["--checkpoint", chosen.checkpoint, *settings, "--no-progress-bar"]
    if chosen.branch == "speech":
        how += ["--source-segment-size", str(read_ms(run, settings))]
    return ["simuleval.cli", *agent, *what, *how]


def read_ms(run: Run, settings: Sequence[str]) -> int:
    """Of a READ: as set, or the step between decisions, as set or trained."""
    given = dict(itertools.pairwise(settings))
    step = run.model.predecision.step_ms
    return int(given.get("--read-ms") or given.get("--predecision-ms") or step)


def differences(ours: Path, theirs: Path) -> list[str]:
    """What differs between two folders of results."""
    own, other = ({r.index: r for r in read_records(folder)} for folder in (ours, theirs))
    pairs = [(record, other[index]) for index, record in own.items()]
    same = [(a, b) for a, b in pairs if a.prediction == b.prediction]
    apart = [abs(x - y) for a, b in same for x, y in zip(a.delays, b.delays, strict=True)]
    early = sum(delay < record.source_length for record in own.values() for delay in record.delays)
    most = max(apart, default=0)
    return [
        f"{len(pairs)} utterances, {len(pairs) - len(same)} predictions differ",
        *(_shown(pair) for pair in pairs if pair not in same),
        f"{len(apart)} words of the others: largest difference of a delay {most:g}",
        f"{early} of all words come before the end of their source",
        *score_table(ours, theirs),
    ]


def score_table(ours: Path, theirs: Path) -> list[str]:
    """Both sets of scores; SimulEval writes three digits after the point."""
    scores = json.loads((ours / "scores.json").read_text())
    with (theirs / "scores.tsv").open() as file:
        other = next(csv.DictReader(file, delimiter="\t"))
    rows = [(name, float(other[name]), float(scores[name])) for name in SCORES]
    return [
        f"{'':8}{'SimulEval 1.1.4':>18}{'simuljax evaluate':>20}{'difference':>14}",
        *(f"{name:8}{a:18.3f}{b:20.6f}{abs(a - b):14.6f}" for name, a, b in rows),
    ]


def _shown(pair: tuple[Record, Record]) -> str:
    ours, theirs = pair
    return f"  {ours.index}: {theirs.prediction!r} by SimulEval, {ours.prediction!r} by simuljax"


def main(args: Sequence[str]) -> None:
    """Settings of both stand after `--`."""
    place = args.index("--") if "--" in args else len(args)
    chosen = tyro.cli(Agreement, args=args[:place])
    text = compare(chosen, args[place + 1 :])
    (chosen.to / f"agreement-{chosen.branch}.txt").write_text(text + "\n")
    print(text)


if __name__ == "__main__":
    main(sys.argv[1:])
