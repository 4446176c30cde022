"""What the heads of a trained run do: where they read, whether they agree, and whether speech
decides as text does, which is what DAR asks for.

Teacher-forced, with the expected alignment, on a split that the run was not trained on.
"""

import functools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import flax.struct
import jax
import jax.numpy as jnp
import numpy as np

from simuljax.audio import Statistics
from simuljax.batch import Batch
from simuljax.config.evaluation import Evaluation
from simuljax.config.json import from_json, read_json, write_json
from simuljax.losses import Branch, matching_perplexity
from simuljax.models.translator import Translator
from simuljax.nn.batch_norm import STATISTICS
from simuljax.nn.subsampling import STRIDE
from simuljax.ops import expected_alignment
from simuljax.runs.translate import Translating, spoken
from simuljax.serve.run import learnt, open_run
from simuljax.train.objective import Objective, branches, draw_k, matching_options

STATE_MS = 10 * STRIDE
FILE = "diagnosis.json"


@dataclass(frozen=True, kw_only=True)
class Diagnosis:
    """Means over the targets of a split; None where there is none, or no finite one."""

    steps: tuple[int, ...]  # of the checkpoint
    # [layer][head]: of the source, when a target is due
    read_share: tuple[tuple[float | None, ...], ...]
    head_spread_ms: float | None  # between the first and the last head to be ready for a target
    speech_text_correlation: float | None  # of where speech and text read, mean over heads
    matching_perplexity: float | None  # of DAR's softmax over speech, mean over layers
    # of speech that it chooses from: the perplexity of nothing matched
    columns: float | None
    mass_lost: float | None = None  # of a target's probability, by the alignment of training

    @property
    def mean_share(self) -> float | None:
        """Over all heads; None if one of them has none."""
        shares = [share for layer in self.read_share for share in layer if share is not None]
        heads = sum(map(len, self.read_share))
        return float(np.mean(shares)) if heads and len(shares) == heads else None


def diagnose(chosen: Evaluation) -> Diagnosis:
    """Of a run that hears; the result is kept beside its checkpoints, for those."""
    run = open_run(chosen.run)
    trained, path = learnt(run, chosen.checkpoint), chosen.run / FILE
    if path.exists():
        kept = from_json(Diagnosis, read_json(path))
        if kept.steps == tuple(trained.steps):
            return kept
    translating = Translating(run=run, trained=trained, examples=spoken(run, chosen), chosen=chosen)
    objective = run.config.training.objective
    look = functools.partial(_look, Translator(run.model), objective)
    variables = {"params": trained.params, STATISTICS: trained.statistics}
    seen = [
        jax.device_get(look(variables, run.heard.statistics, batch))
        for _, batch in translating.batches(set())
    ]
    heads = run.model.width.heads
    matched = heads if matching_options(objective).get("across_heads", True) else 1
    found = summarise(tuple(trained.steps), [_real(each) for each in seen], heads, matched)
    write_json(path, found)
    return found


@flax.struct.dataclass
class Looked:
    """Both branches of a batch, and what else was found."""

    speech: Branch
    text: Branch | None = None
    perplexity: jax.Array | None = None  # [B]
    mass_lost: jax.Array | None = None  # [B, T]


@functools.partial(jax.jit, static_argnums=(0, 1))
def _look(
    model: Translator, objective: Objective, variables: Any, heard: Statistics, batch: Batch
) -> "Looked":
    bound = model.bind(variables)
    speech, text = branches(bound, batch, heard, objective, draw_k(model, None))
    assert speech is not None
    if model.config.monotonic.policy != "learnt":
        return Looked(speech=_light(speech))
    lost = mass_lost(speech, model.config.monotonic.method)
    if text is None:
        return Looked(speech=_light(speech), mass_lost=lost)
    perplexity, _ = matching_perplexity(speech, text, **matching_options(objective))
    return Looked(speech=_light(speech), text=_light(text), perplexity=perplexity, mass_lost=lost)


