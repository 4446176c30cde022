"""Turn a trained run into the model that comes with the package, and write its card.

    make model RUN=runs/real_speech/whisper              models/en-de: int8, speech branch alone
    make model RUN=... ARGS='--decoding threshold=0.4 --scores "IWSLT 2020=RUN/eval/real" ...'

Hardware: CPU, 10 s. A score is a row of the card: the log of an evaluation gives BLEU with its
bootstrap interval, AL and LAAL. Rows stay in models/en-de/scores.json; a row of the same name is
replaced. Without RUN, the card alone is written anew.
"""

import dataclasses
import json
import shutil
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro

from experiments.real_speech.text import PHRASEBOOK_SPOKEN, PHRASEBOOK_WRITTEN, SPOKEN
from simuljax.config.decoding import Decoding
from simuljax.config.experiment import CONFIG_FILE
from simuljax.config.json import read_json, to_json, write_json
from simuljax.config.options import from_options, given_options
from simuljax.errors import ChoiceError, SimuljaxError
from simuljax.eval import read_records, score
from simuljax.eval.significance import confidence_interval
from simuljax.report.page import number
from simuljax.serve.bundled import BESIDE, CLIP, DEFAULT
from simuljax.serve.run import DECODING_FILE, Export, describe, export, open_run, parameter_count
from simuljax.train.stored import PARAMS_FILE

LARGEST = 25_000_000  # bytes of a bundled model
MODEL = BESIDE / DEFAULT

DATA = (  # what, where it is in the training, licence
    (
        "Tatoeba, English-German sentences",
        f"all as text, {SPOKEN:,} of them spoken by the voices below",
        "CC BY 2.0 FR",
    ),
    (
        "simuljax phrasebook, sentences of a grammar",
        f"{PHRASEBOOK_WRITTEN:,} as text, {PHRASEBOOK_SPOKEN:,} of them spoken",
        "Apache-2.0",
    ),
    ("eSpeak NG, synthetic voices", "half of the speech", "GPL-3.0; its output is free to use"),
    ("hibari-tts, one natural synthetic voice", "half of the speech", "Apache-2.0"),
    ("Whisper tiny, OpenAI", "first values of the speech encoder", "MIT"),
)
LIMITS = (
    "It has heard synthetic voices only. The table shows what real speakers cost.",
    "Its sentences are short and of everyday language, as Tatoeba's are: names, numbers, technical "
    "terms and long sentences of a talk come out wrong or are left out.",
    "It writes German for English speech and nothing else. Other languages, music and several "
    "people at once give German words that nobody said.",
    "Do not use it where a wrong word can do harm.",
)


@dataclass(frozen=True, kw_only=True)
class Bundle:
    """The run to give away, and the evaluations that its card shows."""

    run: Annotated[Path | None, tyro.conf.Positional] = None
    """The directory of a run."""
    checkpoint: Literal["best", "last", "averaged"] = "last"
    """Latency counts at the end of the training, so the last is not the one of lowest loss."""
    decoding: tuple[str, ...] = ()
    """OPTION=VALUE of `simuljax translate`, such as threshold=0.4: how it streams by default."""
    scores: tuple[str, ...] = ()
    """NAME=LOG: rows of the card. LOG is an instances.log or the directory that has it."""
    to: Path = MODEL


def bundle(chosen: Bundle) -> Path:
    """Replace the model, if a run is given, and the card; return the directory."""
    if chosen.run is not None:
        replace_model(chosen)
    write_json(chosen.to / "scores.json", with_scores(read_scores(chosen.to), chosen.scores))
    (chosen.to / "README.md").write_text(card(chosen.to), "utf-8")
    return chosen.to


def replace_model(chosen: Bundle) -> None:
    """Export the run in int8, to compute in float32; forget where on the disk it was trained."""
    run, to = chosen.run, chosen.to
    assert run is not None
    with tempfile.TemporaryDirectory() as folder:
        made, which = Path(folder) / to.name, chosen.checkpoint
        export(Export(run=run, to=made, checkpoint=which, dtype="int8", branches="speech"))
        (made / "ended.json").unlink(missing_ok=True)
        config = open_run(made).config
        width = dataclasses.replace(config.model.width, dtype="float32")  # bfloat16 is for GPUs
        model = dataclasses.replace(config.model, width=width)
        config = dataclasses.replace(config, run=Path(to.name), init_from=(), model=model)
        write_json(made / CONFIG_FILE, without_places(to_json(config)))
        write_json(made / DECODING_FILE, given_options(decoding_of(chosen.decoding)))
        if (size := (made / PARAMS_FILE).stat().st_size) > LARGEST:
            raise ChoiceError(f"{run} has {size / 1e6:.1f} MB in int8; {LARGEST / 1e6:.0f} fit")
        to.mkdir(parents=True, exist_ok=True)
        for file in made.iterdir():
            shutil.copy(file, to / file.name)


