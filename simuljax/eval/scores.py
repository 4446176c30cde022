"""Score a log as SimulEval does: quality and latency; word error rate of transcripts.

    BLEU    of sacrebleu, over all utterances, with its signature
    AL, LAAL, AP, DAL, ATD, YAAL    means over the utterances that have a word
    RTF     mean of (last time / source length); computation-aware this is the real-time factor
    n, skipped    utterances in all, and those without a word (or, computation-aware, a clock)

Without references there is no BLEU, and the length of the output replaces that of the reference.
As in SimulEval, of several records with one index the last counts, and the pseudo-tokens of ATD
are 300 long for text sources too.
"""

import math
import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from simuljax.eval.latency import (
    DEFAULT,
    PROFILES,
    Profile,
    average_lagging,
    average_proportion,
    average_token_delay,
    differentiable_average_lagging,
    length_adaptive_average_lagging,
    yaal,
)
from simuljax.eval.logs import Record, RecordError, Unit, as_records, find_unit, units_in
from simuljax.eval.spacing import UNSPACED_CHARACTERS

LATENCIES = ("AL", "LAAL", "AP", "DAL", "ATD", "YAAL", "RTF")
Entries = Iterable[Mapping[str, object] | Record]
HESITATIONS = frozenset(("uh", "um", "uhm", "hm", "hmm", "mm", "mmm", "mhm", "er", "erm", "eh"))

_MARKS = re.compile(r"<[^>]*>|\[[^\]]*\]")
_SIGNS = r"(?:(?=\W)[\u0e31-\u0ece\u102b-\u103e\u1056-\u109d])*"  # on letters of Thai, Burmese
_LETTER = rf"[^\W_{UNSPACED_CHARACTERS}]"
_WORD = re.compile(
    rf"\d+(?:[.,]\d+)*|(?=[^\W_])[{UNSPACED_CHARACTERS}]{_SIGNS}|{_LETTER}+(?:'{_LETTER}+)*"
)
_CHARACTERS = re.compile(r"[\u0e00-\u0eff\u1000-\u109f\u3040-\u30ff]")


def score(
    records: Entries,
    *,
    profile: Profile = DEFAULT,
    computation_aware: bool = False,
) -> dict[str, Any]:
    """Score a log: BLEU, AL, LAAL, AP, DAL, ATD, YAAL, RTF, n, skipped, profile, signature.

    Args:
        records: Dicts as in instances.log, or `Record`s.
        profile: Which generation of SimulEval to agree with.
        computation_aware: With the wall clock (`elapsed`) in place of the source (`delays`);
            an `elapsed` of zeros was not measured.
    """
    checked = as_records(records)
    if not checked:
        raise RecordError("there are no records to score")
    each = latencies(checked, profile=profile, computation_aware=computation_aware)
    spoken = [values for values in each if values is not None]
    if computation_aware and not spoken and any(record.delays for record in checked):
        raise RecordError("no record has elapsed times, so nothing is known of computation")
    bleu, signature = corpus_bleu(checked, default_tokenizer(checked, find_unit(checked)))
    means = {name: mean([values[name] for values in spoken]) for name in LATENCIES}
    counts = {"n": len(checked), "skipped": len(checked) - len(spoken)}
    return {"BLEU": bleu} | means | counts | {"profile": profile, "signature": signature}


def build_report(
    records: Sequence[Record], profile: Profile = DEFAULT, *, computation_aware: bool = False
) -> dict[str, Any]:
    """Return the scores of a log, with the computation-aware ones beside them if it has a clock."""
    report = score(records, profile=profile, computation_aware=computation_aware)
    clock = any(any(record.elapsed) for record in records)
    if clock and not computation_aware and not any(r.has_text_source for r in records):
        report["computation_aware"] = score(records, profile=profile, computation_aware=True)
    return report


def latencies(
    records: Sequence[Record],
    *,
    profile: Profile = DEFAULT,
    computation_aware: bool = False,
) -> list[dict[str, float] | None]:
    """Return the latencies of every record; None without a word or, if it is needed, a clock."""
    if profile not in PROFILES:
        raise ValueError(f"profile is {profile!r}; it must be one of {', '.join(PROFILES)}")
    each, unit = [], find_unit(records)
    for place, record in enumerate(records):
        if not (any(record.elapsed) if computation_aware else record.delays):
            each.append(None)
            continue
        try:
            each.append(_latency(record, profile, computation_aware, unit))
        except ValueError as error:
            name = place if record.index is None else record.index
            raise RecordError(f"record {name}: {error}") from None
    return each


