"""Read/write policies: those that come with the library, and the protocol for one of your own.

    wait-k             a word more for each unit of the source, k behind (Papi et al. 2022)
    fixed-steps        (k, s, N): N tokens after k ms, then every s ms (Nguyen et al. 2021)
    alignatt           until the next token is aligned with the last states (Papi et al. 2023)
    edatt              until it attends too much to the last states (Papi et al. 2023)
    local-agreement    what the last hypotheses have in common (Liu et al. 2020)
    greedy             everything, at once                          (these four: Dugan et al. 2023)
    offline            nothing before the source has ended
    confidence         while the model is sure of it
    consensus          while the hypothesis before says much the same

While the source is live, all but wait-k drop an end-of-sentence, and read.

A class of your own needs a name, its numbers as fields, and one method. `--policy file.py:Class`
uses it, as do experiment files and `translator.stream(policy=...)`:

    @dataclass(frozen=True, kw_only=True)
    class Patient(Policy):
        name: ClassVar[str] = "patient"
        needs: ClassVar[tuple[Need, ...]] = ("attention",)
        share: float = setting(0.2, help="Share of the source.", label="share{:g}", above=0, high=1)

        def should_read(self, step: Step) -> Any:
            attended = step.attention.mean((0, -2)).argmax(-1)
            return attended >= (1 - self.share) * step.states
"""

import dataclasses
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np

from simuljax.config.fields import ConfigError, check, setting
from simuljax.config.loading import is_reference, load_object
from simuljax.config.segmentation import MS
from simuljax.errors import unknown

History = Literal["recomputed", "kept"]
Need = Literal["attention", "words", "units", "samples", "log_probability", "no_speech", "segments"]


class PolicyError(ConfigError):
    """A policy that does not exist, or that this model cannot run."""


@dataclass(frozen=True, kw_only=True)
class Step:
    """Everything that is known of the next units, of shape [...], before they are committed.

    A unit is a token, or where a model commits words or segments, one of these. A field is None
    where the policy does not need it (`Policy.needs`) or the model does not have it.
    """

    ended: Any  # bool: the source has ended
    states: Any  # int32: encoder states of the source so far
    since_read: Any  # int32: units committed since the last READ
    token: Any = None  # int32: the next token
    samples: Any = None  # int32: samples of speech so far
    units: Any = None  # int32: words in the source, of a text or by the CTC head
    words: Any = None  # int32: words of the target begun before this unit
    begins_word: Any = None  # bool: the unit does not just continue a word
    attention: Any = None  # float32 [layers, ..., heads, states]: cross-attention of the unit
    log_probability: Any = None  # float32: of the unit
    no_speech: Any = None  # float32: probability that nobody speaks


@dataclass(frozen=True, kw_only=True)
class Hypotheses:
    """The last hypotheses of B streams, the newest last, as arrays (NumPy's on the host)."""

    units: Any  # int32 [B, A, N]: equal numbers are equal units; negative where there is none
    step: Step | None = None  # [B, N]: what is known of the newest hypothesis
    texts: tuple[tuple[str, ...], ...] = ()  # of A hypotheses, their units; B is 1


