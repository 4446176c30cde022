"""Fields are declared once: their checks, labels and ranges."""

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import pytest

from simuljax.config.fields import ConfigError, check, setting, settings, wrong_type


@dataclass(frozen=True, kw_only=True)
class Inner:
    size: int = setting(4, help="A size.", low=1)

    def __post_init__(self) -> None:
        check(self)


@dataclass(frozen=True, kw_only=True)
class Outer:
    rate: float = setting(0.5, help="A rate.", label="r{:g}", above=0, high=1)
    share: float = setting(0.0, help="A share.", low=0, below=1)
    count: int | None = setting(None, help="A count.", label="n{}", low=0, applies="counting")
    kind: Literal["a", "b"] = setting("a", help="A kind.", label="{}")
    steps: tuple[int, int] = setting((1, 2), help="From, to.", low=1)
    heads: int | Literal["mean"] = setting("mean", help="Heads.", label="head{}", low=1)
    flag: bool = setting(False, help="A flag.", label="flag")
    inner: Inner = setting(Inner(), help="A part.")
    plain: int = 3

    def __post_init__(self) -> None:
        check(self)


@pytest.mark.parametrize(
    "wrong",
    [
        *({"rate": rate} for rate in (float("nan"), float("inf"), 0, 1.5, "0.5", True)),
        *({"share": share} for share in (-0.1, 1.0)),
        *({"count": count} for count in (-1, 2.0)),
        *({"steps": steps} for steps in ((0, 2), (1,), [1, 2])),
        *({"heads": heads} for heads in (0, "all")),
        *({"kind": "c"}, {"flag": 1}, {"plain": "3"}),
    ],
)
def test_a_wrong_value_is_refused_with_its_name(wrong):
    ((name, value),) = wrong.items()
    with pytest.raises(ConfigError) as refused:
        Outer(**wrong)
    assert f"Outer.{name} is {value!r}; it must be " in str(refused.value)


def test_right_values_pass():
    Outer(rate=1, share=0, count=0, kind="b", steps=(1, 5), heads=2, flag=True)


def test_an_inner_configuration_checks_itself():
    with pytest.raises(ConfigError, match=r"Inner\.size is 0; it must be at least 1"):
        dataclasses.replace(Outer(), inner=Inner(size=0))


def test_declarations_say_range_and_model():
    declared = settings(Outer)
    assert "plain" not in declared
    assert declared["rate"].range() == "above 0 and at most 1"
    assert declared["share"].range() == "at least 0 and below 1"
    assert declared["count"].applies == ("counting",)


def test_types_of_parts_are_checked_and_others_left_alone():
    assert wrong_type(Inner, None) == "a Inner"
    assert wrong_type(Inner | None, Inner()) is None
    assert wrong_type(Path, "x") == "a pathlib.Path"
    assert wrong_type(dict, None) is None
