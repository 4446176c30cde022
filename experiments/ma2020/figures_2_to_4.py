"""Ma et al. 2020, figures 2 to 4, on Multi30k-speech: where to decide, how, and what it computes.

    simuljax speak TEXT --to data/multi30k-speech       TEXT holds train.en, train.de, val.en ...
    simuljax ablate experiments/ma2020/figures_2_to_4.py --grid figures --workers 6 --together 2
    simuljax ablate experiments/ma2020/figures_2_to_4.py --grid clock

One H200: results/ablation-multi30k/ma and ma-clock. `figures`, 26 runs: steps of 120, 280 and 520
ms, words and phonemes, each with MMA (lambda 0, then 0.01 and 0.1) and with wait-k, one multi-path
model for every k. Words and phonemes of the test are the synthesiser's, and speech comes in pieces
of 40 ms there, so that the end of one is noticed when it is heard.

`clock` trains nothing: it plays 100 utterances to runs of `figures`, one after the other, with the
clock running. Run it alone, or the clock tells of the neighbours. `streaming_280` has an encoder
that computes every chunk of 280 ms once, where the others encode all that was heard at every READ.
"""

from dataclasses import replace
from pathlib import Path

from experiments.ma2020.multi30k import EXPERIMENTS
from experiments.ma2020.recipe import Recipe, rows
from experiments.zaidi2022 import multi30k as zaidi_multi30k
from simuljax.ablate.grid import Ablation
from simuljax.config.evaluation import Evaluation
from simuljax.config.experiment import RUNS
from simuljax.models import presets
from simuljax.models.config import SpeechEncoder

ANY = Path()
LAMBDAS = (0.01, 0.1)
K = (1, 3, 5, 7, 9)
CLOCKED_K = 3
ORACLES = ("words", "phonemes")
POINTS = ("fixed_120", "fixed_280", "fixed_520", *ORACLES, "streaming_280")
CLOCKED = ("fixed_120", "fixed_280", "fixed_520", "streaming_280")  # no stream carries an oracle

BASE = zaidi_multi30k.RECIPE
# Chunks as long as the steps are, and 160 ms to look ahead.
CHUNKED = SpeechEncoder(kind="streaming", layers=6, shared=0, channels=512, chunk=7, right=4)
STREAMING = rows(
    Recipe(
        runs=RUNS / "ma-multi30k-streaming",
        corpus=BASE.corpus,
        model=replace(presets.speech_only(BASE.model), speech=CHUNKED),
        asr=BASE.asr,
        first=BASE.first,
        second=BASE.second,
    )
)


def later(point: str) -> tuple[str, ...]:
    """The rows that continue one with a latency weight."""
    return tuple(f"{point}_lambda_{weight:g}" for weight in LAMBDAS)


def heard(point: str) -> Evaluation:
    """Streamed, in READs that suit the decision points."""
    return Evaluation(run=ANY, read_ms=40 if point in ORACLES else None)


def waiting(point: str) -> tuple[Evaluation, ...]:
    """One model for every k."""
    return tuple(replace(heard(point), k=k) for k in K)


def clock(way: Evaluation) -> Evaluation:
    """The same, played."""
    return replace(way, mode="live", first=100, repeats=1)


FIGURES = Ablation(
    title="Ma et al. 2020 on Multi30k-speech",
    runs=RUNS / "ablation-multi30k",
    answer="ma",
    rows={
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
        **{point: (Evaluation(run=ANY, mode="offline"), heard(point)) for point in POINTS},
        **{row: (heard(point),) for point in POINTS for row in later(point)},
        **{f"{point}_wait_k": waiting(point) for point in POINTS},
    },
)
FREE = {row: ways for row, ways in FIGURES.own.items() if row.startswith(CLOCKED)}
PLAYED = {
    **{row: clock(heard(point)) for point in CLOCKED for row in later(point)[-1:]},
    **{f"{point}_wait_k": clock(replace(heard(point), k=CLOCKED_K)) for point in CLOCKED},
}
ABLATIONS = {
    "figures": FIGURES,
    "clock": replace(
        FIGURES,
        title="Ma et al. 2020 on Multi30k-speech, with the clock running",
        answer="ma-clock",
        table=(*CLOCKED, *(f"{point}_wait_k" for point in CLOCKED)),
        curves={point: later(point) for point in CLOCKED},
        own={**FREE, **{row: (*FREE[row], played) for row, played in PLAYED.items()}},
    ),
}
