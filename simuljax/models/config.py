"""The sizes and choices of a translator, as one frozen document that is stored with every run."""

from dataclasses import dataclass, field, replace
from typing import Literal, get_args

from simuljax.nn.layers import Width, check_heads
from simuljax.nn.monotonic import Monotonic
from simuljax.nn.subsampling import STRIDE

Encoder = Literal["transformer", "s_transformer", "streaming", "vgg_blstm", "conformer"]
Decoder = Literal["monotonic", "lstm", "caat"]
DecisionKind = Literal["every_state", "fixed", "words", "phonemes", "learnable", "ctc_words"]


@dataclass(frozen=True, kw_only=True)
class PreDecision:
    """Where the speech branch decides (Ma et al. 2020); the text branch decides at every token."""

    kind: DecisionKind = "fixed"
    step_ms: int = 280
    pooling: Literal["average", "last"] = "average"

    def __post_init__(self) -> None:
        if self.kind not in get_args(DecisionKind):
            raise ValueError(f"kind is {self.kind!r}; choose one of {get_args(DecisionKind)}")
        if self.step_ms <= 0 or self.step_ms % (10 * STRIDE):
            raise ValueError(
                f"step_ms is {self.step_ms}; it must be a multiple of {10 * STRIDE} ms, the time "
                "an encoder state stands for"
            )

    @property
    def step(self) -> int:
        """Encoder states to a decision."""
        return self.step_ms // (10 * STRIDE)


@dataclass(frozen=True, kw_only=True)
class SpeechEncoder:
    """From features to states of 40 ms."""

    kind: Encoder = "transformer"
    layers: int = 12
    shared: int = 6  # how many of them, at the top, are the text encoder's
    channels: int = 1024  # of the first convolution
    distance_penalty: bool = False
    ctc_after: int | None = None  # layers below the CTC head; None: no head
    chunk: int = 8  # states, of the streaming encoder
    left: int = 64  # states that a chunk looks back on
    right: int = 4  # states that it looks ahead to
    kernel: int = 31  # states that a Conformer layer convolves

    def __post_init__(self) -> None:
        if not 0 <= self.shared <= self.layers:
            raise ValueError(f"{self.shared} of {self.layers} layers cannot be shared")
        if self.kind == "vgg_blstm" and self.shared:
            raise ValueError("a text encoder has no LSTM layers that vgg_blstm could share: set 0")
        if self.kernel < 1 or self.kernel % 2 == 0:
            raise ValueError(f"kernel is {self.kernel}; it must be odd, to look both ways alike")
        own = self.layers - self.shared
        if self.ctc_after is not None and not 1 <= self.ctc_after <= own:
            raise ValueError(f"ctc_after is {self.ctc_after}; it must be a layer from 1 to {own}")


@dataclass(frozen=True, kw_only=True)
class TextEncoder:
    """From tokens to states; `unidirectional` sees only what has been read."""

    layers: int = 6
    direction: Literal["bidirectional", "unidirectional"] = "bidirectional"


@dataclass(frozen=True, kw_only=True)
class DecoderWidth:
    """In what decoder layers differ from `Translator.width`."""

    hidden: int = 2048
    heads: int = 8
    dropout: float | None = None  # None: the same


@dataclass(frozen=True, kw_only=True)
class Translator:
    """A joint speech and text translator; `speech` or `text` None leaves that branch out."""

    source_vocabulary: int = 0  # 0: filled in when the vocabulary of a run is known
    target_vocabulary: int = 0
    features: int = 80
    width: Width = field(default_factory=Width)
    speech: SpeechEncoder | None = field(default_factory=SpeechEncoder)
    text: TextEncoder | None = field(default_factory=TextEncoder)
    decoder: Decoder = "monotonic"
    decoder_layers: int = 6  # of CAAT, the predictor's
    joiner_layers: int = 6  # of CAAT
    decoder_width: DecoderWidth | None = None  # None: as wide as the encoders
    predecision: PreDecision = field(default_factory=PreDecision)
    monotonic: Monotonic = field(default_factory=Monotonic)
    output: Literal["tied", "own"] = "tied"  # whether output weights are the target embeddings

    def __post_init__(self) -> None:
        if self.speech is None and self.text is None:
            raise ValueError("a translator needs a speech encoder, a text encoder, or both")
        if self.decoder_width:
            check_heads(self.width.model, self.decoder_width.heads, "decoder_width.heads")
        if (
            self.speech
            and self.speech.shared
            and (self.text is None or self.speech.shared > self.text.layers)
        ):
            raise ValueError(
                f"{self.speech.shared} layers of the speech encoder are the text encoder's, which "
                f"has {self.text.layers if self.text else 'none'}: set shared to that or less"
            )
        if self.predecision.kind == "ctc_words" and (not self.speech or not self.speech.ctc_after):
            raise ValueError(
                "predecision.kind is 'ctc_words', but there is no CTC head to hear words: set "
                "speech.ctc_after"
            )
        if self.decoder == "lstm" and (self.monotonic.policy, self.output) != ("offline", "own"):
            raise ValueError(
                f"monotonic.policy is {self.monotonic.policy!r} and output {self.output!r}; the "
                "LSTM decoder needs 'offline' (it has no monotonic heads) and 'own'"
            )

        if self.decoder == "caat":
            self._check_caat()

    def _check_caat(self) -> None:
        if self.speech is None or self.speech.kind != "streaming":
            raise ValueError("CAAT hears groups that do not change: set speech.kind='streaming'")
        if self.speech.right < 1:
            raise ValueError(
                "speech.right is 0; CAAT needs 1 or more: with what follows a group it is known "
                "whether that is the last"
            )
        if self.predecision.kind != "fixed" or self.monotonic.policy != "offline":
            raise ValueError(
                f"predecision.kind is {self.predecision.kind!r} and monotonic.policy "
                f"{self.monotonic.policy!r}; CAAT needs 'fixed', whose windows are its groups, and "
                "'offline' (it has no monotonic heads)"
            )

    @property
    def width_of_decoder(self) -> Width:
        """The sizes of a decoder layer."""
        own = self.decoder_width
        if own is None:
            return self.width
        dropout = self.width.dropout if own.dropout is None else own.dropout
        return replace(self.width, hidden=own.hidden, heads=own.heads, dropout=dropout)
