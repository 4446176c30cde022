"""Decoding: the policy, the search and the limits of a stream or a whole source."""

from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any, Literal

from simuljax.config.fields import Checked, ConfigError, check, setting, settings
from simuljax.config.model import ModelConfig, PreDecision
from simuljax.config.segmentation import Segmentation
from simuljax.decode.policies import POLICIES, Policy, PolicyError

Gather = Literal["any", "majority", "mean"]
Branch = Literal["speech", "text"]
Arrival = Literal["live", "whole"]
Sentences = Literal["one", "many", "pauses"]


@dataclass(frozen=True, kw_only=True)
class LengthLimit(Checked):
    """At most ratio * source + constant tokens, end-of-sentence included.

    The source counts in encoder states, as far as it has been read.
    """

    ratio: float = setting(
        1.5,
        help="Tokens per state of the source (40 ms, or a piece) at most.",
        label="ratio{:g}",
        option="length_ratio",
        low=0,
    )
    constant: int = setting(
        10, help="Tokens beside that.", label="plus{}", option="length_constant"
    )

    def of(self, states: int) -> int:
        return int(self.ratio * states) + self.constant


@dataclass(frozen=True, kw_only=True)
class Repetition(Checked):
    """A limit of the search: a phrase of 1 to `longest` tokens may stand `times` times in a row.

    The search takes the best other token. `Stammer` is about words that may be committed.
    """

    longest: int = setting(
        4, help="Tokens of a repeated phrase.", label="phrase{}", option="repeated_tokens", low=1
    )
    times: int = setting(
        3,
        help="Times that a phrase may be repeated.",
        label="times{}",
        option="repeats_at_most",
        low=1,
    )

    @property
    def window(self) -> int:
        """Return how many tokens back a repetition reaches."""
        return self.longest * (self.times + 1) - 1


@dataclass(frozen=True, kw_only=True)
class Stammer(Checked):
    """The most that a text may repeat itself; what goes beyond is not written."""

    times: int = setting(
        2,
        help="Times that a phrase may be written in a row, and once more a part of a word; 0: any.",
        label="stammer{}",
        option="stammer_times",
        low=0,
    )
    words: int = setting(
        12,
        help="Words of the longest phrase that counts.",
        label="stammerwords{}",
        option="stammer_words",
        low=1,
    )


