"""What `simuljax report` writes: pictures, and a page that has them in it."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Annotated

import tyro

from simuljax.eval.curves import best_per_bucket
from simuljax.report.collect import Comparable, Evaluated, Latency, gather, group
from simuljax.report.figures import draw_curves
from simuljax.report.page import SamplesOf, Section, build_page

PAGE, FIGURE = "index.html", "latency-quality"


@dataclass(frozen=True, kw_only=True)
class Report:
    """What is reported, and how."""

    runs: Annotated[tuple[Path, ...], tyro.conf.Positional]
    """Runs that were evaluated; or logs in SimulEval's format, or directories that have one."""
    out: Path | None = None
    """The directory of the page; by default `report` in the first of them."""
    split: str | None = None
    """Of runs, only the evaluations on this split."""
    latency: Latency = "AL"
    """On the axis of the figure."""
    utterances: int = 12
    """That are drawn, of every test set."""
    bucket_ms: float | None = None
    """Lines go through the best point of each bucket this wide: 500 in figure 3 of Ma 2020."""


def write_report(chosen: Report, samples_of: SamplesOf | None = None) -> Path:
    """Gathers, draws, writes; gives the page. `samples_of` knows the sound of an utterance."""
    comparables = group(gather(chosen.runs, chosen.split), chosen.latency)
    first = Path(chosen.runs[0])
    out = chosen.out or (first if first.is_dir() else first.parent) / "report"
    out.mkdir(parents=True, exist_ok=True)
    sections = []
    for number, comparable in enumerate(comparables, start=1):
        name = f"{FIGURE}-{number}.png" if len(comparables) > 1 else f"{FIGURE}.png"
        figure = draw_comparable(comparable, out / name, chosen)
        sections.append(Section(comparable=comparable, figure=figure))
    page = build_page(
        sections, latency=chosen.latency, utterances=chosen.utterances, samples_of=samples_of
    )
    (out / PAGE).write_text(page, "utf-8")
    return out / PAGE


def draw_comparable(comparable: Comparable, path: Path, chosen: Report) -> Path | None:
    """The latency-quality figure of a test set; None where there is no point."""
    latency, streamed = chosen.latency, {s: told_apart(e) for s, e in comparable.streamed().items()}
    free, counted = (
        {
            system: [p for e in each if (p := e.point(latency, computation=computation))]
            for system, each in streamed.items()
        }
        for computation in ("free", "counted")
    )
    if not any(free.values()):
        return None
    through = None
    if chosen.bucket_ms is not None and comparable.unit == "ms":
        through = partial(best_per_bucket, width_ms=chosen.bucket_ms)
    return draw_curves(
        free,
        path,
        latency=latency,
        title=next(iter(free)) if len(free) == 1 else "",
        unit=comparable.unit,
        aware=counted,
        offline={
            s: max(e.scores["BLEU"] for e in each) for s, each in comparable.offline().items()
        },
        through=through,
    )


def told_apart(evaluated: Sequence[Evaluated]) -> list[Evaluated]:
    """Their settings without what all of them share, so that labels are short."""
    parts = [each.setting.split(", ") for each in evaluated]
    shared = set.intersection(*map(set, parts)) if len(parts) > 1 else set()
    settings = [", ".join(part for part in each if part not in shared) for each in parts]
    return [replace(e, setting=setting) for e, setting in zip(evaluated, settings, strict=True)]
