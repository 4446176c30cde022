"""A monotonic decoder learns when to write, on a source whose true alignment is known.

    python -m experiments.ma2020.synthetic_alignment      2 CPU cores, 60 to 90 s, 25 s of them compilation

A sentence is a row of random words, each spoken for 2 to 5 frames under noise that cancels out
over the word: its first frame says little, its last but one often enough, its last everything.
The translation puts each word through a fixed dictionary and closes with end-of-sentence, so a
token can be written once its word has been heard, and waiting longer gains nothing.

Training has two phases, as in Ma et al. 2020 (MMA): lambda = 0, then lambda > 0 on DAL. Expected
on held-out sentences, give or take a percent or a tenth of a frame:

                                          phase 1    phase 2
    accuracy, expected alignment           98.4 %    100.0 %
    accuracy, hard decisions               92.5 %     99.8 %
    delay (frames), expected alignment     13.59      12.07
    delay (frames), hard decisions         14.39      13.50
    ideal delay (frames)                   12.85      12.85

Hard decisions are what a stream takes; theirs is the delay of the slowest head, and the frame it
adds to the ideal is the onset of the next word. The expected delay lies below the ideal because
the latency term is content when some probability, too little to decide, stops far too early.

Dimension key: B sentences, N words, S frames, F features, T target tokens, D width, H heads.
"""

import dataclasses
import enum
import functools
import importlib.util
import time
from pathlib import Path

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
PICTURE = "synthetic_alignment.png"
OBJECTIVE = losses.JointObjective()
BLUE, ORANGE = "#0072B2", "#D55E00"  # told apart by colour-blind readers too


@dataclasses.dataclass(frozen=True, kw_only=True)
class DemoConfig:
    """The whole experiment. Token number `words` is end-of-sentence, the next one the start."""

    out: Path = Path("alignment_out")
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

    def __post_init__(self):
        """Refuse a run that cannot be."""
        if min(self.steps, self.batch, self.report_every) < 1:
            raise ValueError("steps, batch and report_every must be at least 1.")


@flax.struct.dataclass
class Batch:
    """Spoken sentences and their translations, padded on the right."""

    frames: Float[Array, "B S F"]
    frame_length: Int[Array, " B"]
    targets: Int[Array, "B T"]
    target_length: Int[Array, " B"]
    heard: Int[Array, "B T"]  # frames after which a token's word is complete: the ideal delay


def random_key(purpose: str, config: DemoConfig) -> jax.Array:
    """A key of its own for each purpose; "rbg" compiles in a tenth of the default's time."""
    key = jax.random.key(config.seed, impl="rbg")
    return jax.random.fold_in(key, ("language", "weights", "train", "held out").index(purpose))


def draw_batch(key: jax.Array, size: int, config: DemoConfig) -> Batch:
    """Random sentences; runs inside `jit`."""
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
        heard=jnp.pad(ends, [(0, 0), (0, 1)], mode="edge"),
    )


def speak(key, sounds_BNF, durations_BN, config: DemoConfig) -> Float[Array, "B S F+1"]:
    """frame = sound + noise, where the noise of a word sums to 0; and a channel of onset marks."""
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
    """How energies become probabilities of writing."""

    NOISY = enum.auto()  # training: noise pushes them away from 1/2
    EXPECTED = enum.auto()  # the same without noise
    HARD = enum.auto()  # 0 or 1, as in a stream: a head reads on while its energy is below 0


class MonotonicAttention(nn.Module):
    """Heads that choose how far to read, and attend softly to all they have read."""

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
    """A causal encoder, a causal network over the target prefix, monotonic attention between."""

    config: DemoConfig

    @nn.compact
    def __call__(self, batch: Batch, tokens: Int[Array, "B T"], decision: Decision):
        """What the objective asks of a branch, and the alignment; step i sees tokens before i."""
        width, words = self.config.width, self.config.words

        def remember(x):
            _, memory = nn.RNN(nn.GRUCell(width), return_carry=True)(x)
            return nn.LayerNorm()(x + memory)

        states = remember(nn.gelu(nn.Conv(width, (3,), padding="CAUSAL")(batch.frames)))
        prefix = jnp.pad(tokens[:, :-1], [(0, 0), (1, 0)], constant_values=words + 1)
        y = remember(nn.Embed(words + 2, width)(prefix))
        attention = MonotonicAttention(self.config.heads, name="attention")
        context, alpha = attention(y, states, batch.frame_length, decision)
        branch = losses.Branch(
            logits=nn.Dense(words + 1)(nn.LayerNorm()(y + context)),
            target_length=batch.target_length,
            state_length=batch.frame_length,
            delays=ops.expected_delays(alpha),
        )
        return branch, alpha


