"""An experiment that a test can train in seconds, and the example files of the docs."""

import functools
import re
import tempfile
from dataclasses import replace
from pathlib import Path

from simuljax.config.experiment import Budget, DataConfig, Experiment
from simuljax.config.model import ModelConfig, Monotonic, SpeechConfig, TextConfig, Width
from simuljax.config.training import Objective, Optimiser, Training
from simuljax.losses import JointObjective
from simuljax.text import VocabularyConfig

DOCS = Path(__file__).parents[2] / "docs"
EXAMPLES = tempfile.TemporaryDirectory()
# Whatever else there is takes long to compile, and is tested elsewhere.
FEW_TERMS = JointObjective(distillation=0.0, cross_attentive=0.0, decision_attentive=0.0)


def experiment(corpus: Path, run: Path) -> Experiment:
    """A joint translator with one layer of everything."""
    return Experiment(
        run=run,
        data=DataConfig(
            directory=corpus,
            source=VocabularyConfig(kind="characters", size=60, lowercase=True),
            target=VocabularyConfig(kind="characters", size=60),
            budget=Budget(frames=4_000, tokens=4_000, row_multiple=4, shapes=1),
        ),
        model=ModelConfig(
            width=Width(model=16, hidden=32, heads=2, dropout=0.0),
            speech=SpeechConfig(layers=2, shared=1, channels=16),
            text=TextConfig(layers=1),
            decoder_layers=1,
        ),
        training=Training(
            optimiser=Optimiser(learning_rate=1e-3, warmup=4),
            objective=Objective(terms=FEW_TERMS.terms()),
            updates=4,
            log_every=2,
            validate_every=2,
        ),
    )


def text_alone(experiment: Experiment) -> Experiment:
    """Return the experiment with a text translator, which is traced and compiled in seconds."""
    model = replace(experiment.model, speech=None, monotonic=Monotonic(policy="offline"))
    terms = JointObjective(latency=0.0, variance=0.0).terms()
    terms = tuple(term for term in terms if term.name == "mt_nll")
    objective = replace(experiment.training.objective, terms=terms)
    return replace(
        experiment, model=model, training=replace(experiment.training, objective=objective)
    )


FILE = """
import sys
from pathlib import Path
from tests.helpers.experiments import experiment
EXPERIMENT = experiment(Path({corpus!r}), Path({run!r}))
"""


@functools.cache
def documented(name: str, page: str = "extending", most: int = 20) -> Path:
    """Write the file of this name on a page of the docs, of at most so many lines."""
    text = (DOCS / f"{page}.md").read_text()
    (code,) = re.findall(rf'```python title="{name}"\n(.*?)```', text, re.S)
    assert len(code.splitlines()) <= most
    path = Path(EXAMPLES.name) / name
    path.write_text(code)
    return path


PATIENT = f"{documented('own_policy.py')}:Patient"