@dataclass(frozen=True, kw_only=True)
class Policy:
    """Decide after every READ how much of what the model would write is committed.

    Override `should_read` to decide before each token, or `commit` to decide on whole hypotheses.
    Fields are declared with `setting`. Numbers among them arrive as arrays inside a compiled step,
    so that a sweep over them compiles once; fields named in `static` do not.
    """

    name: ClassVar[str] = ""
    needs: ClassVar[Any] = ()  # tuple[Need, ...], or a property
    unit: ClassVar[Literal["word", "segment"]] = "word"  # of models that commit no single tokens
    history: ClassVar[History] = "recomputed"  # of targets, if the encoder starts anew each READ
    drops_end: ClassVar[bool] = True  # end-of-sentence is not written while the source is live
    static: ClassVar[tuple[str, ...]] = ()  # numbers that shapes depend on
    looks_back: ClassVar[Any] = 0  # hypotheses before the newest that `commit` sees
    beam: ClassVar[Any] = 1  # hypotheses that are followed at once
    read_ms: ClassVar[Any] = None  # speech to a READ; None: as without a policy
    first_read_ms: ClassVar[Any] = None  # speech to the first READ; None: as to the others

    def __post_init__(self) -> None:
        check(self, PolicyError)

    def should_read(self, step: Step) -> Any:
        """Return bool [...]: the next unit has to wait until more of the source is there."""
        raise NotImplementedError(f"{type(self).__name__} overrides neither should_read nor commit")

    def commit(self, hypotheses: Hypotheses) -> Any:
        """Return int [B]: units of the newest hypothesis to commit while the source is live."""
        reads = self.should_read(hypotheses.step)  # pyright: ignore[reportArgumentType]
        return (reads.astype(int).cumsum(-1) == 0).sum(-1)

    @property
    def compares_hypotheses(self) -> bool:
        """Return True if whole hypotheses are judged, not tokens one by one."""
        return type(self).commit is not Policy.commit

    @property
    def is_incremental(self) -> bool:
        """Return True if it can go on from READ to READ with a streaming encoder."""
        return not self.compares_hypotheses

    def numbers(self) -> dict[str, Any]:
        """Return the fields that are arrays in a compiled step."""
        names = [field.name for field in dataclasses.fields(self) if field.name not in self.static]
        values = {name: getattr(self, name) for name in names}
        numbers = {n: v for n, v in values.items() if isinstance(v, int | float)}
        return {n: v for n, v in numbers.items() if not isinstance(v, bool)}

    def with_numbers(self, numbers: dict[str, Any]) -> "Policy":
        """Return the policy with other values, arrays perhaps, unchecked."""
        made = object.__new__(type(self))
        for field in dataclasses.fields(self):
            value = numbers.get(field.name, getattr(self, field.name))
            object.__setattr__(made, field.name, value)
        return made

    def template(self) -> "Policy":
        """Return what a program is compiled for: the policy without its numbers."""
        return self.with_numbers(dict.fromkeys(self.numbers(), 0))


Convention = Literal["papi", "stacl"]