def initial_state(config: DemoConfig) -> TrainState:
    """Fresh weights, and Adam with one cosine of the learning rate per phase."""
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
def train_step(state: TrainState, latency_weight: float, *, config: DemoConfig):
    """One update on fresh sentences. lambda is traced: both phases run one compiled step."""
    key = jax.random.fold_in(random_key("train", config), state.step)
    batch_key, noise_key = jax.random.split(key)
    batch = draw_batch(batch_key, config.batch, config)

    def loss_of(params):
        rngs = {"noise": noise_key}
        branch, _ = state.apply_fn(params, batch, batch.targets, Decision.NOISY, rngs=rngs)
        terms = losses.joint_terms(branch, None, batch.targets, OBJECTIVE)
        weights = OBJECTIVE.weights() | {"st_latency": latency_weight}
        loss = losses.combine(losses.sum_terms(terms), weights)
        return loss.total, {"loss": loss.total, **loss.terms, **scores(branch, batch)}

    gradient, metrics = jax.grad(loss_of, has_aux=True)(state.params)
    return state.apply_gradients(grads=gradient), metrics


def scores(branch: losses.Branch, batch: Batch) -> dict[str, jax.Array]:
    """Token accuracy, the mean expected delay of the heads, and the ideal delay."""
    return {
        "accuracy": token_mean(branch.logits.argmax(-1) == batch.targets, batch),
        "delay": token_mean(branch.delays.mean(1), batch),
        "ideal": token_mean(batch.heard, batch),
    }


def token_mean(x: Array, batch: Batch) -> jax.Array:
    """Mean over the real target tokens of the whole batch."""
    real = jnp.arange(x.shape[1]) < batch.target_length[:, None]
    return jnp.where(real, x, 0).sum() / real.sum()


def train(state: TrainState, phase: int, config: DemoConfig) -> tuple[TrainState, list[dict]]:
    """One phase, with a line of mean metrics per interval; returns the state and those means."""
    weight, history = (0.0, config.latency_weight)[phase - 1], []
    for start in range(0, config.steps, config.report_every):
        began, metrics = time.perf_counter(), []
        for _ in range(min(config.report_every, config.steps - start)):
            state, latest = train_step(state, weight, config=config)
            metrics.append(latest)
        mean = jax.tree.map(lambda *x: float(np.mean(x)), *jax.device_get(metrics))
        step = (phase - 1) * config.steps + start + len(metrics)
        eta = (time.perf_counter() - began) / len(metrics) * (2 * config.steps - step)
        history.append({"step": step, **mean})
        line = "  ".join(f"{name} {value:.3f}" for name, value in mean.items())
        print(f"phase {phase}  step {step:4d}  {line}  ETA {eta:.0f} s", flush=True)
    return state, history


@flax.struct.dataclass
class Evaluation:
    """Numbers over the held-out sentences, and one of them to look at."""

    numbers: dict[str, Float[Array, ""]]
    alignment: Float[Array, "T S"]  # mean over heads
    hard_delay: Float[Array, " T"]
    heard: Int[Array, " T"]
    targets: Int[Array, " T"]


@functools.partial(jax.jit, static_argnames="config")
def evaluate(params, *, config: DemoConfig) -> Evaluation:
    """Held-out sentences, given the true prefix without noise, and decoded by hard decisions."""
    batch = draw_batch(random_key("held out", config), HELD_OUT, config)
    branch, alpha = Translator(config).bind(params)(batch, batch.targets, Decision.EXPECTED)
    tokens, hard_delay = decode_hard(params, batch, config)
    numbers = scores(branch, batch) | {
        "hard_accuracy": token_mean(tokens == batch.targets, batch),
        "hard_delay": token_mean(hard_delay, batch),
    }
    shown = batch.target_length.argmax()
    sentence = [x[shown] for x in (alpha.mean(1), hard_delay, batch.heard, batch.targets)]
    return Evaluation(numbers, *sentence)


def decode_hard(params, batch: Batch, config: DemoConfig):
    """Greedy translation as a stream writes it: tokens, and the delay of the slowest head.

    With p in {0, 1} the expected alignment is the path the heads take. The model is causal, so
    one pass over what it wrote so far settles one more token.
    """

    def write(_, written):
        branch, _ = Translator(config).bind(params)(batch, written[0], Decision.HARD)
        return branch.logits.argmax(-1), branch.delays.max(1)

    nothing = jnp.zeros_like(batch.targets), jnp.zeros(batch.targets.shape)
    return jax.lax.fori_loop(0, batch.targets.shape[1], write, nothing)


def draw(history: list[dict], phases: list[Evaluation], config: DemoConfig) -> Path:
    """The training above, one held-out sentence after each phase below."""
    from matplotlib.figure import Figure  # of the extra `plots`, needed here alone

    figure = Figure(figsize=(13, 8.8), layout="constrained")
    figure.suptitle("A monotonic decoder learns when to write", fontsize=18, fontweight="bold")
    (above,), (below,) = figure.subfigures(2, 1, squeeze=False, height_ratios=[1, 1.5], hspace=0.06)
    above.suptitle("Training, first for quality alone (white), then for low latency too (grey)")
    draw_curves(above.subplots(1, 2), history, phases, config)
    below.suptitle("One held-out sentence: after which source frame is each token written?")
    maps = below.subplots(1, 2, sharey=True)
    images = [draw_alignment(*pair) for pair in zip(maps, phases, strict=True)]
    maps[0].set(title="after training with λ = 0", ylabel="source word → target token")
    maps[1].set(title=f"after training with λ = {config.latency_weight:g}")
    maps[0].legend(loc="lower left", framealpha=1)
    below.colorbar(images[1], ax=maps, pad=0.01, label="probability of writing, mean over heads")
    config.out.mkdir(parents=True, exist_ok=True)
    figure.savefig(config.out / PICTURE, dpi=130)
    return config.out / PICTURE


