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
import math
import shutil
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import jinja2
import tyro

from experiments.real_speech.text import PHRASEBOOK_WRITTEN
from simuljax.config.decoding import Decoding
from simuljax.config.experiment import CONFIG_FILE
from simuljax.config.fields import read_json, to_json, write_json
from simuljax.config.options import from_options, given_options
from simuljax.errors import ChoiceError, SimuljaxError
from simuljax.eval import read_records, score
from simuljax.eval.significance import confidence_interval
from simuljax.models.parameters import parameter_count
from simuljax.models.whisper.export import VOCABULARY
from simuljax.models.whisper.export import export as export_whisper
from simuljax.models.whisper.tokenizer import read_tiktoken
from simuljax.models.whisper.weights import read_checkpoint
from simuljax.parsing import parse_yaml
from simuljax.report.page import number
from simuljax.serve.bundled import BESIDE, CLIP, DEFAULT, RECOGNISER, TRANSLATOR, size_mb
from simuljax.serve.cascade import RECOGNISING, check_translator
from simuljax.train.run import DECODING_FILE, ENDED, Export, describe, export, open_run

LARGEST_MB = 25
MODEL = BESIDE / DEFAULT
CARD = Path(__file__).with_name("card.md")  # a template


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
    path = chosen.to / "scores.json"
    rows = {row["name"]: row for row in (read_json(path) if path.exists() else [])}
    rows |= {row["name"]: row for row in map(row_of, chosen.scores)}
    write_json(path, [*rows.values()])
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
    options = (option.partition("=") for option in chosen.decoding)
    values = {name.replace("-", "_"): parse_yaml(value) for name, _, value in options}
    write_json(to / DECODING_FILE, given_options(from_options(Decoding, values)))


def without_places(value: Any) -> Any:
    """Return a configuration whose absolute paths have only their last name left."""
    if isinstance(value, Mapping):
        return {name: without_places(held) for name, held in value.items()}
    if isinstance(value, list):
        return [without_places(held) for held in value]
    return Path(value).name if isinstance(value, str) and value.startswith("/") else value


def row_of(given: str) -> dict[str, Any]:
    """Return the row of the card for NAME=LOG."""
    name, _, log = given.rpartition("=")
    if not name:
        raise ChoiceError(f"--scores {given!r} needs a name: --scores 'NAME={given}'")
    records = read_records(log)
    scores, bleu = score(records), confidence_interval(records)
    return {
        "name": name,
        "n": scores["n"],
        "BLEU": round(bleu.value, 1),
        "interval": [round(bleu.low, 1), round(bleu.high, 1)],
        **{latency: round(scores[latency]) for latency in ("AL", "LAAL")},
    }


def card(model: Path) -> str:
    """Return the card of a bundled model."""
    run, whisper = open_run(model / TRANSLATOR), read_checkpoint(model / RECOGNISER)
    template = jinja2.Template(
        CARD.read_text("utf-8"), trim_blocks=True, keep_trailing_newline=True
    )
    return template.render(
        name=model.name,
        run=run,
        recognising=RECOGNISING,
        weights=sum(math.prod(tensor.shape) for tensor in whisper.tensors.values()),
        tokens=len(read_tiktoken(model / RECOGNISER / VOCABULARY)),
        parameters=parameter_count(run.model),
        sizes=[size_mb(model / part) for part in (RECOGNISER, TRANSLATOR)],
        written=PHRASEBOOK_WRITTEN,
        scores=read_json(model / "scores.json"),
        number=number,
        clip=CLIP,
        clip_source=read_json(model / "clip.json")["source"],
    )


if __name__ == "__main__":
    try:
        print(describe(bundle(tyro.cli(Bundle, config=(tyro.conf.OmitArgPrefixes,)))))
    except SimuljaxError as error:
        sys.exit(f"bundle: {error}")
