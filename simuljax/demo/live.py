"""Show the bundled model at work: real speech into German, word by word, at its own pace.

    make demo        2 CPU cores, about a minute

The model `en-de` translates a clip that comes with it. The words appear as they are committed; the
German is spoken into demo_out/live/german.wav, and played where there is a loudspeaker. A page,
demo_out/live/index.html, has the sound with its words; subtitles and a log lie beside it.
"""

from dataclasses import dataclass, replace
from pathlib import Path

from simuljax.audio import read_audio
from simuljax.config.json import read_json
from simuljax.eval.logs import NAME as LOG
from simuljax.eval.logs import read_records, write_records
from simuljax.report.run_page import Knowledge, Report, SourceAudio, write_report
from simuljax.serve.bundled import CLIP, DEFAULT, resolve
from simuljax.serve.live import LiveOptions
from simuljax.voice import Player, VoiceError

NEXT = """\
The German speech  {out}/german.wav
The page           {out}/index.html: the sound with its words, subtitles and log beside it

Now you:
  simuljax serve                  then http://127.0.0.1:8000, which takes your microphone
  simuljax translate --mic        in this terminal; needs `pip install 'simuljax[mic]'`
  simuljax translate talk.wav --srt talk.srt
  make demo-train                 train a small model from nothing, in six minutes
(`simuljax` is .venv/bin/simuljax in a clone.)"""


@dataclass(frozen=True, kw_only=True)
class Clip:
    """The bundled clip, who speaks, and what is said, in both languages."""

    path: Path
    speaker: str
    transcript: str
    translation: str
    source: str

    @staticmethod
    def of(model: Path) -> "Clip":
        """Return the clip that lies beside a bundled model."""
        return Clip(path=model / CLIP, **read_json(model / "clip.json"))


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
    clip = Clip.of(resolve(DEFAULT))
    return (
        f"{clip.speaker}: {clip.transcript}\nThe model {DEFAULT} translates it as it is spoken.\n"
    )


def write_page(out: Path) -> Path:
    """Write the page of the translation that is in the log; return its path."""
    clip = Clip.of(resolve(DEFAULT))
    (record,) = read_records(out / LOG)
    write_records(out / LOG, [replace(record, reference=clip.translation)])
    sound = SourceAudio(samples=read_audio(clip.path).samples, transcript=clip.transcript)
    report = Report(runs=(f"{DEFAULT}={out / LOG}",), out=out)
    return write_report(report, Knowledge(source_of=lambda *_: sound))
