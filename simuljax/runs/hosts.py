"""Compare what the hosts of a training have: configurations, code and corpora."""

import hashlib
import importlib.metadata
import json
import platform
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax

import data_pipelines
import simuljax
from data_pipelines.dataset import digest
from simuljax.config.experiment import Experiment
from simuljax.config.fields import to_json
from simuljax.train import peers


def check_hosts(experiments: Sequence[Experiment]) -> None:
    """Refuse, on every process, to train with several configurations, codes or corpora."""
    if jax.process_count() == 1:
        return
    for number, experiment in enumerate(experiments):
        config = to_json(experiment)
        del config["run"], config["cluster"]  # of each host
        for name in ("directory", "text"):  # the contents count
            del config["data"][name]
        corpus = {
            f"split {split!r}, used to {role}": digest(directory, split)
            for role, (directory, split) in experiment.data.tables().items()
        }
        peers.agree("configuration", config)
        peers.agree("code", code_of(config) if number == 0 else {})
        peers.agree("corpus", corpus)
        peers.check_shared(experiment.run)


def code_of(config: Any) -> dict[str, Any]:
    """Return the versions and digests of all code that a training uses."""
    packages = [Path(package.__path__[0]) for package in (simuljax, data_pipelines)]
    sources = {path.name: source_digest(path) for path in packages}
    named = sorted(set(re.findall(r"\"([^\"]+\.py):\w+\"", json.dumps(config))))
    return (
        {
            "version of simuljax": simuljax.__version__,
            "version of jax": jax.__version__,
            "version of jaxlib": importlib.metadata.version("jaxlib"),
            "version of Python": ".".join(platform.python_version_tuple()[:2]),
            "default float": jax.numpy.zeros(0, float).dtype.name,
            "matmul precision": jax.config.values["jax_default_matmul_precision"],
        }
        | {f"source of {name}": found for name, found in sources.items()}
        | {f"source of {path}": source_digest(Path(path)) for path in named}
    )


def source_digest(path: Path) -> str | None:
    """Hash a file, or all Python files below a directory; None if there is none."""
    files = sorted(path.rglob("*.py")) if path.is_dir() else [path] if path.is_file() else []
    held = hashlib.sha256()
    for file in files:
        held.update(f"{file.relative_to(path)} {file.stat().st_size}\n".encode())
        held.update(file.read_bytes())
    return held.hexdigest()[:16] if files else None
