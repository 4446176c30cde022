"""A READ of an encoder that hears all of its prefix anew, once that is known: what is written."""

from typing import Any

import flax.struct
import jax

from simuljax.decode.agreement import agree_on, no_hypotheses
from simuljax.decode.options import Decoding
from simuljax.decode.policies import History, LocalAgreement
from simuljax.decode.prefix import Known, Prefix, init_prefix, replay
from simuljax.decode.writing import Written, nothing_written, write_on
from simuljax.models.translator import Translator
from simuljax.nn.pointers import Rule


@flax.struct.dataclass
class Told:
    """All that was written, and the decoder as it left it."""

    prefix: Prefix
    written: Written
    hypotheses: jax.Array | None = None  # int32 [B, A, N]: the last ones, if they have to agree


def nothing_told(model: Translator, batch: int, room: int, decoding: Decoding) -> Told:
    """Room for so many tokens."""
    policy, hypotheses = decoding.policy, None
    if isinstance(policy, LocalAgreement):
        hypotheses = no_hypotheses(policy, batch, room)
    return Told(
        prefix=init_prefix(model, batch, room, decoding),
        written=nothing_written(batch, room),
        hypotheses=hypotheses,
    )


def tell(
    model: Translator,
    variables: Any,
    told: Told,
    known: Known,
    *,
    heard: jax.Array,
    rule: Rule,
    decoding: Decoding,
    history: History,
) -> Told:
    """What was written stays, or is judged anew (`recomputed`); then what is known allows more."""
    prefix = told.prefix
    if history == "recomputed":
        prefix = replay(model, variables, prefix, told.written.tokens, known, rule)
    how: dict[str, Any] = {"heard": heard, "rule": rule, "decoding": decoding}
    given = (model, variables, prefix, told.written)
    if told.hypotheses is None:
        prefix, written = write_on(*given, known, **how)
        return Told(prefix=prefix, written=written)
    prefix, written, hypotheses = agree_on(*given, told.hypotheses, known, **how)
    return Told(prefix=prefix, written=written, hypotheses=hypotheses)
