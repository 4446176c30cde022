"""Make the model that comes with the package, a cascade in models/en-de, and write its card.

    make model ASR=tiny.en.pt MT=runs/real_speech/translator
    make model ASR=... MT=... ARGS='--text english.txt --decoding k=3 --scores "IWSLT=DIR/real"'

ASR is a Whisper with its vocabulary beside it, MT a run that translates text. Both are stored in 7
bits and packed; Whisper keeps the tokens that are most common in a text. Hardware: CPU, a minute. A
score is a row of the card: the log of an evaluation gives BLEU with its bootstrap interval, AL and
LAAL. Rows stay in models/en-de/scores.json; a row of the same name is replaced. Without ASR and MT,
the card alone is written anew.
"""

import dataclasses
import json
import math
import shutil
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro

from experiments.real_speech.text import PHRASEBOOK_WRITTEN
from simuljax.config.decoding import Decoding
from simuljax.config.experiment import CONFIG_FILE
from simuljax.config.json import read_json, to_json, write_json
from simuljax.config.options import from_options, given_options
from simuljax.errors import ChoiceError, SimuljaxError
from simuljax.eval import read_records, score
from simuljax.eval.significance import confidence_interval
from simuljax.models.whisper.export import VOCABULARY
from simuljax.models.whisper.export import export as export_whisper
from simuljax.models.whisper.tokenizer import read_tiktoken
from simuljax.models.whisper.weights import Checkpoint, read_checkpoint
from simuljax.report.page import number
from simuljax.serve.bundled import BESIDE, CLIP, DEFAULT, RECOGNISER, TRANSLATOR, size_mb
from simuljax.serve.cascade import RECOGNISING, check_translator
from simuljax.serve.run import DECODING_FILE, Export, describe, export, open_run, parameter_count
from simuljax.train.loop import ENDED

LARGEST_MB = 25
MODEL = BESIDE / DEFAULT

DATA = (  # what, use, licence
    ("Whisper tiny.en, OpenAI", "the recogniser, as it was published", "MIT"),
    ("Tatoeba, English-German sentences", "the translator's text", "CC BY 2.0 FR"),
    (
        "simuljax phrasebook, sentences of a grammar",
        f"the translator's text, {PHRASEBOOK_WRITTEN:,} sentences",
        "Apache-2.0",
    ),
)
LIMITS = (
    "What the recogniser gets wrong, the translator translates. Foreign accents, noise and far "
    "microphones cost many words; the table shows how many.",
    "Whisper can write text that nobody said, above all in silence and music, or repeat itself.",
    "The translator knows short sentences of everyday language, as Tatoeba's are: names, technical "
    "terms and long sentences of a talk come out wrong or are left out.",
    "It writes German for English speech and nothing else.",
    "Do not use it where a wrong word can do harm.",
)


@dataclass(frozen=True, kw_only=True)
class Bundle:
    """The models to give away, and the evaluations that the card shows."""

    asr: Annotated[Path | None, tyro.conf.Positional] = None
    """Weights of Whisper."""
    mt: Annotated[Path | None, tyro.conf.Positional] = None
    """The directory of a run that translates text."""
    tokens: int = 16_000
    """Tokens of text that Whisper keeps."""
    text: tuple[Path, ...] = ()
    """English text, a sentence a line: what is common there is kept; else the first tokens are."""
    checkpoint: Literal["best", "last", "averaged"] = "best"
    """Take this checkpoint of the run."""
    decoding: tuple[str, ...] = ()
    """OPTION=VALUE of the run, such as k=3: how it reads text by default."""
    scores: tuple[str, ...] = ()
    """NAME=LOG: rows of the card. LOG is an instances.log or the directory that has it."""
    to: Path = MODEL


def bundle(chosen: Bundle) -> Path:
    """Replace the models, if they are given, and the card; return the directory."""
    if (chosen.asr is None) != (chosen.mt is None):
        raise ChoiceError("a cascade has two models: give both, ASR=WHISPER and MT=RUN")
    if chosen.asr is not None and chosen.mt is not None:
        replace_models(chosen, chosen.asr, chosen.mt)
    write_json(chosen.to / "scores.json", with_scores(read_scores(chosen.to), chosen.scores))
    (chosen.to / "README.md").write_text(card(chosen.to), "utf-8")
    return chosen.to


