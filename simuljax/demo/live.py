"""Show the bundled model at work: real speech into German, word by word, at its own pace.

    simuljax demo --live        2 CPU cores, about a minute; needs the model en-de

The model `en-de` translates a clip that comes with it. The words appear as they are committed; the
German is spoken into demo_out/live/german.wav, and played where there is a loudspeaker. A page,
demo_out/live/index.html, has the sound with its words; subtitles and a log lie beside it.
"""

from pathlib import Path

import soundfile

from simuljax.audio import read_audio
from simuljax.config.fields import read_json
from simuljax.eval.logs import NAME as LOG
from simuljax.eval.logs import read_records
from simuljax.report.page import render
from simuljax.report.results import PAGE
from simuljax.report.timeline import commits_of, draw_timeline
from simuljax.report.utterances import UtteranceAudio, encode_audio
from simuljax.serve.bundled import CLIP, DEFAULT, resolve, size_mb
from simuljax.serve.live import LiveOptions
from simuljax.voice import Player, VoiceError

CLIP_FACTS = "clip.json"  # who speaks, what is said in both languages, and where it is from
NEXT = """\
The German speech  {out}/german.wav
The page           {out}/index.html: the sound with its words, subtitles and log beside it

Now you:
  simuljax serve                  then http://127.0.0.1:8000, which takes your microphone
  simuljax translate --mic        in this terminal; needs `pip install 'simuljax[mic]'`
  simuljax translate talk.wav --srt talk.srt
  make demo-train                 train a small model from nothing, in six minutes
(`simuljax` is .venv/bin/simuljax in a clone.)"""


def options(out: Path) -> LiveOptions:
    """Return what `simuljax translate` is to do with the clip."""
    return LiveOptions(
        audio=str(resolve(DEFAULT) / CLIP),
        pace="real",
        speak=out / "german.wav",
        play=has_loudspeaker(),
        srt=out / "german.srt",
        log=out / LOG,
    )


def has_loudspeaker() -> bool:
    """Return True if sound can be played here."""
    try:
        Player(22_050).close()
    except VoiceError:
        return False
    return True


def introduce() -> str:
    """Say what will be heard."""
    clip = read_json(resolve(DEFAULT) / CLIP_FACTS)
    said = f"{clip['speaker']}: {clip['transcript']}"
    return f"{said}\nThe model {DEFAULT} translates it as it is spoken.\n"


def write_page(out: Path) -> Path:
    """Write the page of the translation that is in the log; return its path."""
    model = resolve(DEFAULT)
    clip, (record,) = read_json(model / CLIP_FACTS), read_records(out / LOG)
    samples = read_audio(model / CLIP).samples
    german, rate = soundfile.read(out / "german.wav", dtype="int16")
    page = render(
        "live.html",
        title=f"{clip['speaker']}, in German while he speaks",
        scripted=True,
        facts=[("model", f"{model.name}, {size_mb(model):.0f} MB"), ("source", clip["source"])],
        audio=encode_audio(UtteranceAudio(samples=samples)),
        transcript=clip["transcript"],
        timeline=draw_timeline(record, samples=samples),
        commits=commits_of(record),
        reference=clip["translation"],
        spoken=encode_audio(UtteranceAudio(samples=german, rate=rate)),
    )
    (out / PAGE).write_text(page, "utf-8")
    return out / PAGE
