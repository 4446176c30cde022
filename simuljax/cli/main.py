"""Dispatch `simuljax COMMAND`. Exit 0, 2 for bad use, 1 for a failure, 70 for a bug.

`simuljax ablate --only RUN` exits with 75 if a run that RUN needs is not trained.

`simuljax evaluate RUN` is `simuljax.cli.evaluate.evaluate_command(Evaluation)`, and so on; tyro
makes the options from the fields of that dataclass (`config.options`).

A command has two stages. Its function checks the arguments and returns what to run: an expected
error there is bad use. An expected error while that runs is a failure. Any other is a bug: its
traceback is kept in a file.
"""

import contextlib
import errno
import os
import pkgutil
import re
import select
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from simuljax import __version__
from simuljax.errors import ChoiceError, SimuljaxError, unknown

# Only the module of the command that was asked for is imported.
COMMANDS = (
    *("demo", "prepare", "speak", "train", "evaluate", "score", "ablate", "report", "export"),
    *("translate", "serve", "interpret", "profile"),
)
EXPECTED = (SimuljaxError, OSError, FloatingPointError)  # the last: a training diverged
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)  # the disk, a quota, a limit of the shell
BUG = 70  # EX_SOFTWARE of sysexits.h


def main(args: Sequence[str] | None = None) -> None:
    """Read the command, then run it; exit with its status."""
    # Child processes must not take a folder `simuljax` of the working directory for the package.
    os.environ["PYTHONSAFEPATH"] = "1"
    _open_output()
    args = _json_alone(sys.argv[1:] if args is None else args)
    with _exit_on_error(2):
        command = _read(args)
    with _exit_on_error(1):
        command()


def _read(args: list[str]) -> Callable[[], object]:
    """Return what the arguments ask for."""
    if not args:
        print(_help(), file=sys.stderr)
        raise ChoiceError("say which command")
    if args[0] in ("-h", "--help"):
        return lambda: print(_help())
    if args[0] == "--version":
        return lambda: print(f"simuljax {__version__}")
    name, *rest = args
    if name not in COMMANDS:
        raise ChoiceError(f"{unknown(name, COMMANDS)} (the commands are {', '.join(COMMANDS)})")
    function = function_of(name)
    if name == "train" and rest and not rest[0].startswith("-"):
        return function(Path(rest[0]), tuple(rest[1:]))  # the file says which options there are
    import tyro

    from simuljax.config.options import with_options

    return tyro.cli(
        with_options(function, rest),
        prog=f"simuljax {name}",
        args=rest,
        config=(tyro.conf.OmitArgPrefixes, tyro.conf.CascadeSubcommandArgs),
    )


def function_of(name: str) -> Callable:
    """Return the function of a command."""
    return pkgutil.resolve_name(f"simuljax.cli.{name}:{name}_command")


def summary(name: str) -> str:
    """Return the first line of a command's docstring."""
    import ast

    tree = ast.parse(Path(__file__).with_name(f"{name}.py").read_text(encoding="utf-8"))
    functions = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
    return (ast.get_docstring(functions[f"{name}_command"]) or "").splitlines()[0]


def _help() -> str:
    commands = "\n".join(f"  {name:10} {summary(name)}" for name in COMMANDS)
    return (
        "usage: simuljax COMMAND [options]\n\n"
        f"Simultaneous speech translation in JAX.\n\ncommands:\n{commands}\n\n"
        "`simuljax COMMAND --help` explains a command, `simuljax --version` prints the version."
    )


@contextlib.contextmanager
def _exit_on_error(status: int) -> Iterator[None]:
    """Print an error and exit; a reader that closed our output, as `head` does, is no error."""
    try:
        try:
            yield
        except SystemExit:  # of --help
            sys.stdout.flush()
            raise
        sys.stdout.flush()
    except KeyboardInterrupt:
        print("simuljax: interrupted", file=sys.stderr)
        sys.exit(128 + signal.SIGINT)
    except Exception as error:
        if isinstance(error, BrokenPipeError) and _output_is_closed():
            sys.exit(128 + signal.SIGPIPE)
        sentence = _sentence(error)
        print(f"simuljax: {sentence or _bug(error)}", file=sys.stderr)
        sys.exit(status if sentence else BUG)


def _open_output() -> None:
    """Give a program without stdout or stderr one that discards; escape what cannot be encoded."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115
        elif hasattr(stream := getattr(sys, name), "reconfigure"):
            stream.reconfigure(errors="backslashreplace")


def _output_is_closed() -> bool:
    """Return True if stdout's reader has closed the pipe; further output is then discarded."""
    try:
        out = sys.stdout.fileno()
    except OSError:  # not a file: something else was put in its place
        return False
    poll = select.poll()
    poll.register(out, 0)
    broken = bool(poll.poll(0))
    if broken:
        os.dup2(os.open(os.devnull, os.O_WRONLY), out)
    return broken


def _sentence(error: Exception) -> str:
    """Return what an expected error says, or one in a file of the user; "" for a bug of ours."""
    if system := _system_error(error):
        return system
    if isinstance(error, MemoryError) or "RESOURCE_EXHAUSTED" in str(error):
        return f"out of memory: {error}".splitlines()[0].removesuffix(": ")
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    if isinstance(error, EXPECTED):
        return str(error) or type(error).__name__
    from simuljax.config.loading import own_line

    line = own_line(error)
    return f"{line}: {_in_one_line(error)}" if line else ""


def _system_error(error: Exception) -> str:
    """Return an error of the system that a library has put into one of its own; "" for others.

    TensorStore, which writes checkpoints, adds its number; of others, those of a full disk are
    found by their text.
    """
    text = str(error)
    numbered = re.search(r"\[os_error_code='(\d+)'\]", text)
    number = int(numbered[1]) if numbered else next((n for n in FULL if os.strerror(n) in text), 0)
    file = re.search('local file "([^"]+)"', text)
    where = getattr(error, "filename", None) or (file[1] if file else "the disk")
    return f"{where}: {os.strerror(number)}" if number else ""


def _in_one_line(error: Exception) -> str:
    return f"{' '.join(f'{type(error).__name__}: {error}'.split()):.300}"


def _bug(error: Exception) -> str:
    """Keep the traceback in a file, or print it if no file can be written; return what to do."""
    import tempfile
    import traceback

    text = f"simuljax {__version__}, Python {sys.version}\n" + "".join(
        traceback.format_exception(error)
    )
    try:
        descriptor, file = tempfile.mkstemp(prefix="simuljax-bug-", suffix=".txt")
        with open(descriptor, "w", encoding="utf-8", errors="backslashreplace") as out:
            out.write(text)
    except OSError:
        print(text, file=sys.stderr)
        file = "the lines above"
    return (
        f"unexpected {_in_one_line(error)}. This is a bug of simuljax {__version__}: please report "
        f"it with {file}."
    )


def _json_alone(args: Sequence[str]) -> list[str]:
    """Add `-`, standard output, to a `--json` without a path."""
    out = []
    for arg, following in zip(args, [*args, "--"][1:], strict=True):
        out.append(arg)
        if arg == "--json" and following.startswith("--"):
            out.append("-")
    return out


if __name__ == "__main__":
    main()
