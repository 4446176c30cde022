"""Imports point one way: `STANDS_ON` is the rule, the rest holds every file to it."""

import ast
import functools
from collections.abc import Iterable, Iterator, Mapping
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

# Each part of the project, and the parts it stands on. What those stand on is within its reach too.
STANDS_ON = {
    "simuljax": (),  # the bare package: a version, and nothing that costs time to import
    "simuljax.errors": (),
    "simuljax.parsing": (),
    "simuljax.ops": (),
    "simuljax.config.fields": (),
    "simuljax.lock": ("simuljax.config.fields",),
    "simuljax.config.loading": ("simuljax.config.fields",),
    "simuljax.config.model": ("simuljax.config.loading",),
    "simuljax.config.segmentation": ("simuljax.config.fields",),
    "simuljax.audio": ("simuljax.config.segmentation",),
    "simuljax.text": ("simuljax.config.fields",),
    "simuljax.batch": ("simuljax.audio", "simuljax.text"),
    "simuljax.cache": (),
    "simuljax.losses": ("simuljax.ops", "simuljax.config.loading"),
    "simuljax.decode.policies": ("simuljax.config.loading", "simuljax.config.segmentation"),
    "simuljax.config": (  # declarations of everything that is chosen
        "simuljax.audio",
        "simuljax.text",
        "simuljax.losses",
        "simuljax.decode.policies",
        "simuljax.config.model",
    ),
    "simuljax.nn": ("simuljax.ops", "simuljax.config.model"),
    "simuljax.models": ("simuljax.nn", "simuljax.audio"),
    "simuljax.decode": ("simuljax.models", "simuljax.config"),
    "simuljax.train": (
        "simuljax.models",
        "simuljax.config",
        "simuljax.batch",
        "simuljax.cache",
        "simuljax.lock",
    ),
    "simuljax.voice": ("simuljax.audio", "simuljax.text", "simuljax.config.fields"),
    "simuljax.eval": (),
    "data_pipelines": ("simuljax.batch", "simuljax.voice", "simuljax.config", "simuljax.lock"),
    "simuljax.serve": ("simuljax.train", "simuljax.decode", "simuljax.voice", "simuljax.eval"),
    "simuljax.report": ("simuljax.eval", "simuljax.config"),
    "simuljax.profile": ("simuljax.serve", "data_pipelines"),
    "simuljax.runs": ("simuljax.serve", "simuljax.report", "data_pipelines"),
    "simuljax.ablate": ("simuljax.runs",),
    "simuljax.demo": ("simuljax.runs", "simuljax.profile"),
    "simuljax.cli": ("simuljax.ablate", "simuljax.profile", "simuljax.demo"),
    "experiments": ("simuljax.ablate", "simuljax.profile", "simuljax.demo"),
}


@functools.cache
def within_reach(part: str) -> set[str]:
    """The part, what every part may use, and everything the part stands on, however deep."""
    below = (within_reach(lower) for lower in STANDS_ON[part])
    return {part, "simuljax", "simuljax.errors", "simuljax.parsing"}.union(*below)


def part_of(module: str) -> str | None:
    """`simuljax.ops.alignment` belongs to `simuljax.ops`; None for code that is not ours."""
    package, *rest = module.split(".")
    if package not in STANDS_ON:
        return None
    if module in STANDS_ON:
        return module
    return ".".join([package, *rest[:1]]) if package == "simuljax" else package


parsed = functools.cache(ast.parse)


def imported(
    nodes: Iterable[ast.AST], module: str, is_package: bool
) -> Iterator[tuple[str, list[str]]]:
    """Every module that statements import, relative imports resolved, and names from it."""
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from ((name.name, []) for name in node.names)
        elif isinstance(node, ast.ImportFrom):
            ancestors = module.split(".") if is_package else module.split(".")[:-1]
            here = ancestors[: len(ancestors) - node.level + 1] if node.level else []
            origin = ".".join([*here, node.module] if node.module else here)
            yield origin, [f"{origin}.{name.name}" for name in node.names]


def name_of(path: Path) -> tuple[str, bool]:
    """The module of a file below the root, and whether it is a package."""
    is_package = path.name == "__init__.py"
    return ".".join((path.parent if is_package else path.with_suffix("")).parts), is_package


