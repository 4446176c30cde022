"""Other implementations of Whisper, with the same weights and sound, for `profile whisper`.

Each encodes a batch of windows and writes the same number of greedy tokens, after the same prompt
and with the same forbidden tokens. Their packages are imported when they are needed.
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
    """An implementation that cannot be measured here."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Job:
    """The work that every implementation does."""

    model: Model
    tokenizer: Tokenizer
    samples: np.ndarray  # int16 [B, N]
    tokens: int  # to write for each window

    @property
    def suppressed(self) -> tuple[int, ...]:
        """Return the unspoken signs and the end, so that all write the same number of tokens."""
        return (*self.tokenizer.unspoken, self.tokenizer.end)

    @property
    def opening(self) -> list[int]:
        """Return the prompt of each row."""
        return self.tokenizer.opening("transcribe", "en", "none")

    @cached_property
    def forbidden(self) -> tuple[list[int], list[int]]:
        """Return the ids that are forbidden always, and those forbidden at the start."""
        found = make_forbidden(self.tokenizer, self.suppressed)
        return tuple(np.flatnonzero(x).tolist() for x in (found.always, found.first))  # pyright: ignore[reportReturnType]


class Runner(Protocol):
    """One implementation on one job. Methods return when all is computed."""

    @property
    def name(self) -> str:
        """Return the name of the implementation."""
        ...

    @property
    def job(self) -> Job:
        """Return the job."""
        ...

    @property
    def warm_ups(self) -> int:
        """Return the number of calls until it has its full speed."""
        ...

    def encode(self) -> Any:
        """Return what has to be computed once per window."""
        ...

    def write(self, states: Any) -> np.ndarray:
        """Return tokens [B, tokens]."""
        ...

    def peak_mib(self) -> float | None:
        """Return the peak of device memory; None if it is not counted."""
        ...


def make_peer(name: PeerName, job: Job) -> Runner:
    """Return an implementation with the job's weights."""
    if name == "faster-whisper":
        return FasterWhisper(job)
    return Transformers(job, compiled=name == "transformers-compiled")


def _package(name: str) -> Any:
    """Import a package that only this measurement needs."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        package = name.partition(".")[0].replace("_", "-")
        raise PeerError(f"{package} is not installed ({error}): pip install {package}") from error


def torch_model(job: Job) -> Any:
    """Return transformers' model with the job's weights, on the GPU if there is one."""
    torch, transformers = _package("torch"), _package("transformers")
    device = "cuda" if torch.cuda.is_available() else "cpu"
    with torch.device("meta"):
        model = transformers.WhisperForConditionalGeneration(_torch_config(job, transformers))
    dtype = getattr(torch, job.model.config.dtype)
    state = {
        name: torch.from_dlpack(x).to(device, dtype, copy=True) for name, x in state_dict(job.model)
    }
    model.load_state_dict(state, strict=True, assign=True)
    model.tie_weights()
    return model.eval()


def _torch_config(job: Job, transformers: Any) -> Any:
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
    """Return the parameters by transformers' names."""
    found: dict[str, jax.Array] = {}
    params: dict[str, Any] = traverse_util.flatten_dict(model.params, sep="/")
    for path, value in params.items():
        if "/layers/" in path:  # layers of the encoder are stacked
            for k, part in enumerate(value):
                found[torch_name(path.replace("/layers/", f"/layers_{k}/"))] = _torch_value(
                    path, part
                )
        else:
            found[torch_name(path)] = _torch_value(path, value)
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


def torch_name(path: str) -> str:
    """Return `model.encoder.layers.0.fc1.weight` for `encoder/layers_0/forward/inner/kernel`."""
    if path == "decoder/embedding/embedding":
        return "model.decoder.embed_tokens.weight"
    parts = [_NAMES.get(part, part.replace("layers_", "layers.")) for part in path.split("/")]
    return ".".join(["model", *(part for part in parts if part != "forward")])


def _torch_value(path: str, value: jax.Array) -> jax.Array:
    """Transpose linear maps and convolutions, as torch stores them."""
    return jnp.transpose(value) if path.endswith("kernel") else value


class Transformers:
    """Hugging Face's, with fused attention; compiled: with a static cache, in CUDA graphs."""

    def __init__(self, job: Job, *, compiled: bool) -> None:
        self.torch, self.library = _package("torch"), _package("transformers")
        self.on_gpu = self.torch.cuda.is_available()
        if compiled and not self.on_gpu:
            raise PeerError("transformers-compiled needs a GPU: use transformers")
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

    def encode(self) -> Any:
        """Return encoder states; keys and values are computed with the first token."""
        sound = [row.astype(np.float32) / 32768 for row in self.job.samples]
        device = str(self.model.device)
        given = {"sampling_rate": RATE, "return_tensors": "pt", "device": device}
        with self.torch.inference_mode():
            mel = self.extractor(sound, **given).input_features
            states = self.model.model.encoder(mel.to(self.model.device, self.model.dtype))
        if self.on_gpu:
            self.torch.cuda.synchronize()
        return states

    def write(self, states: Any) -> np.ndarray:
        """Return tokens of the generic loop, without Whisper's retries."""
        written = self.library.GenerationMixin.generate(
            self.model,
            encoder_outputs=states,
            decoder_input_ids=self.prompt,
            generation_config=self.config,
        )
        return written[:, self.prompt.shape[1] :].cpu().numpy()

    def peak_mib(self) -> float | None:
        """Return the peak of torch's allocator."""
        return self.torch.cuda.max_memory_allocated() / 2**20 if self.on_gpu else None


class FasterWhisper:
    """SYSTRAN's log-mel with CTranslate2's engine."""

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

    def encode(self) -> Any:
        """Return encoder states."""
        sound = self.job.samples.astype(np.float32) / 32768
        mel = np.ascontiguousarray([self.extractor(row)[:, :3000] for row in sound], np.float32)
        return self.engine.encode(self.library.StorageView.from_array(mel))

    def write(self, states: Any) -> np.ndarray:
        """Return greedy tokens; the model has the forbidden ones."""
        rows = [self.job.opening] * len(self.job.samples)
        # The engine counts half of the length for the prompt, however short that is.
        options = {"beam_size": 1, "max_length": 2 * self.job.tokens, "suppress_blank": True}
        written = self.engine.generate(states, rows, **options)
        return np.array([result.sequences_ids[0] for result in written])

    def peak_mib(self) -> float | None:
        """Return None: its allocator does not tell."""
        return None


def _save(job: Job, directory: str) -> None:
    """Write the model in CTranslate2's format; tokens are named by their ids."""
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
