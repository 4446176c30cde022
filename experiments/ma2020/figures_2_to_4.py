"""Ma et al. 2020, figures 2 to 4, on Multi30k-speech: decision points, policies, computation.

    simuljax speak TEXT --to data/multi30k-speech       TEXT holds train.en, train.de, val.en ...
    simuljax ablate experiments/ma2020/figures_2_to_4.py --grid figures --workers 6 --together 2
    simuljax ablate experiments/ma2020/figures_2_to_4.py --grid clock

Hardware: one H200. Results: ablation-multi30k/ma and ma-clock. `figures`, 26 runs: steps of 120,
280 and 520 ms, words and phonemes, each with MMA (lambda 0, then 0.01 and 0.1) and with wait-k, one
multi-path model for every k. Test word and phoneme boundaries are the synthesiser's; READs are 40
ms there, so that a boundary is noticed when it is reached.

`clock` trains nothing: it plays 100 utterances to runs of `figures` in real time. Run it alone, or
it measures its neighbours. `streaming_280` has an encoder that computes every chunk of 280 ms once;
the others encode everything again at every READ.
"""

from dataclasses import replace

from experiments.ma2020.multi30k import EXPERIMENTS, RECIPE
from experiments.ma2020.recipe import variants
from experiments.shared import ANY, OFFLINE, clock
from simuljax.ablate.grid import Grid
from simuljax.config.evaluation import Evaluation
from simuljax.config.experiment import RUNS
from simuljax.config.model import SpeechConfig

LAMBDAS = (0.01, 0.1)
ORACLES = ("words", "phonemes")
POINTS = ("fixed_120", "fixed_280", "fixed_520", *ORACLES, "streaming_280")
CLOCKED = ("fixed_120", "fixed_280", "fixed_520", "streaming_280")  # no stream carries an oracle

# Chunks as long as the steps are, and 160 ms to look ahead.
CHUNKED = SpeechConfig(kind="streaming", layers=6, shared=0, channels=512, chunk=7, right=4)
STREAMING = variants(
    replace(
        RECIPE, runs=RUNS / "ma-multi30k-streaming", model=replace(RECIPE.model, speech=CHUNKED)
    )
)
OF_STREAMING = ("", "_wait_k", *(f"_lambda_{weight:g}" for weight in LAMBDAS))
# READs suit the decision points.
SIMULTANEOUS = {p: Evaluation(run=ANY, read_ms=40 if p in ORACLES else None) for p in POINTS}
LATER = {point: tuple(f"{point}_lambda_{weight:g}" for weight in LAMBDAS) for point in POINTS}


FIGURES = Grid(
    title="Ma et al. 2020 on Multi30k-speech",
    runs=RUNS / "ablation-multi30k",
    name="ma",
    variants={
        **EXPERIMENTS,
        "streaming_asr": STREAMING["asr"],
        **{f"streaming_280{each}": STREAMING[f"fixed_280{each}"] for each in OF_STREAMING},
    },
    table=(*POINTS, *(f"{point}_wait_k" for point in POINTS)),
    baseline="fixed_280",
    curves=LATER,
    evaluations=(),
    own={
        **{point: (OFFLINE, way) for point, way in SIMULTANEOUS.items()},
        **{name: (SIMULTANEOUS[point],) for point in POINTS for name in LATER[point]},
        **{
            f"{point}_wait_k": tuple(replace(way, k=k) for k in (1, 3, 5, 7, 9))
            for point, way in SIMULTANEOUS.items()
        },
    },
)
PLAYED = {
    **{LATER[point][-1]: clock(SIMULTANEOUS[point], 100) for point in CLOCKED},
    **{f"{point}_wait_k": clock(replace(SIMULTANEOUS[point], k=3), 100) for point in CLOCKED},
}
GRIDS = {
    "figures": FIGURES,
    "clock": replace(
        FIGURES,
        title="Ma et al. 2020 on Multi30k-speech, with the clock running",
        name="ma-clock",
        table=(*CLOCKED, *(f"{point}_wait_k" for point in CLOCKED)),
        curves={point: LATER[point] for point in CLOCKED},
        own={
            variant: (*ways, PLAYED[variant]) if variant in PLAYED else ways
            for variant, ways in FIGURES.own.items()
            if variant.startswith(CLOCKED)
        },
    ),
}
