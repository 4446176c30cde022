"""Choose utterances of a test set, and describe how every system translated them."""

import base64
import difflib
import io
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, get_args

import numpy as np

from simuljax.eval.logs import Record, find_unit
from simuljax.eval.scores import latencies
from simuljax.report.collect import Evaluated
from simuljax.report.page import number
from simuljax.report.results import Latency
from simuljax.report.systems import Comparable, representative
from simuljax.report.timeline import commits_of, draw_timeline, end_of

TIMES: tuple[str, ...] = get_args(Latency)


@dataclass(frozen=True, kw_only=True)
class UtteranceAudio:
    """The speech of an utterance, mono, and its transcript."""

    samples: np.ndarray
    transcript: str | None = None
    rate: int = 16000


# The source of an utterance by its index in the evaluation's log; None where it is unknown.
AudioOf = Callable[[Evaluated, int], UtteranceAudio | None]


@dataclass(frozen=True, kw_only=True)
class Utterance:
    """One utterance of an evaluation with its own scores."""

    record: Record
    chrf: float  # NaN without a reference
    latencies: dict[str, float]  # empty without a word


def utterances_of(evaluated: Evaluated) -> dict[int, Utterance]:
    """Score every utterance of an evaluation, by index, or by place in a log without."""
    import sacrebleu

    metric, records, found = sacrebleu.CHRF(), evaluated.records, {}
    each = latencies(records, profile=evaluated.scores["profile"])
    for place, (record, values) in enumerate(zip(records, each, strict=True)):
        chrf = math.nan
        if record.reference is not None:
            chrf = metric.sentence_score(record.prediction, [record.reference]).score
        key = place if record.index is None else record.index
        found[key] = Utterance(record=record, chrf=chrf, latencies=values or {})
    return found


def choose(utterances: dict[int, Utterance], count: int, latency: Latency) -> dict[int, str]:
    """Choose a quarter each of the best and worst by chrF and of the latest; the rest are median.

    The result is why each was chosen. Of equal ones the longer come first, since they show more.
    """
    chosen: dict[int, str] = {}

    def take(keys: Sequence[int], reason: str, many: int) -> None:
        left = [key for key in keys if key not in chosen][: max(0, many)]
        chosen.update(dict.fromkeys(left, reason))

    def late(key: int) -> float:
        value = utterances[key].latencies.get(latency, math.nan)
        return -math.inf if math.isnan(value) else value

    longer = sorted(utterances, key=lambda key: -utterances[key].record.source_length)
    scored = [key for key in longer if not math.isnan(utterances[key].chrf)]
    best = sorted(scored, key=lambda key: -utterances[key].chrf)
    take(best, "best", count // 4)
    take(sorted(scored, key=lambda key: utterances[key].chrf), "worst", count // 4)
    take(sorted(longer, key=lambda key: -late(key)), "latest", count // 4)
    ranks = {key: abs(rank - (len(best) - 1) / 2) for rank, key in enumerate(best)}
    take(sorted(longer, key=lambda key: ranks.get(key, math.inf)), "middle", count - len(chosen))
    return chosen


def marked(text: str, other: str) -> list[tuple[str, bool]]:
    """Split a text into pieces, each with True if its words are not in the other text there."""
    words = text.split()
    matcher = difflib.SequenceMatcher(None, words, other.split(), autojunk=False)
    return [
        (" ".join(words[begin:end]), kind != "equal")
        for kind, begin, end, _, _ in matcher.get_opcodes()
        if end > begin
    ]


def describe_utterances(
    comparable: Comparable, count: int, latency: Latency, audio_of: AudioOf
) -> list[Mapping[str, Any]]:
    """Return the context of the template for every utterance that is shown."""
    systems = comparable.systems(offline=False) or comparable.systems(offline=True)
    if not systems or count < 1:
        return []
    shown = [representative(evaluated) for evaluated in systems.values()]
    each = [(one, utterances_of(one)) for one in shown]
    chosen = choose(each[0][1], count, latency)
    return [_describe(key, reason, each, audio_of) for key, reason in chosen.items()]


def _describe(
    key: int,
    reason: str,
    systems: Sequence[tuple[Evaluated, Mapping[int, Utterance]]],
    audio_of: AudioOf,
) -> Mapping[str, Any]:
    first = systems[0][1][key].record
    known = [audio_of(one, key) for one, _ in systems if first.index is not None]
    source = next((found for found in known if found is not None), None)
    samples, text = (source.samples, source.transcript) if source else (None, None)
    until = max(end_of(utterances[key].record) for _, utterances in systems)
    drawn = []
    for evaluated, utterances in systems:
        record, unit = utterances[key].record, find_unit(evaluated.records)
        drawn.append(
            {
                "name": str(evaluated),
                "scores": _own_scores(evaluated, utterances[key]),
                "timeline": draw_timeline(record, unit, samples=samples, until=until),
                "commits": commits_of(record, unit),
                "marked": marked(record.prediction, record.reference) if record.reference else [],
            }
        )
    return {
        "key": key,
        "reason": reason,
        "audio": encode_audio(source) if source else "",
        "source": text or (first.source if isinstance(first.source, str) else ""),
        "systems": drawn,
        "reference": marked(first.reference, first.prediction) if first.reference else [],
    }


def encode_audio(source: UtteranceAudio) -> str:
    """Return the speech as a data URL that browsers play (FLAC)."""
    import soundfile

    buffer = io.BytesIO()
    soundfile.write(buffer, source.samples, source.rate, format="FLAC", subtype="PCM_16")
    return "data:audio/flac;base64," + base64.b64encode(buffer.getvalue()).decode("ascii")


def _own_scores(evaluated: Evaluated, utterance: Utterance) -> str:
    digits, unit = (0, "ms") if evaluated.unit == "ms" else (2, "words")
    known = {name: utterance.latencies.get(name, math.nan) for name in TIMES}
    scores = [f"{k} {number(v, digits)} {unit}" for k, v in known.items() if not math.isnan(v)]
    scores += [f"chrF {utterance.chrf:.1f}"] * (not math.isnan(utterance.chrf))
    return " · ".join(scores)
