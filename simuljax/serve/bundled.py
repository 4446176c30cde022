"""Find the models that come as packages of their own beside the library.

    en-de/recogniser/    Whisper (`simuljax.models.whisper.export`)
    en-de/translator/    an exported run that translates text
    en-de/README.md      the card; scores.json has its table
    en-de/kennedy_1961.flac, clip.json    a sample

`simuljax-en-de` installs this as `simuljax_models/en-de`. A clone of the repository with the same
files in `models/en-de` needs no installation.
"""

import importlib.util
import re
from pathlib import Path

from simuljax.config.experiment import CONFIG_FILE
from simuljax.errors import SimuljaxError

DEFAULT = "en-de"
CLIP = "kennedy_1961.flac"  # of a bundled model
RECOGNISER, TRANSLATOR = "recogniser", "translator"
PACKAGE, BESIDE = "simuljax_models", Path(__file__).parents[2] / "models"
NAME = re.compile(r"[a-z]{2,3}-[a-z]{2,3}")


class BundledError(SimuljaxError):
    """A model that is not there."""


def resolve(model: str | Path) -> Path:
    """Return the path of a model: one that exists, or else that of the bundled model so named."""
    path = Path(model)
    if path.exists() or not NAME.fullmatch(str(model)):
        return path
    places = {place.name: place for place in bundled()}
    if str(model) not in places:
        raise BundledError(
            f"there is no model {str(model)!r}: no such directory, and of bundled models "
            f"{', '.join(places) or 'none'} is here. Install the wheel simuljax-{model}, or make "
            "the model in a clone: `make model ASR=WHISPER MT=RUN`; `make model-wheel` packs it"
        )
    return places[str(model)]


def parts_of(model: str | Path) -> list[Path]:
    """Return the path of a model, or the two of a cascade: "ASR+MT", or a bundled model."""
    names = [str(model)] if Path(model).exists() else str(model).split("+")
    if len(names) > 2:
        raise BundledError(
            f"{model}: a cascade has two models, a recogniser and a translator of text"
        )
    found = [resolve(name) for name in names]
    if len(found) == 1 and (found[0] / TRANSLATOR / CONFIG_FILE).exists():
        return [found[0] / RECOGNISER, found[0] / TRANSLATOR]
    return found


def bundle_of(translator: Path) -> Path | None:
    """Return the bundled model that a run is the translator of; None for any other run."""
    folder = translator.parent
    return folder if translator.name == TRANSLATOR and (folder / RECOGNISER).is_dir() else None


def bundled() -> list[Path]:
    """Return the directories of bundled models; one that is installed comes before a clone's."""
    spec = importlib.util.find_spec(PACKAGE)
    folders = [BESIDE, *map(Path, spec.submodule_search_locations or () if spec else ())]
    found = [p for folder in folders for p in sorted(folder.glob(f"*/{TRANSLATOR}/{CONFIG_FILE}"))]
    return list({path.parents[1].name: path.parents[1] for path in found}.values())


def target_language(model: Path) -> str | None:
    """Return the language that a bundled model, or its translator, writes; None for another."""
    whole = bundle_of(model) or model
    return whole.name.partition("-")[2] if whole in bundled() else None


def size_mb(model: Path) -> float:
    """Return the size of all files of a bundled model."""
    return sum(file.stat().st_size for file in model.rglob("*") if file.is_file()) / 1e6
