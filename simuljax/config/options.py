"""Options: the fields of a tree of configurations by one flat set of names.

The command line, which tyro reads, sweeps, stored evaluations and labels speak of options. An
option is named like its field, or as `setting(option=...)` says. The options of the policy that is
named by the option `policy` are options too, and come before others of the same name.
"""

import dataclasses
import hashlib
import inspect
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, Union

import tyro

from simuljax.config.decoding import PolicyConfig
from simuljax.config.fields import MISSING, ConfigError, Setting, default_of, setting_of, type_hints
from simuljax.config.loading import is_reference, reference_to
from simuljax.decode.policies import POLICIES, Policy, PolicyError, policy_class
from simuljax.errors import unknown

T = TypeVar("T")
POLICY = "policy"


@dataclass(frozen=True, kw_only=True)
class Option:
    """A field somewhere in a tree of configurations."""

    name: str
    path: tuple[str, ...]
    setting: Setting
    type: Any
    default: Any  # if nothing is given; MISSING if it has to be
    usual: Any  # the value that a label leaves out

    @property
    def flag(self) -> str:
        """Return the name as it is written on the command line."""
        return f"--{self.name.replace('_', '-')}"

    def parse(self, text: str) -> Any:
        for kind in leaf_types(self.type):
            if kind is types.NoneType:
                continue
            if typing.get_origin(kind) is Literal or kind in (str, Path):
                return kind(text) if kind is Path else text
            if kind is bool and text.lower() in ("true", "false"):
                return text.lower() == "true"
            try:
                return kind(text)
            except ValueError:
                continue
        raise ConfigError(f"{self.flag} {text} is not a value of this option")


def leaf_types(hint: Any) -> tuple[Any, ...]:
    """Return the alternatives of a type: numbers first, so that a text is tried as one."""
    if typing.get_origin(hint) in (Union, types.UnionType):
        parts = [part for each in typing.get_args(hint) for part in leaf_types(each)]
        return tuple(sorted(parts, key=lambda part: part not in (int, float)))
    return (hint,)


def options_of(kind: type, policy: type[Policy] | None = None) -> dict[str, Option]:
    """Return the options of a configuration class, with those of a policy, by name."""
    found: dict[str, Option] = {}
    for field in dataclasses.fields(kind):
        if setting_of(field) is not None:
            for name, option in _options_of_field(kind, field, policy).items():
                path = (field.name, *option.path)
                found.setdefault(name, dataclasses.replace(option, path=path))
    return found


def _options_of_field(
    kind: type, field: dataclasses.Field, policy: type[Policy] | None
) -> dict[str, Option]:
    """Return the options of a field, with paths below it."""
    hint, default = type_hints(kind)[field.name], default_of(field)
    declared = typing.cast(Setting, setting_of(field))
    inner = [part for part in leaf_types(hint) if dataclasses.is_dataclass(part)]
    if field.name != POLICY and inner:
        return _options_of_part(inner[0], default, declared)
    name, usual = declared.option or field.name, default
    if field.name == POLICY:
        hint, default, usual = str | None, default_policy(kind), None
    own = Option(name=name, path=(), setting=declared, type=hint, default=default, usual=usual)
    return {name: own} | (options_of(policy) if policy and name == POLICY else {})


def _options_of_part(kind: Any, default: Any, outer: Setting) -> dict[str, Option]:
    """Return the options of an inner configuration; one that may be None has no defaults."""
    found = options_of(kind)
    first = next(iter(found))  # which says that there is one, so that every label has it
    for name, option in found.items():
        if default is None:
            usual = None if name == first else option.usual
            changes = {"type": option.type | None, "default": None, "usual": usual}
        else:
            changes = {"default": getattr(default, option.path[-1])}
        declared = dataclasses.replace(
            option.setting, applies=outer.applies + option.setting.applies
        )
        found[name] = dataclasses.replace(option, setting=declared, **changes)
    return found


