"""Options are the fields of a tree by flat names; two settings never share a label."""

import typing
from pathlib import Path
from typing import Any, Literal

import pytest

from simuljax.config.decoding import Beam, Blocks, Decoding, LengthLimit
from simuljax.config.evaluation import Evaluation, points
from simuljax.config.fields import ConfigError
from simuljax.config.options import (
    Option,
    describe,
    from_options,
    leaf_types,
    options_of,
    to_options,
)
from simuljax.decode.policies import POLICIES, AlignAtt, WaitK
from simuljax.losses import Term

RUN = Path("run")
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
    "sweep",
    [("layer=1,4",), ("heads=1,2",), ("last_frames=2,4", "scores=paper,release"), ("beam=2,3",)],
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
        ({"policy": "wait-k"}, ["wait-k", "--k"]),
        ({"policy": "alignatt", "k": 3, "alpha": 0.1}, ["--alpha", "alignatt"]),
        ({"layer": 3}, ["--layer"]),
        ({"length_penalty": 0.5}, ["--length-penalty", "--beam"]),
        ({"threshold": 2.0}, ["threshold is 2.0", "below 1"]),
        ({"predecision_ms": 50}, ["50", "multiple of 40"]),
        ({"read_ms": 0}, ["read_ms is 0"]),
        ({"inside": 0}, ["inside is 0"]),
        ({"name": "a/b"}, ["a/b"]),
        ({"checkpoint": "first"}, ["checkpoint is 'first'", "'averaged'"]),
    ],
)
def test_a_wrong_option_is_refused(given, words):
    with pytest.raises(ConfigError) as refused:
        Evaluation.of(run=RUN, **given)
    assert [word for word in words if word not in str(refused.value)] == []


@pytest.mark.parametrize(
    ("sweep", "words"),
    [
        (("treshold=.1",), ["treshold", "'threshold'"]),
        (("read-ms=280",), ["'read_ms'"]),
        (("threshold=.1,2",), ["threshold is 2.0"]),
        (("checkpoint=first",), ["'first'"]),
        (("k=1", "k=2"), ["k", "twice"]),
        (("k=one",), ["--k one"]),
        (("frames=3",), ["frames"]),
    ],
)
def test_a_wrong_sweep_is_refused(sweep, words):
    with pytest.raises(ConfigError) as refused:
        points(Evaluation(run=RUN), sweep)
    assert [word for word in words if word not in str(refused.value)] == []


def test_a_class_of_a_file_is_a_policy(tmp_path):
    file = tmp_path / "mine.py"
    file.write_text(
        "from dataclasses import dataclass\nfrom typing import ClassVar\n"
        "from simuljax.config.fields import setting\n"
        "from simuljax.decode.policies import Policy\n"
        "@dataclass(frozen=True, kw_only=True)\nclass Patient(Policy):\n"
        "    name: ClassVar[str] = 'patient'\n"
        "    share: float = setting(0.2, help='Share.', label='share{:g}', above=0)\n"
    )
    chosen = Evaluation.of(run=RUN, policy=f"{file}:Patient", share=0.3)
    assert chosen.label.startswith("mine_Patient-") and chosen.label.endswith("-share0.3")
    assert [p.policy.share for p in points(chosen, ("share=0.1,0.4",))] == [0.1, 0.4]  # pyright: ignore
    assert type(from_options(Evaluation, to_options(chosen)).policy) is type(chosen.policy)


def test_a_function_can_be_named_on_the_command_line():
    describe(Term)
    assert typing.get_type_hints(Term)["function"] is str
