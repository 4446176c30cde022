"""The on-disk cache of compiled programs."""

import os
from pathlib import Path

import jax


def enable_compilation_cache() -> Path:
    """Keep compiled programs on disk, and return the directory.

    A directory that is already set, by JAX_COMPILATION_CACHE_DIR or in JAX's configuration, stays;
    otherwise it is ~/.cache/simuljax/xla, or the like below XDG_CACHE_HOME.
    """
    chosen = jax.config.values["jax_compilation_cache_dir"]  # JAX reads the variable itself
    if chosen:
        return Path(chosen)
    caches = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    directory = Path(caches) / "simuljax" / "xla"
    directory.mkdir(parents=True, exist_ok=True)
    jax.config.update("jax_compilation_cache_dir", str(directory))
    return directory
