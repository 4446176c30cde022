"""Dugan et al. 2023, table 1: when should a model speak that was trained on whole sentences?

    export SIMULJAX_WHISPER=ggml-base.bin        .pt, safetensors or ggml; by default ggml-tiny.bin
    simuljax ablate experiments/dugan2023/table_1.py --grid es        or fr, ja, ru, ar, en

data/talks-es holds recordings and test.tsv with the columns audio, transcript and translation
(`data_pipelines/corpora/manifest.py`); a prepared corpus serves as well. Six policies of the paper
and two more, at windows of 1 and 2 s. `en` transcribes: its scores have WER. Nothing is trained.

Hardware: one H200, Whisper base. Results (results/whisper, made by an earlier harness): Spanish and
French into English, 14 talks; non-native English, 24 documents; tables in
docs/results/dugan2023.md. The paper has Whisper medium with a beam of 5 on 75 recordings of CoVoST
2, an RTX 2080, and AL that is off by one; its Spanish row at 1 s windows has 8.6 BLEU at AL_CA 2.5
s (greedy) to 42.9 at 9.6 s (offline).
"""

import os
from dataclasses import replace
from pathlib import Path

from experiments.shared import ANY
from simuljax.ablate.grid import Grid, Pretrained
from simuljax.config.evaluation import Evaluation
from simuljax.config.experiment import DATA, RUNS
from simuljax.decode.policies import (
    AlignAtt,
    Confidence,
    Consensus,
    Greedy,
    LocalAgreement,
    Offline,
)

WHISPER = Path(os.environ.get("SIMULJAX_WHISPER", "ggml-tiny.bin"))
LANGUAGES = ("es", "fr", "ja", "ru", "ar", "en")
POLICIES = (
    Confidence(threshold=0.9),
    Confidence(threshold=0.5),
    Consensus(threshold=0.75),
    Consensus(threshold=0.5),
    Greedy(),
    Offline(),
    AlignAtt(),
    LocalAgreement(),
)


def grid(language: str) -> Grid:
    """Compare the policies on the talks of one language, and time two of them."""
    one = Evaluation(
        run=ANY,
        corpus=DATA / f"talks-{language}",
        language=language,
        task="transcribe" if language == "en" else "translate",
    )
    windows = [replace(one, read_ms=window) for window in (1_000, 2_000)]
    streamed = [replace(each, policy=policy) for each in windows for policy in POLICIES]
    timed = [replace(each, mode="live", first=2) for each in streamed]
    return Grid(
        title=f"Dugan et al. 2023, table 1: {WHISPER.stem}, {language}",
        runs=RUNS / "dugan",
        name=language,
        variants={"whisper": Pretrained(model=WHISPER)},
        table=("whisper",),
        baseline="whisper",
        evaluations=(replace(one, mode="offline"), *streamed, *timed),
    )


GRIDS = {language: grid(language) for language in LANGUAGES}
