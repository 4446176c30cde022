"""Agents for SimulEval 1.1, which drives a trained run word by word or READ by READ.

    simuleval --agent-class simuljax.serve.agent.SpeechAgent --run RUN \\
        --source wavs.txt --target references.txt --source-segment-size 280 --output out
    simuleval --agent-class simuljax.serve.agent.TextAgent --run RUN \\
        --source source.txt --target references.txt --output out

SimulEval counts delays itself, from what it has sent; the agents only say what is written when. It
begins a new sentence as soon as an agent calls the one at hand finished, even in the middle of a
recording, so an agent whose model has ended early reads on in silence until the source has ended.
"""

import logging
from argparse import ArgumentParser, BooleanOptionalAction, Namespace
from collections.abc import Sequence
from typing import Any, get_args

from simuljax.audio import MS, RATE
from simuljax.cache import enable_compilation_cache
from simuljax.config.decoding import Decoding
from simuljax.config.options import Option, from_options, leaf_types, options_of
from simuljax.decode.context import StreamLimits
from simuljax.decode.policies import POLICIES
from simuljax.eval.spacing import join_words
from simuljax.serve.cascade import TextReader, TextWord
from simuljax.serve.run_translator import load_run
from simuljax.serve.session import Stream, Word
from simuljax.serve.translator import load
from simuljax.serve.whisper import WhisperTranslator

try:
    from simuleval.agents import (  # pyright: ignore[reportMissingImports]
        Action,
        AgentStates,
        ReadAction,
        SpeechToTextAgent,
        TextToTextAgent,
        WriteAction,
    )
    from simuleval.utils import entrypoint  # pyright: ignore[reportMissingImports]
except ImportError as error:
    raise ImportError(
        "simuljax.serve.agent needs SimulEval: pip install simuleval==1.1.4"
    ) from error

log = logging.getLogger("simuljax.serve.agent")


class LiveStates(AgentStates):
    """The state that SimulEval keeps of a sentence, and the stream that translates it."""

    def reset(self) -> None:
        super().reset()
        self.stream: Any = None  # a `Stream` or a `TextStream`, begun with the first of its source
        self.taken = 0  # of `source`

    def take(self) -> list[Any]:
        """Return the samples, or words, that came since the last time."""
        new, self.taken = self.source[self.taken :], len(self.source)
        return new


@entrypoint
class SpeechAgent(SpeechToTextAgent):
    """Speech to text. READs are of `--read-ms`, however SimulEval cuts the sound."""

    def __init__(self, args: Namespace):
        super().__init__(args)
        enable_compilation_cache()
        self.translator = load(args.run, args.checkpoint)
        recogniser = getattr(self.translator, "recogniser", self.translator)  # of a cascade
        is_whisper = isinstance(recogniser, WhisperTranslator)
        self.settings = whisper_settings(args) if is_whisper else settings(args)
        read_ms = self.begin(RATE).session.size // MS  # compiles, too
        if "source_segment_size" in args and read_ms % args.source_segment_size:
            log.warning(
                "a READ is %d ms and SimulEval sends %d ms at a time, so that delays are longer "
                "than they need be: say --source-segment-size %d",
                *(read_ms, args.source_segment_size, read_ms),
            )

    @staticmethod
    def add_args(parser: ArgumentParser) -> None:
        add_common_args(parser)
        parser.add_argument("--task", choices=("translate", "transcribe"), help="of Whisper")
        parser.add_argument("--language", help="that is spoken to Whisper; by default detected")

    def begin(self, rate: int) -> Stream:
        return self.translator.stream(rate=rate, **self.settings)

    def build_states(self) -> LiveStates:
        return LiveStates()

    def policy(self, states: LiveStates) -> Action:
        new = states.take()
        if states.stream is None:
            states.stream = self.begin(states.source_sample_rate or RATE)
        return act(states.stream.push(new), states)


@entrypoint
class TextAgent(TextToTextAgent):
    """Text to text. A READ is a word."""

    def __init__(self, args: Namespace):
        super().__init__(args)
        enable_compilation_cache()
        self.reader = TextReader(load_run(args.run, args.checkpoint), **settings(args))

    @staticmethod
    def add_args(parser: ArgumentParser) -> None:
        add_common_args(parser, without=("read_ms", "predecision_ms"))

    def build_states(self) -> LiveStates:
        return LiveStates()

    def policy(self, states: LiveStates) -> Action:
        states.stream = states.stream or self.reader.stream()
        return act(states.stream.push(" ".join(states.take())), states)


def act(words: Sequence[Word | TextWord], states: LiveStates) -> Action:
    """Return the words as SimulEval wants them, with those at the end of the source."""
    ended = states.source_finished
    if ended:
        words = [*words, *states.stream.finish()]
    if not words and not ended:
        return ReadAction()
    return WriteAction(join_words(word.text for word in words), finished=ended)


def add_common_args(parser: ArgumentParser, without: Sequence[str] = ()) -> None:
    """Add the options of `Decoding` and of all policies, as `simuljax evaluate` has them."""
    limits, add = StreamLimits(), parser.add_argument
    add("--run", required=True, help="a trained run, a Whisper file, a cascade of two, or en-de")
    add("--checkpoint", choices=("best", "last", "averaged"), default="best")
    add("--max-states", type=int, default=limits.states, help="of a source: 40 ms, or a piece")
    add("--max-tokens", type=int, default=limits.tokens, help="of a translation")
    for name, option in decoding_options().items():
        if name in without:
            continue
        choices = [c for kind in leaf_types(option.type) for c in get_args(kind)] or None
        if option.type is bool:
            add(option.flag, action=BooleanOptionalAction, default=None, help=option.setting.help)
        else:
            read = str if choices and name != "heads" else option.parse
            choices = choices if read is str else None
            add(option.flag, type=read, choices=choices, help=option.setting.help)


def decoding_options() -> dict[str, Option]:
    """Return the options of decoding and of all policies; of one name, the first."""
    known = options_of(Decoding)
    for policy in POLICIES.values():
        known = options_of(Decoding, policy) | known
    return known


def settings(args: Namespace) -> dict[str, Any]:
    """Return the arguments as `Translator.stream` and `TextReader` take them."""
    given = {name: getattr(args, name, None) for name in decoding_options()}
    decoding = from_options(Decoding, {k: v for k, v in given.items() if v is not None})
    return {"decoding": decoding, "states": args.max_states, "tokens": args.max_tokens}


def whisper_settings(args: Namespace) -> dict[str, Any]:
    """Return the arguments as `WhisperTranslator.stream` takes them; None is the default."""
    given = {name: getattr(args, name) for name in ("read_ms", "task", "language")}
    decoding = settings(args)["decoding"]
    given |= {"policy": decoding.policy, "stammer": decoding.stammer}
    return {name: value for name, value in given.items() if value is not None}
