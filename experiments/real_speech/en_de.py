"""English to German for real voices: what do natural voices, rooms and Whisper's encoder add?

    experiments/real_speech/corpora.sh TATOEBA.zip MULTI30K KOKORO IWSLT
    SIMULJAX_WHISPER=ggml-tiny.bin simuljax ablate experiments/real_speech/en_de.py --workers 8

Variants, each from the same text translator `mt`, with the same number of updates:

    espeak          streaming encoder, eSpeak's voices
    natural         the same; half of the recordings in hibari's natural voice at many speeds
    rooms           the same with rooms, babble, noise, clipping, telephone, level and noise floor;
                    up to two recordings joined, silence around them, beginnings and ends cut
    whisper         the same with Whisper tiny's encoder, made chunk-causal
    frozen          the same; Whisper's layers stay as they are
    bidirectional   `whisper` with its encoder as it is; evaluated on whole recordings only
    offline         `whisper` with an offline decoder, for the policies of offline models

`translator` is the text model of the cascade that comes with the package, trained for every lag of
wait-k at once (multi-path):

    simuljax train experiments/real_speech/en_de.py translator
    simuljax evaluate WHISPER --then runs/real_speech/translator --then-k 3 --policy alignatt

Hardware: one H200, 30 minutes. Results: real_speech, real_speech-cascade.
"""

import os
from dataclasses import replace
from pathlib import Path

from experiments.shared import ANY
from simuljax.ablate.grid import Grid
from simuljax.audio import Features, SpecAugment, WaveAugment
from simuljax.audio.filterbank import Filterbank
from simuljax.config.evaluation import Evaluation
from simuljax.config.experiment import (
    DATA,
    OFFLINE_TEXT,
    RUNS,
    Budget,
    DataConfig,
    Experiment,
    InitFrom,
    Joining,
)
from simuljax.config.model import ModelConfig, Monotonic, SpeechConfig, TextConfig, Width
from simuljax.config.training import Objective, Optimiser, RateFactor, Training
from simuljax.decode.policies import AlignAtt
from simuljax.losses import JointObjective
from simuljax.models import presets
from simuljax.text import VocabularyConfig

WHISPER = Path(os.environ.get("SIMULJAX_WHISPER", "ggml-tiny.bin"))
HOME, RUN = DATA / "real_speech", RUNS / "real_speech"
UPDATES = 1_500
LATE = 900  # updates before latency counts

STREAMING = SpeechConfig(
    kind="streaming", layers=6, shared=3, channels=512, ctc_after=3, chunk=16, left=128, right=8
)
CHUNK_CAUSAL = replace(STREAMING, kind="streaming_whisper", layers=4, ctc_after=1)
BIDIRECTIONAL = SpeechConfig(kind="whisper", layers=4, shared=3, ctc_after=1)

MODEL = ModelConfig(
    width=Width(model=256, hidden=1024, heads=4, dropout=0.1, dtype="bfloat16"),
    speech=STREAMING,
    text=TextConfig(layers=3),
    decoder_layers=4,
)
PAIRS = DataConfig(
    directory=HOME / "pairs",
    source=VocabularyConfig(size=8_000, lowercase=True),
    target=VocabularyConfig(size=8_000),
    budget=Budget(frames=96_000, tokens=24_000, shapes=2),
    held="device",
)
WHISPER_MEL = Features(filterbank=Filterbank(kind="whisper"))
TEXT_ONLY = OFFLINE_TEXT[:4]  # without decisions, which an offline decoder does not have
JOINT = JointObjective(ctc=0.3, latency=0.1)
# The published runs had 0.2 here, and little of real speech was left.
SLOWER = RateFactor(part="speech/whisper", factor=0.03)
PAUSES = Joining(utterances=2, seconds=16.0, lead_s=(-0.3, 0.5), trail_s=(-0.3, 0.5))
MASKED = SpecAugment(time_masks=2, time_width=40, time_fraction=0.2, frequency_width=20)


def schedule(peak: float, updates: int) -> Optimiser:
    """Return Adam with a warm-up of a tenth, and a cosine to zero."""
    return Optimiser(
        learning_rate=peak,
        schedule="cosine",
        warmup=updates // 10,
        decay_updates=updates,
        betas=(0.9, 0.98),
    )


