"""Render pages with Jinja2: one HTML file each, with everything in it.

A page needs no server and no other file. It is XML as well, reads without scripts, in print and on
a phone, and is dark where the reader's screen is. Whatever comes from a log, a configuration or a
file name is escaped. The templates are in `templates/`.
"""

import base64
import functools
import json
import math
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jinja2

# Characters that XML does not allow: controls, halves of a letter, two that are none.
_BAD = (*range(9), 11, 12, *range(14, 32), 127, *range(0xD800, 0xE000), 0xFFFE, 0xFFFF)
_REPLACED = dict.fromkeys(_BAD, "\ufffd")
# Fields of a configuration that say where a run is and not what it is.
PLACES = ("run", "training.seed", "training.order", "begin", "init_from", "data.directory")
PLACES += ("data.vocabularies_of", "corpus.vocabularies_of", "corpus.directory")
PLACES += ("training.objective.features",)  # earlier versions stored them here too


@dataclass(frozen=True)
class Table:
    """A table: heads, rows of cells, and a note below."""

    title: str
    heads: Sequence[str]
    rows: Sequence[Sequence[str]]
    note: str = ""
    left: int = 1  # columns of text, which are not aligned to the right
    folded: bool = False  # shown when the reader asks for it


@functools.cache
def _declared() -> dict[str, Any]:
    return tomllib.loads(Path(__file__).with_name("tables.toml").read_text("utf-8"))


def make_table(name: str, rows: Sequence[Sequence[str]], **values: Any) -> Table:
    """Return a table of tables.toml, with values for the braces of its title and note."""
    given = _declared()[name]
    texts = {key: given.get(key, "").format(**values) for key in ("title", "note")}
    return Table(rows=rows, **given | texts)


@dataclass(frozen=True)
class Figure:
    """A picture inside the page."""

    path: Path
    caption: str

    @classmethod
    def of(cls, path: Path | None, caption: str) -> "Figure | None":
        return cls(path, caption) if path else None

    @property
    def data(self) -> str:
        encoded = base64.b64encode(self.path.read_bytes()).decode("ascii")
        return f"data:image/png;base64,{encoded}"


@functools.cache
def _templates() -> jinja2.Environment:
    return jinja2.Environment(
        loader=jinja2.PackageLoader("simuljax.report"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
        finalize=clean,
    )


def render(template: str, **context: Any) -> str:
    """Return the page that a template makes of a context."""
    return _templates().get_template(template).render(**context)


def clean(value: Any) -> Any:
    """Replace the characters of a text that XML does not allow."""
    if isinstance(value, str) and not hasattr(value, "__html__"):
        return value.translate(_REPLACED)
    return value


def number(value: object, digits: int) -> str:
    """Format a number; a dash for NaN and for what is not one."""
    if not isinstance(value, int | float) or math.isnan(value):
        return "–"
    return f"{value:.{digits}f}"


def p_value(value: float) -> str:
    """Format a p-value."""
    return "–" if math.isnan(value) else "< 0.001" if value < 0.001 else f"{value:.3f}"


def flatten(config: Mapping[str, Any], prefix: str = "") -> dict[str, str]:
    """Return the values of a nested configuration by dotted name; terms by their names."""
    flat: dict[str, str] = {}
    for name, value in config.items():
        if name == "terms":
            value = {term["name"]: term for term in value}
        if isinstance(value, Mapping):
            flat |= flatten(value, f"{prefix}{name}.")
        else:
            shown = f"{value:g}" if isinstance(value, float) else json.dumps(value)
            flat[prefix + name] = value if isinstance(value, str) else shown
    return flat


def differing_fields(configs: Mapping[str, Mapping[str, Any]]) -> Table | None:
    """Return the fields in which configurations differ, one row per configuration; None if none."""
    flat = {name: flatten(config) for name, config in configs.items() if config}
    names = dict.fromkeys(field for own in flat.values() for field in own)
    differ = [
        field
        for field in names
        if len({own.get(field) for own in flat.values()}) > 1
        and not any(field == place or field.startswith(f"{place}.") for place in PLACES)
    ]
    if not differ:
        return None
    rows = [(name, *(_cell(own.get(field)) for field in differ)) for name, own in flat.items()]
    heads = ("variant", *(_short(field, differ) for field in differ))
    note = "Fields of the configuration that differ; seeds and directories are left out."
    return Table("Fields that differ", heads, rows, note)


def _cell(value: str | None) -> str:
    if value is None:
        return "–"
    return value if len(value) <= 40 else f"{value[:39]}…"


def _short(field: str, fields: Sequence[str]) -> str:
    """Return the last parts of a dotted name that tell it from the others; of a term, its name."""
    parts = field.split(".")
    fewest = 2 if "terms" in parts[:-2] else 1
    for count in range(fewest, len(parts) + 1):
        name = ".".join(parts[-count:])
        if sum(other == name or other.endswith(f".{name}") for other in fields) == 1:
            return name
    return field
