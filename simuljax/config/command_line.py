"""Read configurations from the command line with tyro, with help from their declarations."""

import dataclasses
import inspect
import typing
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any

import tyro

from simuljax.config.decoding import PolicyConfig
from simuljax.config.fields import MISSING, Setting, default_of, setting_of, type_hints
from simuljax.config.options import (
    POLICY,
    Option,
    default_policy,
    from_options,
    leaf_types,
    options_of,
)
from simuljax.decode.policies import policy_class


def help_of(declared: Setting) -> str:
    """Return the help of a field: what it is, its range, and the models it applies to."""
    applies = f"applies to {' and '.join(declared.applies)}" if declared.applies else ""
    notes = "; ".join(filter(None, [declared.range(), applies]))
    return f"{declared.help} ({notes})" if notes else declared.help


def describe(kind: Any) -> None:
    """Attach the help of all fields below a class to its annotations, where tyro reads it."""
    hints = type_hints(kind)
    for field in dataclasses.fields(kind):
        declared = setting_of(field)
        if declared is not None and not _is_described(kind.__annotations__.get(field.name)):
            help = tyro.conf.arg(help=help_of(declared))
            if field.name in kind.__annotations__:
                kind.__annotations__[field.name] = Annotated[hints[field.name], help]
        for part in leaf_types(hints[field.name]):
            inner = typing.get_args(part)[:1] if typing.get_origin(part) is tuple else (part,)
            for each in filter(dataclasses.is_dataclass, inner):
                describe(each)


def _is_described(hint: Any) -> bool:
    return typing.get_origin(hint) is Annotated


def with_options(function: Callable, args: Sequence[str]) -> Callable:
    """Return the command function with parameters that have a policy as flat options.

    The options of the policy that `args` name are among them.
    """
    hints = typing.get_type_hints(function, include_extras=True)
    kinds = {
        name: hint
        for name, hint in hints.items()
        if isinstance(hint, type) and issubclass(hint, PolicyConfig) and name != "return"
    }
    if not kinds:
        return function
    policies = {name: named_policy(args, default_policy(kind)) for name, kind in kinds.items()}
    flat = {name: flat_class(kind, policies[name]) for name, kind in kinds.items()}

    def command(**given: Any) -> Any:
        for name, kind in kinds.items():
            swept = first_of_sweeps(args, options_of(kind, policies[name]))
            given[name] = from_options(kind, swept | changed_options(given[name]))
        return function(**given)

    signature = inspect.signature(function)
    changed = [
        parameter.replace(
            annotation=flat.get(name, hints.get(name, parameter.annotation)),
            kind=inspect.Parameter.KEYWORD_ONLY,
        )
        for name, parameter in signature.parameters.items()
    ]
    command.__signature__ = signature.replace(parameters=changed)  # pyright: ignore[reportFunctionMemberAccess]
    command.__annotations__ = hints | flat
    command.__doc__, command.__name__ = function.__doc__, function.__name__
    return command


def named_policy(args: Sequence[str], name: str | None = None) -> Any:
    """Return the class of the policy that arguments name, or by default of `name`; or None."""
    for arg, following in zip(args, [*args[1:], ""], strict=False):
        if arg.partition("=")[0] == "--policy":
            name = arg.partition("=")[2] or following
    return None if name is None else policy_class(name)


def first_of_sweeps(args: Sequence[str], known: Mapping[str, Option]) -> dict[str, Any]:
    """Return the first value of every `--sweep` of an option that has to be given."""
    swept = [arg for before, arg in zip(["", *args], args, strict=False) if before == "--sweep"]
    pairs = [arg.partition("=") for arg in swept]
    return {
        name: known[name].parse(values.partition(",")[0])
        for name, _, values in pairs
        if name in known and known[name].default is MISSING
    }


def flat_class(kind: type, policy: Any = None) -> type:
    """Return a dataclass whose fields are the options of a configuration class."""
    made = [
        (name, Annotated[_type(option), *_notes(option)], _default(option))
        for name, option in options_of(kind, policy).items()
    ]
    made.sort(key=lambda field: field[2].default is not MISSING)
    return dataclasses.make_dataclass(kind.__name__, made, frozen=True, kw_only=True)


def _type(option: Option) -> Any:
    return (
        option.type | None
        if option.default is MISSING and option.path[0] == POLICY
        else option.type
    )


def _default(option: Option) -> Any:
    needed = option.default is MISSING
    if needed and option.path[0] != POLICY:
        return dataclasses.field()
    return dataclasses.field(default=None if needed else option.default)


def _notes(option: Option) -> list[Any]:
    positional = (
        [tyro.conf.Positional] if option.default is MISSING and len(option.path) == 1 else []
    )
    return [tyro.conf.arg(help=help_of(option.setting)), *positional]


def changed_options(flat: Any) -> dict[str, Any]:
    """Return the options that are not the default."""
    return {
        field.name: getattr(flat, field.name)
        for field in dataclasses.fields(flat)
        if getattr(flat, field.name) != default_of(field)
    }