def decoding_of(options: Sequence[str]) -> Decoding:
    """Return the decoding of options written as NAME=VALUE."""
    pairs = (option.partition("=") for option in options)
    values = {name.replace("-", "_"): value for name, _, value in pairs}
    return from_options(Decoding, {name: parsed(value) for name, value in values.items()})


def parsed(value: str) -> Any:
    """Return a number or a truth value; anything else is a word."""
    try:
        return json.loads(value)
    except ValueError:
        return value


def without_places(value: Any) -> Any:
    """Return a configuration whose absolute paths have only their last name left."""
    if isinstance(value, Mapping):
        return {name: without_places(held) for name, held in value.items()}
    if isinstance(value, list):
        return [without_places(held) for held in value]
    return Path(value).name if isinstance(value, str) and value.startswith("/") else value


def read_scores(model: Path) -> list[dict[str, Any]]:
    """Return the rows of the card so far."""
    path = model / "scores.json"
    return read_json(path) if path.exists() else []


def with_scores(rows: Sequence[dict[str, Any]], given: Sequence[str]) -> list[dict[str, Any]]:
    """Return the rows, with those of these logs in their places or at the end."""
    found = {row["name"]: row for row in rows}
    for each in given:
        name, _, log = each.rpartition("=")
        if not name:
            raise ChoiceError(f"--scores {each!r} needs a name: --scores 'NAME={each}'")
        records = read_records(log)
        scores, bleu = score(records), confidence_interval(records)
        found[name] = {
            "name": name,
            "n": scores["n"],
            "BLEU": round(bleu.value, 1),
            "interval": [round(bleu.low, 1), round(bleu.high, 1)],
            **{latency: round(scores[latency]) for latency in ("AL", "LAAL")},
        }
    return list(found.values())


def card(model: Path) -> str:
    """Return the card of a bundled model."""
    run = open_run(model)
    speech = run.model.speech
    assert speech is not None
    size = (model / PARAMS_FILE).stat().st_size / 1e6
    clip = json.loads((model / "clip.json").read_text("utf-8"))
    parts = [
        "# en-de: English speech to German text, while somebody is speaking",
        "[simuljax](../../README.md) loads this model by its name: `simuljax.load("
        f'"{model.name}")`, `simuljax translate talk.wav`, `simuljax serve`. '
        "`python -m experiments.real_speech.bundle` writes this card.",
        f"A joint speech and text model with monotonic multihead attention (Zaidi et al. 2022): "
        f"{parameter_count(run.model) / 1e6:.1f} M parameters, encoder `{speech.kind}`, a decision "
        f"every {run.model.predecision.step_ms} ms, {run.target.size} German pieces. Stored in "
        f"int8 with a scale for each output channel, {size:.1f} MB; it computes in float32. The "
        "text branch, which training needs and speech does not, is left out.",
        "## What it was trained on",
        markdown_table(("data", "use", "licence"), DATA),
        "Sentences of Tatoeba are by its [contributors](https://tatoeba.org). No TED talks and no "
        "Multi30k are in it. The weights are given under the Apache licence 2.0.",
        "## Scores",
        markdown_table(
            ("test set and system", "n", "BLEU [95 % interval]", "AL, ms", "LAAL, ms"),
            [score_row(row) for row in read_scores(model)],
        ),
        "BLEU and latency as SimulEval 1.1 computes them; intervals by bootstrap over utterances.",
        "## What it cannot do",
        "\n".join(f"- {limit}" for limit in LIMITS),
        "## The clip",
        f"`{CLIP}` (11 s): {clip['source']}",
    ]
    return "\n\n".join(parts) + "\n"


def score_row(row: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the cells of a row of scores."""
    low, high = row.get("interval") or (None, None)
    interval = f" [{low:.1f}, {high:.1f}]" if low is not None and high is not None else ""
    times = [number(row.get(name), 0) for name in ("AL", "LAAL")]
    return (row["name"], str(row.get("n", "")), f"{row['BLEU']:.1f}{interval}", *times)


def markdown_table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table."""
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


if __name__ == "__main__":
    try:
        print(describe(bundle(tyro.cli(Bundle, config=(tyro.conf.OmitArgPrefixes,)))))
    except SimuljaxError as error:
        sys.exit(f"bundle: {error}")
