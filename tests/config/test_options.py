"""Fields are declared once: checks, labels, ranges, flat options, help, the page of the docs."""

import dataclasses
import math
import typing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import pytest

from simuljax.cli import main as cli
from simuljax.config.decoding import Beam, Blocks, Decoding, LengthLimit
from simuljax.config.evaluation import Evaluation, points
from simuljax.config.experiment import Experiment
from simuljax.config.fields import (
    MISSING,
    ConfigError,
    Setting,
    check,
    default_of,
    setting,
    settings,
    type_hints,
    wrong_type,
)
from simuljax.config.options import (
    Option,
    attach_help,
    first_of_sweeps,
    from_options,
    leaf_types,
    named_policy,
    options_given,
    options_of,
    to_options,
)
from simuljax.config.reference import below, reference
from simuljax.decode.policies import POLICIES, AlignAtt, WaitK
from simuljax.losses import JointObjective, Term
from simuljax.serve.whisper import WhisperStreaming
from tests.helpers.experiments import PATIENT

RUN = Path("run")
WAITING = options_of(Evaluation, WaitK)
# Values of the options that a policy cannot do without.
NEEDED: dict[str, dict[str, Any]] = {
    "wait-k": {"k": 3},
    "fixed-steps": {"first_ms": 500, "step_ms": 100, "tokens": 2},
    "edatt": {"alpha": 0.1},
}
# Fields that no result depends on, or that a folder's name has in another way.
WITHOUT_LABEL = {"run", "split", "name", "branch", "mode", "repeats", "frames"}


def values(option: Option) -> list[Any]:
    """Two or more values that are allowed, close to each other where they are numbers."""
    for kind in leaf_types(option.type):
        if typing.get_origin(kind) is Literal:
            return [*typing.get_args(kind)]
        if kind is bool:
            return [False, True]
        if kind is int:
            low = int(option.setting.low or 0)
            step = 40 if option.name == "predecision_ms" else 1
            return [low + 2 * step, low + 3 * step]
        if kind is float:
            low = option.setting.low or 0.0
            return [low + 0.25, low + 0.2500000001, low + 0.75]
        if kind is Path:
            return [Path("a/mt"), Path("b/mt")]
    return ["x", "y"]


@pytest.mark.parametrize("policy", [None, *POLICIES])
def test_no_two_values_of_any_option_share_a_label(policy):
    base = {"run": RUN} | ({"policy": policy} | NEEDED.get(policy, {}) if policy else {})
    known = options_of(Evaluation, POLICIES[policy] if policy else None)
    labels: dict[str, Evaluation] = {}
    for name, option in known.items():
        if not option.setting.label or name == "policy":
            continue
        if option.path[0] == "beam" and policy == "local-agreement":
            continue  # whose beam is its own
        extra = {"beam": 4} if option.path[0] == "beam" else {}
        extra |= {"repeated_tokens": 4} if option.path[0] == "repetition" else {}
        extra |= {"inside": 9} if name == "across" else {}
        for value in values(option):
            chosen = Evaluation.of(**base | extra | {name: value})
            assert labels.setdefault(chosen.label, chosen) == chosen, (name, value)
    assert len(labels) > 30


def test_every_field_that_can_change_a_result_has_a_label():
    for policy in (None, *POLICIES.values()):
        known = options_of(Evaluation, policy)
        assert {name for name, o in known.items() if not o.setting.label} <= WITHOUT_LABEL


@pytest.mark.parametrize(
    "sweep", [("layer=1,4",), ("heads=1,2",), ("last_frames=2,4", "heads=1,mean"), ("beam=2,3",)]
)
def test_points_of_a_sweep_have_labels_and_folders_of_their_own(sweep):
    chosen = Evaluation(run=RUN, policy=AlignAtt(frames=8))
    found = points(chosen, sweep)
    assert len({each.label for each in found}) == len({each.folder for each in found}) == len(found)


def test_options_go_to_the_fields_they_name():
    made = Evaluation.of(
        run=RUN, policy="wait-k", k=3, units="ctc", length_ratio=2.0, inside=2, gather="mean"
    )
    assert made == Evaluation(
        run=RUN,
        policy=WaitK(k=3, units="ctc"),
        limit=LengthLimit(ratio=2.0),
        blocks=Blocks(inside=2),
        gather="mean",
    )
    assert Evaluation.of(run=RUN, k=3).k == 3
    assert Evaluation.of(run=RUN, beam=4).beam == Beam(size=4)
    assert Evaluation(run=RUN, gather="mean").decoding() == Decoding(gather="mean")
    assert made.but(k=5, gather="any").policy == WaitK(k=5, units="ctc")


