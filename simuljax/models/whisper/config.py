"""Every published Whisper: its sizes, and the attention heads that follow the speech."""

from dataclasses import dataclass
from typing import Literal, NamedTuple

Heads = tuple[tuple[int, int], ...]  # (layer, head), both from 0

WINDOW_S = 30  # the length of sound that the model was trained on
STATE_S = 0.02  # an encoder state is two frames; a timestamp token is a multiple of it
_HEAD_WIDTH = 64  # of every published size


@dataclass(frozen=True, kw_only=True)
class Dimensions:
    """Sizes that decide the shapes of the parameters."""

    width: int
    audio_layers: int
    text_layers: int
    vocabulary: int
    mels: int = 80
    heads: int = 0  # 0: one for every 64 of the width
    audio_positions: int = 1500
    text_positions: int = 448

    def __post_init__(self) -> None:
        if self.width % self.head_count:
            raise ValueError(f"a width of {self.width} does not divide among {self.heads} heads")

    @property
    def head_count(self) -> int:
        return self.heads or max(1, self.width // _HEAD_WIDTH)


@dataclass(frozen=True, kw_only=True)
class Config:
    """A model: its sizes, what it computes in, and which heads tell times."""

    dimensions: Dimensions
    alignment_heads: Heads
    dtype: Literal["float32", "bfloat16"] = "float32"
    name: str = "unnamed"


class Published(NamedTuple):
    """A size that OpenAI published. Those with the suffix .en know English alone."""

    dimensions: Dimensions
    alignment_heads: Heads


def _published(
    width: int, audio_layers: int, text_layers: int, vocabulary: int, heads: str, mels: int = 80
) -> Published:
    """Return sizes and heads: `2:2 3:0,5` are head 2 of layer 2, heads 0 and 5 of layer 3."""
    layers = {"audio_layers": audio_layers, "text_layers": text_layers}
    parts = (part.split(":") for part in heads.split())
    return Published(
        Dimensions(width=width, vocabulary=vocabulary, mels=mels, **layers),
        tuple((int(layer), int(head)) for layer, some in parts for head in some.split(",")),
    )


_ENGLISH, _MANY, _MANY_V3 = 51_864, 51_865, 51_866  # the sizes of their vocabularies

PUBLISHED = {
    "tiny.en": _published(384, 4, 4, _ENGLISH, "1:0 2:0,5 3:0,1,2,3,4"),
    "tiny": _published(384, 4, 4, _MANY, "2:2 3:0,2,3,4,5"),
    "base.en": _published(512, 6, 6, _ENGLISH, "3:3 4:7 5:1,5,7"),
    "base": _published(512, 6, 6, _MANY, "3:1 4:2,3,7 5:1,2,4,6"),
    "small.en": _published(
        *(768, 12, 12, _ENGLISH), "6:6 7:0,3,8 8:2,5,7 9:0,4,8,10 10:0,1,2,3,6,11 11:2,4"
    ),
    "small": _published(768, 12, 12, _MANY, "5:3,9 8:0,4,7,8 9:0,7,9 10:5"),
    "medium.en": _published(
        *(1024, 24, 24, _ENGLISH),
        "11:4 14:1,12,14 15:4 16:0,4,9 17:12,14 18:7,10,15 20:0,3,9,14 21:12",
    ),
    "medium": _published(1024, 24, 24, _MANY, "13:15 15:4,15 16:1 20:0 23:4"),
    "large-v1": _published(1280, 32, 32, _MANY, "9:19 11:2,4,17 22:7,11,17 23:2,15"),
    "large-v2": _published(
        *(1280, 32, 32, _MANY),
        "10:12 13:17 16:11,12,13 17:15,16 18:4,11,19 19:11 21:2,3 22:3,9,12 23:5,7,13 25:5 "
        "26:1,12 27:15",
    ),
    "large-v3": _published(
        *(1280, 32, 32, _MANY_V3), "7:0 10:17 12:18 13:12 16:1 17:14 19:11 21:4 24:1 25:6", mels=128
    ),
    "large-v3-turbo": _published(*(1280, 32, 4, _MANY_V3), "2:4,11 3:3,6,11,14", mels=128),
}


def published_name(dimensions: Dimensions, hint: str) -> str | None:
    """Return the published model of these sizes; where two have them, the one that `hint` names."""
    normal = Dimensions(**{**vars(dimensions), "heads": 0})
    names = [name for name, model in PUBLISHED.items() if model.dimensions == normal]
    if len(names) == 1:
        return names[0]
    return next((name for name in names if name in hint), None)


def later_half(dimensions: Dimensions) -> Heads:
    """Return all heads of the later half of the layers, for a model that nobody has studied."""
    layers = range(dimensions.text_layers // 2, dimensions.text_layers)
    return tuple((layer, head) for layer in layers for head in range(dimensions.head_count))
