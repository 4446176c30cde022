"""Which checkpoints stay: the latest, the best, their neighbours, and one every so often."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Retention:
    """The latest stay, those with the highest scores, the multiples of `every`, and as many as
    `around` nearest to the best, for their average."""

    keep_last: int
    keep_best: int
    every: int | None
    around: int = 0

    def __post_init__(self) -> None:
        if self.keep_last < 1 or self.keep_best < 0 or (self.every is not None and self.every < 1):
            raise ValueError(
                f"keep_last={self.keep_last}, keep_best={self.keep_best}, every={self.every}: at "
                "least one has to stay, so keep_last >= 1, keep_best >= 0, every >= 1 or None."
            )

    def kept(self, scores: Mapping[int, float | None]) -> set[int]:
        """The steps that stay, of those with their scores."""
        steps = sorted(scores)
        best = ranked(scores)
        last = max(self.keep_last, self.around)  # a new best finds its neighbours still there
        period = {step for step in steps if self.every and step % self.every == 0}
        near = around_best(steps, best[0], min(self.around, len(steps))) if best else []
        return {*steps[-last:], *best[: self.keep_best], *period, *near}


def ranked(scores: Mapping[int, float | None]) -> list[int]:
    """Steps with a score, best first."""
    return sorted(
        (step for step, score in scores.items() if score is not None),
        key=lambda step: (-(scores[step] or 0.0), step),
    )


def around_best(steps: Sequence[int], best: int, n: int) -> list[int]:
    """The n saved steps nearest to the best, itself among them; the earlier of two as near."""
    if best not in steps:
        raise ValueError(f"The best step {best} is not among the saved steps {sorted(steps)}.")
    if not 0 <= n <= len(steps):
        raise ValueError(
            f"Cannot take {n} checkpoints around step {best}: {len(steps)} are saved "
            f"({sorted(steps)}). Take fewer, or keep more of them while training."
        )
    return sorted(sorted(steps, key=lambda step: (abs(step - best), step))[:n])