def wrong_imports(source: str, path: Path) -> list[str]:
    """What is wrong with the imports of the file that stands at `path`; empty if nothing."""
    module, is_package = name_of(path)
    part = part_of(module)
    if part not in STANDS_ON:
        return [f"{path}: {part} is new; say in STANDS_ON what it stands on"]
    imports = {}
    for origin, names in imported(ast.walk(parsed(source)), module, is_package):
        # `from simuljax import ops` names a part; `from simuljax import __version__` does not.
        parts = [name for name in names if origin == "simuljax" and name in STANDS_ON]
        imports |= {name: part_of(name) for name in parts or [origin]}
    outside = {name for name, of in imports.items() if of and of not in within_reach(part)}
    return [f"{path}: {part} must not import {name}" for name in sorted(outside)]


def test_imports_point_one_way():
    tops = ("simuljax", "data_pipelines", "experiments")
    files = [file for top in tops for file in (ROOT / top).rglob("*.py")]
    assert len(files) > 3
    wrong = [w for f in files for w in wrong_imports(f.read_text(), f.relative_to(ROOT))]
    assert not wrong, "\n".join(wrong)


def import_order(sources: Mapping[str, tuple[str, bool]]) -> list[str]:
    """Return modules, each after those that its top level imports; CycleError if none can be."""
    above: dict[str, set[str]] = {}
    for module, (source, is_package) in sources.items():
        above[module] = set()
        for origin, names in imported(parsed(source).body, module, is_package):
            above[module] |= {*names} & sources.keys() or {origin}
    graph = {module: (found & sources.keys()) - {module} for module, found in above.items()}
    return list(TopologicalSorter(graph).static_order())


def test_no_module_is_imported_in_a_circle():
    sources = {}
    for file in (f for top in ("simuljax", "data_pipelines") for f in (ROOT / top).rglob("*.py")):
        module, is_package = name_of(file.relative_to(ROOT))
        sources[module] = file.read_text(), is_package
    order = import_order(sources)
    assert order.index("simuljax.config.fields") < order.index("simuljax.cli.train")
    with pytest.raises(CycleError):
        import_order({"a.b": ("from .c import x", False), "a.c": ("from a import b", False)})


WRONG = [
    ("simuljax/ops/alignment.py", "import simuljax.losses"),
    ("simuljax/ops/alignment.py", "import jax\n\ndef f():\n    from simuljax import losses"),
    ("simuljax/ops/alignment.py", "from ..nn.attention import Attention"),
    ("simuljax/ops/__init__.py", "from ..losses import latency"),
    ("simuljax/audio/features.py", "from simuljax import ops"),
    ("simuljax/losses/latency.py", "from simuljax.models import Translator"),
    ("simuljax/models/whole.py", "from simuljax.decode import stream"),
    ("simuljax/decode/loop.py", "from simuljax.train import state"),
    ("simuljax/train/loop.py", "import data_pipelines.corpora as corpora"),
    ("simuljax/profile/step.py", "from simuljax.cli.main import main"),
    ("simuljax/__init__.py", "from .decode import load"),
    ("data_pipelines/batches.py", "from simuljax.train import state"),
    ("simuljax/cli/demo.py", "import experiments"),
    ("simuljax/utils/misc.py", ""),
]
RIGHT = [
    ("simuljax/ops/latency.py", "import jax\nfrom . import mass\nfrom .alignment import x"),
    ("simuljax/ops/__init__.py", "from .alignment import expected_alignment"),
    ("simuljax/losses/latency.py", "from simuljax import __version__, ops"),
    ("simuljax/decode/loop.py", "from simuljax.nn import attention"),
    ("simuljax/cli/main.py", "import data_pipelines.corpora, simuljax.profile"),
    ("data_pipelines/batches.py", "from simuljax.batch import Batch"),
]


@pytest.mark.parametrize(("path", "source"), WRONG + RIGHT)
def test_a_wrong_import_is_noticed_and_a_right_one_passes(path, source):
    assert len(wrong_imports(source, Path(path))) == ((path, source) in WRONG)
