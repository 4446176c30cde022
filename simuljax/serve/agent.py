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
from dataclasses import fields
from typing import Any, get_args

from simuljax.audio import RATE
from simuljax.cache import enable_compilation_cache
from simuljax.decode.choosing import make_policy
from simuljax.decode.options import Decoding, Gather, LengthLimit, Repetition
from simuljax.decode.policies import POLICIES, Policy
from simuljax.decode.stream import StreamLimits
from simuljax.serve.run_translator import load_run
from simuljax.serve.session import MS
from simuljax.serve.text_stream import TextReader, TextWord
from simuljax.serve.translator import Stream, Word, load

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
    """What SimulEval keeps of a sentence, and the stream that translates it."""

    def reset(self) -> None:
        """Another sentence."""
        super().reset()
        self.stream: Any = None  # a `Stream` or a `TextStream`, begun with the first of its source
        self.taken = 0  # of `source`

    def take(self) -> list[Any]:
        """What has come since the last time: samples, or words."""
        new, self.taken = self.source[self.taken :], len(self.source)
        return new


@entrypoint
class SpeechAgent(SpeechToTextAgent):
    """Speech to text. READs are of `--read-ms`, however SimulEval cuts the sound."""

    def __init__(self, args: Namespace):
        super().__init__(args)
        enable_compilation_cache()
        self.translator = load(args.run, args.checkpoint)
        self.settings = settings(args) | {
            "read_ms": args.read_ms,
            "predecision_ms": args.predecision_ms,
        }
        read_ms = self.begin(RATE).session.size // MS  # compiles, too
        if "source_segment_size" in args and read_ms % args.source_segment_size:
            log.warning(
                "a READ is %d ms and SimulEval sends %d ms at a time, so that delays are longer "
                "than they need be: say --source-segment-size %d",
                *(read_ms, args.source_segment_size, read_ms),
            )

    @staticmethod
    def add_args(parser: ArgumentParser) -> None:
        """What may be set on SimulEval's command line."""
        add_common_args(parser)
        parser.add_argument("--read-ms", type=int, help="speech to a READ")
        parser.add_argument("--predecision-ms", type=int, help="step between decisions")

    def begin(self, rate: int) -> Stream:
        """A stream of samples at this rate."""
        return self.translator.stream(rate=rate, **self.settings)

    def build_states(self) -> LiveStates:
        """With a stream in them."""
        return LiveStates()

    def policy(self, states: LiveStates) -> Action:
        """Writes what the new sound allows."""
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
        """What may be set on SimulEval's command line."""
        add_common_args(parser)

    def build_states(self) -> LiveStates:
        """With a stream in them."""
        return LiveStates()

    def policy(self, states: LiveStates) -> Action:
        """Writes what the new word allows."""
        states.stream = states.stream or self.reader.stream()
        return act(states.stream.push(" ".join(states.take())), states)


def act(words: Sequence[Word | TextWord], states: LiveStates) -> Action:
    """The words as SimulEval wants them, with those that the end of the source brings."""
    ended = states.source_finished
    if ended:
        words = [*words, *states.stream.finish()]
    if not words and not ended:
        return ReadAction()
    return WriteAction(" ".join(word.text for word in words), finished=ended)


def add_common_args(parser: ArgumentParser) -> None:
    """Settings of speech and text, as in `simuljax evaluate`; what is left out is as usual."""
    usual, limits = Decoding(), StreamLimits()
    add = parser.add_argument
    add("--run", required=True, help="directory of a trained run")
    add("--checkpoint", choices=("best", "last", "averaged"), default="best")
    add("--threshold", type=float, default=usual.threshold, help="on the probability of writing")
    add("--k", type=int, help="of wait-k; by default as the run was trained")
    add("--gather", choices=get_args(Gather), default=usual.gather, help="which heads decide")
    for name in ("--force-finish", "--avoid-eos-while-reading"):
        add(name, action=BooleanOptionalAction, default=False)
    add("--length-ratio", type=float, default=usual.limit.ratio, help="tokens per source state")
    add("--length-constant", type=int, default=usual.limit.constant, help="tokens beside that")
    add("--repetition", type=int, nargs=2, metavar=("LONGEST", "TIMES"), help="guard against it")
    add("--max-states", type=int, default=limits.states, help="of a source: 40 ms, or a piece")
    add("--max-tokens", type=int, default=limits.tokens, help="of a translation")
    add_policy_args(parser)


def add_policy_args(parser: ArgumentParser) -> None:
    """What decides for a run that was trained offline, and the options of each policy."""
    group = parser.add_argument_group("policies of runs that were trained offline")
    add = group.add_argument
    add("--policy", help=f"{', '.join(POLICIES)}, or path/to/file.py:Class; by default the end")
    add("--units", choices=("fixed", "ctc"), help="of wait-k")
    add("--step-ms", type=int, help="of wait-k and fixed-steps: speech to a READ")
    add("--convention", choices=("papi", "stacl"), help="of wait-k")
    add("--trailing", choices=("count", "leave"), help="of wait-k: a word that may be unfinished")
    add("--first-ms", type=int, help="of fixed-steps: k")
    add("--tokens", type=int, help="of fixed-steps: N")
    add("--agree", type=int, help="of local-agreement: hypotheses")
    add("--beam", type=int, help="of local-agreement")
    add("--last-frames", type=int, dest="frames", help="of align-att and ed-att: states")
    add("--alpha", type=float, help="of ed-att")
    add("--layer", type=int, help="of align-att and ed-att, from 1")
    add("--heads", type=int, help="of align-att and ed-att: one of them, from 1")
    add("--scores", choices=("paper", "release"), help="of align-att and ed-att")


def policy_of(args: Namespace) -> Policy | None:
    """The policy that the arguments ask for."""
    if args.policy is None:
        return None
    names = {field.name for kind in POLICIES.values() for field in fields(kind)}
    return make_policy(args.policy, {name: getattr(args, name) for name in names if name in args})


def settings(args: Namespace) -> dict[str, Any]:
    """The arguments as `Translator.stream` and `TextReader` take them."""
    repetition = None
    if args.repetition:
        repetition = Repetition(longest=args.repetition[0], times=args.repetition[1])
    return {
        "threshold": args.threshold,
        "k": args.k,
        "gather": args.gather,
        "force_finish": args.force_finish,
        "avoid_eos_while_reading": args.avoid_eos_while_reading,
        "limit": LengthLimit(ratio=args.length_ratio, constant=args.length_constant),
        "repetition": repetition,
        "policy": policy_of(args),
        "states": args.max_states,
        "tokens": args.max_tokens,
    }