def to_options(config: Any) -> dict[str, Any]:
    """Return the value of every option of a configuration; a policy is named."""
    return {option.name: _value(config, option) for option in options_in(config).values()}


def given_options(config: Any) -> dict[str, Any]:
    """Return the values of the options that are not the default."""
    known = options_in(config)
    return {name: v for name, v in to_options(config).items() if v != known[name].default}


def options_in(config: Any) -> dict[str, Option]:
    """Return the options of a configuration, its policy's included."""
    policy = getattr(config, POLICY, None)
    return options_of(type(config), None if policy is None else type(policy))


def _value(config: Any, option: Option) -> Any:
    if option.path == (POLICY,):
        return None if config.policy is None else name_of(config.policy)
    for name in option.path:
        config = None if config is None else getattr(config, name)
    return config


def default_policy(kind: type) -> str | None:
    """Return the name of the policy that a class has by default; None if it has none."""
    found = [default_of(f) for f in dataclasses.fields(kind) if f.name == POLICY]
    return name_of(found[0]) if found and isinstance(found[0], Policy) else None


def name_of(policy: Policy) -> str:
    """Return the name that `policy_class` knows a policy by."""
    known = POLICIES.get(policy.name) is type(policy)
    return policy.name if known else reference_to(type(policy))


def from_options(kind: type[T], values: Mapping[str, Any]) -> T:
    """Return a configuration of this class from the values of its options."""
    name = values.get(POLICY, default_policy(kind))
    policy = None if name is None else policy_class(name)
    known = options_of(kind, policy)
    parts: dict[str, dict[str, Any]] = {}
    own: dict[str, Any] = {}
    for given, value in values.items():
        if given not in known:
            flag = f"--{given.replace('_', '-')}" + (f" with --policy {name}" if name else "")
            raise ConfigError(f"{flag}: {unknown(given, known)}")
        *above, field = known[given].path
        if given != POLICY:
            (parts.setdefault(above[0], {}) if above else own)[field] = value
    if policy is not None:
        chosen = {key: value for key, value in parts.pop(POLICY, {}).items() if value is not None}
        needed = [f.name for f in dataclasses.fields(policy) if default_of(f) is MISSING]
        lacks = [f"--{field.replace('_', '-')}" for field in needed if field not in chosen]
        if lacks:
            raise PolicyError(f"policy {name} needs {' and '.join(lacks)}")
        own[POLICY] = policy(**chosen)
    for field, changes in parts.items():
        if any(value is not None for value in changes.values()):
            own[field] = _part(kind, field, changes)
    return kind(**own)


def _part(kind: type, field: str, changes: dict[str, Any]) -> Any:
    """Return the inner configuration of a field with some of its values changed."""
    (inner,) = (p for p in leaf_types(type_hints(kind)[field]) if dataclasses.is_dataclass(p))
    given = {name: value for name, value in changes.items() if value is not None}
    (outer,) = (f for f in dataclasses.fields(kind) if f.name == field)
    options = {option.path[-1]: option for option in options_of(typing.cast(type, inner)).values()}
    first = next(iter(options))
    if default_of(outer) is None and first not in given:
        raise ConfigError(f"{options[next(iter(given))].flag} needs {options[first].flag} too")
    return typing.cast(Any, inner)(**given)


def label_of(config: Any) -> str:
    """Return the label of a configuration: each option that is not the default, "" if all are.

    Two configurations that differ in an option with a label have different labels.
    """
    parts = []
    for option in options_in(config).values():
        value = _value(config, option)
        if option.setting.label and value is not None and value != option.usual:
            parts.append(option.setting.label.replace("{:g}", "{}").format(shown(value)))
    return "-".join(parts)


def shown(value: Any) -> str:
    """Return a value as a part of a file name, exactly: no digit of a number is lost."""
    if isinstance(value, Path):
        return value.name if value == Path(value.name) else f"{value.name}-{_short_hash(value)}"
    if isinstance(value, float):
        return repr(value).removesuffix(".0")
    if isinstance(value, str) and is_reference(value):
        file, _, name = value.rpartition(":")
        return f"{Path(file).stem}_{name}-{_short_hash(Path(file).resolve())}"
    return str(value)


