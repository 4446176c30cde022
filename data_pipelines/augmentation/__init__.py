"""Changes to a training split before it is written: more speech, other translations.

Two more copies at other speeds are those of Nguyen et al. 2021. A copy with random effects and as
many teacher's translations of the original speech (`distil_mode` join) are those of Zaidi et al.
2022, section 3.2: no copy has both sides augmented.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from data_pipelines.augmentation.distillation import distilled, teacher_of
from data_pipelines.augmentation.effects import Augmented, Effects, at_speed, random_effects
from data_pipelines.utterance import CorpusError, Listing, Utterance

SPEEDS = (0.9, 1.1)


@dataclass(frozen=True, kw_only=True)
class Transform:
    """Changes to the training split; validation and test stay as they are."""

    augment: Literal["none", "speed", "effects"] = "none"
    """speed: copies at .9 and 1.1 of the speed; effects: a copy with random tempo, pitch, echo."""
    distil: str | None = None
    """A teacher: the directory of a run that translates text, or a command from lines to lines."""
    distil_mode: Literal["replace", "join"] = "replace"
    """The teacher's translations replace the references, or join them."""

    def __post_init__(self) -> None:
        if self.distil is not None and not self.distil.strip():
            raise ValueError("distil is blank; name the run or the command of the teacher")
        if self.augment == "effects" and self.distil and self.distil_mode == "replace":
            raise ValueError(
                "effects pair augmented speech with original translations, which `replace` removes:"
                " use --distil-mode join, or --augment speed"
            )

    def __call__(self, listing: Listing, work: Path) -> Listing:
        """Change the training split of a listing; `work` stores a teacher's translations."""
        if self == Transform():
            return listing
        if "train" not in listing.splits:
            raise CorpusError("there is no training split to augment or distil")
        changed = self._train(listing.splits["train"], work)
        return replace(listing, splits={**listing.splits, "train": changed})

    def _train(self, train: Sequence[Utterance], work: Path) -> Sequence[Utterance]:
        if self.augment != "none" and not any(utterance.audio for utterance in train):
            raise CorpusError(f"--augment {self.augment} needs speech; the training split has none")
        if self.distil and not any(utterance.transcript for utterance in train):
            raise CorpusError("--distil needs transcripts; the training split has none")
        students: Sequence[Utterance] = ()
        if self.distil:
            teacher = teacher_of(self.distil)
            students = distilled(train, work / "teacher", teacher)
        copies = [replace(u, id=f"{u.id}-text") for u in students]
        if self.augment == "effects":
            speech = [_with_effects(u, random_effects(u.id), "speech") for u in train if u.audio]
            return [*train, *speech, *(copy for copy in copies if copy.audio)]
        if students:
            train = students if self.distil_mode == "replace" else [*train, *copies]
        if self.augment == "speed":
            spoken = [u for u in train if u.audio]
            train = [*train, *(_at_speed(u, factor) for factor in SPEEDS for u in spoken)]
        return train


def _at_speed(utterance: Utterance, factor: float) -> Utterance:
    copy = _with_effects(utterance, at_speed(factor), f"speed{factor}")
    return replace(copy, audio_origin=f"speed {factor}")


def _with_effects(utterance: Utterance, effects: Effects, suffix: str) -> Utterance:
    assert utterance.audio is not None
    return replace(
        utterance,
        id=f"{utterance.id}-{suffix}",
        audio=Augmented(source=utterance.audio, effects=effects),
        audio_origin=str(effects),
    )
