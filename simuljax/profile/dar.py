"""`simuljax profile dar`: decision attentive regularisation at real size."""

import dataclasses

import jax
import jax.numpy as jnp

from simuljax import losses
from simuljax.profile.measure import measure
from simuljax.profile.positive import positive


@dataclasses.dataclass(frozen=True, kw_only=True)
class DarProfile:
    """Time and memory of DAR, forward and backward; its inputs are left out of the memory."""

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
        """Refuse what there is nothing of to measure."""
        positive(self, but=("seed",))


def run(config: DarProfile) -> dict:
    """Both ways to hold the layers: one at a time, and all at once, as the objective does it."""
    speech, text, lengths = _random_inputs(config)

    def of_layer(speech, text):
        return losses.decision_attentive(speech, text, *lengths)[0]

    def one_at_a_time(speech, text):
        return jax.lax.map(lambda layer: of_layer(*layer), (speech, text)).mean()

    def all_at_once(speech, text):
        return jax.vmap(of_layer)(speech, text).mean()

    rows = []
    for way in (one_at_a_time, all_at_once):
        cost = measure(jax.value_and_grad(way), speech, text)
        rows.append({"layers": way.__name__} | dataclasses.asdict(cost))
    inputs = (speech.nbytes + text.nbytes) / 2**20
    return {
        "device": jax.devices()[0].device_kind,
        "jax": jax.__version__,
        "config": dataclasses.asdict(config),
        "inputs_mib": inputs,
        "rows": rows,
    }


def table(report: dict) -> str:
    """The report for people."""
    head = (
        f"{report['device']}, jax {report['jax']}, {report['config']}\n"
        f"energies of both branches: {report['inputs_mib']:.0f} MiB\n"
        "layers           fwd+bwd ms   peak MiB   compile s\n"
    )
    return head + "\n".join(
        f"{r['layers']:<16}{r['ms']:>11.2f}{r['temp_mib']:>11.0f}{r['compile_s']:>12.1f}"
        for r in report["rows"]
    )


def _random_inputs(config: DarProfile):
    keys = jax.random.split(jax.random.key(config.seed), 2)
    lead = (config.layers, config.batch, config.heads, config.targets)
    speech = jax.random.normal(keys[0], (*lead, config.decisions))
    text = jax.random.normal(keys[1], (*lead, config.tokens))
    full = [jnp.full(config.batch, n) for n in (config.decisions, config.tokens, config.targets)]
    return speech, text, full
