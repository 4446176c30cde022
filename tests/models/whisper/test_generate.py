"""The compiled searches against plain Python over logits of the whole text so far."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from simuljax.models.whisper.decoding import (
    Context,
    Decoding,
    compression_ratio,
    decode,
    make_prompt,
)
from simuljax.models.whisper.generate import (
    generate,
    make_rules,
    obey,
    see,
    seen_of,
)
from simuljax.models.whisper.model import nothing_written
from tests.models.whisper import reading
from tests.models.whisper.small import TOKENIZER as T
from tests.models.whisper.small import small_model

MODEL = small_model(seed=3, layers=1)
LIMIT = 10
RANDOM = np.random.default_rng(0)
SUPPRESSED = (65, 66)
# With numbers drawn at random, hardly any text ends or stamps a time: these are made likelier.
STAMPS = range(T.timestamps.start, T.timestamps.start + 60)


def likelier(model, ids, by):
    embedding = np.array(model.params["decoder"]["embedding"]["embedding"])
    states = np.array(model.params["decoder"]["norm"]["bias"])
    embedding[ids] += by * states / np.square(states).sum()
    decoder = model.params["decoder"] | {"embedding": {"embedding": embedding}}
    return model.replace(params=model.params | {"decoder": decoder})


MODEL = likelier(likelier(MODEL, [T.end], 4.0), list(STAMPS), 2.0)


@pytest.fixture(scope="module")
def memory():
    mel = jnp.asarray(RANDOM.normal(size=(3, 40, 80)), jnp.float32)
    return jax.jit(lambda m, x: m.remember(m.encode(x)))(MODEL, mel)


@jax.jit
def logits_after(model, memory, tokens):
    written = nothing_written(model.config, 1, tokens.shape[1])
    states, *_ = model.write(tokens, written, memory)
    return model.logits(states)[0]


def next_logits(memory, row, opening):
    """A function of the text so far; every length is padded to the same."""
    own = jax.tree.map(lambda x: x[row : row + 1], memory)

    def function(text):
        tokens = np.zeros((1, 36), np.int32)
        tokens[0, : len(opening) + len(text)] = [*opening, *text]
        return np.asarray(logits_after(MODEL, own, tokens))[len(opening) + len(text) - 1]

    return function


def rule_of(timestamps, prefix=()):
    def rule(logits, text):
        return reading.allowed(logits, [*prefix, *text], T, SUPPRESSED, 50, timestamps)

    return rule


CONTEXTS = [
    Context(language="en"),
    Context(language="de", task="translate", prompt=(100, 101, 102, 103, 104)),
    Context(language="fr", prompt=(99,), prefix=(T.timestamps[4], 70, 71)),
]
OPENINGS = [
    [T.start, T.language_id("en"), T.transcribe],
    [T.previous, 100, 101, 102, 103, 104, T.start, T.language_id("de"), T.translate],
    [T.previous, 99, T.start, T.language_id("fr"), T.transcribe, T.timestamps[4], 70, 71],
]


def options(**changes):
    plain = {
        "temperatures": (0.0,),
        "max_tokens": LIMIT,
        "suppress": SUPPRESSED,
        "compression_ratio_limit": None,
        "avg_logprob_limit": None,
    }
    return Decoding(**(plain | changes))


@pytest.mark.parametrize("timestamps", ["predict", "none"])
def test_greedy_is_the_plain_reading(memory, timestamps):
    results = decode(MODEL, T, memory, CONTEXTS, options(timestamps=timestamps))
    lengths = []
    for row, (result, context) in enumerate(zip(results, CONTEXTS, strict=True)):
        opening = OPENINGS[row]
        if timestamps == "none":
            cut = len(opening) - len(context.prefix)
            opening = [*opening[:cut], T.no_timestamps, *opening[cut:]]
        rule = rule_of(timestamps, context.prefix)
        text, scores = reading.greedy(next_logits(memory, row, opening), rule, T.end, LIMIT)
        assert list(result.tokens) == text
        np.testing.assert_allclose(result.log_probs, scores, atol=1e-3)
        assert result.avg_logprob == pytest.approx(sum(scores) / (len(text) + 1), abs=1e-3)
        start = OPENINGS[row].index(T.start)
        first = next_logits(memory, row, OPENINGS[row][: start + 1])([]).astype(np.float64)
        silence = np.exp(reading.log_softmax(first))[T.no_speech]
        assert result.no_speech_prob == pytest.approx(float(silence), rel=1e-3)
        lengths.append(len(text))
    if timestamps == "predict":
        assert min(lengths) < LIMIT  # one ended of itself


def test_beam_is_the_plain_reading(memory):
    results = decode(MODEL, T, memory, CONTEXTS, options(beams=3))
    for row, (result, context) in enumerate(zip(results, CONTEXTS, strict=True)):
        logits, rule = next_logits(memory, row, OPENINGS[row]), rule_of("predict", context.prefix)
        text, score = reading.beam(logits, rule, T.end, LIMIT, beams=3)
        assert list(result.tokens) == text
        assert sum(result.log_probs) == pytest.approx(score, abs=1e-3)


def test_a_window_may_have_fewer_tokens_than_its_neighbours(memory):
    whole = decode(MODEL, T, memory, CONTEXTS, options())
    longest = max(range(3), key=lambda row: len(whole[row].tokens))
    contexts = list(CONTEXTS)
    contexts[longest] = replace(contexts[longest], max_tokens=1)
    found = decode(MODEL, T, memory, contexts, options())
    assert found[longest].tokens == whole[longest].tokens[:1] != whole[longest].tokens
    assert all(found[row] == whole[row] for row in range(3) if row != longest)


def test_samples_follow_the_distribution(memory):
    """The first token at temperature 2, drawn 180 times: shares against softmax(logits / 2)."""
    alike = jax.tree.map(lambda x: jnp.repeat(x[:1], 3, 0), memory)
    rules = make_rules(T, SUPPRESSED, "predict", 1.0)
    prompt = make_prompt(T, CONTEXTS[1:2] * 3, options(), rules, rows=3, longest=40)
    known = (MODEL, alike, prompt, rules, jnp.full(3, 2.0), np.ones(3, bool))
    draws = [generate(*known, jax.random.key(k), limit=LIMIT) for k in range(60)]
    tokens = np.concatenate([draw.tokens[:, 0] for draw in draws])
    logits = rule_of("predict")(next_logits(memory, 0, OPENINGS[1])([]), [])
    expected = np.exp(reading.log_softmax(logits / 2))
    share = np.bincount(tokens, minlength=T.size) / len(tokens)
    assert np.abs(share - expected).sum() / 2 < 0.25
    assert len(set(tokens.tolist())) > 5
    unscaled = reading.log_softmax(logits)[tokens]
    drawn = np.concatenate([draw.log_probs[:, 0] for draw in draws])
    np.testing.assert_allclose(drawn, unscaled, atol=1e-3)


def test_only_bad_rows_are_tried_again(memory):
    best = decode(MODEL, T, memory, CONTEXTS, options())
    limit = sorted(result.avg_logprob for result in best)[0] + 1e-6  # the worst is below
    tried = decode(
        *(MODEL, T, memory, CONTEXTS),
        options(avg_logprob_limit=limit, temperatures=(0.0, 0.9), no_speech_limit=None),
    )
    again = [result.temperature > 0 for result in tried]
    assert again == [result.avg_logprob < limit for result in best]
    assert sum(again) == 1
    for before, after, changed in zip(best, tried, again, strict=True):
        assert changed or before == after
    silent = options(avg_logprob_limit=limit, temperatures=(0.0, 0.9), no_speech_limit=0.0)
    assert decode(MODEL, T, memory, CONTEXTS, silent) == best


def test_a_text_stops_where_positions_end(memory):
    """40 positions: after a prompt of 19 and a prefix of 15 there is room for 2, and one more."""
    context = Context(prompt=tuple(range(70, 100)), prefix=(T.timestamps[0], *range(70, 84)))
    never_ends = likelier(MODEL, [T.end], -40.0)
    results = decode(never_ends, T, memory, [CONTEXTS[0], context], options())
    assert [len(result.tokens) for result in results] == [LIMIT, 40 - (1 + 19 + 3 + 15) + 1]
    with pytest.raises(ValueError, match="leaves no room among 40"):
        decode(MODEL, T, memory, [Context(prefix=(70,) * 40)], options())


@pytest.mark.parametrize("timestamps", ["predict", "none"])
def test_rules_are_the_plain_reading(timestamps):
    """Random texts, likely and unlikely ones, and the memory of them token by token."""
    rules = make_rules(T, SUPPRESSED, timestamps, 1.0)
    obeyed = jax.jit(lambda logits, seen: obey(logits, seen, rules))
    texts = [[]]
    for _ in range(60):
        stamps = sorted(RANDOM.choice(STAMPS, 6))
        kinds = RANDOM.integers(0, 2, RANDOM.integers(1, 7))
        texts.append([int(stamps[k]) if kind else 70 + k for k, kind in enumerate(kinds)])
    logits = RANDOM.normal(size=(len(texts), T.size)).astype(np.float32)
    logits[::2, T.timestamps.start :] -= 8  # or timestamps together would always win
    found = obeyed(logits, seen_of(texts, rules))
    for row, text in enumerate(texts):
        expected = reading.allowed(logits[row], text, T, SUPPRESSED, 50, timestamps)
        np.testing.assert_allclose(found[row], expected, atol=1e-5, err_msg=str(text))
    for text in texts[:8]:
        seen = seen_of([[]], rules)
        for token in text:
            seen = see(seen, jnp.asarray([token]), rules)
        jax.tree.map(np.testing.assert_array_equal, seen, seen_of([text], rules))


def test_compression_ratio():
    assert compression_ratio("and again " * 30) > 10
    assert compression_ratio("Fellow citizens of the world: ask not.") < 1.2
    assert compression_ratio("") == 0


@pytest.mark.parametrize("wrong", [{"beams": 0}, {"temperatures": ()}, {"temperatures": (-1.0,)}])
def test_impossible_options_are_refused(wrong):
    with pytest.raises(ValueError, match=next(iter(wrong))):
        Decoding(**wrong)
