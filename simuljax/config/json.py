"""Write frozen dataclasses as JSON, and read them back strictly.

A field that is unknown or missing, or a value of another type, is an error that names its place:
a configuration that is read half is a silent wrong number.
"""

import dataclasses
import json
import math
import os
import types
import typing
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal, TypeVar, Union

from simuljax.config.fields import MISSING, ConfigError, default_of
from simuljax.errors import unknown
from simuljax.parsing import ParseError, parse_json

T = TypeVar("T")


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
    made: Any = _read(kind, value, place)
    return made


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


def _read(kind: Any, value: Any, place: str) -> Any:
    origin, choices = typing.get_origin(kind), typing.get_args(kind)
    if origin in (Union, types.UnionType):
        return _read_union(choices, value, place)
    if origin is Literal:
        return _expect(value in choices, value, place, f"one of {choices}")
    if origin is tuple:
        _expect(isinstance(value, list), value, place, "a list")
        kinds = [choices[0]] * len(value) if choices[-1] is Ellipsis else choices
        _expect(len(kinds) == len(value), value, place, f"a list of {len(kinds)}")
        pairs = zip(kinds, value, strict=True)
        return tuple(_read(k, v, f"{place}[{i}]") for i, (k, v) in enumerate(pairs))
    if origin is Mapping:
        _expect(isinstance(value, Mapping), value, place, "an object")
        return {name: _read(choices[1], held, _join(place, name)) for name, held in value.items()}
    if origin is Callable:
        return _expect(False, value, place, "the name of a function")
    if dataclasses.is_dataclass(kind):
        return _read_fields(kind, value, place)
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        return float(_expect(abs(value) < 2**63, value, place, "a number of this size"))
    if kind is Path:
        return Path(_expect(isinstance(value, str), value, place, "a path"))
    right = isinstance(value, kind) and (kind is bool or not isinstance(value, bool))
    return _expect(right, value, place, f"of type {kind.__name__}")


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
    _expect(isinstance(value, Mapping), value, place, f"an object ({kind.__name__})")
    hints, fields = typing.get_type_hints(kind), dataclasses.fields(kind)
    names = [f.name for f in fields]
    for name in value:
        if name not in names:
            problem = f"{unknown(name, names)} ({kind.__name__} has {', '.join(names)})"
            raise ConfigError(f"{_join(place, name)}: {problem}")
    missing = [f.name for f in fields if f.name not in value and default_of(f) is MISSING]
    if missing:
        raise ConfigError(f"{place or kind.__name__} lacks {', '.join(missing)}")
    read_values = {n: _read(hints[n], value[n], _join(place, n)) for n in names if n in value}
    try:
        return kind(**read_values)
    except ValueError as error:
        raise ConfigError(f"{place or kind.__name__}: {error}") from error


def _expect(right: bool, value: Any, place: str, what: str) -> Any:
    """Return the value if it is right."""
    if not right:
        raise ConfigError(f"{place or 'the document'} is {value!r:.200}; it must be {what}")
    return value


def _join(place: str, name: str) -> str:
    return f"{place}.{name}" if place else name
