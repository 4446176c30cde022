"""A monotonic decoder learns when to write, on a source whose true alignment is known.

    python -m experiments.ma2020.synthetic_alignment

Hardware: 2 CPU cores, 60 to 90 s, 25 s of them compilation. Training has two phases, as in Ma et
al. 2020 (MMA): lambda = 0, then lambda = 0.1 on DAL. Expected on held-out sentences, plus or minus
one percent or a tenth of a frame (results/outputs.md):

                                          phase 1    phase 2
    accuracy, expected alignment           98.4 %    100.0 %
    accuracy, hard decisions               92.5 %     99.8 %
    delay (frames), expected alignment     13.59      12.07
    delay (frames), hard decisions         14.39      13.50
    ideal delay (frames)                   12.85      12.85

A sentence is a sequence of random words of 2 to 5 frames, under noise that sums to zero over each
word: a word is certain only after its last frame. The translation maps each word through a fixed
dictionary, so a token can be written as soon as its word has ended, and waiting longer gains
nothing.

A stream takes hard decisions; their delay is that of the slowest head. The frame it adds to the
ideal is the onset of the next word. The expected delay lies below the ideal because the latency
loss is satisfied when some probability, too little to decide, stops far too early.

Dimension key: B sentences, N words, S frames, F features, T target tokens, D width, H heads.
"""

import dataclasses
import enum
import functools

import flax.linen as nn
import flax.struct
import jax
import jax.numpy as jnp
import numpy as np
import optax
import tyro
from flax.training.train_state import TrainState
from jaxtyping import Array, Float, Int

from simuljax import losses, ops

WORD_FRAMES = (2, 5)  # the shortest and the longest word
ONSET = 3.0  # marks a word's first frame; without it "aa" could be one long "a"
HELD_OUT = 256  # sentences


@dataclasses.dataclass(frozen=True, kw_only=True)
class Config:
    """Declare the experiment. Token number `words` is end-of-sentence, the next one the start."""

    seed: int = 0
    steps: int = 800  # in each phase
    latency_weight: float = 0.1  # lambda of the second phase
    learning_rate: float = 8e-3
    batch: int = 32
    words: int = 10  # in the dictionary
    shortest: int = 4  # words in a sentence
    longest: int = 7
    features: int = 16  # per frame
    noise: float = 3.0  # standard deviation, beside features of -1 and 1
    width: int = 48
    heads: int = 2
    report_every: int = 50


@flax.struct.dataclass
class Batch:
    """Hold spoken sentences and their translations, padded on the right."""

    frames: Float[Array, "B S F"]
    frame_length: Int[Array, " B"]
    targets: Int[Array, "B T"]
    target_length: Int[Array, " B"]
    ideal_delay: Int[Array, "B T"]  # frames after which a token's word is complete


def random_key(purpose: str, config: Config) -> jax.Array:
    """Return a key for each purpose. "rbg" compiles in a tenth of the default's time."""
    key = jax.random.key(config.seed, impl="rbg")
    return jax.random.fold_in(key, ("language", "weights", "train", "held out").index(purpose))


def draw_batch(key: jax.Array, size: int, config: Config) -> Batch:
    """Draw random sentences, inside `jit`."""
    word_key, frame_key, count_key, noise_key = jax.random.split(key, 4)
    sounds_key, dictionary_key = jax.random.split(random_key("language", config))
    sounds = jax.random.rademacher(sounds_key, (config.words, config.features), jnp.float32)
    dictionary = jax.random.permutation(dictionary_key, config.words)
    shape, (fewest, most) = (size, config.longest), WORD_FRAMES
    count = jax.random.randint(count_key, (size,), config.shortest, config.longest + 1)
    real = jnp.arange(config.longest) < count[:, None]
    words = jax.random.randint(word_key, shape, 0, config.words)
    durations = jnp.where(real, jax.random.randint(frame_key, shape, fewest, most + 1), 0)
    ends = jnp.cumsum(durations, axis=1)
    targets = jnp.where(real, dictionary[words], config.words)
    return Batch(
        frames=speak(noise_key, sounds[words], durations, config),
        frame_length=ends[:, -1],
        targets=jnp.pad(targets, [(0, 0), (0, 1)], constant_values=config.words),
        target_length=count + 1,
        ideal_delay=jnp.pad(ends, [(0, 0), (0, 1)], mode="edge"),
    )


