"""Declare the fields of a configuration once: help, label, range, choices, where they apply.

    @dataclass(frozen=True, kw_only=True)
    class Optimiser(Checked):
        learning_rate: float = setting(5e-4, help="Peak learning rate.", label="lr{:g}", above=0)

The command line, sweeps, labels of reports, checks and the reference tables of the docs read this
declaration. Types and choices come from the annotation.
"""

import dataclasses
import math
import sys
import types
import typing
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from numbers import Integral, Real
from pathlib import Path
from typing import Any, Literal, Union

from simuljax.errors import SimuljaxError

KEY = "simuljax"
MISSING = dataclasses.MISSING


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
        bounds = {
            "at least": self.low,
            "above": self.above,
            "at most": self.high,
            "below": self.below,
        }
        return " and ".join(f"{word} {at:g}" for word, at in bounds.items() if at is not None)

    def allows(self, value: Any) -> bool:
        """Return True if the value, of the right type, is in range."""
        if self.choices is not None:
            return value in self.choices
        return not (
            (self.low is not None and value < self.low)
            or (self.high is not None and value > self.high)
            or (self.above is not None and value <= self.above)
            or (self.below is not None and value >= self.below)
        )


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

    Numbers, text, paths, choices, dataclasses and tuples of these are compared. Other types are
    left to their users.
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
        return _wrong_tuple(parts, value)
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


def _wrong_tuple(parts: tuple, value: Any) -> str | None:
    if not isinstance(value, tuple):
        return "a tuple"
    kinds = parts[:1] * len(value) if parts[-1] is Ellipsis else parts
    if len(kinds) != len(value):
        return f"a tuple of {len(kinds)}"
    wanted = (wrong_type(kind, part) for kind, part in zip(kinds, value, strict=True))
    return next((f"a tuple, each {what}" for what in wanted if what is not None), None)


@cache
def type_hints(config: type) -> dict[str, Any]:
    """Return the annotations of a dataclass, resolved."""
    return typing.get_type_hints(config, include_extras=True)
