"""`simuljax profile dar` and `simuljax profile transducer`: time and memory of two losses."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, Literal

import jax
import jax.numpy as jnp

from simuljax import losses
from simuljax.models.caat import pick
from simuljax.profile.measure import check_positive, environment, measure


@dataclasses.dataclass(frozen=True, kw_only=True)
class DarProfile:
    """Time and memory of DAR, forward and backward; memory without the inputs."""

    batch: int = 32
    heads: int = 8
    decisions: int = 128
    """Speech decision points."""
    tokens: int = 64
    """Text encoder length."""
    targets: int = 96
    layers: int = 6
    seed: int = 0

    def __post_init__(self) -> None:
        check_positive(self, except_for=("seed",))


@dataclasses.dataclass(frozen=True, kw_only=True)
class TransducerProfile:
    """Time and memory of CAAT's scores and loss, forward and backward.

    The joiner is a sum of predictor and source states here. Memory is without inputs and gradients.
    """

    batch: int = 32
    groups: int = 40
    labels: int = 64
    vocabulary: int = 8000
    width: int = 256
    dtype: Literal["float32", "bfloat16"] = "bfloat16"
    """Type of the logits; scores and loss are float32."""
    seed: int = 0

    def __post_init__(self) -> None:
        check_positive(self, except_for=("seed",))
        if self.vocabulary < 3:
            raise ValueError(f"vocabulary is {self.vocabulary}; it must be at least 3")


def run(config: DarProfile | TransducerProfile) -> dict[str, Any]:
    """Measure the loss with less and with more of it in memory at a time."""
    return _dar(config) if isinstance(config, DarProfile) else _transducer(config)


def table(report: dict[str, Any]) -> str:
    """Format the report as text."""
    if "inputs_mib" in report:
        name, size = "layers", f"energies of both branches: {report['inputs_mib']:.0f} MiB"
    else:
        name, size = "lattice", f"float32 logits of all nodes: {report['logits_mib']:.0f} MiB"
    head = (
        f"{report['device']}, jax {report['jax']}, {report['config']}\n{size}\n"
        f"{name:<16} fwd+bwd ms   peak MiB   compile s\n"
    )
    return head + "\n".join(
        f"{r[name]:<16}{r['ms']:>11.2f}{r['temp_mib']:>11.0f}{r['compile_s']:>12.1f}"
        for r in report["rows"]
    )


def _rows(name: str, functions: Mapping[str, tuple[Callable, tuple]]) -> list[dict[str, Any]]:
    """Measure functions with their arguments."""
    return [
        {name: label} | dataclasses.asdict(measure(function, *args))
        for label, (function, args) in functions.items()
    ]


def _dar(config: DarProfile) -> dict[str, Any]:
    """Measure DAR with one layer at a time, and with all at once as in the objective."""
    keys = jax.random.split(jax.random.key(config.seed), 2)
    lead = (config.layers, config.batch, config.heads, config.targets)
    speech = jax.random.normal(keys[0], (*lead, config.decisions))
    text = jax.random.normal(keys[1], (*lead, config.tokens))
    sizes = (config.decisions, config.tokens, config.targets)
    lengths = [jnp.full(config.batch, size) for size in sizes]

    def of_layer(speech, text):
        return losses.decision_attentive(speech, text, *lengths)[0]

    def one_at_a_time(speech, text):
        return jax.lax.map(lambda layer: of_layer(*layer), (speech, text)).mean()

    def all_at_once(speech, text):
        return jax.vmap(of_layer)(speech, text).mean()

    ways = {
        way.__name__: (jax.value_and_grad(way), (speech, text))
        for way in (one_at_a_time, all_at_once)
    }
    return {
        **environment(config),
        "inputs_mib": (speech.nbytes + text.nbytes) / 2**20,
        "rows": _rows("layers", ways),
    }


def _transducer(config: TransducerProfile) -> dict[str, Any]:
    """Measure the loss group by group, with the whole lattice, and alone from given scores."""
    predicted, source, output, targets = _lattice_inputs(config)
    full = jnp.full(config.batch, config.groups), jnp.full(config.batch, config.labels)

    def of_group(predicted, source, output):
        joined = jax.nn.relu(predicted + source[:, None])
        return pick(joined @ output, targets)

    def loss(blank, label):
        nll, delay = losses.transducer(blank, label, *full)
        return (nll + delay).mean()

    def grouped(predicted, source, output):
        def group(_, source):
            return None, jax.checkpoint(of_group, prevent_cse=False)(predicted, source, output)

        _, (blank, label) = jax.lax.scan(group, None, source)
        return loss(jnp.moveaxis(blank, 0, 1), jnp.moveaxis(label, 0, 1))

    def whole_lattice(predicted, source, output):
        return loss(*jax.vmap(of_group, (None, 0, None), 1)(predicted, source, output))

    states = (predicted, source, output)
    ways = {
        "grouped": (jax.value_and_grad(grouped, (0, 1, 2)), states),
        "whole_lattice": (jax.value_and_grad(whole_lattice, (0, 1, 2)), states),
        "loss_alone": (jax.value_and_grad(loss, (0, 1)), _random_scores(config)),
    }
    nodes = config.groups * config.batch * (config.labels + 1)
    return {
        **environment(config),
        "logits_mib": nodes * config.vocabulary * 4 / 2**20,
        "rows": _rows("lattice", ways),
    }


def _lattice_inputs(config: TransducerProfile) -> tuple[jax.Array, ...]:
    """Return random states of predictor and source, output weights and targets."""
    keys = jax.random.split(jax.random.key(config.seed), 4)
    shapes = (
        (config.batch, config.labels + 1, config.width),
        (config.groups, config.batch, config.width),
        (config.width, config.vocabulary),
    )
    arrays = [jax.random.normal(k, s, config.dtype) for k, s in zip(keys, shapes, strict=False)]
    arrays[2] = arrays[2] * config.width**-0.5
    targets = jax.random.randint(keys[3], (config.batch, config.labels), 2, config.vocabulary)
    return (*arrays, targets)


def _random_scores(config: TransducerProfile) -> tuple[jax.Array, jax.Array]:
    keys = jax.random.split(jax.random.key(config.seed + 1), 2)
    shapes = [(config.batch, config.groups, n) for n in (config.labels + 1, config.labels)]
    blank, label = (-jax.random.exponential(k, s) for k, s in zip(keys, shapes, strict=True))
    return blank, label - 3
