"""What wait-k counts in a source: words that a CTC head hears, or stretches of speech."""

import dataclasses
from typing import Literal

import flax.struct
import jax

from simuljax.config.model import ModelConfig
from simuljax.decode.options import Decoding
from simuljax.decode.policies import WaitK
from simuljax.decode.prefix import Known
from simuljax.nn.pointers import Rule
from simuljax.text import WordBoundaries


@flax.struct.dataclass
class Counting:
    """How words are counted in what a CTC head hears."""

    boundaries: WordBoundaries  # of the source's vocabulary
    trailing: Literal["count", "leave"] = flax.struct.field(pytree_node=False, default="count")


def counting_of(model: ModelConfig, decoding: Decoding, rule: Rule) -> Counting | None:
    """What the policy counts, or else the model, or nothing."""
    policy, words = decoding.policy, rule.words
    if isinstance(policy, WaitK) and policy.units == "ctc":
        return Counting(boundaries=words.source, trailing=policy.trailing)
    if words is None or model.predecision.kind != "ctc_words":
        return None
    return Counting(boundaries=words.source)


def count_units(known: Known, decoding: Decoding, rule: Rule, heard: jax.Array) -> Known:
    """With the units of wait-k by time, of `heard` [B] samples, unless words were counted."""
    policy = decoding.policy
    if not isinstance(policy, WaitK) or policy.units == "ctc":
        return known
    assert rule.unit is not None
    return dataclasses.replace(known, units=heard // rule.unit)
