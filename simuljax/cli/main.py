"""The command line, the only place that knows everything. Exit 0, 2 for bad use, 1 for failure.

A command is read before it is run. Whoever reads one, in whatever module, refuses by raising an
error of `REFUSALS`; `main` prints it and exits.
"""

import contextlib
import json
import os
import select
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Annotated

import jax
import tyro

from data_pipelines import building, throughput
from simuljax import __version__
from simuljax.ablate import ablate as ablating
from simuljax.cli import demo as demonstration
from simuljax.cli import report as reporting
from simuljax.cli import score as scoring
from simuljax.cli import translate as terminal
from simuljax.cli.demo import DemoConfig
from simuljax.errors import ChoiceError, SimuljaxError, unknown
from simuljax.profile import alignment, dar, transducer
from simuljax.profile import decode as decode_profile
from simuljax.profile import train as train_profile
from simuljax.profile import whisper as whisper_profile
from simuljax.runs import evaluate as evaluating
from simuljax.runs import train as training
from simuljax.serve import export
from simuljax.serve.interpret.command import interpret_command

Command = Callable[[], object]
REFUSALS = (SimuljaxError, FloatingPointError)  # the latter from a training that diverged
What = (
    Annotated[alignment.AlignmentProfile, tyro.conf.subcommand("alignment", prefix_name=False)]
    | Annotated[dar.DarProfile, tyro.conf.subcommand("dar", prefix_name=False)]
    | Annotated[throughput.DataProfile, tyro.conf.subcommand("data", prefix_name=False)]
    | Annotated[decode_profile.DecodeProfile, tyro.conf.subcommand("decode", prefix_name=False)]
    | Annotated[train_profile.TrainProfile, tyro.conf.subcommand("train", prefix_name=False)]
    | Annotated[transducer.TransducerProfile, tyro.conf.subcommand("transducer", prefix_name=False)]
    | Annotated[whisper_profile.WhisperProfile, tyro.conf.subcommand("whisper", prefix_name=False)]
)
PARTS = {
    alignment.AlignmentProfile: alignment,
    dar.DarProfile: dar,
    throughput.DataProfile: throughput,
    decode_profile.DecodeProfile: decode_profile,
    train_profile.TrainProfile: train_profile,
    transducer.TransducerProfile: transducer,
    whisper_profile.WhisperProfile: whisper_profile,
}


def demo(config: DemoConfig) -> Command:
    """Build a small corpus, train the joint model on it, stream new sentences, score and draw."""
    return lambda: demonstration.run(config)


def profile(what: What, json: str | None = None, trace: Path | None = None) -> Command:
    """Measure a part on this device.

    Args:
        what: The part.
        json: Write the numbers as JSON to this file, or to standard output (`--json` alone).
        trace: Write a trace for Perfetto or XProf into this directory.
    """
    part = PARTS[type(what)]

    def command():
        if isinstance(what, train_profile.TrainProfile):  # these read their own traces
            report = train_profile.run(what, trace)
        elif isinstance(what, decode_profile.DecodeProfile):
            report = decode_profile.run(what, trace)
        else:
            with jax.profiler.trace(str(trace)) if trace else contextlib.nullcontext():
                report = part.run(what)
        _show(report, part.table(report), json)

    return command


def train(experiment: Annotated[Path, tyro.conf.Positional]) -> Command:
    """Train an experiment, or go on training it; multi-host when the cluster says so.

    Fields of the experiment can be changed: `simuljax train FILE --training.seed 2`, and
    `simuljax train FILE --help` lists them.

    Args:
        experiment: A Python file like those in experiments/.
    """
    return training.train_command(experiment, ())


COMMANDS: dict[str, Callable[..., Command]] = {
    "demo": demo,
    "prepare": building.prepare_command,
    "speak": building.speak_command,
    "train": train,
    "evaluate": evaluating.evaluate_command,
    "score": scoring.score_command,
    "ablate": ablating.ablate_command,
    "report": reporting.report_command,
    "export": export.export_command,
    "translate": terminal.translate_command,
    "interpret": interpret_command,
    "profile": profile,
}


def main(args: Sequence[str] | None = None) -> None:
    """Read the command (what is wrong with it exits 2), then run it (what goes wrong exits 1)."""
    args = _json_alone(sys.argv[1:] if args is None else args)
    with _refusing(2):
        command = _read(args)
    with _refusing(1):
        command()


@contextlib.contextmanager
def _refusing(status: int) -> Iterator[None]:
    """Says what is wrong and exits; that nobody reads it any more is not said."""
    try:
        try:
            yield
        except SystemExit:  # of --help
            sys.stdout.flush()
            raise
        sys.stdout.flush()
    except (OSError, *REFUSALS) as error:
        if isinstance(error, BrokenPipeError) and _nobody_reads():
            sys.exit(128 + signal.SIGPIPE)
        print(_refusal(error), file=sys.stderr)
        sys.exit(status)
    except KeyboardInterrupt:
        print("simuljax: interrupted", file=sys.stderr)
        sys.exit(128 + signal.SIGINT)


def _nobody_reads() -> bool:
    """Whether who took our output has seen enough of it, as in `| head`; the rest goes nowhere."""
    try:
        out = sys.stdout.fileno()
    except OSError:  # not a file: somebody has put something else in its place
        return False
    poll = select.poll()
    poll.register(out, 0)
    broken = bool(poll.poll(0))
    if broken:
        os.dup2(os.open(os.devnull, os.O_WRONLY), out)
    return broken


def _refusal(error: Exception) -> str:
    """What is said of it; of the system's errors which file, and not which number."""
    if isinstance(error, OSError) and error.filename is not None and error.strerror:
        return f"simuljax: {error.filename}: {error.strerror}"
    return f"simuljax: {error}"


def _read(args: list[str]) -> Command:
    """The command that the arguments ask for."""
    if not args:
        with contextlib.redirect_stdout(sys.stderr), contextlib.suppress(SystemExit):
            _parse(["--help"])
        raise ChoiceError("say which command")
    if args[0] == "--version":
        return lambda: print(f"simuljax {__version__}")
    if not args[0].startswith("-") and args[0] not in COMMANDS:
        raise ChoiceError(f"{unknown(args[0], COMMANDS)} (the commands are {', '.join(COMMANDS)})")
    if args[0] == "train" and len(args) > 1 and not args[1].startswith("-"):
        return training.train_command(Path(args[1]), args[2:])  # its fields are in the file
    return _parse(args)


def _parse(args: list[str]) -> Command:
    """By the signatures of the commands; what does not fit them exits 2."""
    return tyro.extras.subcommand_cli_from_dict(
        COMMANDS,
        prog="simuljax",
        description="Simultaneous speech translation in JAX. `simuljax COMMAND --help` explains a "
        "command, `simuljax --version` says which version this is.",
        args=args,
        config=(tyro.conf.OmitArgPrefixes, tyro.conf.CascadeSubcommandArgs),
    )


def _show(report: dict, text: str, json_path: str | None) -> None:
    if json_path == "-":
        print(json.dumps(report, indent=1))
        return
    print(text)
    if json_path:
        Path(json_path).parent.mkdir(parents=True, exist_ok=True)
        Path(json_path).write_text(json.dumps(report, indent=1) + "\n")


def _json_alone(args: Sequence[str]) -> list[str]:
    """`--json` without a path means standard output."""
    out = []
    for arg, following in zip(args, [*args, "--"][1:], strict=True):
        out.append(arg)
        if arg == "--json" and following.startswith("--"):
            out.append("-")
    return out


if __name__ == "__main__":
    main()
