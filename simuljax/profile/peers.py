"""Other implementations of Whisper, with our weights, on our sound: what `profile whisper` is for.

Each hears a batch of windows and writes the same number of tokens, greedily, after the same prompt
and under the same list of forbidden tokens. They are imported where they are needed.
"""

import importlib
import tempfile
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from flax import traverse_util

from simuljax.errors import SimuljaxError
from simuljax.models.whisper.bound import Model
from simuljax.models.whisper.config import RATE
from simuljax.models.whisper.rules import make_forbidden
from simuljax.models.whisper.tokenizer import Tokenizer

PeerName = Literal["transformers", "transformers-compiled", "faster-whisper"]


class PeerError(SimuljaxError):
    """A peer that cannot be measured here, and why."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Job:
    """What everyone has to do."""

    model: Model
    tokenizer: Tokenizer
    samples: np.ndarray  # int16 [B, N]
    tokens: int  # to write for each window

    @property
    def suppressed(self) -> tuple[int, ...]:
        """Signs that nobody says; and the end, so that all write as many tokens."""
        return (*self.tokenizer.unspoken, self.tokenizer.end)

    @property
    def opening(self) -> list[int]:
        """The prompt of each row."""
        return self.tokenizer.opening("transcribe", "en", "none")

    @cached_property
    def forbidden(self) -> tuple[list[int], list[int]]:
        """Ids that may never come, and those that may not come first."""
        found = make_forbidden(self.tokenizer, self.suppressed)
        return tuple(np.flatnonzero(x).tolist() for x in (found.always, found.first))  # pyright: ignore[reportReturnType]


class Runner(Protocol):
    """One implementation on one job. Both methods return when all is computed."""

    @property
    def name(self) -> str:
        """Whose it is."""
        ...

    @property
    def job(self) -> Job:
        """What it does."""
        ...

    @property
    def warm_ups(self) -> int:
        """Calls until it is as fast as it gets."""
        ...

    def hear(self) -> Any:
        """The windows, as far as they need to be heard only once."""
        ...

    def write(self, heard: Any) -> np.ndarray:
        """Tokens [B, tokens]."""
        ...

    def peak_mib(self) -> float | None:
        """The most memory of the device that was ever in use; None: nobody counts it."""
        ...


def make_peer(name: PeerName, job: Job) -> Runner:
    """A peer with our weights, ready for the job."""
    if name == "faster-whisper":
        return FasterWhisper(job)
    return Transformers(job, compiled=name == "transformers-compiled")


def _package(name: str) -> Any:
    """Imported here and not above: only who measures against it has to have it."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        package = name.partition(".")[0].replace("_", "-")
        raise PeerError(
            f"to measure a peer, the package {package} is needed ({error}); pip install {package}"
        ) from error


def torch_model(job: Job) -> Any:
    """transformers' model of our sizes with our numbers, on the GPU if there is one."""
    torch, transformers = _package("torch"), _package("transformers")
    device = "cuda" if torch.cuda.is_available() else "cpu"
    with torch.device("meta"):
        model = transformers.WhisperForConditionalGeneration(_their_config(job, transformers))
    dtype = getattr(torch, job.model.config.dtype)
    state = {
        name: torch.from_dlpack(x).to(device, dtype, copy=True) for name, x in state_dict(job.model)
    }
    model.load_state_dict(state, strict=True, assign=True)
    model.tie_weights()
    return model.eval()


def _their_config(job: Job, transformers: Any) -> Any:
    sizes, t = job.model.config.dimensions, job.tokenizer
    return transformers.WhisperConfig(
        vocab_size=sizes.vocabulary,
        num_mel_bins=sizes.mels,
        d_model=sizes.width,
        encoder_layers=sizes.audio_layers,
        decoder_layers=sizes.text_layers,
        encoder_attention_heads=sizes.head_count,
        decoder_attention_heads=sizes.head_count,
        encoder_ffn_dim=4 * sizes.width,
        decoder_ffn_dim=4 * sizes.width,
        max_source_positions=sizes.audio_positions,
        max_target_positions=sizes.text_positions,
        decoder_start_token_id=t.start,
        **{f"{kind}_token_id": t.end for kind in ("bos", "eos", "pad")},
        attn_implementation="sdpa",
    )


def state_dict(model: Model) -> list[tuple[str, jax.Array]]:
    """Our parameters by the names that transformers has for them."""
    found: dict[str, jax.Array] = {}
    params: dict[str, Any] = traverse_util.flatten_dict(model.params, sep="/")
    for path, value in params.items():
        if "/layers/" in path:  # the encoder's are stacked
            for k, part in enumerate(value):
                found[their_name(path.replace("/layers/", f"/layers_{k}/"))] = _turned(path, part)
        else:
            found[their_name(path)] = _turned(path, value)
    found["proj_out.weight"] = found["model.decoder.embed_tokens.weight"]
    return list(found.items())


_NAMES = {
    "self_norm": "self_attn_layer_norm",
    "cross_norm": "encoder_attn_layer_norm",
    "forward_norm": "final_layer_norm",
    "norm": "layer_norm",
    "attention": "self_attn",
    "cross": "encoder_attn",
    "query": "q_proj",
    "key": "k_proj",
    "value": "v_proj",
    "out": "out_proj",
    "inner": "fc1",
    "outer": "fc2",
    "positions": "embed_positions.weight",
    "kernel": "weight",
    "scale": "weight",
}