@dataclass(frozen=True, kw_only=True)
class Blocks(Checked):
    """CAAT's beam while the source is live: hypotheses inside a group, and after it.

    With one `across`, all of a group is committed.
    """

    inside: int = setting(
        5, help="Hypotheses inside a group; 1 is greedy.", label="inside{}", low=1
    )
    across: int = setting(1, help="Hypotheses that live on after a group.", label="across{}", low=1)
    longest: int = setting(
        32,
        help="Labels in a group while the source is live.",
        label="group{}",
        option="group_labels",
        low=1,
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.across > self.inside:
            raise ConfigError(f"across is {self.across}; it must be at most inside, {self.inside}")


@dataclass(frozen=True, kw_only=True)
class Beam(Checked):
    """Beam search of a whole source; it is over once K hypotheses have ended, as in fairseq."""

    size: int = setting(
        5, help="Hypotheses followed at once.", label="beam{}", option="beam", low=1
    )
    length_penalty: float = setting(
        1.0, help="Scores are log p / length ** this.", label="lp{:g}", low=0
    )


@dataclass(frozen=True, kw_only=True)
class PolicyConfig:
    """A read/write policy; the fields of its class are options too."""

    policy: Policy | None = setting(
        None,
        help=f"Policy of a model trained offline: {', '.join(POLICIES)}, or FILE.py:CLASS; by "
        "default it waits for the end. `--policy NAME --help` lists the options of a policy.",
        label="{}",
    )


@dataclass(frozen=True, kw_only=True)
class Decoding(PolicyConfig):
    """When to write, how to search, and what not to write.

    `gather`: the decoder reads if `any` head waits, if the `majority` of all heads of all layers
    does, or if the `mean` of their probabilities of writing, each at the decision where the head
    stands, is below the threshold. A head that is overruled attends as from the last decision.

    While the source is live, `force_finish` lets end-of-sentence write nothing and read on, and
    `avoid_eos_while_reading` takes the best other token in its place.

    A stream is over with its first sentence (`one`); or it goes on after the model's end of
    sentence (`many`); or it is cut into segments at pauses, each a sentence of its own (`pauses`).
    """

    read_ms: int | None = setting(
        None,
        help="Speech to a READ; by default the step between decisions.",
        label="read{}ms",
        low=1,
        unit="ms",
        applies="words written before the source ends",
    )
    predecision_ms: int | None = setting(
        None,
        help="Step between decisions; by default as trained.",
        label="{}ms",
        low=40,
        unit="ms",
        applies="decisions in steps of speech",
    )
    threshold: float = setting(
        0.5,
        help="Probability from which a head writes.",
        label="p{:g}",
        above=0,
        below=1,
        applies="learned monotonic heads",
    )
    k: int | None = setting(
        None,
        help="Lag of wait-k; by default the middle of those trained.",
        label="k{}",
        low=1,
        applies="wait-k heads",
    )
    gather: Gather = setting(
        "any",
        help="Which heads decide.",
        label="{}",
        applies=("learned monotonic heads", "a live source"),
    )
    force_finish: bool = setting(
        False,
        help="Read on at an end-of-sentence before the source ends.",
        label="finish",
        applies="tokens written before the source ends",
    )
    avoid_eos_while_reading: bool = setting(
        False,
        help="Write the best other token in place of an early end-of-sentence.",
        label="avoid",
        applies="tokens written before the source ends",
    )
    beam: Beam | None = setting(
        None, help="Beam search; by default greedy.", applies="a whole source"
    )
    blocks: Blocks = setting(Blocks(), help="CAAT's search.", applies=("CAAT", "a live source"))
    limit: LengthLimit = setting(LengthLimit(), help="Greatest length.")
    repetition: Repetition | None = setting(None, help="Limit of repetitions in the search.")
    stammer: Stammer = setting(Stammer(), help="Guard against repetitions in what is written.")
    sentences: Sentences = setting(
        "one",
        help="Stop after the first sentence, go on after each, or cut the stream at pauses.",
        label="{}",
        applies=("a live source", "speech"),
    )
    segmentation: Segmentation = setting(
        Segmentation(), help="Cut at pauses.", applies="speech cut at pauses"
    )

    def __post_init__(self) -> None:
        check(self)
        if self.predecision_ms is not None:
            PreDecision(step_ms=self.predecision_ms)

    def decoding(self) -> "Decoding":
        """Return the decoding alone, of a class that adds other fields."""
        return Decoding(**{field.name: getattr(self, field.name) for field in fields(Decoding)})

    def reads_ms(self, step_ms: int) -> tuple[int, int]:
        """Return the speech to the first READ and to every other; `step_ms` is that to a decision.

        A policy may want READs of its own size.
        """
        policy = self.policy
        size = self.read_ms or (policy.read_ms if policy else None) or step_ms
        return (policy.first_read_ms if policy else None) or size, size

    def fixed(self) -> "Decoding":
        """Return the choices that are compiled in; numbers that a sweep varies are arrays."""
        policy = None if self.policy is None else self.policy.template()
        on_host = {"stammer": Stammer(), "sentences": "one", "segmentation": Segmentation()}
        return replace(
            self.decoding(),
            **{"threshold": 0.5, "k": None, "policy": policy, "read_ms": None},
            **{"predecision_ms": None, **on_host},
        )


def properties(
    decoding: Decoding, model: ModelConfig, source: Arrival = "live", branch: Branch = "speech"
) -> set[str]:
    """Return what `applies` of a field can ask for and these have."""
    own, live, by_itself = model.monotonic.policy, source == "live", decoding.policy is None
    # Heads that count words leave the decision to a policy.
    heads_decide = own == "learned" or (own == "wait_k" and model.monotonic.counts == "tokens")
    groups = model.decoder == "caat" and branch == "speech"
    early = not by_itself or groups or heads_decide  # may write before a live source has ended
    windows = model.predecision.kind == "fixed"
    if live:
        own_step = None if decoding.policy is None else decoding.policy.read_ms
        reads = decoding.read_ms is None and own_step is None
        steps = early and (reads or (windows and by_itself))
    else:
        steps = windows and model.decoder != "caat" and early
    found = {
        "a live source": live,
        "a whole source": not live,
        "learned monotonic heads": own == "learned" and by_itself,
        "wait-k heads": own == "wait_k" and heads_decide and by_itself,
        "CAAT": groups and by_itself,
        "speech": branch == "speech",
        "speech cut at pauses": live and branch == "speech" and decoding.sentences == "pauses",
        "tokens written before the source ends": live and early and not (groups and by_itself),
        "words written before the source ends": early,
        "decisions in steps of speech": steps and branch == "speech",
    }
    return {name for name, has in found.items() if has}


def without_effect(
    decoding: Decoding, model: ModelConfig, *, source: Arrival = "live", branch: Branch = "speech"
) -> dict[str, str]:
    """Return the fields that are not the default and yet change nothing, with the reason."""
    has, usual = properties(decoding, model, source, branch), Decoding()
    idle: dict[str, str] = {}
    for name, declared in settings(usual).items():
        missing = [needed for needed in declared.applies if needed not in has]
        chosen, default = getattr(decoding, name), getattr(usual, name)
        if not missing or chosen == default:
            continue
        changed = [declared.option or name]
        if default is not None and is_dataclass(default):
            parts = settings(default).items()
            changed = [
                part.option or inner
                for inner, part in parts
                if getattr(chosen, inner) != getattr(default, inner)
            ]
        idle |= dict.fromkeys(changed, f"applies only to {missing[0]}")
    return idle


def check_policy(policy: Any, model: ModelConfig, branch: Branch = "speech") -> None:
    """Refuse a policy that this model cannot run."""
    if policy is None:
        return
    name, own = policy.name, model.monotonic.policy
    if own != "offline" and not (own == "wait_k" and name == "wait-k"):
        raise PolicyError(
            f"policy {name} is for models trained offline, and this one decides by itself "
            f"(monotonic.policy is {own!r}): leave the policy out"
        )
    if model.decoder == "caat" and "attention" in policy.needs:
        raise PolicyError(f"policy {name} needs cross-attention weights, and CAAT has none")
    for need in ("segments", "no_speech"):
        if need in policy.needs:
            raise PolicyError(f"policy {name} needs {need}, which only a Whisper model writes")
    if branch == "text" and name == "fixed-steps":
        raise PolicyError("policy fixed-steps counts milliseconds, and a text has none: use wait-k")
    if (
        branch == "speech"
        and "units" in policy.needs
        and not (model.speech and model.speech.ctc_after)
    ):
        raise PolicyError(
            "units='ctc' counts the words that a CTC head hears, and the model has none "
            "(speech.ctc_after): use units='fixed'"
        )
    heads = 1 if model.decoder == "lstm" else model.width_of_decoder.heads
    for field, most in (("layer", model.decoder_layers), ("heads", heads)):
        value = getattr(policy, field, None)
        if "attention" in policy.needs and isinstance(value, int) and value > most:
            raise PolicyError(f"{field} is {value}; the decoder has {most}")
