"""An offline Conformer under every policy, against CAAT, a cascade, and the joint MMA.

    simuljax speak TEXT --to data/multi30k-speech       TEXT holds train.en, train.de, val.en ...
    simuljax ablate experiments/papi2022/policies.py --workers 8

Hardware: one H200, run in parts. Results: results/policies, docs/results/papi2022.md. One model
that was trained offline serves every latency; its rivals were trained for theirs. The MMA is a run
of `zaidi2022/table_3.py`. Schedules are shorter than those of `papi2022/multi30k.py` and
`nguyen2021/multi30k.py`.
"""

from dataclasses import replace

from experiments.nguyen2021 import recipe as nguyen
from experiments.nguyen2021.multi30k import RECIPE as CASCADE
from experiments.papi2022 import recipe as papi
from experiments.papi2022.multi30k import RECIPE as OFFLINE
from experiments.papi2022.recipe import ONE
from experiments.shared import STEPS, adam, clock, with_objective
from experiments.zaidi2022 import multi30k as zaidi_multi30k
from experiments.zaidi2022.table_3 import GRID as MMA
from simuljax.ablate.grid import Grid
from simuljax.config.experiment import RUNS, Experiment
from simuljax.config.training import Training
from simuljax.decode.policies import AlignAtt, EDAtt, FixedSteps, LocalAgreement, WaitK

RUN = RUNS / "policies"
TRAINING = Training(
    optimiser=adam(2e-3, 1_500),
    objective=zaidi_multi30k.MASKED,
    epochs=30,
    validate_every=855,
    average=5,
)
RECIPE = replace(OFFLINE, runs=RUN, training=TRAINING, conformer_training=TRAINING)
CASCADE = nguyen.variants(
    replace(
        CASCADE,
        runs=RUN,
        data=replace(CASCADE.data, directory=OFFLINE.data.directory),
        asr=replace(TRAINING, epochs=20),
        mt=replace(zaidi_multi30k.RECIPE.mt, average=5),
    )
)


def caat(size: int) -> Experiment:
    """Return CAAT with groups of `size` states, and CTC on the transcript as in the Conformer."""
    variant = papi.caat(RECIPE, RECIPE.data, size)
    own, rival = variant.model.speech, RECIPE.conformer.speech
    assert own is not None and rival is not None
    return replace(
        variant,
        model=replace(variant.model, speech=replace(own, ctc_after=rival.ctc_after)),
        training=with_objective(variant.training, replace(papi.TRANSDUCER, ctc=papi.WITH_CTC.ctc)),
    )


BEST = "dar_lambda_0.1"  # of the variants of MMA
CAREFUL = replace(ONE, force_finish=True, avoid_eos_while_reading=True)
POLICIES = (
    *(replace(CAREFUL, policy=WaitK(k=k, units="ctc")) for k in (3, 5, 7)),
    *(replace(CAREFUL, policy=WaitK(k=k)) for k in (3, 5, 7)),
    *(
        replace(ONE, policy=FixedSteps(first_ms=k, step_ms=s, tokens=n))
        for k, s, n in ((1_000, 200, 2), (1_500, 200, 2), (2_000, 400, 2))
    ),
    *(replace(ONE, policy=LocalAgreement(), read_ms=ms) for ms in (280, 560, 1_120)),
    *(replace(ONE, policy=AlignAtt(frames=f)) for f in (2, 6, 12, 20)),
    *(replace(ONE, policy=EDAtt(frames=4, alpha=a)) for a in (0.1, 0.2, 0.4)),
)
CLOCKED = tuple(POLICIES[i] for i in (1, 4, 7, 10, 13, 17))  # live takes its time: one of a kind
RECOGNISED = replace(ONE, policy=AlignAtt(frames=nguyen.LAST_FRAMES), force_finish=True)
CASCADED = tuple(replace(RECOGNISED, then=RUN / "cascade_mt", then_k=k) for k in (1, 3, 5))
CAAT = {f"caat_{size}": caat(size) for size in (16, 32)}  # states: 640 and 1,280 ms

GRID = Grid(
    title="Offline models made simultaneous, and their rivals, on Multi30k-speech",
    runs=MMA.runs,
    name="policies",
    variants={
        **MMA.variants,
        "conformer": papi.variants(RECIPE)["conformer"],
        **CAAT,
        "cascade": replace(CASCADE["asr"], run=RUN / "cascade"),
        "cascade_mt": replace(CASCADE["mt"], run=RUN / "cascade_mt"),
    },
    table=("conformer", *CAAT, "cascade", BEST),
    baseline="conformer",
    latency="LAAL",
    evaluations=(ONE, clock(ONE, 50)),
    own={
        "conformer": (*papi.WHOLES, *POLICIES, *(clock(way, 50) for way in CLOCKED)),
        "cascade": (*CASCADED, clock(CASCADED[1], 50)),
        BEST: (*STEPS, clock(STEPS[1], 50)),
    },
)
