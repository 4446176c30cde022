"""`simuljax translate`: words on the terminal as they are committed."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
import tyro

from simuljax.audio.sources import Pace, microphone, sound_file, standard_input
from simuljax.cache import enable_compilation_cache
from simuljax.decode.choosing import PolicyOptions, check_policy
from simuljax.decode.options import Decoding, without_effect
from simuljax.decode.policies import PolicyError
from simuljax.errors import SimuljaxError
from simuljax.models.config import PreDecision
from simuljax.models.config import Translator as Model
from simuljax.serve.run import RunError, open_run
from simuljax.serve.translator import Word, load

# Without meaning for a file that is heard whole.
OF_STREAMS = (
    "pace",
    "timeline",
    "sentences",
    "read_ms",
    "predecision_ms",
    "threshold",
    "k",
    "force_finish",
    "avoid_eos_while_reading",
    "policy",
)


class ListeningError(SimuljaxError):
    """What is asked for does not go together."""


@dataclass(frozen=True, kw_only=True)
class Listening(PolicyOptions):
    """What is heard, and how words are shown."""

    run: Annotated[Path, tyro.conf.Positional]
    """The directory of a trained run."""
    audio: Annotated[str | None, tyro.conf.Positional] = None
    """A sound file, or - for raw samples on standard input (16-bit little-endian mono, 16 kHz)."""
    mic: bool = False
    """Listen to the microphone; Ctrl-C ends."""
    pace: Pace = "fast"
    """A file as fast as it goes, or at the speed it was spoken."""
    timeline: bool = False
    """A line for every word, with what had been heard when it was written."""
    offline: bool = False
    """Hear the whole file first, then translate it."""
    beam: int = 1
    """Hypotheses that are followed at once, with --offline or --policy local-agreement."""
    checkpoint: Literal["best", "last", "averaged"] = "best"
    sentences: Literal["one", "many"] = "many"
    """Whether speech goes on after the model has ended a sentence."""
    read_ms: int | None = None
    """Speech to a READ; by default the step between decisions."""
    predecision_ms: int | None = None
    """Step between decisions; by default as trained."""
    threshold: float = 0.5
    """On the probability of writing."""
    force_finish: bool = False
    """End-of-sentence before the sound has ended writes nothing, and reads on."""
    avoid_eos_while_reading: bool = False
    """The best other token in its place."""

    def decoding(self) -> Decoding:
        """The choices of decoding; a ValueError says which cannot be."""
        return Decoding(
            threshold=self.threshold,
            k=self.k if self.policy is None else None,
            force_finish=self.force_finish,
            avoid_eos_while_reading=self.avoid_eos_while_reading,
            policy=self.chosen_policy(beam=self.beam),
        )


def translate_command(chosen: Listening) -> Callable[[], None]:
    """Translate speech live: words appear as they are committed."""
    try:
        check(chosen)
    except ValueError as error:  # of the models' own too, which know no command line
        raise ListeningError(str(error)) from None
    model = open_run(chosen.run).model
    if chosen.audio not in (None, "-") and not Path(chosen.audio).exists():
        raise ListeningError(f"there is no sound file {chosen.audio}")
    if not chosen.offline:
        check_run(chosen, model)
    return lambda: translate(chosen)


def check(chosen: Listening) -> None:
    """Refuses what does not go together, before anything is loaded."""
    if chosen.mic == (chosen.audio is not None):
        raise ValueError("give a sound file, -, or --mic")
    if chosen.offline:
        _check_offline(chosen)
    elif chosen.beam > 1 and chosen.policy != "local-agreement":
        raise ValueError(
            "--beam needs --offline, or --policy local-agreement: committed words stay"
        )
    if chosen.pace != "fast" and (chosen.mic or chosen.audio == "-"):
        raise ValueError("--pace is for files: what is heard live has its own")
    for name in ("beam", "read_ms"):
        value = getattr(chosen, name)
        if value is not None and value < 1:
            raise ValueError(f"{_option(name)} {value}: it counts from 1")
    chosen.decoding()
    if chosen.predecision_ms is not None:
        _check_step(chosen.predecision_ms)


def check_run(chosen: Listening, model: Model) -> None:
    """Refuses what this model cannot do, or what would change nothing."""
    decoding = chosen.decoding()
    try:
        check_policy(decoding.policy, model)
    except PolicyError as error:
        raise RunError(f"{chosen.run}: {error}") from None
    for name, why in without_effect(decoding, model).items():
        raise RunError(f"{chosen.run}: {_option(name)} would change nothing: it {why}")


def _check_offline(chosen: Listening) -> None:
    if chosen.mic or chosen.audio == "-":
        raise ValueError("--offline hears a whole file first: give a sound file, or leave it out")
    usual = {field.name: field.default for field in fields(chosen)}
    for name in OF_STREAMS:
        if getattr(chosen, name) != usual[name]:
            raise ValueError(f"{_option(name)} is of speech that is heard live: not with --offline")


def _check_step(ms: int) -> None:
    try:
        PreDecision(step_ms=ms)
    except ValueError as error:
        raise ValueError(f"--predecision-ms {ms}: {error}") from None


def _option(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def translate(chosen: Listening) -> None:
    """Loads the run, listens, shows."""
    enable_compilation_cache()
    translator = load(chosen.run, chosen.checkpoint)
    if chosen.offline:
        assert chosen.audio is not None
        print(translator.translate(chosen.audio, beam=chosen.beam))
        return
    stream = translator.stream(
        sentences=chosen.sentences,
        read_ms=chosen.read_ms,
        predecision_ms=chosen.predecision_ms,
        decoding=chosen.decoding(),
    )
    chunk = stream.listener.read
    try:
        for samples in heard(chosen, chunk):
            show(stream.push(samples), chosen)
    except KeyboardInterrupt:
        pass
    show(stream.finish(), chosen)
    if not chosen.timeline:
        print()


def show(words: list[Word], chosen: Listening) -> None:
    """On one line, or with times one below the other."""
    for word in words:
        if chosen.timeline:
            print(f"{word.delay_ms:9.0f} ms {word.elapsed_ms:9.0f} ms  {word.text}", flush=True)
        else:
            print(word.text, end=" ", flush=True)


def heard(chosen: Listening, chunk: int) -> Iterator[np.ndarray]:
    """Samples in pieces of `chunk`."""
    if chosen.mic:
        return microphone(chunk)
    if chosen.audio == "-":
        return standard_input(chunk)
    assert chosen.audio is not None
    return sound_file(chosen.audio, chunk, chosen.pace)
