"""Whisper's rules and searches read aloud: plain Python over one row of NumPy logits."""

import numpy as np


def allowed(logits, text, tokenizer, suppressed, max_initial, timestamps):
    """The logits after `text` [..], -inf where the rules say no."""
    t, logits = tokenizer, np.array(logits, np.float64)
    first = t.timestamps.start
    special = {t.transcribe, t.translate, t.start, t.previous, t.start_lm, t.no_speech}
    for token in {*suppressed, *special, t.no_timestamps}:
        logits[token] = -np.inf
    if not text:
        logits[[*t.encode(" "), t.end]] = -np.inf
    if timestamps == "none":
        return logits
    if not text:
        logits[:first] = -np.inf
        logits[first + max_initial + 1 :] = -np.inf
    ends_in_stamp = len(text) > 0 and text[-1] >= first
    ends_in_two = ends_in_stamp and (len(text) < 2 or text[-2] >= first)
    if ends_in_two:
        logits[first:] = -np.inf
    elif ends_in_stamp:
        logits[: t.end] = -np.inf
    stamps = [token for token in text if token >= first]
    if stamps:
        may_repeat = ends_in_stamp and not ends_in_two
        logits[first : stamps[-1] + (0 if may_repeat else 1)] = -np.inf
    if np.logaddexp.reduce(logits[first:]) > logits[:first].max():
        logits[:first] = -np.inf
    return logits


def log_softmax(logits):
    return logits - np.logaddexp.reduce(logits)


def greedy(next_logits, rule, end, limit):
    """Tokens before the end, and all log-probabilities."""
    text, log_probs = [], []
    while len(text) < limit:
        scores = log_softmax(rule(next_logits(text), text))
        token = int(scores.argmax())
        log_probs.append(scores[token])
        if token == end:
            break
        text.append(token)
    return text, log_probs


def beam(next_logits, rule, end, limit, beams):
    """The best of the finished texts, as the original searches for it."""
    live, finished = [((), 0.0)], {}
    for _ in range(limit):
        proposals = {}
        for text, score in live:
            scores = log_softmax(rule(next_logits(list(text)), list(text)))
            for token in np.argsort(-scores)[: beams + 1]:
                proposals[(*text, int(token))] = score + scores[token]
        live, ended = [], {}
        for text in sorted(proposals, key=lambda text: -proposals[text]):
            if text[-1] == end:
                ended[text] = proposals[text]
            else:
                live.append((text, proposals[text]))
                if len(live) == beams:
                    break
        for text, score in ended.items():
            if len(finished) < beams:
                finished[text] = score
        if len(finished) == beams:
            break
    for text, score in live:
        if len(finished) < beams:
            finished[(*text, end)] = score

    def rank(text):
        length = len(text) - 1
        return finished[text] / length

    best = max(finished, key=rank)
    return list(best[:-1]), finished[best]
