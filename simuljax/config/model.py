"""The sizes and choices of a translator; stored with every run."""

from dataclasses import dataclass, replace
from typing import Literal, get_args

from simuljax.config.fields import Checked, ConfigError, check, setting
from simuljax.config.loading import is_reference, reference_to
from simuljax.errors import unknown

STRIDE = 4  # frames of 10 ms to an encoder state
STATE_MS = 10 * STRIDE

Encoder = Literal[
    "transformer",
    "s_transformer",
    "streaming",
    "vgg_blstm",
    "conformer",
    "whisper",
    "streaming_whisper",
]
ENCODERS = get_args(Encoder)
Decoder = Literal["monotonic", "lstm", "caat"]
DecisionKind = Literal["every_state", "fixed", "words", "phonemes", "learnable", "ctc_words"]
Attention = Literal["hard", "lookback", "chunkwise"]
HeadPolicy = Literal["learned", "wait_k", "offline"]


@dataclass(frozen=True, kw_only=True)
class Width(Checked):
    """The sizes of a Transformer layer, and its precision. Parameters are float32."""

    model: int = setting(512, help="Dimensions of a state; an even number.", low=4)
    hidden: int = setting(2048, help="Dimensions of the feed-forward layer.", low=1)
    heads: int = setting(8, help="Attention heads.", low=1)
    dropout: float = setting(0.1, help="Dropout probability.", low=0, high=0.99)
    dtype: Literal["float32", "bfloat16"] = setting("float32", help="Precision of the layers.")
    unroll: bool = setting(
        False, help="Unroll layers: twice the compile time, two thirds of the time on a GPU."
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        check_heads(self.model, self.heads)
        if self.model % 2:
            raise ConfigError(f"Width.model is {self.model}; positions need an even number")


def check_heads(width: int, heads: int, name: str = "heads") -> None:
    """Check that the width divides among its heads."""
    if width % heads:
        raise ConfigError(
            f"{name} is {heads}; a width of {width} does not divide among them: choose a divisor"
        )


@dataclass(frozen=True, kw_only=True)
class Monotonic(Checked):
    """The decision of a decoder head (`policy`) and its soft attention (`attention`).

    wait-k writes the first token after k decision points; k is drawn per batch from
    `wait_k[0] .. wait_k[1]` (multi-path training when these differ). `offline` attends to
    everything, as an ordinary decoder does.
    """

    attention: Attention = setting("lookback", help="Soft attention behind the decision.")
    policy: HeadPolicy = setting("learned", help="Read/write policy of the heads.")
    chunk: int = setting(8, help="States of chunkwise attention.", low=1)
    wait_k: tuple[int, int] = setting((3, 3), help="Least and greatest k of wait-k.", low=1)
    convention: Literal["stacl", "papi"] = setting(
        "stacl", help="wait-k writes first after k decisions (stacl), or k + 1 (papi)."
    )
    noise: float = setting(1.0, help="Standard deviation of the energies' noise.", low=0)
    bias: float = setting(-2.0, help="First value of the energies' bias.")
    method: Literal["auto", "exact", "fused", "closed_form"] = setting(
        "auto", help="Algorithm of the expected alignment."
    )
    counts: Literal["tokens", "words"] = setting(
        "tokens", help="Unit that wait-k writes after each decision."
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.wait_k[0] > self.wait_k[1]:
            raise ConfigError(f"wait_k is {self.wait_k}; the first must not exceed the second")


@dataclass(frozen=True, kw_only=True)
class PreDecision(Checked):
    """Where the speech branch decides (Ma et al. 2020); the text branch decides at every token."""

    kind: DecisionKind = setting("fixed", help="Where decisions are made.")
    step_ms: int = setting(280, help="Speech between decisions.", low=STATE_MS, unit="ms")
    pooling: Literal["average", "last"] = setting(
        "average", help="Pooling of the states between decisions."
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.step_ms % STATE_MS:
            raise ConfigError(
                f"step_ms is {self.step_ms}; it must be a multiple of {STATE_MS} ms, the length of "
                "an encoder state"
            )

    @property
    def step(self) -> int:
        """Return the number of encoder states between decisions."""
        return self.step_ms // STATE_MS


@dataclass(frozen=True, kw_only=True)
class SpeechConfig:
    """The encoder from features to states of 40 ms.

    "whisper" has Whisper's encoder first, with `layers` others above it; it needs Whisper's log-mel
    as features (`data.features.filterbank.kind`), and `init_from="whisper:FILE"` fills it.
    "streaming_whisper" is the same over chunks, so that it streams incrementally.
    `kind` may be a class of your own, see `simuljax.models.encoders.OwnEncoder`.
    """

    kind: Encoder | str = setting(
        "transformer", help="Architecture, or an encoder of your own: file.py:Class."
    )
    size: Literal["tiny", "base", "small", "medium"] = setting(
        "tiny", help="Size of Whisper's encoder.", applies="whisper"
    )
    layers: int = setting(12, help="Layers; whisper: those above its own, 0 or more.", low=0)
    shared: int = setting(6, help="Layers at the top shared with the text encoder.", low=0)
    channels: int = setting(1024, help="Channels of the first convolution.", low=1)
    distance_penalty: bool = setting(
        False, help="Penalise distance in self-attention; s_transformer always does."
    )
    ctc_after: int | None = setting(None, help="Layer of the CTC head; None: no head.", low=1)
    chunk: int = setting(8, help="States to a chunk.", low=1, applies="streaming encoders")
    left: int = setting(
        64, help="States before a chunk in view.", low=0, applies="streaming encoders"
    )
    right: int = setting(
        4, help="States after a chunk in view.", low=0, applies="streaming encoders"
    )
    kernel: int = setting(31, help="States of a convolution.", low=1, applies="conformer")

    def __post_init__(self) -> None:
        if isinstance(self.kind, type):
            object.__setattr__(self, "kind", reference_to(self.kind))
        check(self)
        if self.kind not in ENCODERS and not is_reference(self.kind):
            raise ConfigError(
                f"SpeechConfig.kind: {unknown(self.kind, ENCODERS)}; a class of your own is given "
                "as file.py:Class"
            )
        if self.layers < 1 and not self.is_whisper:
            raise ConfigError("SpeechConfig.layers is 0; it must be at least 1 but for 'whisper'")
        if self.shared > self.layers:
            raise ConfigError(f"shared is {self.shared}; the encoder has {self.layers} layers")
        if self.kind == "vgg_blstm" and self.shared:
            raise ConfigError("shared must be 0 for vgg_blstm: a text encoder has no LSTM layers")
        if self.distance_penalty and self.kind in ("conformer", "vgg_blstm", "whisper"):
            raise ConfigError(f"distance_penalty has no effect on {self.kind}; leave it out")
        if self.kernel % 2 == 0:
            raise ConfigError(f"kernel is {self.kernel}; it must be odd")
        own = self.layers - self.shared
        if self.ctc_after is not None and self.ctc_after > own:
            raise ConfigError(f"ctc_after is {self.ctc_after}; it must be a layer from 1 to {own}")

    @property
    def is_whisper(self) -> bool:
        """Return True if Whisper's encoder is the lower part."""
        return self.kind in ("whisper", "streaming_whisper")

    @property
    def is_incremental(self) -> bool:
        """Return True if a stream encodes new speech only; others encode all of it at each READ."""
        return self.kind in ("streaming", "streaming_whisper")


@dataclass(frozen=True, kw_only=True)
class TextConfig(Checked):
    """The encoder from tokens to states."""

    layers: int = setting(6, help="Layers.", low=1)
    direction: Literal["bidirectional", "unidirectional"] = setting(
        "bidirectional", help="A unidirectional encoder sees only the tokens before."
    )


@dataclass(frozen=True, kw_only=True)
class DecoderWidth(Checked):
    """The sizes of decoder layers where they differ from `ModelConfig.width`."""

    hidden: int = setting(2048, help="Dimensions of the feed-forward layer.", low=1)
    heads: int = setting(8, help="Attention heads.", low=1)
    dropout: float | None = setting(
        None, help="Dropout probability; None: that of the encoders.", low=0, high=0.99
    )


@dataclass(frozen=True, kw_only=True)
class ModelConfig(Checked):
    """A joint speech and text translator; `speech` or `text` None leaves that branch out."""

    source_vocabulary: int = setting(0, help="Pieces; 0: filled in from the corpus.", low=0)
    target_vocabulary: int = setting(0, help="Pieces; 0: filled in from the corpus.", low=0)
    features: int = setting(80, help="Dimensions of a frame; filled in from the corpus.", low=1)
    width: Width = setting(Width(), help="Sizes of a layer.")
    speech: SpeechConfig | None = setting(SpeechConfig(), help="Speech encoder; None: no speech.")
    text: TextConfig | None = setting(TextConfig(), help="Text encoder; None: no text.")
    decoder: Decoder = setting("monotonic", help="Architecture of the decoder.")
    decoder_layers: int = setting(6, help="Layers of the decoder, or of CAAT's predictor.", low=1)
    joiner_layers: int = setting(6, help="Layers of the joiner.", low=1, applies="CAAT")
    decoder_width: DecoderWidth | None = setting(
        None, help="Sizes of a decoder layer; None: those of the encoders."
    )
    predecision: PreDecision = setting(PreDecision(), help="Where the speech branch decides.")
    monotonic: Monotonic = setting(Monotonic(), help="Cross-attention of the decoder.")
    output: Literal["tied", "own"] = setting(
        "tied", help="Output weights: the target embeddings, or their own."
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.speech is None and self.text is None:
            raise ConfigError("speech and text are None; a translator needs one of them")
        if self.decoder_width:
            check_heads(self.width.model, self.decoder_width.heads, "decoder_width.heads")
        self._check_encoders()
        if self.decoder == "lstm" and (self.monotonic.policy, self.output) != ("offline", "own"):
            raise ConfigError(
                f"monotonic.policy is {self.monotonic.policy!r} and output {self.output!r}; the "
                "LSTM decoder needs 'offline' (it has no monotonic heads) and 'own'"
            )
        if (self.predecision.kind, self.monotonic.policy) == ("learnable", "wait_k"):
            raise ConfigError(
                "predecision.kind is 'learnable', but wait_k would not train its decisions; set "
                "monotonic.policy='learned' or another kind"
            )
        if self.decoder == "caat":
            self._check_caat()

    def _check_encoders(self) -> None:
        if self.speech and self.text and self.speech.shared > self.text.layers:
            raise ConfigError(
                f"speech.shared is {self.speech.shared}; the text encoder has {self.text.layers} "
                "layers: set it to that or less"
            )
        head = self.width.model // self.width.heads
        if self.speech and self.speech.is_incremental and head % 2:
            raise ConfigError(
                f"width.heads is {self.width.heads}, so a head has {head} dimensions; a streaming "
                "encoder needs an even number"
            )
        if self.predecision.kind == "ctc_words" and (not self.speech or not self.speech.ctc_after):
            raise ConfigError(
                "predecision.kind is 'ctc_words', but there is no CTC head: set speech.ctc_after"
            )

    def _check_caat(self) -> None:
        if self.speech is None or not self.speech.is_incremental:
            raise ConfigError(
                "CAAT needs a streaming encoder: set speech.kind='streaming' or 'streaming_whisper'"
            )
        if self.speech.right < 1:
            raise ConfigError(
                "speech.right is 0; CAAT needs 1 or more, to know if a group is the last"
            )
        if self.predecision.kind != "fixed" or self.monotonic.policy != "offline":
            raise ConfigError(
                f"predecision.kind is {self.predecision.kind!r} and monotonic.policy "
                f"{self.monotonic.policy!r}; CAAT needs 'fixed', whose windows are its groups, and "
                "'offline' (it has no monotonic heads)"
            )

    def with_step(self, predecision_ms: int | None) -> "ModelConfig":
        """Return the model with another step between decisions, if one is given."""
        if predecision_ms is None:
            return self
        return replace(self, predecision=replace(self.predecision, step_ms=predecision_ms))

    @property
    def width_of_decoder(self) -> Width:
        own = self.decoder_width
        if own is None:
            return self.width
        dropout = self.width.dropout if own.dropout is None else own.dropout
        return replace(self.width, hidden=own.hidden, heads=own.heads, dropout=dropout)