def _latency(record: Record, profile: Profile, aware: bool, unit: Unit) -> dict[str, float]:
    text = record.has_text_source
    if aware and text:
        raise ValueError("a text source has no clock; score it without computation_aware")
    times = record.elapsed if aware else record.delays
    reference = record.reference_length(unit)
    # A text of 1.0 is read to its own end of sentence.
    source = record.source_length + (text and profile == "simuleval-1.0")
    end = record.end_elapsed if aware else record.end_delay
    metrics = {
        "AL": average_lagging,
        "LAAL": length_adaptive_average_lagging,
        "AP": average_proportion,
        "DAL": differentiable_average_lagging,
    }
    values = {
        name: metric(times, source, reference, profile=profile, end_delay=end)
        for name, metric in metrics.items()
    }
    elapsed = record.elapsed if aware else None
    atd = average_token_delay(record.delays, source, reference, profile=profile, elapsed=elapsed)
    early = yaal(times, source, reference, profile=profile)
    return values | {"ATD": atd, "YAAL": early, "RTF": times[-1] / record.source_length}


def corpus_bleu(records: Sequence[Record], tokenize: str = "13a") -> tuple[float, str]:
    """Return BLEU of all predictions, empty ones too, and its signature; NaN without references."""
    import sacrebleu

    missing = [place for place, record in enumerate(records) if record.reference is None]
    if len(missing) == len(records):
        return math.nan, ""
    if missing:
        raise RecordError(f"{len(missing)} records have no reference, the first is {missing[0]}")
    metric = sacrebleu.BLEU(tokenize=tokenize)
    predictions = [record.prediction for record in records]
    bleu = metric.corpus_score(predictions, [[str(record.reference) for record in records]])
    return bleu.score, str(metric.get_signature())


def average_runs(scores: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Average the scores of several runs of one system, whose clocks differ."""
    if not scores:
        raise ValueError("there are no runs to average")
    first = dict(scores[0])
    for name in ("n", "profile", "signature"):
        if any(run[name] != first[name] for run in scores):
            raise ValueError(f"these are not runs of one evaluation: they differ in {name}")
    for name in ("BLEU", *LATENCIES):
        first[name] = math.fsum(run[name] for run in scores) / len(scores)
    return first


def mean(values: Iterable[float]) -> float:
    """Return the mean without NaN: YAAL is NaN if every word came after the end."""
    known = [value for value in values if not math.isnan(value)]
    return math.fsum(known) / len(known) if known else math.nan


def default_tokenizer(records: Sequence[Record], unit: Unit) -> str:
    """Return the tokenizer of sacrebleu: 13a for words; zh; char for kana, Thai, Burmese."""
    if unit == "word":
        return "13a"
    return "char" if any(_CHARACTERS.search(r.reference or "") for r in records) else "zh"


def word_difference(records: Sequence[Record]) -> float:
    """Return the mean number of words above the reference's (Papi et al. 2022, table 2).

    Below 0, words are missing. NaN without references. Characters where delays are of these.
    """
    known = [record for record in records if record.reference is not None]
    if not known:
        return math.nan
    unit = find_unit(records)
    texts = ((r.prediction, r.reference or "") for r in known)
    return sum(len(units_in(a, unit)) - len(units_in(b, unit)) for a, b in texts) / len(known)


def normalise(text: str) -> list[str]:
    """Return the words of a transcript as they are compared.

    NFKC, lower case, ’ becomes '. Marks of a transcriber (<...>, [...]) and hesitations go. Hyphens
    split words; other punctuation goes, but for ' inside a word and . , between digits. Numbers
    stay as they are written: "7" is not "seven". Characters of scripts without spaces are words.
    """
    plain = _MARKS.sub(" ", unicodedata.normalize("NFKC", text).lower().replace("’", "'"))
    return [word for word in _WORD.findall(plain) if word not in HESITATIONS]


def word_error_rate(pairs: Iterable[tuple[Sequence[str], Sequence[str]]]) -> float:
    """Return the edits of all (reference, hypothesis) pairs in percent of the reference words."""
    errors = words = 0
    for reference, hypothesis in pairs:
        errors += edits(reference, hypothesis)
        words += len(reference)
    return 100 * errors / words if words else math.nan


def edits(reference: Sequence[str], hypothesis: Sequence[str]) -> int:
    """Return the least number of substitutions, deletions and insertions.

    One row of the table at a time: x_j = min(y_j, x_{j-1} + 1) is min_{k <= j} (y_k - k) + j.
    """
    numbers: dict[str, int] = {}
    spelled = np.array([numbers.setdefault(word, len(numbers)) for word in hypothesis], np.int64)
    row = places = np.arange(len(hypothesis) + 1)
    for i, word in enumerate(reference, start=1):
        changed = row[:-1] + (spelled != numbers.get(word, -1))
        row = np.concatenate([[i], np.minimum(changed, row[1:] + 1)])
        row = np.minimum.accumulate(row - places) + places
    return int(row[-1])