def speak(key, sounds_BNF, durations_BN, config: Config) -> Float[Array, "B S F+1"]:
    """Add noise that sums to 0 over each word, and a channel of onset marks."""
    frame = jnp.arange(config.longest * WORD_FRAMES[1])
    ends = jnp.cumsum(durations_BN, axis=1)[..., None]
    starts = ends - durations_BN[..., None]
    inside_BNS = ((starts <= frame) & (frame < ends)).astype(jnp.float32)
    onset_BS = (inside_BNS * (frame == starts)).sum(1)
    noise = config.noise * jax.random.normal(key, (*onset_BS.shape, config.features))
    mean = jnp.einsum("bns,bsf->bnf", inside_BNS, noise) / jnp.maximum(durations_BN, 1)[..., None]
    steady = jnp.einsum("bns,bnf->bsf", inside_BNS, sounds_BNF - mean)
    frames = steady + noise * inside_BNS.sum(1)[..., None]
    return jnp.concatenate([frames, ONSET * onset_BS[..., None]], axis=-1)


class Decision(enum.Enum):
    """Name how energies become probabilities of writing."""

    NOISY = enum.auto()  # training: noise pushes them away from 1/2
    EXPECTED = enum.auto()  # the same without noise
    HARD = enum.auto()  # 0 or 1, as in a stream: a head reads on while its energy is below 0


