"""Recordings of several utterances with pauses and silence around them, made of any corpus.

    utterances, shuffled -> groups of 1 to n -> [silence] first [pause] second ... last [silence]

Every utterance is in one recording. Groups, pauses and cuts follow from the seed, so that all hosts
and a resumed run see the same recordings.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from data_pipelines.dataset import Split, Table
from simuljax.audio import MS, RATE
from simuljax.config.experiment import Joining

MOST_CUT = 4  # a cut takes a quarter of an utterance at most


@dataclass(frozen=True, kw_only=True)
class JoinedUtterances:
    """Utterances by their places in the split, and the silence around them in ms.

    A negative first or last silence is cut from the beginning or the end.
    """

    members: tuple[int, ...]
    silence: tuple[int, ...]  # before each utterance, and after the last


@dataclass(frozen=True, kw_only=True)
class JoinedSplit(Split):
    """A split whose examples are recordings of the examples of another."""

    of: Split
    groups: Sequence[JoinedUtterances]

    def read(self, positions: Sequence[int]) -> list[Mapping[str, Any]]:
        """Read and join the utterances of these recordings."""
        chosen = [self.groups[position] for position in positions]
        stored = iter(self.of.read([member for each in chosen for member in each.members]))
        return [joined([next(stored) for _ in each.members], each) for each in chosen]


def join(split: Split, config: Joining, seed: int) -> Split:
    """Return the split as recordings of several utterances; text stays as it is."""
    if not split.table.samples.any():
        return split
    random = np.random.Generator(np.random.PCG64([seed, len(split)]))
    groups = [*_groups(split.table.samples, config, random)]
    table = _joined_table(split.table, groups)
    return JoinedSplit(name=split.name, table=table, source=(), of=split, groups=groups)


def _groups(
    samples: np.ndarray, config: Joining, random: np.random.Generator
) -> Iterator[JoinedUtterances]:
    """Cut the shuffled utterances into groups as long as allowed."""
    waiting, size, most = [], 0.0, 0
    for place in random.permutation(len(samples)).tolist():
        more = samples[place] / RATE + config.pause_s[1]
        if waiting and (len(waiting) == most or size + more > config.seconds):
            yield _group(waiting, samples, config, random)
            waiting, size = [], 0.0
        if not waiting:
            most = int(random.integers(1, config.utterances + 1))
        waiting.append(place)
        size += more
    if waiting:
        yield _group(waiting, samples, config, random)


def _group(
    members: list[int], samples: np.ndarray, config: Joining, random: np.random.Generator
) -> JoinedUtterances:
    ranges = [config.lead_s, *[config.pause_s] * (len(members) - 1), config.trail_s]
    silence = [round(1000 * random.uniform(*ends)) for ends in ranges]
    for end, member in ((0, members[0]), (-1, members[-1])):
        silence[end] = max(silence[end], -(int(samples[member]) // (MOST_CUT * MS)))
    return JoinedUtterances(members=tuple(members), silence=tuple(silence))


def _joined_table(table: Table, groups: Sequence[JoinedUtterances]) -> Table:
    def total(column: np.ndarray) -> np.ndarray:
        return np.array([column[[*each.members]].sum() for each in groups], np.int64)

    def texts(column: Sequence[str]) -> list[str]:
        found = ([column[member] for member in each.members] for each in groups)
        return [" ".join(filter(None, some)) for some in found]

    silence = np.array([MS * sum(each.silence) for each in groups], np.int64)
    return Table(
        samples=total(table.samples) + silence,
        words=total(table.words),
        phonemes=total(table.phonemes),
        id=["+".join(table.id[member] for member in each.members) for each in groups],
        speaker=[table.speaker[each.members[0]] for each in groups],
        transcript=texts(table.transcript),
        translation=texts(table.translation),
    )


def joined(stored: Sequence[Mapping[str, Any]], group: JoinedUtterances) -> dict[str, Any]:
    """Return audio and times of a recording, given its stored utterances."""
    sounds, at, starts = [], 0, []
    for example, silence in zip(stored, group.silence, strict=False):
        starts.append(at + silence * MS)
        sounds += [np.zeros(max(silence, 0) * MS, np.int16), example["audio"]]
        at = starts[-1] + len(example["audio"])
    lead, trail = group.silence[0], group.silence[-1]
    audio = np.concatenate([*sounds, np.zeros(max(trail, 0) * MS, np.int16)])
    audio = audio[max(-lead, 0) * MS : len(audio) - max(-trail, 0) * MS]
    times = {
        name: _shifted([each[name] for each in stored], starts, len(audio))
        for name in ("word_ms", "phoneme_ms")
    }
    return {"audio": audio, **times}


def _shifted(spans: Sequence[np.ndarray], starts: Sequence[int], samples: int) -> np.ndarray:
    """Return the spans in ms of all utterances, as times of the recording."""
    moved = [each.reshape(-1, 2) + start / MS for each, start in zip(spans, starts, strict=True)]
    return np.concatenate(moved).clip(0, samples / MS).astype(np.float32)
