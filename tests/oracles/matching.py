"""DAR and CAR of one sentence: lists of column vectors, matched by the softmax of their cosines."""

import numpy as np

from .attention import softmax


def norm(x):
    """The Euclidean length."""
    return np.sqrt(sum(float(v) ** 2 for v in x))


def unit(x):
    """x / |x|; the zero vector stays zero, so its cosine with anything is 0."""
    return x / norm(x) if norm(x) > 0 else x


def matching(column, columns, temperature=1.0):
    """The softmax over `columns` of their cosine with `column`."""
    cosines = [sum(unit(c) * unit(column)) for c in columns]
    return softmax([c / temperature for c in cosines])


def reconstruct(column, columns, temperature=1.0):
    """sum_n columns[n] softmax_n(cosine(columns[n], column))."""
    weights = matching(column, columns, temperature)
    return sum(w * c for w, c in zip(weights, columns, strict=True))


def energy_columns(energy, length, target_length):
    """{(h, j): the energies of head h at real position j over the real targets} of [H,T,S]."""
    energy = np.asarray(energy, np.float64)
    heads = range(energy.shape[0])
    return {(h, j): energy[h, :target_length, j] for h in heads for j in range(length)}


def candidates(columns, head, across_heads):
    """The columns that a column of `head` may match: all of them, or those of its own head."""
    return [c for (h, _), c in columns.items() if across_heads or h == head]


def column_costs(
    speech, text, speech_length, text_length, target_length, temperature=1.0, across_heads=True
):
    """|| A^{s->t} - A^{t->t} ||_2 of every real text column (h, l), in that order."""
    from_speech = energy_columns(speech, speech_length, target_length)
    from_text = energy_columns(text, text_length, target_length)
    costs = []
    for (h, _), column in from_text.items():
        guess = reconstruct(column, candidates(from_speech, h, across_heads), temperature)
        truth = reconstruct(column, candidates(from_text, h, across_heads), temperature)
        costs.append(norm(guess - truth))
    return costs


def decision_attentive(*arguments, **options):
    """The mean cost of the real text columns of one layer."""
    costs = column_costs(*arguments, **options)
    return sum(costs) / len(costs)


def decision_perplexity(
    speech, text, speech_length, text_length, target_length, temperature=1.0, across_heads=True
):
    """Mean over the real text columns of exp(entropy) of the softmax over the speech columns."""
    from_speech = energy_columns(speech, speech_length, target_length)
    from_text = energy_columns(text, text_length, target_length)
    perplexities = []
    for (h, _), column in from_text.items():
        weights = matching(column, candidates(from_speech, h, across_heads), temperature)
        perplexities.append(np.exp(-sum(w * np.log(w) for w in weights)))
    return sum(perplexities) / len(perplexities)


def position_costs(speech, text, speech_length, text_length, direction="paper"):
    """|| student's reconstruction - teacher's own ||_2 at every real position of the teacher."""
    speech = [unit(np.asarray(s, np.float64)) for s in speech[:speech_length]]
    text = [unit(np.asarray(t, np.float64)) for t in text[:text_length]]
    teacher, student = (text, speech) if direction == "paper" else (speech, text)
    return [norm(reconstruct(x, student) - reconstruct(x, teacher)) for x in teacher]


def cross_attentive(*arguments, **options):
    """The mean cost of the real teacher positions."""
    costs = position_costs(*arguments, **options)
    return sum(costs) / len(costs)
