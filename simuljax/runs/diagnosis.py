"""Diagnose the heads of a trained run: where they read, and whether speech decides as text does.

DAR trains for the latter. Teacher-forced, with the expected alignment, on a split that the run was
not trained on.
"""

import functools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from simuljax.audio import FeatureRecord
from simuljax.batch import Batch
from simuljax.cache import enable_compilation_cache
from simuljax.config.evaluation import Evaluation
from simuljax.config.fields import from_json, read_json, write_json
from simuljax.config.model import STATE_MS
from simuljax.config.training import Objective
from simuljax.losses import Branch, matching_perplexity
from simuljax.models.joint import JointModel
from simuljax.ops import expected_alignment
from simuljax.runs.split import RunSplit, open_examples
from simuljax.serve.run_translator import RunTranslator
from simuljax.text import Words
from simuljax.train.forward import branches, draw_k
from simuljax.train.run import load_checkpoint, open_run

FILE = "diagnosis.json"


@dataclass(frozen=True, kw_only=True)
class Diagnosis:
    """Means over the targets of a split; None if there is no finite one."""

    steps: tuple[int, ...]  # of the checkpoint
    # [layer][head]: of the source, when a target is due
    read_share: tuple[tuple[float | None, ...], ...]
    head_spread_ms: float | None  # between the first and the last head to be ready for a target
    speech_text_correlation: float | None  # of where speech and text read, mean over heads
    matching_perplexity: float | None  # of DAR's softmax over speech, mean over layers
    columns: float | None  # that it chooses from: decision points times matched heads
    mass_lost: float | None = None  # of a target's probability, by the alignment of training


def diagnose(chosen: Evaluation) -> Diagnosis:
    """Diagnose a run with a speech branch; the result is kept beside its checkpoints."""
    enable_compilation_cache()
    run = open_run(chosen.run)
    trained, path = load_checkpoint(run, chosen.checkpoint), chosen.run / FILE
    if path.exists():
        kept = from_json(Diagnosis, read_json(path))
        if kept.steps == tuple(trained.steps):
            return kept
    translator = RunTranslator(run, trained)
    split = RunSplit(translator=translator, examples=open_examples(run, chosen), chosen=chosen)
    objective = run.config.training.objective
    where = functools.partial(_where_heads_read, JointModel(run.model), objective)
    seen = [
        jax.device_get(where(translator.variables, run.front_end, translator.words, batch))
        for _, batch in split.batches(set())
    ]
    heads = run.model.width.heads
    matched = heads if objective.matching.get("across_heads", True) else 1
    found = summarise(tuple(trained.steps), [real_values(each) for each in seen], heads, matched)
    write_json(path, found)
    return found


@functools.partial(jax.jit, static_argnums=(0, 1))
def _where_heads_read(
    model: JointModel,
    objective: Objective,
    variables: Any,
    front_end: FeatureRecord,
    words: Words,
    batch: Batch,
) -> dict[str, jax.Array]:
    """Return where the branches of a batch read, and what DAR and the alignment do with it."""
    bound = model.bind(variables)
    speech, text = branches(bound, batch, front_end, objective, draw_k(model, None), words=words)
    assert speech is not None
    found = {
        "delays": speech.delays,
        "states": speech.state_length,
        "targets": speech.target_length,
        "decisions": speech.decision_length,
    }
    if model.config.monotonic.policy != "learned":
        return found
    found["mass_lost"] = mass_lost(speech, model.config.monotonic.method)
    if text is not None:
        perplexity, _ = matching_perplexity(speech, text, **objective.matching)
        found |= {"text_delays": text.delays, "text_states": text.state_length}
        found["perplexity"] = perplexity
    return found


def mass_lost(speech: Branch, method: Any) -> jax.Array:
    """Return [B, T]: the probability of a target that the training's alignment loses.

    Mean over layers and heads; 0 for every method but the closed form.
    """

    def layer(energy: jax.Array) -> jax.Array:
        p = jax.nn.sigmoid(energy)
        own, exact = (
            expected_alignment(p, speech.decision_length, method=each).sum(-1)
            for each in (method, "exact")
        )
        return jnp.abs(exact - own).mean(1)

    return jax.lax.map(layer, speech.energies).mean(0)


def real_values(found: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return what a batch shows without padding: of targets, [targets, layers * heads], or rows."""
    real = np.arange(found["delays"].shape[-1]) < found["targets"][:, None]  # [B, T]
    exists = found["targets"] > 0

    def share(delays: np.ndarray, states: np.ndarray) -> np.ndarray:
        return (delays / np.maximum(states, 1)[:, None, None]).transpose(0, 2, 1)[real]

    values = {
        "delays": found["delays"].transpose(0, 2, 1)[real],
        "share": share(found["delays"], found["states"]),
        "decisions": found["decisions"][exists],
    }
    if "text_delays" in found:
        values["text_share"] = share(found["text_delays"], found["text_states"])
        values["perplexity"] = found["perplexity"][exists]
    if "mass_lost" in found:
        values["mass_lost"] = found["mass_lost"][real]
    return values


def summarise(
    steps: tuple[int, ...], seen: Sequence[Mapping[str, np.ndarray]], heads: int, matched: int
) -> Diagnosis:
    """Average over all targets; DAR matches `matched` of a layer's heads at once."""
    whole = {name: np.concatenate([each[name] for each in seen]) for name in seen[0]}
    delays, share, nothing = whole["delays"], whole["share"], np.zeros(0)
    shares = [_mean(head) for head in share.T]
    alike = []
    if "text_share" in whole and len(share):
        alike = [*correlations(share, whole["text_share"])]
    return Diagnosis(
        steps=steps,
        read_share=tuple(tuple(shares[i : i + heads]) for i in range(0, len(shares), heads)),
        head_spread_ms=_mean((delays.max(1) - delays.min(1)) * STATE_MS),
        speech_text_correlation=_mean(np.array(alike)),
        matching_perplexity=_mean(whole.get("perplexity", nothing)),
        columns=_mean(whole["decisions"] * matched),
        mass_lost=_mean(whole.get("mass_lost", nothing)),
    )


def _mean(values: np.ndarray) -> float | None:
    """Return the mean; None if it is not finite, because JSON has no NaN."""
    mean = float(values.mean()) if len(values) else math.nan
    return mean if math.isfinite(mean) else None


def correlations(one: np.ndarray, other: np.ndarray) -> Iterator[float]:
    """Yield Pearson's correlation of every column; 0 if one of the two is constant."""
    for a, b in zip(one.T, other.T, strict=True):
        apart = a.std() * b.std()
        together = ((a - a.mean()) * (b - b.mean())).mean()
        yield 0.0 if apart <= 1e-12 else float(together / apart)
