"""The common base of the errors that a user can mend."""

import difflib
import importlib
from collections.abc import Iterable
from typing import Any


class SimuljaxError(ValueError):
    """An expected failure: its message says what is wrong and what to do.

    The command line prints the message alone. Any other exception is a bug of simuljax.
    """


class ChoiceError(SimuljaxError):
    """A value on the command line that does not exist or does not go with the others."""


class MissingExtraError(SimuljaxError, ImportError):
    """A package of one of the optional extras is not installed."""


def import_extra(module: str, extra: str) -> Any:
    """Import a module that only `simuljax[extra]` installs."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        package = module.partition(".")[0]
        raise MissingExtraError(
            f"{package} is not installed ({error}): pip install 'simuljax[{extra}]'"
        ) from error


def unknown(name: str, known: Iterable[str]) -> str:
    """Say that `name` does not exist and suggest the most similar known name."""
    close = difflib.get_close_matches(name, [*known], 1, cutoff=0.5)
    return f"there is no {name!r}" + (f"; do you mean {close[0]!r}?" if close else "")
