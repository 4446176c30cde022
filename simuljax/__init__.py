"""Simultaneous speech translation in JAX."""

import importlib
from typing import Any

__version__ = "0.1.0"
LIVE = ("Stream", "Translator", "Word", "load")  # of simuljax.serve.translator


def __getattr__(name: str) -> Any:
    """`simuljax.load` and its like, imported when they are asked for: they bring in JAX."""
    if name in LIVE:
        return getattr(importlib.import_module("simuljax.serve.translator"), name)
    raise AttributeError(f"simuljax has no {name!r}; it has {', '.join(LIVE)}, and its packages")
