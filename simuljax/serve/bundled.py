"""Find the models that come as packages of their own beside the library.

`simuljax-en-de` installs an exported run as `simuljax_models/en-de`. A clone of the repository with
the same files in `models/en-de` needs no installation.
"""

import importlib.util
import re
from pathlib import Path

from simuljax.config.experiment import CONFIG_FILE
from simuljax.errors import SimuljaxError

DEFAULT = "en-de"
CLIP = "kennedy_1961.flac"  # of a bundled model
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
            "the model of a run in a clone: `make model RUN=DIR`; `make model-wheel` packs it"
        )
    return places[str(model)]


def parts_of(model: str | Path) -> list[Path]:
    """Return the path of a model, or the two of a cascade, "ASR+MT"."""
    names = [str(model)] if Path(model).exists() else str(model).split("+")
    if len(names) > 2:
        raise BundledError(
            f"{model}: a cascade has two models, a recogniser and a translator of text"
        )
    return [resolve(name) for name in names]


def bundled() -> list[Path]:
    """Return the directories of bundled models; one that is installed comes before a clone's."""
    spec = importlib.util.find_spec(PACKAGE)
    folders = [BESIDE, *map(Path, spec.submodule_search_locations or () if spec else ())]
    found = [path.parent for folder in folders for path in sorted(folder.glob(f"*/{CONFIG_FILE}"))]
    return list({path.name: path for path in found}.values())


def target_language(model: Path) -> str | None:
    """Return the language that a bundled model writes; None for another model."""
    return model.name.partition("-")[2] if model in bundled() else None