def their_name(path: str) -> str:
    """`encoder/layers_0/forward/inner/kernel` -> `model.encoder.layers.0.fc1.weight`."""
    if path == "decoder/embedding/embedding":
        return "model.decoder.embed_tokens.weight"
    parts = [_NAMES.get(part, part.replace("layers_", "layers.")) for part in path.split("/")]
    return ".".join(["model", *(part for part in parts if part != "forward")])


def _turned(path: str, value: jax.Array) -> jax.Array:
    """Linear maps and convolutions are applied from the other side there."""
    return jnp.transpose(value) if path.endswith("kernel") else value


class Transformers:
    """Hugging Face's: fused attention; compiled: with a cache of fixed size, in CUDA graphs."""

    def __init__(self, job: Job, *, compiled: bool) -> None:
        self.torch, self.library = _package("torch"), _package("transformers")
        self.on_gpu = self.torch.cuda.is_available()
        if compiled and not self.on_gpu:
            raise PeerError("transformers compiles its loop on a GPU alone; take `transformers`")
        if self.on_gpu:
            self.torch.cuda.reset_peak_memory_stats()
        self.name = "transformers-compiled" if compiled else "transformers"
        self.warm_ups = 3 if compiled else 1
        self.job, self.model = job, torch_model(job)
        mels = job.model.config.dimensions.mels
        self.extractor = self.library.WhisperFeatureExtractor(feature_size=mels)
        self.prompt = self.torch.tensor([job.opening] * len(job.samples), device=self.model.device)
        self.config = self._generation("static" if compiled else None)

    def _generation(self, cache: str | None) -> Any:
        always, first = self.job.forbidden
        t = self.job.tokenizer
        return self.library.GenerationConfig(
            max_new_tokens=self.job.tokens,
            do_sample=False,
            suppress_tokens=always,
            begin_suppress_tokens=first,
            decoder_start_token_id=t.start,
            **{f"{kind}_token_id": t.end for kind in ("bos", "eos", "pad")},
            **({"cache_implementation": cache} if cache else {}),
        )

    def hear(self) -> Any:
        """Log-mel and encoder states; keys and values of the window come with the first token."""
        sound = [row.astype(np.float32) / 32768 for row in self.job.samples]
        device = str(self.model.device)
        given = {"sampling_rate": RATE, "return_tensors": "pt", "device": device}
        with self.torch.inference_mode():
            mel = self.extractor(sound, **given).input_features
            states = self.model.model.encoder(mel.to(self.model.device, self.model.dtype))
        if self.on_gpu:
            self.torch.cuda.synchronize()
        return states

    def write(self, heard: Any) -> np.ndarray:
        """By the loop that all of its models share, without Whisper's own tries and cuts."""
        written = self.library.GenerationMixin.generate(
            self.model,
            encoder_outputs=heard,
            decoder_input_ids=self.prompt,
            generation_config=self.config,
        )
        return written[:, self.prompt.shape[1] :].cpu().numpy()

    def peak_mib(self) -> float | None:
        """Of torch's own allocator."""
        return self.torch.cuda.max_memory_allocated() / 2**20 if self.on_gpu else None


class FasterWhisper:
    """SYSTRAN's: its log-mel, and CTranslate2's engine, to which it gives the work."""

    def __init__(self, job: Job) -> None:
        self.name, self.warm_ups, self.job = "faster-whisper", 1, job
        sound = _package("faster_whisper.feature_extractor")
        self.library = _package("ctranslate2")
        self.extractor = sound.FeatureExtractor(feature_size=job.model.config.dimensions.mels)
        device = "cuda" if self.library.get_cuda_device_count() else "cpu"
        with tempfile.TemporaryDirectory() as directory:
            _save(job, directory)
            self.engine = self.library.models.Whisper(
                directory,
                device=device,
                compute_type=job.model.config.dtype,
                intra_threads=_package("torch").get_num_threads(),  # else 4, however few cores
            )

    def hear(self) -> Any:
        """Log-mel and encoder states."""
        sound = self.job.samples.astype(np.float32) / 32768
        mel = np.ascontiguousarray([self.extractor(row)[:, :3000] for row in sound], np.float32)
        return self.engine.encode(self.library.StorageView.from_array(mel))

    def write(self, heard: Any) -> np.ndarray:
        """With one beam, and lists of forbidden tokens that came with the model."""
        rows = [self.job.opening] * len(self.job.samples)
        # Half of the length is the prompt's in its reckoning, however short that is.
        options = {"beam_size": 1, "max_length": 2 * self.job.tokens, "suppress_blank": True}
        written = self.engine.generate(heard, rows, **options)
        return np.array([result.sequences_ids[0] for result in written])

    def peak_mib(self) -> float | None:
        """Its allocator does not tell."""
        return None


def _save(job: Job, directory: str) -> None:
    """As CTranslate2 keeps a model; names of tokens are their numbers, which is all it needs."""
    converters = _package("ctranslate2.converters.transformers")
    spec = converters.WhisperLoader().get_model_spec(torch_model(job).float().cpu())
    t = job.tokenizer
    special = {
        t.end: "<|endoftext|>",
        t.start: "<|startoftranscript|>",
        t.no_speech: "<|nospeech|>",
        t.no_timestamps: "<|notimestamps|>",
    }
    spec.register_vocabulary([special.get(i, f"token{i}") for i in range(t.size)])
    always, first = job.forbidden
    spec.config.suppress_ids, spec.config.suppress_ids_begin = always, first
    spec.config.lang_ids, spec.config.alignment_heads = list(t.language_ids), [(0, 0)]
    spec.validate()
    spec.optimize()
    spec.save(directory)
