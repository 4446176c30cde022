"""Frozen dataclasses as JSON and back: what a run was told is stored beside what it learnt.

Reading is strict. A field that is unknown or missing, or a value of another type, is named with its
place in the document, since a configuration that is read half is a silent wrong number.
"""

import dataclasses
import difflib
import json
import math
import os
import types
import typing
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, TypeVar, Union

from simuljax.errors import SimuljaxError

T = TypeVar("T")


class DocumentError(SimuljaxError):
    """A document that cannot be read as what it should be."""


def to_json(value: Any) -> Any:
    """The value as JSON has it: dataclasses as objects, tuples as lists, paths as text."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = dataclasses.fields(value)
        return {field.name: to_json(getattr(value, field.name)) for field in fields}
    if isinstance(value, Mapping):
        return {key: to_json(held) for key, held in value.items()}
    if isinstance(value, tuple | list):
        return [to_json(held) for held in value]
    return str(value) if isinstance(value, Path) else value


def chosen(value: Any) -> Any:
    """`to_json` without what is as by default: the same when a class is given one more field."""
    if not dataclasses.is_dataclass(value) or isinstance(value, type):
        return [chosen(v) for v in value] if isinstance(value, tuple | list) else to_json(value)
    return {
        field.name: chosen(getattr(value, field.name))
        for field in dataclasses.fields(value)
        if getattr(value, field.name) != _default(field)
    }


def _default(field: dataclasses.Field) -> Any:
    if field.default_factory is not dataclasses.MISSING:
        return field.default_factory()
    return field.default


def from_json(kind: type[T], value: Any, place: str = "") -> T:
    """The inverse of `to_json` for a value of this type."""
    made: Any = _read(kind, value, place)
    return made


def write(path: Path, value: Any) -> None:
    """Writes the document whole or not at all; a number that is none (NaN, infinity) as null."""
    beside, plain = path.with_name(path.name + ".partial"), _without_nan(to_json(value))
    text = json.dumps(plain, indent=1, ensure_ascii=False, allow_nan=False)
    beside.write_text(text + "\n", "utf-8")
    os.replace(beside, path)


def _without_nan(value: Any) -> Any:
    """JSON has no NaN, and few but Python read it."""
    if isinstance(value, Mapping):
        return {key: _without_nan(held) for key, held in value.items()}
    if isinstance(value, list):
        return [_without_nan(held) for held in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def read(path: Path) -> Any:
    """What JSON is in the file."""
    try:
        return json.loads(path.read_text("utf-8"))
    except FileNotFoundError as error:
        raise DocumentError(f"{path} is not there") from error
    except ValueError as error:
        raise DocumentError(f"{path} is damaged: {error}") from error


def differences(old: Any, new: Any, place: str = "") -> list[str]:
    """`width.heads was 4 and is 8`, for every leaf in which two documents differ."""
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        return [
            line
            for name in dict.fromkeys([*old, *new])
            for line in differences(old.get(name), new.get(name), _join(place, name))
        ]
    return [] if old == new else [f"{place} was {old!r} and is {new!r}"]


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
    if dataclasses.is_dataclass(kind):
        return _read_fields(kind, value, place)
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
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
            except DocumentError as error:
                errors.append(str(error))
    raise DocumentError("; or ".join(errors))


def _read_fields(kind: Any, value: Any, place: str) -> Any:
    _expect(isinstance(value, Mapping), value, place, f"an object ({kind.__name__})")
    hints, names = typing.get_type_hints(kind), [f.name for f in dataclasses.fields(kind)]
    for name in value:
        if name not in names:
            close = difflib.get_close_matches(name, names, 1)
            hint = f"; do you mean {close[0]!r}?" if close else f"; it has {', '.join(names)}"
            raise DocumentError(f"{_join(place, name)}: {kind.__name__} has no such field{hint}")
    missing = [f.name for f in dataclasses.fields(kind) if f.name not in value and _is_asked_for(f)]
    if missing:
        raise DocumentError(f"{place or kind.__name__} lacks {', '.join(missing)}")
    read_values = {n: _read(hints[n], value[n], _join(place, n)) for n in names if n in value}
    try:
        return kind(**read_values)
    except ValueError as error:
        raise DocumentError(f"{place or kind.__name__}: {error}") from error


def _is_asked_for(field: dataclasses.Field) -> bool:
    """Whether it has no default; one that has may be younger than the document."""
    return field.default is field.default_factory is dataclasses.MISSING


def _expect(right: bool, value: Any, place: str, what: str) -> Any:
    """The value, if it is right."""
    if not right:
        raise DocumentError(f"{place or 'the document'} is {value!r}; it must be {what}")
    return value


def _join(place: str, name: str) -> str:
    return f"{place}.{name}" if place else name