MT = Experiment(
    run=RUN / "mt",
    data=PAIRS,
    model=presets.offline(presets.text_only(MODEL)),
    training=Training(
        updates=3_000,
        optimiser=schedule(2e-3, 3_000),
        objective=Objective(terms=JointObjective(translation=1.0, distillation=0.0).terms()),
        validate_every=500,
        keep_best=1,
        keep_last=1,
    ),
)

TRANSLATOR = replace(
    MT,
    run=RUN / "translator",
    data=replace(
        PAIRS,
        source=VocabularyConfig(size=5_000, lowercase=True),
        target=VocabularyConfig(size=5_000),
    ),
    model=replace(
        presets.text_only(replace(MODEL, width=replace(MODEL.width, dropout=0.2))),
        text=TextConfig(layers=4, direction="unidirectional"),
        decoder_layers=2,
        monotonic=Monotonic(policy="wait_k", wait_k=(1, 9)),
    ),
    training=replace(MT.training, updates=6_000, optimiser=schedule(2e-3, 6_000)),
)


def variant(
    name: str,
    speech: SpeechConfig = STREAMING,
    *,
    corpus: str = "voices",
    rooms: bool = True,
    offline: bool = False,
    rate: RateFactor = SLOWER,
) -> Experiment:
    """Return the experiment of a variant; `rate` is that of Whisper's layers."""
    whisper = "whisper" in speech.kind
    joint = replace(JOINT, latency=0.0, decision_attentive=0.0) if offline else JOINT
    model = replace(MODEL, speech=speech)
    text = TEXT_ONLY if offline else OFFLINE_TEXT
    return Experiment(
        run=RUN / name,
        data=replace(
            PAIRS,
            directory=HOME / corpus,
            vocabularies_of=MT.run,
            features=WHISPER_MEL if whisper else Features(),
            joining=PAUSES if rooms else Joining(),
        ),
        model=presets.offline(model) if offline else model,
        training=Training(
            updates=UPDATES,
            optimiser=replace(schedule(1.5e-3, UPDATES), factors=(rate,) if whisper else ()),
            objective=Objective(
                terms=joint.terms(latency_after=LATE),
                augment=MASKED,
                wave_augment=WaveAugment.typical() if rooms else WaveAugment(),
            ),
            validate_every=400,
            keep_best=1,
            keep_last=1,
        ),
        init_from=(
            InitFrom(run=MT.run, rules=text),
            *((InitFrom(run=Path(f"whisper:{WHISPER}")),) if whisper else ()),
        ),
    )


VARIANTS = {
    "espeak": variant("espeak", corpus="espeak", rooms=False),
    "natural": variant("natural", rooms=False),
    "rooms": variant("rooms"),
    "whisper": variant("whisper", CHUNK_CAUSAL),
    "frozen": variant("frozen", CHUNK_CAUSAL, rate=replace(SLOWER, factor=0.0)),
    "bidirectional": variant("bidirectional", BIDIRECTIONAL),
    "offline": variant("offline", CHUNK_CAUSAL, offline=True),
}
EXPERIMENTS = {"mt": MT, "translator": TRANSLATOR, **VARIANTS}

TESTS = {
    "tatoeba": HOME / "voices",  # unseen sentences, the engines of training
    "robot": DATA / "multi30k-espeak",
    "natural": DATA / "multi30k-kokoro",
    "real": DATA / "iwslt-nonnative",
}
STREAMED = tuple(
    Evaluation(run=ANY, corpus=corpus, name=name, checkpoint="last", first=1_000)
    for name, corpus in TESTS.items()
)
WHOLE = tuple(replace(each, mode="offline", name=f"{each.name}-whole") for each in STREAMED)
ALIGNATT = (
    *(replace(each, policy=AlignAtt(frames=8), read_ms=640) for each in STREAMED),
    WHOLE[-1],
)

GRID = Grid(
    title="Real speech, English to German",
    runs=RUN,
    variants=EXPERIMENTS,
    table=tuple(VARIANTS),
    baseline="espeak",
    seeds=(0, 1),
    evaluations=STREAMED,
    own={"offline": ALIGNATT, "whisper": (*STREAMED, *WHOLE), "bidirectional": WHOLE},
)
