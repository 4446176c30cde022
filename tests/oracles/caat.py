"""CAAT's search with lists, one question to the model at a time."""

from collections.abc import Callable

import numpy as np

from simuljax.config.decoding import Repetition

BOS, EOS = 1, 2
Ask = Callable[[tuple[int, ...], int], np.ndarray]  # tokens and states in sight -> log p [V]
Text = tuple[tuple[int, ...], float, bool]  # tokens, log-probability, whether it rests


def search_group(
    ask: Ask,
    texts: list[Text],
    reach: int,
    *,
    last: bool,
    limit: int,
    inside: int,
    across: int,
    longest: int,
    guard: Repetition | None = None,
    merge: bool = True,
) -> list[Text]:
    """The best `across` texts after a group, the best first."""
    texts, turn = [(tokens, log_prob, False) for tokens, log_prob, _ in texts], 0
    while not all(rests for *_, rests in texts):
        stay, longer = [], []
        for tokens, log_prob, rests in texts:
            if rests:
                stay.append((tokens, log_prob, True))
                continue
            p = np.exp(ask(tokens, reach))
            full = len(tokens) >= limit or (not last and turn >= longest)
            blank = (1.0 if full else 0.0) if last else p[BOS] + p[EOS]
            if blank:
                stay.append((tokens, log_prob + np.log(blank), True))
            labels = [v for v in range(len(p)) if v != BOS and (last or v != EOS)]
            labels = [v for v in labels if v == EOS or not repeats((*tokens, v), guard)]
            for v in sorted(labels, key=lambda v: -p[v])[: 0 if full else inside]:
                longer.append(((*tokens, v), log_prob + np.log(p[v]), v == EOS))
        ways = merged(stay + longer) if merge else stay + longer
        texts, turn = sorted(ways, key=lambda text: -text[1])[:inside], turn + 1
    return texts[:across]


def repeats(tokens: tuple[int, ...], guard: Repetition | None) -> bool:
    """Whether the last few tokens stand there once too often in a row."""
    times = guard.times + 1 if guard else 0
    return guard is not None and any(
        len(tokens) >= n * times and tokens[-n * times :] == tokens[-n:] * times
        for n in range(1, guard.longest + 1)
    )


def merged(texts: list[Text]) -> list[Text]:
    """Equal ones as one, with the sum of their probabilities."""
    total: dict[tuple, float] = {}
    for tokens, log_prob, rests in texts:
        key = tokens, rests
        total[key] = np.logaddexp(total[key], log_prob) if key in total else log_prob
    return [(tokens, log_prob, rests) for (tokens, rests), log_prob in total.items()]


def agreed(texts: list[Text]) -> tuple[int, ...]:
    """What all of them begin with."""
    best, count = texts[0][0], 0
    while all(text[0][: count + 1] == best[: count + 1] for text in texts) and count < len(best):
        count += 1
    return best[:count]