def replace_models(chosen: Bundle, asr: Path, mt: Path) -> None:
    """Export both models; keep the old ones if the new ones are too large."""
    with tempfile.TemporaryDirectory() as folder:
        made = Path(folder)
        text = (line for file in chosen.text for line in file.read_text("utf-8").splitlines())
        export_whisper(asr, made / RECOGNISER, tokens=chosen.tokens, text=text, dtype="int7")
        export_run(chosen, mt, made / TRANSLATOR)
        beside = sum(file.stat().st_size for file in chosen.to.glob("*") if file.is_file())
        if (size := size_mb(made) + beside / 1e6) > LARGEST_MB:
            raise ChoiceError(
                f"{asr} and {mt} have {size:.2f} MB in int7, with what is beside them; "
                f"{LARGEST_MB} fit. Keep fewer --tokens or train a smaller translator"
            )
        for part in (RECOGNISER, TRANSLATOR):
            shutil.rmtree(chosen.to / part, ignore_errors=True)
            shutil.copytree(made / part, chosen.to / part)


def export_run(chosen: Bundle, run: Path, to: Path) -> None:
    """Export a run, to compute in float32; forget where on the disk it was trained."""
    check_translator(open_run(run))
    export(Export(run=run, to=to, checkpoint=chosen.checkpoint, dtype="int7"))
    (to / ENDED).unlink(missing_ok=True)
    config = open_run(to).config
    width = dataclasses.replace(config.model.width, dtype="float32")  # bfloat16 is for GPUs
    model = dataclasses.replace(config.model, width=width)
    config = dataclasses.replace(config, run=Path(to.name), init_from=(), model=model)
    write_json(to / CONFIG_FILE, without_places(to_json(config)))
    write_json(to / DECODING_FILE, given_options(decoding_of(chosen.decoding)))


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
    run, whisper = open_run(model / TRANSLATOR), read_checkpoint(model / RECOGNISER)
    sizes = [size_mb(model / part) for part in (RECOGNISER, TRANSLATOR)]
    clip = json.loads((model / "clip.json").read_text("utf-8"))
    kept, lag = len(read_tiktoken(model / RECOGNISER / VOCABULARY)), run.decoding.k
    waits = "as it has learnt to" if lag is None else f"{lag} words later"
    parts = [
        "# en-de: English speech to German text, while somebody is speaking",
        "[simuljax](../../README.md) loads this model by its name: `simuljax.load("
        f'"{model.name}")`, `simuljax translate talk.wav`, `simuljax serve`. '
        "`python -m experiments.real_speech.bundle` writes this card.",
        f"A cascade. The recogniser is Whisper tiny.en ({weight_count(whisper) / 1e6:.1f} M "
        f"parameters) with {kept:,} of its tokens of text: a word that lost its own is spelt with "
        "shorter ones. It reads "
        f"{RECOGNISING.window_s:g} s at a time and commits words by {RECOGNISING.policy.name}. The "
        f"translator ({parameter_count(run.model) / 1e6:.1f} M parameters, {run.source.size:,} "
        f"English and {run.target.size:,} German pieces) reads its words and writes {waits}. Both "
        "are stored in 7 bits with a scale for each output channel, and packed: "
        f"{sizes[0]:.1f} and {sizes[1]:.1f} MB. They compute in float32.",
        "## What it is made of",
        markdown_table(("what", "use", "licence"), DATA),
        "Whisper's licence is in `LICENSE.whisper`. Sentences of Tatoeba are by its "
        "[contributors](https://tatoeba.org). No TED talks and no Multi30k are in the translator, "
        "whose weights are given under the Apache licence 2.0.",
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


def weight_count(checkpoint: Checkpoint) -> int:
    """Return the number of parameters in a file."""
    return sum(math.prod(tensor.shape) for tensor in checkpoint.tensors.values())


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
