"""Load Python files that are not installed: experiments, and a user's own classes and functions.

A name such as "my_policies.py:Patient" stands for the object on the command line, in JSON and in
experiment files. The folder that a file's imports start from (above its outermost package, or its
own folder) is on the path while it loads, so it loads from any working directory.
"""

import hashlib
import importlib.util
import inspect
import json
import re
import sys
import traceback
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

from simuljax.config.fields import ConfigError
from simuljax.errors import SimuljaxError, unknown

_SIMULJAX = Path(__file__).resolve().parents[1]
_PACKAGES = (_SIMULJAX, _SIMULJAX.with_name("data_pipelines"))
_OWN: set[Path] = set()  # folders, or outermost packages, of files that were loaded


def load_module(path: Path | str) -> ModuleType:
    """Execute a Python file and return its module; an error names the file and the line."""
    path = Path(path)
    if not path.is_file():
        raise ConfigError(f"{path} does not exist; give the path of a Python file")
    root, name = import_root(path)
    _OWN.add(root / name.partition(".")[0] if "." in name else root)
    spec = importlib.util.spec_from_file_location(name, path.resolve())
    if spec is None or spec.loader is None or b"\0" in path.read_bytes():
        raise ConfigError(f"{path} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses of the file look themselves up there
    before = list(sys.path)
    sys.path.insert(0, str(root))
    try:
        spec.loader.exec_module(module)
    except SyntaxError as error:  # of the file, or of one that it imports
        where = f"{error.filename or path}, line {error.lineno or 1}"
        raise ConfigError(f"{where}: {error.msg}: correct the file") from None
    except (Exception, SystemExit) as error:
        kind = "" if isinstance(error, SimuljaxError) else f"{type(error).__name__}: "
        raise ConfigError(f"{place_of(error, path)}: {kind}{error}") from error
    finally:
        sys.path[:] = before
    return module


def own_line(error: BaseException) -> str:
    """Return the file and line that raised, if they are beside a file that was loaded; else ""."""
    for step in reversed(traceback.extract_tb(error.__traceback__)):
        file = Path(step.filename).resolve()
        if any(file.is_relative_to(package) for package in _PACKAGES):
            return ""
        if any(file.is_relative_to(own) for own in _OWN) and "site-packages" not in file.parts:
            return f"{file}, line {step.lineno}"
    return ""


def import_root(path: Path) -> tuple[Path, str]:
    """Return the folder above the outermost package of a file, and its dotted name from there."""
    folder, parts = path.resolve().parent, [path.stem]
    while (folder / "__init__.py").is_file():
        parts.insert(0, folder.name)
        folder = folder.parent
    return folder, ".".join(parts) if len(parts) > 1 else f"experiment_{path.stem}"


def place_of(error: BaseException, path: Path) -> str:
    """Return the line of the file that failed and, if it called others, the line that raised."""
    steps = traceback.extract_tb(error.__traceback__)
    steps = [step for step in steps if not step.filename.startswith("<")]  # Python's own
    own = [i for i, step in enumerate(steps) if Path(step.filename).resolve() == path.resolve()]
    if not own:
        return str(path)
    lines = [f"{path}, line {steps[own[-1]].lineno}"]
    last = steps[-1]
    in_check = Path(last.filename).parent == Path(__file__).parent  # whose line explains nothing
    if own[-1] < len(steps) - 1 and not in_check:
        lines.append(f"{Path(last.filename).name}, line {last.lineno}")
    return ", in ".join(lines)


def is_reference(name: str) -> bool:
    """Return True for the name of an object in a file: "path/to/file.py:Name"."""
    return ".py:" in name


def load_object(reference: str) -> Any:
    """Return the object that "path/to/file.py:Name" names."""
    file, _, name = reference.rpartition(":")
    path = Path(file).resolve()
    module = _load_once(path, path.stat().st_mtime_ns) if path.is_file() else load_module(file)
    if not hasattr(module, name):
        raise ConfigError(f"{reference}: {unknown(name, vars(module))}")
    return getattr(module, name)


@cache
def _load_once(path: Path, changed: int) -> ModuleType:
    """Load a file again only if it has changed, so that its classes are the same ones."""
    return load_module(path)


def reference_to(held: Any) -> str:
    """Return the name by which `load_object` finds a class or function of a file."""
    return f"{Path(inspect.getfile(held)).resolve()}:{held.__qualname__}"


def code_in(config: Any) -> dict[str, str | None]:
    """Return a hash of every file whose code a configuration names; None where it is gone."""
    named = sorted(set(re.findall(r"\"([^\"]+\.py):\w+\"", json.dumps(config))))
    return {path: source_digest(Path(path)) for path in named}


def source_digest(path: Path) -> str | None:
    """Hash a file, or all Python files below a directory; None if there is none."""
    files = sorted(path.rglob("*.py")) if path.is_dir() else [path] if path.is_file() else []
    held = hashlib.sha256()
    for file in files:
        held.update(f"{file.relative_to(path)} {file.stat().st_size}\n".encode())
        held.update(file.read_bytes())
    return held.hexdigest()[:16] if files else None
