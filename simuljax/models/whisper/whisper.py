"""Whisper for users: load it from a file, and transcribe recordings."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np

from simuljax.audio import RATE, as_int16, read_audio
from simuljax.errors import SimuljaxError
from simuljax.models.tensor_file import WeightsError
from simuljax.models.whisper.config import (
    PUBLISHED,
    WINDOW_S,
    Config,
    Dimensions,
    Heads,
    later_half,
    published_name,
)
from simuljax.models.whisper.decoding import Decoding, encode_audio
from simuljax.models.whisper.model import Model
from simuljax.models.whisper.tokenizer import (
    Task,
    language_code,
    make_tokenizer,
    read_tiktoken,
    read_tokenizer_json,
)
from simuljax.models.whisper.transcribe import Request, Transcriber, Transcription, stack
from simuljax.models.whisper.weights import Checkpoint, dimensions_of, parameters, read_checkpoint
from simuljax.parsing import ParseError, parse_json

Audio = str | Path | np.ndarray

_VOCABULARIES = ("*.tiktoken", "tokenizer.json", "vocab.json")


@dataclass(frozen=True, kw_only=True, eq=False)
class Whisper(Transcriber):
    """A model with its weights and its tokenizer."""

    @property
    def config(self) -> Config:
        """Return sizes, type, and the heads that tell times."""
        return self.model.config

    def transcribe(
        self,
        audio: Audio,
        *,
        rate: int = RATE,
        task: Task = "transcribe",
        language: str | None = None,
        prompt: str | Sequence[int] = "",
        words: Literal["none", "timed"] = "none",
        condition: Literal["previous", "nothing"] = "previous",
        window: Literal["full", "short"] = "full",
        decoding: Decoding | None = None,
    ) -> Transcription:
        """Transcribe a recording: a file, or mono samples (int16, or float in [-1, 1]) at `rate`.

        `task="translate"` writes English whatever is spoken. `prompt`, text or tokens, was said
        before the recording. `condition` says whether a later window follows on the text before it.
        With `window="short"` a recording of less than 30 s is padded to the next 5 s only, which is
        faster and may change words.
        """
        request = Request(
            task=task,
            language=language_code(language) if language else None,
            prompt=self._tokens(prompt),
            condition=condition,
            words=words,
            window=window,
        )
        return self.transcribe_all([audio], request=request, decoding=decoding, rate=rate)[0]

    def transcribe_all(
        self,
        recordings: Sequence[Audio],
        *,
        request: Request | None = None,
        decoding: Decoding | None = None,
        rate: int = RATE,
        batch: int = 16,
    ) -> list[Transcription]:
        """Transcribe many recordings, up to `batch` of them at a time, a window of each."""
        request, decoding = request or Request(), decoding or Decoding()
        self._check_task(request)
        samples = [_samples(audio, rate) for audio in recordings]
        return self.transcribe_samples(samples, request, decoding, batch)

    def detect_language(self, audio: Audio, *, rate: int = RATE) -> dict[str, float]:
        """Return the probability of each language in the first 30 s, likeliest first."""
        if not self.tokenizer.multilingual:
            problem = "knows English alone; load a multilingual model"
            raise SimuljaxError(f"{self.config.name} {problem}")
        window = stack([_samples(audio, rate)[: WINDOW_S * RATE]], 1)
        probs = self.language_probs(encode_audio(self.model, window))[0]
        pairs = zip(self.tokenizer.language_codes, map(float, probs), strict=True)
        return dict(sorted(pairs, key=lambda pair: -pair[1]))

    def _tokens(self, text: str | Sequence[int]) -> tuple[int, ...]:
        """Encode text as it stands after other text: with a space before it."""
        if isinstance(text, str):
            return tuple(self.tokenizer.encode(f" {text.strip()}")) if text.strip() else ()
        return tuple(text)

    def _check_task(self, request: Request) -> None:
        if self.tokenizer.multilingual:
            return
        if request.task == "translate" or request.language not in (None, "en"):
            raise SimuljaxError(
                f"{self.config.name} transcribes English alone; load a multilingual model "
                f"for {request.task!r} of {request.language or 'other languages'}"
            )


def _samples(audio: Audio, rate: int) -> np.ndarray:
    if isinstance(audio, np.ndarray):
        return as_int16(audio, rate)
    return read_audio(audio).samples


def load(
    path: str | Path,
    *,
    dtype: Literal["float32", "bfloat16"] = "float32",
    name: str | None = None,
    vocabulary: str | Path | None = None,
) -> Whisper:
    """Load a model from OpenAI's `.pt`, Hugging Face's safetensors (or a directory), or ggml.

    The sizes are those of the tensors. `name` (such as "large-v2") says which heads tell the times
    of words where sizes do not; else the file's name does, a `generation_config.json` beside it, or
    all heads of the later half of the decoder serve. The vocabulary is the one in the file (ggml),
    the one given, or a `.tiktoken`, `tokenizer.json` or `vocab.json` beside the weights.
    """
    checkpoint = read_checkpoint(path)
    sizes = dimensions_of(checkpoint)
    known = name or published_name(sizes, str(checkpoint.path))
    if known is not None and known not in PUBLISHED:
        raise SimuljaxError(
            f"{known!r} is not a published Whisper; name one of {', '.join(PUBLISHED)}"
        )
    if known:
        heads, multilingual = PUBLISHED[known].alignment_heads, None
    else:
        heads, multilingual = _generation(checkpoint.path, sizes)
    config = Config(
        dimensions=sizes, alignment_heads=heads, dtype=dtype, name=known or _name(checkpoint.path)
    )
    return Whisper(
        model=Model(params=parameters(checkpoint, config), config=config),
        tokenizer=make_tokenizer(
            _vocabulary(checkpoint, vocabulary), sizes.vocabulary, multilingual=multilingual
        ),
    )


def _generation(weights: Path, sizes: Dimensions) -> tuple[Heads, bool | None]:
    """Return the alignment heads, and True for a multilingual model, as the file beside it says."""
    file = weights.with_name("generation_config.json")
    if not file.is_file():
        return later_half(sizes), None
    try:
        found = parse_json(file.read_bytes())
        heads, many = found.get("alignment_heads"), found.get("is_multilingual")
        if many is not None and type(many) is not bool:
            raise TypeError(f"is_multilingual is {many!r:.60}")
        chosen = tuple((int(layer), int(head)) for layer, head in heads or ())
    except (ParseError, AttributeError, TypeError, ValueError, OverflowError) as error:
        raise SimuljaxError(f"{file} is damaged: {error}; remove or mend it") from None
    layers, heads_each = range(sizes.text_layers), range(sizes.head_count)
    if any(layer not in layers or head not in heads_each for layer, head in chosen):
        raise SimuljaxError(f"{file} names a head of alignment_heads that the model lacks")
    return chosen or later_half(sizes), many


def _name(path: Path) -> str:
    """Return the name of a file without its kind; of a file that is called model, its folder's."""
    name = path.name.removesuffix(".gz").removesuffix(".safetensors").removesuffix(path.suffix)
    return path.absolute().parent.name if name == "model" else name


def _vocabulary(checkpoint: Checkpoint, given: str | Path | None) -> Sequence[bytes]:
    if given is None and checkpoint.vocabulary:
        return checkpoint.vocabulary
    beside = [f for p in _VOCABULARIES for f in sorted(checkpoint.path.parent.glob(p))]
    files = [Path(given)] if given else beside
    if not files:
        problem = f"no vocabulary in the file, and none of {', '.join(_VOCABULARIES)} beside it"
        raise WeightsError(checkpoint.path, 0, f"{problem}; give one with vocabulary=")
    read = read_tiktoken if files[0].suffix == ".tiktoken" else read_tokenizer_json
    return read(files[0])
