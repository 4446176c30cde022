"""`simuljax profile whisper`: time Whisper here and in Hugging Face's transformers.

Both do the same work with the same weights, from samples on the host to tokens on the host, with
the same number of greedy tokens after the same prompt and with the same forbidden tokens. They take
turns, so that other load on the machine affects both alike.
"""

import importlib
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from flax import traverse_util

from simuljax.audio import read_audio
from simuljax.errors import SimuljaxError
from simuljax.models.whisper.config import PUBLISHED, RATE, Config
from simuljax.models.whisper.decoding import Context, Decoding, decode, encode_audio
from simuljax.models.whisper.generate import make_forbidden
from simuljax.models.whisper.model import Memory, Model, Network
from simuljax.models.whisper.tokenizer import Tokenizer, make_tokenizer
from simuljax.models.whisper.whisper import load
from simuljax.profile.measure import check_positive, percentiles

# Names of transformers, where they are others than ours.
NAMES = {
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
Size = Literal[
    "tiny", "base", "small", "medium", "large-v1", "large-v2", "large-v3", "large-v3-turbo"
]


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

    @cached_property
    def forbidden(self) -> tuple[list[int], list[int]]:
        """Return the ids that are forbidden always, and those forbidden at the start."""
        found = make_forbidden(self.tokenizer, self.suppressed)
        return tuple(np.flatnonzero(x).tolist() for x in (found.always, found.first))  # pyright: ignore[reportReturnType]


@dataclass(frozen=True, eq=False)
class Ours:
    """This implementation, as transcriptions use it."""

    job: Job
    name = "simuljax"

    def encode(self) -> Memory:
        """Return encoder states, with the keys and values of every layer."""
        return jax.block_until_ready(encode_audio(self.job.model, self.job.samples))

    def write(self, states: Memory) -> np.ndarray:
        job = self.job
        options = Decoding(
            timestamps="none", max_tokens=job.tokens, temperatures=(0.0,), suppress=job.suppressed
        )
        contexts = [Context()] * len(job.samples)
        written = decode(job.model, job.tokenizer, states, contexts, options)
        return np.array([result.tokens for result in written])

    def peak_mib(self) -> float | None:
        counted = jax.local_devices()[0].memory_stats()
        return counted["peak_bytes_in_use"] / 2**20 if counted else None


class Transformers:
    """Hugging Face's, with fused attention, on the GPU if there is one."""

    name = "transformers"

    def __init__(self, job: Job) -> None:
        self.torch, self.library = _package("torch"), _package("transformers")
        self.on_gpu = self.torch.cuda.is_available()
        if self.on_gpu:
            self.torch.cuda.reset_peak_memory_stats()
        self.job, self.model = job, self._model()
        mels = job.model.config.dimensions.mels
        self.extractor = self.library.WhisperFeatureExtractor(feature_size=mels)
        opening = job.tokenizer.opening("transcribe", "en", "none")
        self.prompt = self.torch.tensor([opening] * len(job.samples), device=self.model.device)

    @property
    def _special(self) -> dict[str, int]:
        t = self.job.tokenizer
        ends = {f"{kind}_token_id": t.end for kind in ("bos", "eos", "pad")}
        return ends | {"decoder_start_token_id": t.start}

    def _model(self) -> Any:
        """Return their model with our weights."""
        sizes, dtype = self.job.model.config.dimensions, self.job.model.config.dtype
        config = self.library.WhisperConfig(
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
            **self._special,
            attn_implementation="sdpa",
        )
        with self.torch.device("meta"):
            model = self.library.WhisperForConditionalGeneration(config)
        given = {"device": "cuda" if self.on_gpu else "cpu", "dtype": getattr(self.torch, dtype)}
        weights = {
            name: self.torch.from_dlpack(x).to(**given, copy=True)
            for name, x in state_dict(self.job.model).items()
        }
        model.load_state_dict(weights, strict=True, assign=True)
        model.tie_weights()
        return model.eval()

    def encode(self) -> Any:
        """Return encoder states; keys and values are computed with the first token."""
        sound = [row.astype(np.float32) / 32768 for row in self.job.samples]
        given = {"sampling_rate": RATE, "return_tensors": "pt", "device": str(self.model.device)}
        with self.torch.inference_mode():
            mel = self.extractor(sound, **given).input_features
            states = self.model.model.encoder(mel.to(self.model.device, self.model.dtype))
        if self.on_gpu:
            self.torch.cuda.synchronize()
        return states

    def write(self, states: Any) -> np.ndarray:
        """Return tokens of the generic loop, without Whisper's retries."""
        always, first = self.job.forbidden
        config = self.library.GenerationConfig(
            max_new_tokens=self.job.tokens,
            do_sample=False,
            suppress_tokens=always,
            begin_suppress_tokens=first,
            **self._special,
        )
        written = self.library.GenerationMixin.generate(
            self.model,
            encoder_outputs=states,
            decoder_input_ids=self.prompt,
            generation_config=config,
        )
        return written[:, self.prompt.shape[1] :].cpu().numpy()

    def peak_mib(self) -> float | None:
        return self.torch.cuda.max_memory_allocated() / 2**20 if self.on_gpu else None


def _package(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise PeerError(f"{name} is not installed ({error}): pip install {name}") from error


def state_dict(model: Model) -> dict[str, jax.Array]:
    """Return the parameters by transformers' names, linear maps and convolutions transposed."""
    found: dict[str, jax.Array] = {}
    params: dict[str, Any] = traverse_util.flatten_dict(model.params, sep="/")
    for path, value in params.items():
        stacked = "/layers/" in path  # layers of the encoder
        for k, part in enumerate(value if stacked else [value]):
            name = torch_name(path.replace("/layers/", f"/layers_{k}/"))
            found[name] = jnp.transpose(part) if path.endswith("kernel") else part
    return found | {"proj_out.weight": found["model.decoder.embed_tokens.weight"]}


def torch_name(path: str) -> str:
    """Return `model.encoder.layers.0.fc1.weight` for `encoder/layers_0/forward/inner/kernel`."""
    if path == "decoder/embedding/embedding":
        return "model.decoder.embed_tokens.weight"
    parts = [NAMES.get(part, part.replace("layers_", "layers.")) for part in path.split("/")]
    return ".".join(["model", *(part for part in parts if part != "forward")])


@dataclass(frozen=True, kw_only=True)
class WhisperProfile:
    """Real-time factor, time to encode a window and to write a token; also of transformers."""

    model: Path | None = None
    """Weights; by default random ones of `size`."""
    size: Size = "tiny"
    audio: Path | None = None
    """A recording, repeated or cut to `seconds`; by default noise."""
    batches: tuple[int, ...] = (1, 16)
    """Windows in a batch."""
    seconds: int = 30
    """Seconds of a window; transformers always takes 30."""
    tokens: int = 64
    """Tokens to write for each window."""
    dtype: Literal["float32", "bfloat16"] = "float32"
    against: tuple[Literal["transformers"], ...] = ()
    """Other implementations to measure; their packages have to be installed."""
    rounds: int = 7

    def __post_init__(self) -> None:
        check_positive(self)
        for path in (self.model, self.audio):
            if path is not None and not path.exists():
                raise ValueError(f"{path} does not exist")


def run(config: WhisperProfile) -> dict[str, Any]:
    """Measure all batches, this implementation and the others in turns."""
    model, tokenizer = _model(config)
    rows, versions = [], ["jax", *(["torch", "transformers"] if config.against else [])]
    for batch in config.batches:
        samples = sound(config, batch)
        job = Job(model=model, tokenizer=tokenizer, samples=samples, tokens=config.tokens)
        rows += _compare([Ours(job), *([Transformers(job)] if config.against else [])], config)
    return {
        "device": jax.devices()[0].device_kind,
        "versions": {name: version(name) for name in versions},
        "config": {k: v.name if isinstance(v, Path) else v for k, v in vars(config).items()},
        "parameters": sum(x.size for x in jax.tree.leaves(model.params)),
        "weights_mib": sum(x.nbytes for x in jax.tree.leaves(model.params)) / 2**20,
        "rows": rows,
    }


def _model(config: WhisperProfile) -> tuple[Model, Tokenizer]:
    if config.model is not None:
        loaded = load(config.model, dtype=config.dtype)
        return loaded.model, loaded.tokenizer
    published = PUBLISHED[config.size]
    sizes = Config(
        dimensions=published.dimensions,
        alignment_heads=published.alignment_heads,
        dtype=config.dtype,
        name=config.size,
    )
    return random_model(sizes), byte_tokenizer(published.dimensions.vocabulary)


def random_model(config: Config, seed: int = 0) -> Model:
    """Return random weights that keep the scale of their inputs, so that tokens vary."""
    mel = jax.ShapeDtypeStruct((1, 2, config.dimensions.mels), jnp.float32)
    tokens = jax.ShapeDtypeStruct((1, 1), jnp.int32)
    shapes = jax.eval_shape(Network(config).init, jax.random.key(0), mel, tokens)["params"]
    wanted: dict[str, Any] = traverse_util.flatten_dict(shapes, sep="/")
    made = {}
    for k, (path, leaf) in enumerate(wanted.items()):
        exact = "norm" in path or path.endswith("positions")
        dtype = "float32" if exact else config.dtype
        if path.endswith(("scale", "bias")):
            made[path] = jnp.full(leaf.shape, float(path.endswith("scale")), dtype)
        else:
            inputs = leaf.shape[-2] if path.endswith("kernel") else leaf.shape[-1]
            key = jax.random.fold_in(jax.random.key(seed, impl="rbg"), k)
            made[path] = _normal(key, inputs**-0.5, shape=leaf.shape, dtype=dtype)
    return Model(params=traverse_util.unflatten_dict(made, sep="/"), config=config)


@partial(jax.jit, static_argnames=("shape", "dtype"))
def _normal(key: jax.Array, scale: float, *, shape: tuple[int, ...], dtype: str) -> jax.Array:
    return (scale * jax.random.normal(key, shape)).astype(dtype)


def byte_tokenizer(size: int) -> Tokenizer:
    """Return a tokenizer of bytes, with numbers in place of words."""
    words = [bytes([byte]) for byte in range(256)]
    words += [f"<{k}>".encode() for k in range(256, 50_257)]
    return make_tokenizer(words, size)


def sound(config: WhisperProfile, batch: int) -> np.ndarray:
    """Return int16 [batch, samples]; each row begins a second after the one before."""
    count = config.seconds * RATE
    if config.audio is not None:
        one = read_audio(config.audio).samples
    else:
        one = np.random.default_rng(0).normal(0, 3_000, count).astype(np.int16)
    one = np.resize(one, count)
    return np.stack([np.roll(one, -RATE * row) for row in range(batch)])


def _compare(runners: Sequence[Ours | Transformers], config: WhisperProfile) -> list[dict]:
    """Run rounds in turns; compare tokens with those of the first."""
    starts = [_round(runner) for runner in runners]
    times: list[list[np.ndarray]] = [[] for _ in runners]
    for _ in range(config.rounds):
        for runner, own in zip(runners, times, strict=True):
            own.append(_round(runner)[0])
    expected = starts[0][1]
    return [
        _row(runner, np.array(own), float(start[:2].sum()), agreement(tokens, expected), config)
        for runner, own, (start, tokens) in zip(runners, times, starts, strict=True)
    ]


def _round(runner: Ours | Transformers) -> tuple[np.ndarray, np.ndarray]:
    """Return seconds of encoding, of writing and of all cores together; and the tokens."""
    cpu, start = time.process_time(), time.perf_counter()
    states = runner.encode()
    middle = time.perf_counter()
    tokens = runner.write(states)
    end = time.perf_counter()
    return np.array([middle - start, end - middle, time.process_time() - cpu]), tokens


def agreement(found: np.ndarray, expected: np.ndarray) -> float:
    """Return the share of tokens before the first difference, the mean over rows."""
    if found.shape != expected.shape:
        raise ValueError(f"tokens have shape {found.shape}; expected {expected.shape}")
    return float(np.logical_and.accumulate(found == expected, axis=1).mean())


def _row(
    runner: Ours | Transformers,
    times: np.ndarray,
    first_s: float,
    agrees: float,
    config: WhisperProfile,
) -> dict[str, Any]:
    """Return medians over rounds; `times` [rounds, 3] are those of `_round`."""
    count, (encoding, writing, cpu) = len(runner.job.samples), times.T
    whole = float(np.median(encoding + writing))
    return {
        "name": runner.name,
        "batch": count,
        "real_time_factor": whole / (count * config.seconds),
        "hear_ms": percentiles(1e3 * encoding, (50, 99)),
        "token_ms": percentiles(1e3 * writing / config.tokens, (50, 99)),
        "cpu_s": float(np.median(cpu)),
        "compile_s": max(0.0, first_s - whole),
        "peak_mib": runner.peak_mib(),
        "agreement": agrees,
    }


def table(report: dict[str, Any]) -> str:
    """Format the report as text."""
    chosen, versions = report["config"], report["versions"]
    lines = [
        f"{report['device']}, {', '.join(f'{k} {v}' for k, v in versions.items())}",
        f"Whisper {chosen['model'] or chosen['size']}, {report['parameters'] / 1e6:.1f} M "
        f"parameters, {chosen['dtype']}; windows of {chosen['seconds']} s, {chosen['tokens']} "
        "tokens each",
        "batch  implementation          real-time   hear ms   token ms: p50     p99   "
        "compile s   peak MiB   same tokens",
    ]
    for row in report["rows"]:
        peak = f"{row['peak_mib']:11,.0f}" if row["peak_mib"] is not None else f"{'':>11}"
        lines.append(
            f"{row['batch']:5d}  {row['name']:<22}{row['real_time_factor']:11.4f}"
            f"{row['hear_ms']['p50']:10.1f}{row['token_ms']['p50']:16.3f}"
            f"{row['token_ms']['p99']:8.3f}{row['compile_s']:12.1f}{peak}"
            f"{row['agreement']:14.1%}"
        )
    return "\n".join(lines)
