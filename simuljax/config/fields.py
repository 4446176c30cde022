"""Declare the fields of a configuration once; check them; write them as JSON and read them back.

    @dataclass(frozen=True, kw_only=True)
    class Optimiser(Checked):
        learning_rate: float = setting(5e-4, help="Peak learning rate.", label="lr{:g}", above=0)

The command line, sweeps, labels of reports, checks and the reference tables of the docs read this
declaration. Types and choices come from the annotation. JSON is read strictly: a field that is
unknown or missing, or a value of another type, is an error that names its place.
"""

import dataclasses
import json
import math
import operator
import os
import sys
import types
import typing
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from numbers import Integral, Real
from pathlib import Path
from typing import Any, Literal, TypeVar, Union

from simuljax.errors import SimuljaxError, unknown
from simuljax.parsing import ParseError, parse_json

KEY = "simuljax"
MISSING = dataclasses.MISSING
T = TypeVar("T")


class ConfigError(SimuljaxError):
    """A configuration that cannot be used."""


@dataclass(frozen=True, kw_only=True)
class Setting:
    """The declaration of a field.

    `label` is a format such as "k{}": how a value other than the default shows in the name of a
    result. None stands for a field that changes no result.
    """

    help: str
    label: str | None = None
    low: float | None = None  # the least value
    high: float | None = None  # the greatest value
    above: float | None = None  # an open lower bound
    below: float | None = None  # an open upper bound
    choices: tuple[Any, ...] | None = None  # if the annotation is not a Literal
    applies: tuple[str, ...] = ()  # the properties that a model must have, all of them
    unit: str | None = None
    option: str | None = None  # the name on the command line, if not the field's

    def range(self) -> str:
        """Return the values that are allowed, as an error or a table says it; "" for all."""
        if self.choices is not None:
            return "one of " + ", ".join(map(repr, self.choices))
        return " and ".join(f"{word} {bound:.10g}" for word, _, bound in self._bounds())

    def allows(self, value: Any) -> bool:
        """Return True if the value, of the right type, is in range."""
        if self.choices is not None:
            return value in self.choices
        return all(holds(value, bound) for _, holds, bound in self._bounds())

    def _bounds(self) -> list[tuple[str, Callable[[Any, Any], bool], float]]:
        bounds = (
            ("at least", operator.ge, self.low),
            ("above", operator.gt, self.above),
            ("at most", operator.le, self.high),
            ("below", operator.lt, self.below),
        )
        return [(word, holds, at) for word, holds, at in bounds if at is not None]


def setting(
    default: Any = MISSING,
    *,
    choices: Iterable[Any] | None = None,
    applies: str | Iterable[str] = (),
    **declared: Any,
) -> Any:
    """Return a dataclass field with its `Setting`; a frozen dataclass may be the default."""
    made = Setting(
        choices=None if choices is None else tuple(choices),
        applies=(applies,) if isinstance(applies, str) else tuple(applies),
        **declared,
    )
    return dataclasses.field(default=default, metadata={KEY: made})


def setting_of(field: dataclasses.Field) -> Setting | None:
    """Return the declaration of a field; None if it was not made by `setting`."""
    return field.metadata.get(KEY)


def settings(config: Any) -> dict[str, Setting]:
    """Return the declarations of a dataclass, or of an instance, by field name."""
    declared = {field.name: setting_of(field) for field in dataclasses.fields(config)}
    return {name: found for name, found in declared.items() if found is not None}


def default_of(field: dataclasses.Field) -> Any:
    """Return the default of a field; MISSING if it has to be given."""
    if field.default_factory is not MISSING:
        return field.default_factory()
    return field.default


def check(config: Any, error: type[Exception] = ConfigError) -> None:
    """Refuse a value of another type, out of range, or not a finite number."""
    hints = type_hints(type(config))
    for field in dataclasses.fields(config):
        value, declared = getattr(config, field.name), setting_of(field)
        wanted = wrong_type(hints[field.name], value)
        if wanted is None and declared is not None and value is not None:
            values = value if isinstance(value, tuple) else (value,)
            numbers = [v for v in values if declared.choices or not isinstance(v, str)]
            wanted = None if all(map(declared.allows, numbers)) else declared.range()
        if wanted is not None:
            raise error(f"{type(config).__name__}.{field.name} is {value!r}; it must be {wanted}")


