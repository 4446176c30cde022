"""What became of a corpus: how much there is, and what was left out or changed, and why."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from data_pipelines.prepared import COLUMNS, SKIPPED
from data_pipelines.shard import ShardReport
from data_pipelines.utterance import Skip
from simuljax.audio import RATE


def summarise(
    results: Mapping[str, Sequence[ShardReport]],
    skips: Iterable[Skip],
    preparation: Mapping[str, Any],
) -> dict[str, Any]:
    """The numbers of a finished preparation."""
    notes: Counter[str] = Counter()
    for parts in results.values():
        for part in parts:
            notes.update(part.notes)
    return {
        "preparation": dict(preparation),
        "splits": {split: _split(parts) for split, parts in results.items()},
        "skipped": dict(Counter(skip.reason for skip in skips).most_common()),
        "changed": dict(notes.most_common()),
    }


def _split(parts: Sequence[ShardReport]) -> dict[str, Any]:
    rows = [row for part in parts for row in part.rows]
    samples, words, phonemes = (sum(int(row[k]) for row in rows) for k in range(3))
    return {
        "sentences": len(rows),
        "hours": round(samples / RATE / 3600, 4),
        "speakers": len({row[COLUMNS.index("speaker")] for row in rows} - {""}),
        "timed_words": words,
        "timed_phonemes": phonemes,
        "skipped": sum(len(part.skipped) for part in parts),
    }


def skip_table(skips: Iterable[Skip]) -> str:
    """Every example that was left out, a line each."""
    rows = [("id", "reason", "detail"), *((s.id, s.reason, s.detail) for s in skips)]
    return "".join("\t".join(" ".join(cell.split()) for cell in row) + "\n" for row in rows)


def describe(summary: Mapping[str, Any]) -> str:
    """The summary for people."""
    lines = ["  split            sentences     hours  speakers  timed words"]
    for split, numbers in summary["splits"].items():
        lines.append(
            f"  {split:15s} {numbers['sentences']:10,d} {numbers['hours']:9.2f} "
            f"{numbers['speakers']:9,d} {numbers['timed_words']:12,d}"
        )
    left_out, changed = summary["skipped"], summary["changed"]
    for what, counts in ((f"left out ({SKIPPED})", left_out), ("changed", changed)):
        if counts:
            lines.append(f"  {what}: " + ", ".join(f"{n:,} {why}" for why, n in counts.items()))
    return "\n".join(lines)
