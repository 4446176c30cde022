"""The command `simuljax demo`."""

from collections.abc import Callable
from pathlib import Path

from simuljax.cli.report import KNOWLEDGE, draw_alignments
from simuljax.cli.translate import RunOptions, WhisperOptions, translate_command
from simuljax.demo import live as live_demo
from simuljax.demo.run import DemoConfig, run
from simuljax.report.run_page import ReportOptions, write_report


def demo_command(sizes: DemoConfig, live: bool = False) -> Callable[[], object]:
    """Build a small corpus, train a model on it, stream new sentences, score and draw.

    Args:
        sizes: Of the corpus and the model.
        live: Instead, translate a clip of real speech with the bundled model.
    """
    return live_command(sizes.out / "live") if live else lambda: run(sizes, write_page)


def live_command(out: Path) -> Callable[[], None]:
    """Return the translation of the bundled clip, with the page after it."""
    out.mkdir(parents=True, exist_ok=True)
    live = live_demo.options(out)
    translate = translate_command(live=live, run=RunOptions(), whisper=WhisperOptions())

    def command() -> None:
        print(live_demo.introduce(), flush=True)
        translate()
        live_demo.write_page(out)
        print(f"\n{live_demo.NEXT.format(out=out)}")

    return command


def write_page(run: Path, out: Path) -> Path:
    """Write the report of a run into a directory and return the page."""
    options = ReportOptions(runs=(str(run),), out=out)
    draw_alignments(options)
    return write_report(options, KNOWLEDGE)