class Checked:
    """A configuration whose fields are checked when it is made."""

    def __post_init__(self) -> None:
        check(self)


def wrong_type(hint: Any, value: Any) -> str | None:
    """Return what a value must be if it is not of the annotated type; None if it is.

    Numbers, text, paths, choices, dataclasses and tuples of these are compared, others are not.
    """
    origin, parts = typing.get_origin(hint), typing.get_args(hint)
    if origin is typing.Annotated:
        return wrong_type(parts[0], value)
    if origin in (Union, types.UnionType):
        wanted = [wrong_type(part, value) for part in parts]
        return None if None in wanted else " or ".join(filter(None, wanted))
    if origin is Literal:
        return None if value in parts else "one of " + ", ".join(map(repr, parts))
    if origin is tuple:
        kinds = _kinds_in(parts, value) if isinstance(value, tuple) else None
        if kinds is None:
            return "a tuple" if parts[-1] is Ellipsis else f"a tuple of {len(parts)}"
        wanted = (wrong_type(kind, part) for kind, part in zip(kinds, value, strict=True))
        return next((f"a tuple, each {what}" for what in wanted if what is not None), None)
    if origin is Mapping:
        return None if isinstance(value, Mapping) else "a mapping of names"
    if origin is Callable:
        return None if callable(value) else "a function"
    if hint is float:
        right = isinstance(value, Real) and not isinstance(value, bool)
        if isinstance(value, int):  # math.isfinite raises for those beyond floats
            right = right and abs(value) <= sys.float_info.max
        return None if right and math.isfinite(value) else "a finite number"
    if hint is int:
        right = isinstance(value, Integral) and not isinstance(value, bool)
        return None if right and abs(int(value)) < 2**63 else "a whole number of at most 64 bits"
    if isinstance(hint, type) and dataclasses.is_dataclass(hint):
        return None if isinstance(value, hint) else f"a {hint.__name__}"
    named = {bool: "True or False", str: "text", types.NoneType: "None", Path: "a pathlib.Path"}
    return named[hint] if hint in named and not isinstance(value, hint) else None


def _kinds_in(parts: tuple, values: Any) -> tuple | None:
    """Return the type of every value of a tuple; None if their number is wrong."""
    kinds = parts[:1] * len(values) if parts[-1] is Ellipsis else parts
    return kinds if len(kinds) == len(values) else None


@cache
def type_hints(config: type) -> dict[str, Any]:
    """Return the annotations of a dataclass, resolved."""
    return typing.get_type_hints(config, include_extras=True)


