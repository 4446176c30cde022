"""Parse JSON and YAML that others wrote; every fault is a `ParseError` that says what it is."""

import json
from typing import Any

from simuljax.errors import SimuljaxError

LONGEST = 300  # digits of an integer
DEEPEST = 64  # lists and objects inside each other in a YAML file


class ParseError(SimuljaxError):
    """A text that is not what it should be."""


def parse_json(text: str | bytes) -> Any:
    """Return the value of a JSON text."""
    try:
        return json.loads(text, parse_int=_integer)
    except RecursionError:
        raise ParseError("not JSON that can be read: nested too deeply") from None
    except ValueError as error:  # UnicodeDecodeError too
        raise ParseError(f"not JSON ({error})") from None


def _integer(digits: str) -> int:
    """Return an integer that fits into a float."""
    if len(digits) > LONGEST:
        raise ValueError(f"an integer of {len(digits)} digits")
    return int(digits)


def parse_yaml(text: str) -> Any:
    """Return the value of a YAML text of plain types, without aliases.

    The parser recurses in C and overflows the stack on deep nesting. Its events come first, which
    it reads without recursion.
    """
    import yaml

    loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        depth = 0
        for event in yaml.parse(text, Loader=loader):
            depth += isinstance(event, yaml.CollectionStartEvent)
            depth -= isinstance(event, yaml.CollectionEndEvent)
            if depth > DEEPEST:
                raise ParseError(f"not YAML that can be read: nested deeper than {DEEPEST}")
            if isinstance(event, yaml.AliasEvent):
                raise ParseError("not YAML that can be read: it has aliases; write values out")
        return yaml.load(text, Loader=loader)
    except ParseError:
        raise
    except (yaml.YAMLError, ValueError) as error:  # a date that does not exist is a ValueError
        problem = " ".join(str(error).replace('in "<unicode string>", ', "at ").split())
        raise ParseError(f"not YAML: {problem}") from None
