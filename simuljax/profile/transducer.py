"""`simuljax profile transducer`: CAAT's loss at real size, group by group and all at once."""

import dataclasses
from typing import Literal

import jax
import jax.numpy as jnp

from simuljax.losses import transducer
from simuljax.models.caat import pick
from simuljax.profile.measure import measure
from simuljax.profile.positive import positive


@dataclasses.dataclass(frozen=True, kw_only=True)
class TransducerProfile:
    """Time and memory of the scores and the loss, forward and backward, from joined states on.

    These are made of what the predictor and the source give, which is added here in the joiner's
    place; inputs and gradients are left out of the memory.
    """

    batch: int = 32
    groups: int = 40
    labels: int = 64
    vocabulary: int = 8000
    width: int = 256
    dtype: Literal["float32", "bfloat16"] = "bfloat16"
    """Of the logits; scores and loss are float32."""
    seed: int = 0

    def __post_init__(self) -> None:
        """Refuse what there is nothing of to measure."""
        positive(self, but=("seed",))
        if self.vocabulary < 3:
            raise ValueError(f"vocabulary is {self.vocabulary}; with a label it has 3 or more")


def run(config: TransducerProfile) -> dict:
    """Both ways to hold the lattice, and the loss alone, from scores."""
    predicted, heard, output, targets = _random_inputs(config)
    full = jnp.full(config.batch, config.groups), jnp.full(config.batch, config.labels)

    def of_group(predicted, heard, output):
        joined = jax.nn.relu(predicted + heard[:, None])
        return pick(joined @ output, targets)

    def grouped(predicted, heard, output):
        def group(_, heard):
            return None, jax.checkpoint(of_group, prevent_cse=False)(predicted, heard, output)

        _, (blank, label) = jax.lax.scan(group, None, heard)
        return _loss(jnp.moveaxis(blank, 0, 1), jnp.moveaxis(label, 0, 1), full)

    def whole_lattice(predicted, heard, output):
        blank, label = jax.vmap(of_group, (None, 0, None), 1)(predicted, heard, output)
        return _loss(blank, label, full)

    rows = []
    for way in (grouped, whole_lattice):
        cost = measure(jax.value_and_grad(way, (0, 1, 2)), predicted, heard, output)
        rows.append({"lattice": way.__name__} | dataclasses.asdict(cost))
    blank, label = _random_scores(config)
    alone = jax.value_and_grad(lambda blank, label: _loss(blank, label, full), (0, 1))
    cost = measure(alone, blank, label)
    rows.append({"lattice": "loss_alone"} | dataclasses.asdict(cost))
    return {
        "device": jax.devices()[0].device_kind,
        "jax": jax.__version__,
        "config": dataclasses.asdict(config),
        "logits_mib": config.groups * _nodes(config) * config.vocabulary * 4 / 2**20,
        "rows": rows,
    }


def table(report: dict) -> str:
    """The report for people."""
    head = (
        f"{report['device']}, jax {report['jax']}, {report['config']}\n"
        f"float32 logits of the whole lattice: {report['logits_mib']:.0f} MiB\n"
        "lattice          fwd+bwd ms   peak MiB   compile s\n"
    )
    return head + "\n".join(
        f"{r['lattice']:<16}{r['ms']:>11.2f}{r['temp_mib']:>11.0f}{r['compile_s']:>12.1f}"
        for r in report["rows"]
    )


def _loss(blank: jax.Array, label: jax.Array, full: tuple[jax.Array, jax.Array]) -> jax.Array:
    nll, delay = transducer(blank, label, *full)
    return (nll + delay).mean()


def _nodes(config: TransducerProfile) -> int:
    """Of a group, in all of the batch."""
    return config.batch * (config.labels + 1)


def _random_inputs(config: TransducerProfile) -> tuple[jax.Array, ...]:
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