class MonotonicAttention(nn.Module):
    """Choose per head how far to read, and attend softly to everything read."""

    heads: int

    @nn.compact
    def __call__(self, query_BTD, states_BSD, lengths, decision: Decision):
        width = query_BTD.shape[-1]

        def split(x, parts):  # [B, L, D] -> parts of [B, H, L, D/H]
            dense = nn.DenseGeneral((parts, self.heads, width // self.heads))
            return jnp.einsum("blphd->pbhld", dense(x))

        monotonic_query, soft_query = split(query_BTD, 2)
        monotonic_key, soft_key, value = split(states_BSD, 3)
        bias = self.param("bias", nn.initializers.constant(-2.0), ())
        energy = ops.monotonic_energy(monotonic_query, monotonic_key, bias)
        if decision is Decision.HARD:
            p = (energy >= 0).astype(energy.dtype)
        else:
            key = self.make_rng("noise") if decision is Decision.NOISY else None
            p = ops.selection_probability(energy, lengths, key=key)
        alpha = ops.preserved_alignment(p, lengths, method="auto")
        soft_energy = ops.monotonic_energy(soft_query, soft_key)
        beta = ops.expected_soft_attention(alpha, soft_energy, lengths)
        context = jnp.einsum("bhts,bhsd->bthd", beta, value)
        return nn.DenseGeneral(width, axis=(-2, -1))(context), alpha


class Translator(nn.Module):
    """Join a causal encoder and a causal target network by monotonic attention."""

    config: Config

    @nn.compact
    def __call__(self, batch: Batch, tokens: Int[Array, "B T"], decision: Decision):
        """Return logits [B, T, V] and delays [B, H, T]; step i sees the tokens before i."""
        width, words = self.config.width, self.config.words

        def remember(x):
            _, memory = nn.RNN(nn.GRUCell(width), return_carry=True)(x)
            return nn.LayerNorm()(x + memory)

        states = remember(nn.gelu(nn.Conv(width, (3,), padding="CAUSAL")(batch.frames)))
        prefix = jnp.pad(tokens[:, :-1], [(0, 0), (1, 0)], constant_values=words + 1)
        y = remember(nn.Embed(words + 2, width)(prefix))
        attention = MonotonicAttention(self.config.heads, name="attention")
        context, alpha = attention(y, states, batch.frame_length, decision)
        return nn.Dense(words + 1)(nn.LayerNorm()(y + context)), ops.expected_delays(alpha)


def initial_state(config: Config) -> TrainState:
    """Return fresh weights, and Adam with one cosine of the learning rate per phase."""
    model = Translator(config)

    @jax.jit
    def init(key):
        batch = draw_batch(key, 1, config)
        return model.init(key, batch, batch.targets, Decision.EXPECTED)

    cosine = {"init_value": 0.0, "warmup_steps": config.steps // 20, "decay_steps": config.steps}
    peaks = (config.learning_rate, config.learning_rate / 2)
    rate = optax.sgdr_schedule([{**cosine, "peak_value": peak} for peak in peaks])
    params = init(random_key("weights", config))
    return TrainState.create(apply_fn=model.apply, params=params, tx=optax.adam(rate))


@functools.partial(jax.jit, static_argnames="config")
def train_step(state: TrainState, latency_weight: float, *, config: Config):
    """Make one update on fresh sentences. lambda is traced, so both phases share one program."""
    key = jax.random.fold_in(random_key("train", config), state.step)
    batch_key, noise_key = jax.random.split(key)
    batch = draw_batch(batch_key, config.batch, config)

    def loss_of(params):
        rngs = {"noise": noise_key}
        logits, delays = state.apply_fn(params, batch, batch.targets, Decision.NOISY, rngs=rngs)
        lengths = batch.target_length
        nll, tokens = losses.label_smoothed_cross_entropy(logits, batch.targets, lengths)
        late, _ = losses.latency(delays, batch.frame_length, lengths, clip=True)
        terms = {"nll": nll.sum() / tokens.sum(), "latency": late.sum() / tokens.sum()}
        loss = terms["nll"] + latency_weight * terms["latency"]
        return loss, {"loss": loss, **terms, **scores(logits, delays, batch)}

    gradient, metrics = jax.grad(loss_of, has_aux=True)(state.params)
    return state.apply_gradients(grads=gradient), metrics


def scores(logits: Array, delays: Array, batch: Batch) -> dict[str, jax.Array]:
    """Return token accuracy, the mean expected delay of the heads, and the ideal delay."""
    return {
        "accuracy": token_mean(logits.argmax(-1) == batch.targets, batch),
        "delay": token_mean(delays.mean(1), batch),
        "ideal": token_mean(batch.ideal_delay, batch),
    }


def token_mean(x: Array, batch: Batch) -> jax.Array:
    """Average over the real target tokens of the whole batch."""
    real = jnp.arange(x.shape[1]) < batch.target_length[:, None]
    return jnp.where(real, x, 0).sum() / real.sum()


def train(state: TrainState, phase: int, config: Config) -> tuple[TrainState, list[float]]:
    """Train one phase, with a line of mean metrics per interval; also return the losses."""
    weight, losses_ = (0.0, config.latency_weight)[phase - 1], []
    for start in range(0, config.steps, config.report_every):
        metrics = []
        for _ in range(min(config.report_every, config.steps - start)):
            state, latest = train_step(state, weight, config=config)
            metrics.append(latest)
        mean = jax.tree.map(lambda *x: float(np.mean(x)), *jax.device_get(metrics))
        losses_.append(mean["nll"])
        step = (phase - 1) * config.steps + start + len(metrics)
        line = "  ".join(f"{name} {value:.3f}" for name, value in mean.items())
        print(f"phase {phase}  step {step:4d}  {line}", flush=True)
    return state, losses_


@functools.partial(jax.jit, static_argnames="config")
def evaluate(params, *, config: Config) -> dict[str, Float[Array, ""]]:
    """Score held-out sentences, with the true prefix, and decoded by hard decisions."""
    batch = draw_batch(random_key("held out", config), HELD_OUT, config)
    logits, delays = Translator(config).bind(params)(batch, batch.targets, Decision.EXPECTED)
    tokens, hard_delay = decode_hard(params, batch, config)
    return scores(logits, delays, batch) | {
        "hard_accuracy": token_mean(tokens == batch.targets, batch),
        "hard_delay": token_mean(hard_delay, batch),
    }


def decode_hard(params, batch: Batch, config: Config):
    """Decode greedily as a stream does; return tokens and the delay of the slowest head.

    With p in {0, 1} the expected alignment is the path the heads take. The model is causal, so
    each pass over the tokens so far settles one more.
    """

    def write(_, written):
        logits, delays = Translator(config).bind(params)(batch, written[0], Decision.HARD)
        return logits.argmax(-1), delays.max(1)

    nothing = jnp.zeros_like(batch.targets), jnp.zeros(batch.targets.shape)
    return jax.lax.fori_loop(0, batch.targets.shape[1], write, nothing)


def run(config: Config) -> dict[str, float]:
    """Train both phases, print and return the numbers."""
    state, losses_, numbers = initial_state(config), [], {}
    for phase in (1, 2):
        state, more = train(state, phase, config)
        losses_ += more
        found = jax.device_get(evaluate(state.params, config=config))
        numbers |= {f"{name}_{phase}": float(value) for name, value in found.items()}
    print(summary(numbers))
    return numbers | {"first_nll": losses_[0], "last_nll": losses_[-1]}


def summary(numbers: dict[str, float]) -> str:
    """Format the held-out numbers of both phases side by side."""
    lines = [f"held-out sentences {'phase 1':>26s}{'phase 2':>10s}"]
    for name, how in (("", "expected alignment"), ("hard_", "hard decisions")):
        a, b = (numbers[f"{name}accuracy_{phase}"] for phase in (1, 2))
        lines.append(f"accuracy, {how:25s}{a:10.1%}{b:10.1%}")
        a, b = (numbers[f"{name}delay_{phase}"] for phase in (1, 2))
        lines.append(f"delay (frames), {how:19s}{a:10.2f}{b:10.2f}")
    return "\n".join([*lines, f"ideal delay (frames) {numbers['ideal_1']:24.2f}"])


if __name__ == "__main__":
    run(tyro.cli(Config))
