"""G5: which voices must training have, and does DAR help on others?

    experiments/real_speech/corpora.sh TATOEBA.zip MULTI30K KOKORO IWSLT
    SIMULJAX_WHISPER=ggml-tiny.bin simuljax ablate experiments/zaidi2022/training_voices.py \
        --workers 6

Training voices: `robot` (eSpeak's), `natural` (half in hibari's at many speeds), `rooms` (the same
with rooms, noise and channels). Objectives: `mma` alone, `dar` with all of table 3. All speech
encoders are Whisper tiny's, made chunk-causal: without it no model understands other voices at all.
Hypotheses and verdict rules: PROGRAMME.md beside this file. Hardware: one H200.
"""

from dataclasses import replace

from experiments.real_speech.en_de import CHUNK_CAUSAL, JOINT, MT, STREAMED, schedule, variant
from experiments.shared import ALONE
from simuljax.ablate.grid import Claim, Grid
from simuljax.config.experiment import RUNS

RUN = RUNS / "zaidi2022-voices"
UPDATES, LATE = 1_200, 700  # half as large as those of en_de.py; latency counts late
VOICES = {
    "robot": variant("robot", CHUNK_CAUSAL, corpus="espeak", rooms=False),
    "natural": variant("natural", CHUNK_CAUSAL, rooms=False),
    "rooms": variant("rooms", CHUNK_CAUSAL),
}
OBJECTIVES = {"mma": replace(ALONE, ctc=JOINT.ctc, latency=JOINT.latency), "dar": JOINT}
VARIANTS = {}
for voices, base in VOICES.items():
    model = replace(base.model, width=replace(base.model.width, unroll=True))
    for name, joint in OBJECTIVES.items():
        recipe = base.training
        training = replace(
            recipe,
            updates=UPDATES,
            optimiser=replace(schedule(1.5e-3, UPDATES), factors=recipe.optimiser.factors),
            objective=replace(recipe.objective, terms=joint.terms(latency_after=LATE)),
        )
        VARIANTS[f"{voices}_{name}"] = replace(
            base,
            run=RUN / f"{voices}_{name}",
            data=replace(base.data, budget=replace(base.data.budget, frames=48_000, tokens=12_000)),
            model=model,
            training=training,
        )

GRID = Grid(
    title="Zaidi et al. 2022: voices of training",
    runs=RUN,
    variants={"mt": MT, **VARIANTS},
    table=tuple(VARIANTS),
    baseline="robot_mma",
    seeds=(0, 1, 2),
    order=None,
    claims=tuple(
        Claim(says=says, variant=one, over=other, evaluation=test)
        for says, one, other, test in (
            ("natural voices help on other voices", "natural_dar", "robot_dar", "natural"),
            ("rooms and noise help on other voices", "rooms_dar", "natural_dar", "natural"),
            ("rooms and noise help on real speech", "rooms_dar", "natural_dar", "real"),
            ("DAR helps on other voices", "rooms_dar", "rooms_mma", "natural"),
            ("DAR helps on real speech", "rooms_dar", "rooms_mma", "real"),
        )
    ),
    evaluations=tuple(each for each in STREAMED if each.name != "tatoeba"),
)
