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
from experiments.zaidi2022.recipe import ANY
from simuljax.ablate.grid import Grid
from simuljax.config.evaluation import Evaluation
from simuljax.config.experiment import RUNS
from simuljax.config.model import SpeechConfig

LAMBDAS = (0.01, 0.1)
K = (1, 3, 5, 7, 9)
CLOCKED_K = 3
ORACLES = ("words", "phonemes")
POINTS = ("fixed_120", "fixed_280", "fixed_520", *ORACLES, "streaming_280")
CLOCKED = ("fixed_120", "fixed_280", "fixed_520", "streaming_280")  # no stream carries an oracle

# Chunks as long as the steps are, and 160 ms to look ahead.
CHUNKED = SpeechConfig(kind="streaming", layers=6, shared=0, channels=512, chunk=7, right=4)
STREAMING = variants(
    replace(
        RECIPE,
        runs=RUNS / "ma-multi30k-streaming",
        model=replace(RECIPE.model, speech=CHUNKED),
    )
)


def later(point: str) -> tuple[str, ...]:
    """Return the names of the variants that train one further with a latency weight."""
    return tuple(f"{point}_lambda_{weight:g}" for weight in LAMBDAS)


def streamed(point: str) -> Evaluation:
    """Return a streamed evaluation with READs that suit the decision points."""
    return Evaluation(run=ANY, read_ms=40 if point in ORACLES else None)


def waiting(point: str) -> tuple[Evaluation, ...]:
    """Return the evaluations of a multi-path wait-k model."""
    return tuple(replace(streamed(point), k=k) for k in K)


def clock(way: Evaluation) -> Evaluation:
    """Return the same evaluation in real time."""
    return replace(way, mode="live", first=100, repeats=1)


FIGURES = Grid(
    title="Ma et al. 2020 on Multi30k-speech",
    runs=RUNS / "ablation-multi30k",
    name="ma",
    variants={
        **EXPERIMENTS,
        "streaming_asr": STREAMING["asr"],
        "streaming_280": STREAMING["fixed_280"],
        "streaming_280_wait_k": STREAMING["fixed_280_wait_k"],
        **{f"streaming_280_lambda_{w:g}": STREAMING[f"fixed_280_lambda_{w:g}"] for w in LAMBDAS},
    },
    table=(*POINTS, *(f"{point}_wait_k" for point in POINTS)),
    baseline="fixed_280",
    curves={point: later(point) for point in POINTS},
    evaluations=(),
    own={
        **{point: (Evaluation(run=ANY, mode="offline"), streamed(point)) for point in POINTS},
        **{variant: (streamed(point),) for point in POINTS for variant in later(point)},
        **{f"{point}_wait_k": waiting(point) for point in POINTS},
    },
)
FREE = {variant: ways for variant, ways in FIGURES.own.items() if variant.startswith(CLOCKED)}
PLAYED = {
    **{variant: clock(streamed(point)) for point in CLOCKED for variant in later(point)[-1:]},
    **{f"{point}_wait_k": clock(replace(streamed(point), k=CLOCKED_K)) for point in CLOCKED},
}
GRIDS = {
    "figures": FIGURES,
    "clock": replace(
        FIGURES,
        title="Ma et al. 2020 on Multi30k-speech, with the clock running",
        name="ma-clock",
        table=(*CLOCKED, *(f"{point}_wait_k" for point in CLOCKED)),
        curves={point: later(point) for point in CLOCKED},
        own={**FREE, **{variant: (*FREE[variant], played) for variant, played in PLAYED.items()}},
    ),
}