def _short_hash(path: Path) -> str:
    """Return a few digits that tell a path from others of the same name."""
    return hashlib.sha256(path.as_posix().encode()).hexdigest()[:6]


def help_of(declared: Setting) -> str:
    """Return the help of a field: what it is, its range, and the models it applies to."""
    applies = f"applies to {' and '.join(declared.applies)}" if declared.applies else ""
    notes = "; ".join(filter(None, [declared.range(), applies]))
    return f"{declared.help} ({notes})" if notes else declared.help


def attach_help(kind: Any) -> None:
    """Attach the help of all fields below a class to its annotations, where tyro reads it."""
    hints = type_hints(kind)
    for field in dataclasses.fields(kind):
        declared = setting_of(field)
        given = typing.get_origin(kind.__annotations__.get(field.name))
        if declared is not None and given is not Annotated:
            help = tyro.conf.arg(help=help_of(declared))
            if field.name in kind.__annotations__:  # a function is given by its name
                hint = hints[field.name]
                if any(typing.get_origin(part) is Callable for part in leaf_types(hint)):
                    hint = str
                kind.__annotations__[field.name] = Annotated[hint, help]
        for part in leaf_types(hints[field.name]):
            inner = typing.get_args(part)[:1] if typing.get_origin(part) is tuple else (part,)
            for each in filter(dataclasses.is_dataclass, inner):
                attach_help(each)


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
            known = options_of(kind, policies[name])
            swept = first_of_sweeps(args, known)
            fields = [(f, getattr(given[name], f.name)) for f in dataclasses.fields(given[name])]
            changed = {field.name: v for field, v in fields if v != default_of(field)}
            made = from_options(kind, swept | changed)
            if hasattr(made, "given"):
                made = dataclasses.replace(made, given=options_given(args, known))
            given[name] = made
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
    *_, name = name, *values_given(args, "--policy")
    return None if name is None else policy_class(name)


def first_of_sweeps(args: Sequence[str], known: Mapping[str, Option]) -> dict[str, Any]:
    """Return the first value of every `--sweep` of an option that has to be given."""
    pairs = [arg.partition("=") for arg in values_given(args, "--sweep")]
    return {
        name: known[name].parse(values.partition(",")[0])
        for name, _, values in pairs
        if name in known and known[name].default is MISSING
    }


def values_given(args: Sequence[str], flag: str) -> list[str]:
    """Return what follows a flag in the arguments, wherever it stands."""
    pairs = zip_longest(args, args[1:], fillvalue="")
    parts = [(*arg.partition("="), following) for arg, following in pairs]
    return [own if equals else following for name, equals, own, following in parts if name == flag]


def options_given(args: Sequence[str], known: Mapping[str, Option]) -> frozenset[str]:
    """Return the options that arguments name, also those that are given their default."""
    flags = {arg.partition("=")[0].replace("_", "-") for arg in args}
    named = {name: {o.flag, o.flag.replace("--", "--no-", 1)} for name, o in known.items()}
    return frozenset(name for name, own in named.items() if own & flags)


def flat_class(kind: type, policy: Any = None) -> type:
    """Return a dataclass whose fields are the options of a configuration class."""
    made = []
    for name, option in options_of(kind, policy).items():
        hint, default = option.type, option.default
        notes: list[Any] = [tyro.conf.arg(help=help_of(option.setting))]
        if default is MISSING and option.path[0] == POLICY:  # refused with the policy's name
            hint, default = hint | None, None
        elif default is MISSING and len(option.path) == 1:
            notes.append(tyro.conf.Positional)
        made.append((name, Annotated[hint, *notes], dataclasses.field(default=default)))
    made.sort(key=lambda field: field[2].default is not MISSING)
    return dataclasses.make_dataclass(kind.__name__, made, frozen=True, kw_only=True)
