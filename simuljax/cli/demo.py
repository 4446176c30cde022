"""The command `simuljax demo`."""

from collections.abc import Callable
from pathlib import Path

from simuljax.cli.report import knowledge
from simuljax.demo.run import DemoConfig, run
from simuljax.report.run_page import Report, write_report


def demo_command(config: DemoConfig) -> Callable[[], object]:
    """Build a small corpus, train a model on it, stream new sentences, score and draw."""
    return lambda: run(config, write_page)


def write_page(run: Path, out: Path) -> Path:
    """Write the report of a run into a directory and return the page."""
    return write_report(Report(runs=(str(run),), out=out), knowledge())