def draw_curves(panels, history: list[dict], phases: list[Evaluation], config: DemoConfig) -> None:
    """Loss terms and delays over both phases."""
    m = {name: np.array([metrics[name] for metrics in history]) for name in history[0]}
    hard = [e.numbers["hard_delay"] - e.numbers["ideal"] for e in phases]
    ends = [config.steps, 2 * config.steps]
    loss, delay = panels
    loss.plot(m["step"], m["st_nll"], color=BLUE, label="cross-entropy, label-smoothed")
    loss.plot(m["step"], m["st_latency"], color=ORANGE, label="latency: DAL, frames per token")
    loss.set(title="loss terms", ylim=(0, None))
    delay.plot(m["step"], m["delay"] - m["ideal"], color=ORANGE, label="expected, in training")
    delay.plot(ends, hard, "kD", clip_on=False, label="hard decisions, held-out sentences")
    delay.axhline(0, color="black", linewidth=1, linestyle=":", label="word just heard in full")
    delay.set(title="mean delay after the end of the word, in frames", ymargin=0.35)
    for axes in panels:
        axes.set(xlabel="training step", xlim=(0, ends[1]))
        axes.axvspan(*ends, color="#ededed", zorder=0)
        axes.legend(frameon=False)
        axes.spines[["top", "right"]].set_visible(False)


def draw_alignment(axes, evaluation: Evaluation):
    """The expected alignment in blue, the ideal one in orange, hard decisions as dots."""
    heard, row = np.asarray(evaluation.heard), np.arange(len(evaluation.heard))
    extent, scale = (0, heard[-1], len(row) - 0.5, -0.5), {"cmap": "Blues", "vmin": 0, "vmax": 1}
    alpha = evaluation.alignment[:, : heard[-1]]
    image = axes.imshow(alpha, extent=extent, aspect="auto", **scale)
    axes.vlines(heard, -0.5, len(row) - 0.5, color="grey", linewidth=0.5)
    bars = {"color": ORANGE, "linewidth": 3, "clip_on": False, "label": "end of the word"}
    axes.vlines(heard, row - 0.5, row + 0.5, **bars)
    dots = {"color": "white", "markeredgecolor": "black", "label": "hard decision, slowest head"}
    axes.plot(evaluation.hard_delay - 0.5, row, "o", **dots)
    letters = [chr(ord("A") + token) for token in evaluation.targets[:-1]]
    axes.set_yticks(row, [*(f"{i} → {x}" for i, x in enumerate(letters, 1)), "end"])
    axes.set_xlabel("source frame")
    words = axes.secondary_xaxis("top")
    words.set_xticks((np.append(0, heard[:-2]) + heard[:-1]) / 2, row[1:])
    words.tick_params(length=0)
    return image


def run(config: DemoConfig) -> dict[str, float]:
    """Trains both phases, draws the picture, prints and returns the numbers."""
    if importlib.util.find_spec("matplotlib") is None:
        raise OSError("the demo draws with matplotlib: pip install 'simuljax[plots]'")
    began = time.perf_counter()
    state, history, phases = initial_state(config), [], []
    print("compiling the training step", flush=True)
    jax.block_until_ready(train_step(state, 0.0, config=config))
    for phase in (1, 2):
        state, metrics = train(state, phase, config)
        history += metrics
        phases.append(jax.device_get(evaluate(state.params, config=config)))
    numbers = {f"{k}_{i}": float(v) for i in (1, 2) for k, v in phases[i - 1].numbers.items()}
    print(summary(numbers), f"picture: {draw(history, phases, config)}", sep="\n")
    numbers |= {"first_nll": history[0]["st_nll"], "last_nll": history[-1]["st_nll"]}
    return numbers | {"seconds": time.perf_counter() - began}


def summary(numbers: dict[str, float]) -> str:
    """The held-out numbers of both phases side by side."""
    lines = [f"held-out sentences {'phase 1':>26s}{'phase 2':>10s}"]
    for name, how in (("", "expected alignment"), ("hard_", "hard decisions")):
        a, b = (numbers[f"{name}accuracy_{phase}"] for phase in (1, 2))
        lines.append(f"accuracy, {how:25s}{a:10.1%}{b:10.1%}")
        a, b = (numbers[f"{name}delay_{phase}"] for phase in (1, 2))
        lines.append(f"delay (frames), {how:19s}{a:10.2f}{b:10.2f}")
    return "\n".join([*lines, f"ideal delay (frames) {numbers['ideal_1']:24.2f}"])


if __name__ == "__main__":
    run(tyro.cli(DemoConfig))