def mass_lost(speech: Branch, method: Any) -> jax.Array:
    """[B, T]: of a target's probability of being written, what the alignment of training loses.

    Mean over layers and heads; 0 for all but the closed form.
    """

    def layer(energy: jax.Array) -> jax.Array:
        p = jax.nn.sigmoid(energy)
        own, exact = (
            expected_alignment(p, speech.decision_length, method=each).sum(-1)
            for each in (method, "exact")
        )
        return jnp.abs(exact - own).mean(1)

    return jax.lax.map(layer, speech.energies).mean(0)


def _light(branch: Branch) -> Branch:
    """Without what is large and not looked at."""
    nothing = branch.logits[:, :0]
    return branch.replace(logits=nothing, states=None, energies=None, alignment=None, ctc=None)  # pyright: ignore[reportAttributeAccessIssue]


@dataclass(frozen=True, kw_only=True)
class Seen:
    """Of the real targets of a batch: [targets, layers * heads], and sums over examples."""

    speech: np.ndarray  # where each head reads, in states
    share: np.ndarray  # the same of the source's length
    text_share: np.ndarray | None
    perplexity: np.ndarray  # of real examples
    decisions: np.ndarray
    mass_lost: np.ndarray


def _real(looked: Looked) -> Seen:
    speech, text = looked.speech, looked.text
    perplexity, lost = (
        np.asarray(x) if x is not None else None for x in (looked.perplexity, looked.mass_lost)
    )
    real = np.arange(speech.delays.shape[-1]) < speech.target_length[:, None]  # [B, T]

    def chosen(branch: Branch, *, relative: bool) -> np.ndarray:
        length = np.maximum(branch.state_length, 1)[:, None, None]
        delays = branch.delays / length if relative else branch.delays
        return np.asarray(delays).transpose(0, 2, 1)[real]

    exists = speech.target_length > 0
    return Seen(
        speech=chosen(speech, relative=False),
        share=chosen(speech, relative=True),
        text_share=None if text is None else chosen(text, relative=True),
        perplexity=np.zeros(0) if perplexity is None else perplexity[exists],
        decisions=speech.decision_length[exists],
        mass_lost=np.zeros(0) if lost is None else lost[real],
    )


def summarise(steps: tuple[int, ...], seen: list[Seen], heads: int, matched: int) -> Diagnosis:
    """Means over all targets; of each layer so many heads, `matched` of them by DAR at once."""
    speech, share = (np.concatenate([getattr(s, f) for s in seen]) for f in ("speech", "share"))
    perplexity = np.concatenate([each.perplexity for each in seen])
    lost = np.concatenate([each.mass_lost for each in seen])
    texts = [each.text_share for each in seen if each.text_share is not None]
    shares = [_mean(head) for head in share.T]
    alike = [*correlations(share, np.concatenate(texts))] if texts and len(share) else []
    return Diagnosis(
        steps=steps,
        read_share=tuple(tuple(shares[i : i + heads]) for i in range(0, len(shares), heads)),
        head_spread_ms=_mean((speech.max(1) - speech.min(1)) * STATE_MS),
        speech_text_correlation=_mean(np.array(alike)),
        matching_perplexity=_mean(perplexity),
        columns=_mean(np.concatenate([each.decisions for each in seen]) * matched),
        mass_lost=_mean(lost),
    )


def _mean(values: np.ndarray) -> float | None:
    """None for the mean of nothing, and of a model that has diverged: JSON has no NaN."""
    mean = float(values.mean()) if len(values) else math.nan
    return mean if math.isfinite(mean) else None


def correlations(one: np.ndarray, other: np.ndarray) -> Iterator[float]:
    """Pearson's, of every column; 0 where one of the two does not vary."""
    for a, b in zip(one.T, other.T, strict=True):
        apart = a.std() * b.std()
        together = ((a - a.mean()) * (b - b.mean())).mean()
        yield 0.0 if apart <= 1e-12 else float(together / apart)


def diagnosed(run: Path) -> Diagnosis | None:
    """What was found of a run, if it was looked at."""
    path = run / FILE
    return from_json(Diagnosis, read_json(path)) if path.exists() else None