@dataclass(frozen=True, kw_only=True)
class WaitK(Policy):
    """Begin target word n, from 0, once n + k units have arrived (`stacl`), or more (`papi`).

    A unit is `step_ms` of speech (`fixed`), or a word in the collapsed argmax of the CTC head, of
    which the `trailing` one may be unfinished; of a text, a word. A token that continues a word
    needs no unit, one that begins a word needs it, and so does end-of-sentence.
    """

    name: ClassVar[str] = "wait-k"
    drops_end: ClassVar[bool] = False
    k: int = setting(help="Units to wait for.", label="k{}", low=0)
    units: Literal["fixed", "ctc"] = setting(
        "fixed", help="Unit: a stretch of speech, or a word of the CTC head.", label="{}"
    )
    step_ms: int = setting(
        280, help="Speech to a unit, and to a READ.", label="step{}ms", low=1, unit="ms"
    )
    convention: Convention = setting(
        "papi", help="First word after k + 1 units (papi), or k (stacl).", label="{}"
    )
    trailing: Literal["count", "leave"] = setting(
        "count", help="Count a source word that may be unfinished, or not.", label="{}"
    )

    @property
    def needs(self) -> tuple[Need, ...]:  # pyright: ignore[reportIncompatibleVariableOverride]
        return ("words", "samples") if self.units == "fixed" else ("words", "units")

    @property
    def read_ms(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.step_ms

    @property
    def is_incremental(self) -> bool:
        return self.units == "fixed"  # a streaming step has no CTC head

    def should_read(self, step: Step) -> Any:
        units = step.units
        if self.units == "fixed" and step.samples is not None:
            units = step.samples // (self.step_ms * MS)
        ahead = units - step.words
        lacks = ahead < self.k if self.convention == "stacl" else ahead <= self.k
        return lacks & step.begins_word


@dataclass(frozen=True, kw_only=True)
class FixedSteps(Policy):
    """(k, s, N): step t reads g(t) = min(k + (t - 1) s, |X|) and writes at most N tokens.

    Targets stay as they were when written. With the source at its end, all is written.
    """

    name: ClassVar[str] = "fixed-steps"
    history: ClassVar[History] = "kept"
    first_ms: int = setting(help="Speech to the first READ: k.", label="first{}ms", low=1)
    step_ms: int = setting(help="Speech to every other READ: s.", label="step{}ms", low=1)
    tokens: int = setting(help="Tokens after a READ, at most: N.", label="n{}", low=1)

    @property
    def read_ms(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.step_ms

    @property
    def first_read_ms(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.first_ms

    @property
    def is_incremental(self) -> bool:
        return False  # every step encodes all of the source so far

    def should_read(self, step: Step) -> Any:
        return step.since_read >= self.tokens


@dataclass(frozen=True, kw_only=True)
class _Attention(Policy):
    """Look at the cross-attention of the next token; the papers take the mean of layer 4 of 6."""

    needs: ClassVar[tuple[Need, ...]] = ("attention",)
    frames: int = setting(
        25,
        help="States at the end of the source, which may yet change.",
        label="f{}",
        low=0,
        option="last_frames",
    )
    layer: int | None = setting(
        None, help="Decoder layer, from 1; None: the mean of all.", label="layer{}", low=1
    )
    heads: int | Literal["mean"] = setting(
        "mean", help="Head of the layer, from 1, or the mean of all.", label="head{}", low=1
    )

    def attention(self, step: Step) -> Any:
        """Return the attention [..., K] on every state."""
        weights = step.attention
        of_layers = weights.mean(0) if self.layer is None else weights[self.layer - 1]
        return of_layers.mean(-2) if self.heads == "mean" else of_layers[..., self.heads - 1, :]


@dataclass(frozen=True, kw_only=True)
class AlignAtt(_Attention):
    """Read if the next token attends most to one of the last `frames` states (`--last-frames`)."""

    name: ClassVar[str] = "alignatt"

    def should_read(self, step: Step) -> Any:
        attention = self.attention(step)
        xp = attention.__array_namespace__()
        there = xp.arange(attention.shape[-1]) < step.states[..., None]
        return xp.where(there, attention, -1).argmax(-1) >= step.states - self.frames


@dataclass(frozen=True, kw_only=True)
class EDAtt(_Attention):
    """Read if the attention on the last `frames` states (`--last-frames`) adds up to `alpha`."""

    name: ClassVar[str] = "edatt"
    alpha: float = setting(help="Attention from which to wait, say 0.1.", label="a{:g}", above=0)

    def should_read(self, step: Step) -> Any:
        attention, count = self.attention(step), step.states[..., None]
        place = attention.__array_namespace__().arange(attention.shape[-1])
        last = (place < count) & (place >= count - self.frames)
        return (attention * last).sum(-1) >= self.alpha


@dataclass(frozen=True, kw_only=True)
class LocalAgreement(Policy):
    """After every READ translate the source so far as if it were all there is.

    The longest common beginning of the last `agree` hypotheses is committed, and every later one
    begins with it. A hypothesis is greedy, or the best of a `beam`.
    """

    name: ClassVar[str] = "local-agreement"
    static: ClassVar[tuple[str, ...]] = ("agree", "beam")
    agree: int = setting(2, help="Hypotheses that must agree.", label="agree{}", low=2)
    beam: int = setting(1, help="Hypotheses that are followed at once.", label="beam{}", low=1)  # pyright: ignore[reportIncompatibleVariableOverride]

    @property
    def looks_back(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.agree - 1

    def commit(self, hypotheses: Hypotheses) -> Any:
        units = hypotheses.units[:, -self.agree :]
        first = units[:, :1]
        alike = ((units == first) & (first >= 0)).all(1)
        return alike.astype(int).cumprod(-1).sum(-1)


@dataclass(frozen=True, kw_only=True)
class Greedy(Policy):
    """Commit whatever the model writes."""

    name: ClassVar[str] = "greedy"
    unit: ClassVar[Literal["word", "segment"]] = "segment"

    def should_read(self, step: Step) -> Any:
        return step.since_read < 0


@dataclass(frozen=True, kw_only=True)
class Offline(Policy):
    """Commit nothing before the source has ended, or there is no more room for it."""

    name: ClassVar[str] = "offline"
    unit: ClassVar[Literal["word", "segment"]] = "segment"

    def should_read(self, step: Step) -> Any:
        return step.since_read >= 0


@dataclass(frozen=True, kw_only=True)
class Confidence(Policy):
    """Commit while the model is surer than `threshold` that somebody speaks, or of its text."""

    name: ClassVar[str] = "confidence"
    unit: ClassVar[Literal["word", "segment"]] = "segment"
    threshold: float = setting(0.5, help="Least probability.", label="p{:g}", low=0, high=1)
    by: Literal["no_speech", "log_probability"] = setting(
        "no_speech", help="1 - P(no speech), or exp(mean log P of the tokens).", label="{}"
    )

    @property
    def needs(self) -> tuple[Need, ...]:  # pyright: ignore[reportIncompatibleVariableOverride]
        return (self.by,)

    def should_read(self, step: Step) -> Any:
        if self.by == "no_speech":
            return ~(1 - step.no_speech > self.threshold)
        exp = step.log_probability.__array_namespace__().exp
        return ~(exp(step.log_probability) > self.threshold)


@dataclass(frozen=True, kw_only=True)
class Consensus(Policy):
    """Commit segments whose text is much the same in the hypothesis before, at the same place."""

    name: ClassVar[str] = "consensus"
    needs: ClassVar[tuple[Need, ...]] = ("segments",)
    unit: ClassVar[Literal["word", "segment"]] = "segment"
    looks_back: ClassVar[int] = 1
    threshold: float = setting(0.5, help="Least similarity.", label="p{:g}", low=0, high=1)

    def commit(self, hypotheses: Hypotheses) -> Any:
        """Return how many segments pass, up to the first that is new or too different."""
        before, now = ((), *hypotheses.texts)[-2:]
        pairs = zip(now, before, strict=False)
        accepted = [similarity(*pair) >= self.threshold for pair in pairs]
        count = accepted.index(False) if False in accepted else len(accepted)
        return np.array([count])


def similarity(first: str, second: str) -> float:
    """Return 1 - indel / (|first| + |second|), of insertions and deletions between the texts.

    indel = |first| + |second| - 2 LCS, so this is 2 LCS / (|first| + |second|); 1 of no text.
    """
    together = len(first) + len(second)
    return 2 * _common_length(first, second) / together if together else 1.0


def _common_length(first: str, second: str) -> int:
    """Return the length of the longest common subsequence."""
    lengths = [0] * (len(second) + 1)  # with the first n characters of `second`
    for one in first:
        above, lengths = lengths, [0]
        for n, other in enumerate(second):
            lengths.append(above[n] + 1 if one == other else max(above[n + 1], lengths[n]))
    return lengths[-1]


_KINDS = (
    *(WaitK, FixedSteps, AlignAtt, EDAtt, LocalAgreement),
    *(Greedy, Offline, Confidence, Consensus),
)
POLICIES: dict[str, type[Policy]] = {kind.name: kind for kind in _KINDS}
_ALSO = {"align-att": "alignatt", "ed-att": "edatt"}  # names in results of earlier versions


def policy_class(name: str) -> type[Policy]:
    """Return the policy of a name, or the class in a file: "path/to/file.py:Class"."""
    if is_reference(name):
        found = load_object(name)
        if not (isinstance(found, type) and issubclass(found, Policy)):
            raise PolicyError(f"{name} is not a class of simuljax.decode.policies.Policy")
        return found
    if _ALSO.get(name, name) not in POLICIES:
        raise PolicyError(
            f"policy: {unknown(name, POLICIES)}; choose one of {', '.join(POLICIES)} or "
            "a class of your own as path/to/file.py:Class"
        )
    return POLICIES[_ALSO.get(name, name)]
