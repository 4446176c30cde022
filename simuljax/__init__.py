"""Simultaneous speech translation in JAX."""

import importlib
from typing import Any

__version__ = "0.1.0"
LIVE = ("Stream", "Translator", "Word", "load")  # in simuljax.serve.translator


def __getattr__(name: str) -> Any:
    """Import `simuljax.load` and its classes when they are first used: they import JAX."""
    if name in LIVE:
        return getattr(importlib.import_module("simuljax.serve.translator"), name)
    raise AttributeError(f"simuljax has no {name!r}; it has {', '.join(LIVE)}, and its packages")