def to_json(value: Any) -> Any:
    """Return the value as JSON: dataclasses as objects, tuples as lists, paths as text."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = dataclasses.fields(value)
        return {field.name: to_json(getattr(value, field.name)) for field in fields}
    if isinstance(value, Mapping):
        return {key: to_json(held) for key, held in value.items()}
    if isinstance(value, tuple | list):
        return [to_json(held) for held in value]
    return str(value) if isinstance(value, Path) else value


def without_defaults(value: Any) -> Any:
    """Return `to_json` without default values: the same when a class is given one more field."""
    if not dataclasses.is_dataclass(value) or isinstance(value, type):
        return (
            [without_defaults(v) for v in value]
            if isinstance(value, tuple | list)
            else to_json(value)
        )
    return {
        field.name: without_defaults(getattr(value, field.name))
        for field in dataclasses.fields(value)
        if getattr(value, field.name) != default_of(field)
    }


def from_json(kind: type[T], value: Any, place: str = "") -> T:
    """Return a value of this type from its `to_json`."""
    return typing.cast(T, _read(kind, value, place))


def _read(kind: Any, value: Any, place: str) -> Any:
    origin, parts = typing.get_origin(kind), typing.get_args(kind)
    if origin in (Union, types.UnionType):
        return _read_union(parts, value, place)
    if origin is Mapping and isinstance(value, Mapping):
        return {name: _read(parts[1], held, _join(place, name)) for name, held in value.items()}
    if dataclasses.is_dataclass(kind) and isinstance(value, Mapping):
        return _read_fields(kind, value, place)
    kinds = _kinds_in(parts, value) if origin is tuple and isinstance(value, list) else None
    if kinds is not None:
        pairs = zip(kinds, value, strict=True)
        return tuple(_read(k, v, f"{place}[{i}]") for i, (k, v) in enumerate(pairs))
    if kind is Path and isinstance(value, str):
        return Path(value)
    if kind is float and isinstance(value, float):  # infinity too
        return value
    wanted = wrong_type(kind, value)
    if wanted is not None:
        raise ConfigError(f"{place or 'the document'} is {value!r:.200}; it must be {wanted}")
    return float(typing.cast(int, value)) if kind is float else value


def _read_union(kinds: tuple, value: Any, place: str) -> Any:
    if value is None and types.NoneType in kinds:
        return None
    errors = []
    for kind in kinds:
        if kind is not types.NoneType:
            try:
                return _read(kind, value, place)
            except ConfigError as error:
                errors.append(str(error))
    raise ConfigError("; or ".join(errors))


def _read_fields(kind: Any, value: Any, place: str) -> Any:
    hints, fields = type_hints(kind), dataclasses.fields(kind)
    names = [field.name for field in fields]
    for name in value:
        if name not in names:
            problem = f"{unknown(name, names)} ({kind.__name__} has {', '.join(names)})"
            raise ConfigError(f"{_join(place, name)}: {problem}")
    missing = [f.name for f in fields if f.name not in value and default_of(f) is MISSING]
    if missing:
        raise ConfigError(f"{place or kind.__name__} lacks {', '.join(missing)}")
    held = {name: _read(hints[name], value[name], _join(place, name)) for name in value}
    try:
        return kind(**held)
    except ValueError as error:
        raise ConfigError(f"{place or kind.__name__}: {error}") from error


def _join(place: str, name: str) -> str:
    return f"{place}.{name}" if place else name


def write_json(path: Path, value: Any) -> None:
    """Write a file whole or not at all; NaN and infinity become null."""
    beside, plain = path.with_name(path.name + ".partial"), without_nan(to_json(value))
    text = json.dumps(plain, indent=1, ensure_ascii=False, allow_nan=False)
    beside.write_text(text + "\n", "utf-8")
    os.replace(beside, path)


def without_nan(value: Any) -> Any:
    """Return the value with null for NaN and infinity, which JSON does not have."""
    if isinstance(value, Mapping):
        return {key: without_nan(held) for key, held in value.items()}
    if isinstance(value, list | tuple):
        return [without_nan(held) for held in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def read_json(path: Path) -> Any:
    """Return the contents of a JSON file."""
    try:
        return parse_json(path.read_bytes())
    except FileNotFoundError as error:
        raise ConfigError(f"{path} does not exist") from error
    except ParseError as error:
        raise ConfigError(f"{path} is damaged: {error}") from None


def read_object(path: Path) -> dict[str, Any]:
    """Return the JSON object of a file; an empty one if there is no file."""
    value = read_json(path) if path.exists() else {}
    if not isinstance(value, dict):
        raise ConfigError(f"{path} is damaged: it must hold an object, not {value!r:.60}")
    return value


def differences(old: Any, new: Any) -> list[str]:
    """Return a line such as "width.heads was 4 and is 8" for every leaf that differs."""
    return [f"{place} was {was!r} and is {now!r}" for place, was, now in changes(old, new)]


def changes(old: Any, new: Any, place: str = "") -> list[tuple[str, Any, Any]]:
    """Return the place, the old and the new value of every leaf that differs."""
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        return [
            change
            for name in dict.fromkeys([*old, *new])
            for change in changes(old.get(name), new.get(name), _join(place, name))
        ]
    if isinstance(old, list) and isinstance(new, list) and _names(old) == _names(new) != []:
        pairs = zip(_names(old), old, new, strict=True)
        return [each for n, a, b in pairs for each in changes(a, b, _join(place, n))]
    return [] if old == new else [(place, old, new)]


def _names(values: list[Any]) -> list[str]:
    """Return the names of objects in a list; [] if any has none."""
    names = [value.get("name") if isinstance(value, Mapping) else None for value in values]
    return [] if None in names else [str(name) for name in names]
