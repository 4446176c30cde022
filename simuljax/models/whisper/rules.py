"""Which tokens may come next: signs that nobody says never; timestamps in pairs that do not fall.

With timestamps on, a window is written as `<|0.00|> text <|1.20|><|1.20|> text <|2.00|>`:
- it begins with one, of at most `latest_start`;
- after text and one timestamp comes another, or the end; after two comes text;
- none is smaller than the last; one that ends a segment is larger than the one that began it;
- where all timestamps together are likelier than any one token of text, it is a timestamp.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import flax.struct
import jax
import jax.numpy as jnp
import numpy as np

from simuljax.models.whisper.config import STATE_S
from simuljax.models.whisper.tokenizer import Tokenizer


@dataclass(frozen=True, kw_only=True)
class Marks:
    """The ids that the rules are about; hashable, for `jit`."""

    end: int
    no_speech: int
    first_timestamp: int
    latest_start: int | None  # the id of the latest timestamp to begin with; None: timestamps off


@flax.struct.dataclass
class Forbidden:
    """bool [V] each: tokens that may never come, and those that may not come first."""

    always: jax.Array
    first: jax.Array


@flax.struct.dataclass
class Seen:
    """State of the rules for each row [R]."""

    tokens: jax.Array  # int32: how many, a prefix counted in
    last: jax.Array  # bool: the last was a timestamp
    before_last: jax.Array  # bool: so was the one before, or there was none
    timestamp: jax.Array  # int32: the last timestamp, 0 if there was none


def make_marks(tokenizer: Tokenizer, timestamps: str, max_initial_s: float) -> Marks:
    """Return the ids for timestamps "predict" or "none"."""
    first = tokenizer.timestamps.start
    latest = first + round(max_initial_s / STATE_S) if timestamps == "predict" else None
    return Marks(
        end=tokenizer.end,
        no_speech=tokenizer.no_speech,
        first_timestamp=first,
        latest_start=latest,
    )


def make_forbidden(tokenizer: Tokenizer, suppressed: Sequence[int]) -> Forbidden:
    """Return special tokens that are not written, and those that a user or `unspoken` names."""
    t = tokenizer
    special = [t.transcribe, t.translate, t.start, t.previous, t.start_lm, t.no_speech]
    always, first = np.zeros(t.size, bool), np.zeros(t.size, bool)
    always[[*suppressed, *special, t.no_timestamps]] = True
    first[[*t.encode(" "), t.end]] = True
    return Forbidden(always=jnp.asarray(always), first=jnp.asarray(first))


def seen_of(prefixes: Sequence[Sequence[int]], marks: Marks) -> Seen:
    """Return the memory of the rules for rows that begin with these tokens."""
    first = marks.first_timestamp
    stamps = [[token for token in prefix if token >= first] for prefix in prefixes]
    return Seen(
        tokens=jnp.asarray([len(prefix) for prefix in prefixes], jnp.int32),
        last=jnp.asarray([len(p) > 0 and p[-1] >= first for p in prefixes]),
        before_last=jnp.asarray([len(p) < 2 or p[-2] >= first for p in prefixes]),
        timestamp=jnp.asarray([stamp[-1] if stamp else 0 for stamp in stamps], jnp.int32),
    )


def see(seen: Seen, token: jax.Array, marks: Marks) -> Seen:
    """Return the memory of the rules after one more token [R]."""
    is_timestamp = token >= marks.first_timestamp
    return Seen(
        tokens=seen.tokens + 1,
        last=is_timestamp,
        before_last=jnp.where(seen.tokens == 0, True, seen.last),
        timestamp=jnp.where(is_timestamp, token, seen.timestamp),
    )


def obey(logits: jax.Array, seen: Seen, forbidden: Forbidden, marks: Marks) -> jax.Array:
    """Return logits [R, V] with -inf for tokens that may not come."""
    begins = (seen.tokens == 0)[:, None]
    wrong = forbidden.always | (begins & forbidden.first)
    logits = jnp.where(wrong, -jnp.inf, logits)
    if marks.latest_start is None:
        return logits
    logits = jnp.where(_out_of_order(logits.shape[-1], seen, marks), -jnp.inf, logits)
    is_timestamp = jnp.arange(logits.shape[-1]) >= marks.first_timestamp
    together = jax.nn.logsumexp(logits[:, marks.first_timestamp :], axis=-1)
    likeliest = logits[:, : marks.first_timestamp].max(-1)
    return jnp.where((together > likeliest)[:, None] & ~is_timestamp, -jnp.inf, logits)


def _out_of_order(vocabulary: int, seen: Seen, marks: Marks) -> jax.Array:
    """Return bool [R, V]: timestamps where text must come, or the reverse, or that fall."""
    token = jnp.arange(vocabulary)
    is_timestamp, is_text = token >= marks.first_timestamp, token < marks.end
    last, before_last, begins = (
        x[:, None] for x in (seen.last, seen.before_last, seen.tokens == 0)
    )
    # A second timestamp in a row may repeat the first; any other has to be larger than the last.
    lowest = (seen.timestamp + jnp.where(seen.last & ~seen.before_last, 0, 1))[:, None]
    falls = is_timestamp & (seen.timestamp > 0)[:, None] & (token < lowest)
    pair = last & jnp.where(before_last, is_timestamp, is_text)
    late = token > marks.latest_start if marks.latest_start is not None else False
    return falls | pair | (begins & (~is_timestamp | late))
