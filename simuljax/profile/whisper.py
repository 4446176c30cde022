"""`simuljax profile whisper`: time Whisper here and in other implementations.

All do the same work, from samples on the host to tokens on the host, with the same number of
tokens for every window. They take turns, so that other load on the machine affects all alike.

Other implementations of Whisper, with the same weights and sound, for `profile whisper`.

Each encodes a batch of windows and writes the same number of greedy tokens, after the same prompt
and with the same forbidden tokens. Their packages are imported when they are needed.
"""

import dataclasses
import importlib
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal, Protocol

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


Size = Literal[
    "tiny", "base", "small", "medium", "large-v1", "large-v2", "large-v3", "large-v3-turbo"
]


@dataclass(frozen=True, kw_only=True)
class WhisperProfile:
    """Real-time factor, time to encode a window and to write a token; also of other tools."""

    model: Path | None = None
    """Weights; by default random ones of `size`."""
    size: Size = "tiny"
    audio: Path | None = None
    """A recording, repeated or cut to `seconds`; by default noise."""
    batches: tuple[int, ...] = (1, 16)
    """Windows in a batch."""
    seconds: int = 30
    """Seconds of a window; other implementations always take 30."""
    tokens: int = 64
    """Tokens to write for each window."""
    dtype: Literal["float32", "bfloat16"] = "float32"
    against: tuple[PeerName, ...] = ()
    """Other implementations to measure; their packages have to be installed."""
    rounds: int = 7

    def __post_init__(self) -> None:
        """Refuse settings without anything to measure."""
        check_positive(self)
        for path in (self.model, self.audio):
            if path is not None and not path.exists():
                raise ValueError(f"{path} does not exist")


@dataclass(frozen=True, eq=False)
class Ours:
    """This implementation, as transcriptions use it."""

    job: Job
    name = "simuljax"
    warm_ups = 1

    def encode(self) -> Memory:
        """Return encoder states, with the keys and values of every layer."""
        return jax.block_until_ready(encode_audio(self.job.model, self.job.samples))

    def write(self, states: Memory) -> np.ndarray:
        """Return greedy tokens [B, tokens]."""
        job = self.job
        options = Decoding(
            timestamps="none", max_tokens=job.tokens, temperatures=(0.0,), suppress=job.suppressed
        )
        contexts = [Context()] * len(job.samples)
        written = decode(job.model, job.tokenizer, states, contexts, options)
        return np.array([result.tokens for result in written])

    def peak_mib(self) -> float | None:
        """Return the peak of JAX's allocator."""
        counted = jax.local_devices()[0].memory_stats()
        return counted["peak_bytes_in_use"] / 2**20 if counted else None


@dataclass(frozen=True, kw_only=True)
class Times:
    """Seconds of one round."""

    encoding: float
    writing: float
    cpu: float  # of all cores together


def run(config: WhisperProfile) -> dict[str, Any]:
    """Measure all batches, this implementation and the others in turns."""
    model, tokenizer = _model(config)
    rows = []
    for batch in config.batches:
        samples = sound(config, batch)
        job = Job(model=model, tokenizer=tokenizer, samples=samples, tokens=config.tokens)
        rows += _compare([Ours(job), *(make_peer(name, job) for name in config.against)], config)
    return {
        "device": jax.devices()[0].device_kind,
        "versions": _versions(config),
        "config": {k: _plain(v) for k, v in dataclasses.asdict(config).items()},
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


def _compare(runners: Sequence[Runner], config: WhisperProfile) -> list[dict[str, Any]]:
    """Run rounds in turns; compare tokens with those of the first."""
    starts = [_warm_up(runner) for runner in runners]
    times: list[list[Times]] = [[] for _ in runners]
    for _ in range(config.rounds):
        for runner, own in zip(runners, times, strict=True):
            own.append(_round(runner)[0])
    expected = starts[0][1]
    return [
        _row(runner, own, start, agreement(tokens, expected), config)
        for runner, own, (start, tokens) in zip(runners, times, starts, strict=True)
    ]


def _warm_up(runner: Runner) -> tuple[float, np.ndarray]:
    """Return the seconds until it has its full speed, and its tokens."""
    start, tokens = time.perf_counter(), np.zeros(())
    for _ in range(runner.warm_ups):
        _, tokens = _round(runner)
    return time.perf_counter() - start, tokens


def _round(runner: Runner) -> tuple[Times, np.ndarray]:
    cpu, start = time.process_time(), time.perf_counter()
    states = runner.encode()
    middle = time.perf_counter()
    tokens = runner.write(states)
    end = time.perf_counter()
    cpu = time.process_time() - cpu
    return Times(encoding=middle - start, writing=end - middle, cpu=cpu), tokens


def agreement(found: np.ndarray, expected: np.ndarray) -> float:
    """Return the share of tokens before the first difference, the mean over rows."""
    if found.shape != expected.shape:
        raise ValueError(f"tokens have shape {found.shape}; expected {expected.shape}")
    return float(np.logical_and.accumulate(found == expected, axis=1).mean())


def _row(
    runner: Runner, times: list[Times], start: float, agrees: float, config: WhisperProfile
) -> dict[str, Any]:
    count = len(runner.job.samples)
    whole = float(np.median([t.encoding + t.writing for t in times]))
    return {
        "name": runner.name,
        "batch": count,
        "real_time_factor": whole / (count * config.seconds),
        "hear_ms": percentiles([1e3 * t.encoding for t in times], (50, 99)),
        "token_ms": percentiles([1e3 * t.writing / config.tokens for t in times], (50, 99)),
        "cpu_s": float(np.median([t.cpu for t in times])),
        "compile_s": max(0.0, start - runner.warm_ups * whole),
        "peak_mib": runner.peak_mib(),
        "agreement": agrees,
    }


def _versions(config: WhisperProfile) -> dict[str, str]:
    wanted = ["jax", *(["torch", "transformers"] if config.against else [])]
    wanted += ["faster-whisper"] if "faster-whisper" in config.against else []
    return {package: version(package) for package in wanted}


def _plain(value: Any) -> Any:
    """Return the name of a file, without its directory."""
    return value.name if isinstance(value, Path) else value


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
