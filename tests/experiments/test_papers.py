"""The systems of Papi et al. 2022 and of Nguyen et al. 2021: all can be planned and trained."""

import dataclasses

import jax
import jax.numpy as jnp
import pytest

from experiments.nguyen2021 import how2 as nguyen_how2
from experiments.nguyen2021 import multi30k as nguyen_multi30k
from experiments.nguyen2021 import must_c as nguyen_must_c
from experiments.nguyen2021 import phrasebook as nguyen_phrasebook
from experiments.papi2022 import multi30k as papi_multi30k
from experiments.papi2022 import must_c as papi_must_c
from experiments.papi2022 import phrasebook as papi_phrasebook
from experiments.papi2022 import recipe as papi
from simuljax.ablate.grid import plan
from simuljax.audio import FeatureRecord, Features, neutral
from simuljax.batch import Batch
from simuljax.config.experiment import Experiment
from simuljax.decode.policies import WaitK
from simuljax.models.joint import JointModel
from simuljax.models.parameters import initialise
from simuljax.text import Words
from simuljax.train.forward import Variables, forward
from tests.helpers.grids import summarised_corpus, trained
from tests.written_runs import PIECES


@pytest.fixture
def listed(tmp_path):
    """Return a function that plans each grid of a module, on a corpus as far as a plan looks."""
    corpus = summarised_corpus(tmp_path)

    def on(experiment: Experiment) -> Experiment:
        return dataclasses.replace(
            experiment, data=dataclasses.replace(experiment.data, directory=corpus)
        )

    def runs(module) -> dict[str, set[str]]:
        grids = {}
        for name, grid in module.GRIDS.items():
            variants = {row: on(experiment) for row, experiment in trained(grid).items()}
            grids[name] = {run.name for run in plan(dataclasses.replace(grid, variants=variants))}
        return grids

    return runs


def names(runs: set[str]) -> set[str]:
    return {run.rsplit("-", 1)[0] for run in runs}


@pytest.mark.parametrize("module", [papi_must_c, papi_multi30k, papi_phrasebook])
def test_the_figures_of_papi(listed, module):
    figures = listed(module)
    assert len(figures) == 7
    wanted = {"transformer-seed0", *(f"transformer_fixed_k{k}-seed0" for k in papi.K)}
    assert names(figures["figure_1"]) == wanted
    assert len(figures["figure_2"]) == len(figures["figure_4"]) == 6
    assert names(figures["figure_3"]) == {"transformer-seed0", "conformer-seed0"}
    rivals = {"conformer_kd-seed0", *(f"caat_{size}_kd-seed0" for size in (16, 32, 64))}
    assert names(figures["figure_5"]) == rivals
    assert len(figures["figure_1"] & figures["figure_2"]) == 1, "one offline Transformer"


@pytest.mark.parametrize("module", [nguyen_must_c, nguyen_how2, nguyen_multi30k, nguyen_phrasebook])
def test_the_tables_of_nguyen(listed, module):
    grids = listed(module)
    assert names(grids["table"]) == {"characters-seed0"}
    assert names(grids["figure_2"]) == {"characters-seed0", "bpe400-seed0", "bpe2k-seed0"}
    assert names(grids["figure_3"]) == {"characters-seed0", "asr-seed0", "mt", "mt_offline"}
    assert ("table_tst_he" in grids) == (module is nguyen_must_c)


def test_the_flags_of_papi():
    """Appendix A: both, but for the Transformer with fixed words."""
    for units in papi.UNITS:
        for kind in ("transformer", "conformer"):
            flags = {(e.force_finish, e.avoid_eos_while_reading) for e in papi.tested(units, kind)}
            assert flags == {(True, (units, kind) != ("fixed", "transformer"))}
    ways = papi_multi30k.GRIDS["figure_2"].evaluations_of("transformer")
    assert [way.decoding().policy for way in ways if way.mode == "streamed"] == [
        WaitK(k=k, units="ctc") for k in papi.K
    ]


def terms(row: Experiment) -> set[str]:
    """What its training looks at; nothing is computed."""
    size = PIECES.size
    model = JointModel(
        dataclasses.replace(row.model, source_vocabulary=size, target_vocabulary=size, features=80)
    )
    zeros = jnp.zeros((2, 9), jnp.int32)
    heard = row.model.speech is not None
    batch = Batch(
        audio=jnp.zeros((2, 32_000 * heard), jnp.int16),
        audio_length=jnp.array([32_000, 16_000]) * heard,
        source=zeros,
        source_length=jnp.array([9, 5]),
        target=zeros,
        target_length=jnp.array([9, 4]),
        index=jnp.arange(2),
    )
    front_end = FeatureRecord(features=Features(), statistics=neutral(80))
    words = Words.of(PIECES, PIECES)

    def run(key: jax.Array) -> dict:
        params, state = initialise(model, key)
        variables = Variables(params=params, statistics=state)
        given = (model, variables, batch, front_end, row.training.objective, key, words)
        return forward(*given).sums

    weights = row.training.objective.weights()
    return {name for name in jax.eval_shape(run, jax.random.key(0)) if weights[name]}


TERMS = {
    "conformer_adaptive_k5_kd": {"st_nll", "ctc"},
    "caat_32_kd": {"st_nll", "transducer", "transducer_delay"},
    "characters": {"st_nll"},
    "mt": {"mt_nll"},
}


@pytest.mark.slow
@pytest.mark.parametrize("name", TERMS)
def test_what_a_row_learns_from(name):
    rows = {**papi_multi30k.EXPERIMENTS, **nguyen_multi30k.EXPERIMENTS}
    assert terms(rows[name]) == TERMS[name]