@pytest.mark.parametrize("policy", [None, *POLICIES])
def test_options_come_back(policy):
    given = {"policy": policy} | NEEDED.get(policy, {}) if policy else {"beam": 3, "k": 2}
    chosen = Evaluation.of(run=RUN, first=5, **given)
    assert from_options(Evaluation, to_options(chosen)) == chosen


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"polcy": "wait-k"}, ["--polcy", "'policy'"]),
        ({"policy": "alignatt", "k": 3, "alpha": 0.1}, ["--alpha", "alignatt"]),
        ({"layer": 3}, ["--layer"]),
        ({"length_penalty": 0.5}, ["--length-penalty", "--beam"]),
        ({"name": "a/b"}, ["a/b"]),
        ({"checkpoint": "first"}, ["checkpoint is 'first'", "'averaged'"]),
    ],
)
def test_a_wrong_option_is_refused(given, words):
    with pytest.raises(ConfigError) as refused:
        Evaluation.of(run=RUN, **given)
    assert [word for word in words if word not in str(refused.value)] == []


def test_a_class_of_a_file_is_a_policy():
    chosen = Evaluation.of(run=RUN, policy=PATIENT, share=0.3)
    assert chosen.label.startswith("own_policy_Patient-") and chosen.label.endswith("-share0.3")
    assert [p.policy.share for p in points(chosen, ("share=0.1,0.4",))] == [0.1, 0.4]  # pyright: ignore
    assert type(from_options(Evaluation, to_options(chosen)).policy) is type(chosen.policy)


def test_a_function_can_be_named_on_the_command_line():
    attach_help(Term)
    assert typing.get_type_hints(Term)["function"] is str


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


ROOTS = (Experiment, Evaluation, WhisperStreaming, JointObjective, *POLICIES.values())
CLASSES = {each.__name__: each for root in ROOTS for _, each in below(root, "")}


def wrong_values(declared: Setting, hint: Any, default: Any) -> list[Any]:
    """Values just out of range, or of no choice, of the type that a field has."""
    bounds = {declared.low: -1, declared.high: 1, declared.above: 0, declared.below: 0}
    numbers = [at + more for at, more in bounds.items() if at is not None]
    if float in leaf_types(hint) or (isinstance(default, tuple) and float in map(type, default)):
        numbers = [*map(float, numbers), math.nan]
    if isinstance(default, tuple):
        return [(number,) * len(default) for number in numbers]
    choices = declared.choices or any(typing.get_origin(t) is Literal for t in leaf_types(hint))
    return [*numbers, "nothing like it"] if choices else numbers


@pytest.mark.parametrize("kind", CLASSES.values(), ids=CLASSES)
def test_every_declared_range_and_choice_is_held(kind):
    fields = {field.name: default_of(field) for field in dataclasses.fields(kind)}
    hints = type_hints(kind)
    needed = {int: 100, str: "x", Path: Path("x")}
    given = {n: needed.get(hints[n]) for n, default in fields.items() if default is MISSING}
    if kind.__module__.startswith("simuljax.config."):
        assert settings(kind).keys() == fields.keys()
    for name, declared in settings(kind).items():
        assert declared.help, f"{kind.__name__}.{name} has no help text"
        for wrong in wrong_values(declared, hints[name], fields[name]):
            with pytest.raises((ValueError, TypeError)) as refused:  # the hook of jaxtyping's
                kind(**given | {name: wrong})
            said = name if isinstance(wrong, str) else f".{name} is {wrong!r}; it must be "
            assert said in str(refused.value)


def test_declarations_say_range_and_model():
    declared = settings(Outer)
    assert "plain" not in declared
    assert declared["rate"].range() == "above 0 and at most 1"
    assert declared["share"].range() == "at least 0 and below 1"
    assert declared["count"].applies == ("counting",)
    Outer(rate=1, share=0, count=0, kind="b", steps=(1, 5), heads=2, flag=True)  # all allowed


def test_types_of_parts_are_checked_and_others_left_alone():
    assert wrong_type(Inner, None) == "a Inner"
    assert wrong_type(Inner | None, Inner()) is None
    assert wrong_type(Path, "x") == "a pathlib.Path"
    assert wrong_type(dict, None) is None
    with pytest.raises(ConfigError, match=r"Inner\.size is 0; it must be at least 1"):
        dataclasses.replace(Outer(), inner=Inner(size=0))


DOCS = Path(__file__).parents[2] / "docs"


def test_the_page_is_up_to_date():
    """Run `python -m simuljax.config.reference > docs/reference.md` after a change."""
    assert (DOCS / "reference.md").read_text() == reference()


def test_the_help_of_evaluate_has_the_options_of_the_policy(capsys):
    with pytest.raises(SystemExit):
        cli.main(["evaluate", "--policy", "edatt", "--help"])
    shown = capsys.readouterr().out
    assert "--alpha" in shown and "--last-frames" in shown and "--first-ms" not in shown


def test_an_equals_sign_may_join_a_flag_and_its_value():
    for args in (["--policy", "wait-k", "--sweep", "k=3,5"], ["--policy=wait-k", "--sweep=k=3,5"]):
        assert named_policy(args) is WaitK
        assert first_of_sweeps(args, WAITING) == {"k": 3}


def test_options_are_given_with_their_default_too():
    args = ["RUN", "--threshold=0.5", "--no-force-finish", "--length_ratio", "2"]
    assert options_given(args, WAITING) == {"threshold", "force_finish", "length_ratio"}
