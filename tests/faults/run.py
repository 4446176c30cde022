"""Kill commands at random moments: `python -m tests.faults.run [--minutes M] [--kills N] [KIND]`.

A kind is a command: train, train2 (two processes), ablate, prepare, speak, evaluate, serve. It
runs undisturbed once. Then it runs again elsewhere, is killed with SIGKILL at a random moment and
started anew, until it has ended by itself. Its result must be the undisturbed one: the bits of
parameters, every line of the metrics once, the bytes of a corpus, the records and scores of an
evaluation, the answer of a server. Seven lives out of ten are killed soon after a file has changed,
the others at any time.

Processes are forked from one that has imported everything, so that a life takes a few seconds. The
first difference ends the program with status 1 and keeps the directory.
"""

import argparse
import atexit
import hashlib
import http.client
import json
import multiprocessing
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "simuljax" / "faults"
os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(CACHE))
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
os.environ.setdefault("TQDM_DISABLE", "1")

import tensorflow_datasets  # noqa: E402, F401 (for the forks)

from simuljax.cli import ablate, evaluate, main, prepare, serve, speak, train  # noqa: E402, F401
from simuljax.config.fields import differences  # noqa: E402
from tests.helpers.corpora import tree, write_hums, write_lines  # noqa: E402
from tests.serve.web.servers import free_port, small_run, upload  # noqa: E402

PATIENCE_S = 600.0
SIZES = {"train": 12, "valid": 4, "test": 6}
LIVES = 12  # killed in one directory, before the command is left to end
TIMED = ("seconds", "per_second", "memory", "mfu", "time", "/s")  # values of metrics that vary
EXPERIMENT = """
from dataclasses import replace
from pathlib import Path
from simuljax.config.training import Cluster
from tests.helpers.experiments import experiment, text_alone
small = experiment(Path({corpus!r}), Path({run!r}))
training = replace(small.training, updates=80, log_every=5, validate_every=10, keep_last=2)
EXPERIMENT = text_alone(
    replace(small, training=training, cluster=Cluster(silent_s=10, start_s=120))
)
"""
GRID = """
from pathlib import Path
from tests.helpers.grids import text_grid
GRID = text_grid(Path({corpus!r}), Path({run!r}))
"""


class FaultError(Exception):
    """A command that did not end as the undisturbed one did."""


class Life(multiprocessing.get_context("fork").Process):
    """A forked process that runs a function; what it prints goes to a file."""

    def __init__(self, function: Callable[[], object], log: Path, **variables: str) -> None:
        super().__init__()
        log.parent.mkdir(parents=True, exist_ok=True)
        self.function, self.log, self.variables = function, log, variables
        sys.stdout.flush()
        self.start()

    def run(self) -> None:
        os.setsid()
        out = os.open(self.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(out, 1)
        os.dup2(out, 2)
        os.environ.update(self.variables)
        try:
            self.function()
        finally:
            atexit._run_exitfuncs()

    def wait(self) -> int:
        """Wait for the end and return the status, negative for a signal."""
        self.join(PATIENCE_S)
        if self.exitcode is None:
            self.kill()
            raise FaultError(f"it did not end within {PATIENCE_S:.0f} s:\n{self.said()}")
        return self.exitcode

    def strike(self) -> bool:
        """Kill it as a power cut would; return True if it was alive."""
        if not self.is_alive():
            return False
        self.kill()
        return self.wait() == -signal.SIGKILL

    def said(self) -> str:
        return self.log.read_text(errors="replace")[-3000:]


def command(*args: object) -> Callable[[], object]:
    """Return the function that runs `simuljax ARGS`."""
    return lambda: main.main([str(arg) for arg in args])


def until(condition: Callable[[], object], seconds: float) -> bool:
    """Wait for a condition; return False if it did not come true in time."""
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.01)
    return True


def apart(function: Callable[[], Any]) -> Any:
    """Return the value of a function that is called in a fork, so that we start no threads."""
    ours, theirs = multiprocessing.Pipe(duplex=False)
    log = Path(tempfile.gettempdir()) / f"apart.{os.getpid()}"
    life = Life(lambda: theirs.send(function()), log)
    theirs.close()
    try:
        return ours.recv()
    except EOFError:
        life.wait()
        raise FaultError(f"the result cannot be read:\n{life.said()}") from None
    finally:
        log.unlink(missing_ok=True)


def changes(folder: Path) -> int:
    """Return a number that differs when the file, or one below the folder, has changed."""
    found = 0
    for place, _, names in [(folder.parent, [], [folder.name]), *os.walk(folder)]:
        for name in names:
            try:
                stat = os.stat(os.path.join(place, name))
            except OSError:
                continue
            found ^= hash((place, name, stat.st_size, stat.st_mtime_ns))
    return found


def outcome(run: Path) -> dict[str, Any]:
    """Return a digest of the last parameters of a run, and its metrics without times."""
    from jax import tree_util

    from simuljax.train.run import load_params
    from tests.train.runs import metrics

    held, digest = load_params(run, "last"), hashlib.sha256()
    for path, leaf in tree_util.tree_leaves_with_path(held.params):
        digest.update(f"{path} {leaf.dtype} {leaf.shape}".encode())
        digest.update(leaf.tobytes())
    lines = [[line["step"], line.get("split"), untimed(line["values"])] for line in metrics(run)]
    return {"steps": [*held.steps], "params": digest.hexdigest(), "metrics": lines}


def untimed(values: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if not any(t in name for t in TIMED)}


def evaluated(folder: Path) -> dict[str, Any]:
    """Return the records of an evaluation without the clock, and its scores."""
    from simuljax.eval.logs import read_records

    records = [record.as_dict() | {"elapsed": []} for record in read_records(folder)]
    scores = json.loads((folder / "scores.json").read_text())
    return {
        "records": records,
        "scores": {k: scores[k] for k in ("BLEU", "AL", "n") if k in scores},
    }


class Kind:
    """A command that can be started in a directory, and its result there."""

    def __init__(self, place: Path, corpus: Path, chance: random.Random) -> None:
        self.place, self.corpus, self.chance = place, corpus, chance

    def lives(self, to: Path) -> list[Life]:
        """Start the processes."""
        return [Life(self.function(to), to.with_suffix(".log"))]

    def function(self, to: Path) -> Callable[[], object]:
        """Return what runs the command."""
        raise NotImplementedError

    def folder(self, to: Path) -> Path:
        """Return where files change while the command works."""
        return to

    def result(self, to: Path) -> Any:
        """Return what must be equal."""
        raise NotImplementedError

    def strike(self, lives: Sequence[Life]) -> int:
        """Kill one of the processes, or several; return how many were alive."""
        return int(lives[0].strike())


class Train(Kind):
    """A training by one process."""

    def function(self, to: Path) -> Callable[[], object]:
        file = to.with_suffix(".py")
        if not file.exists():  # the other process may be reading it
            file.write_text(EXPERIMENT.format(corpus=str(self.corpus), run=str(to)))
        return command("train", file)

    def folder(self, to: Path) -> Path:
        return to / "checkpoints" if self.chance.random() < 0.5 else to / "metrics.jsonl"

    def result(self, to: Path) -> Any:
        return apart(lambda: outcome(to))


class TrainTogether(Train):
    """A training by two processes."""

    def lives(self, to: Path) -> list[Life]:
        address = f"127.0.0.1:{free_port()}"
        shared = {"JAX_COORDINATOR_ADDRESS": address, "JAX_NUM_PROCESSES": "2"}
        return [
            Life(self.function(to), to.with_suffix(f".{i}.log"), JAX_PROCESS_ID=str(i), **shared)
            for i in range(2)
        ]

    def strike(self, lives: Sequence[Life]) -> int:
        """Kill one; the other ends by itself one time in eight, and is killed otherwise."""
        victim, other = self.chance.sample(lives, 2)
        killed = int(victim.strike())
        if killed and self.chance.random() > 1 / 8:
            time.sleep(self.chance.uniform(0, 0.5))
            killed += other.strike()
        return killed


class Ablate(Kind):
    """A grid of three runs by a driver and a worker."""

    def function(self, to: Path) -> Callable[[], object]:
        to.with_suffix(".py").write_text(GRID.format(corpus=str(self.corpus), run=str(to)))
        return command("ablate", to.with_suffix(".py"))

    def result(self, to: Path) -> Any:
        def read() -> Any:
            runs = sorted(path.parent for path in to.rglob("metrics.jsonl"))
            folders = sorted(path.parent for path in to.rglob("scores.json"))
            return {str(run.relative_to(to)): outcome(run) for run in runs} | {
                str(folder.relative_to(to)): evaluated(folder) for folder in folders
            }

        return apart(read)

    def strike(self, lives: Sequence[Life]) -> int:
        """Kill the worker, the driver, or both, one shortly after the other.

        A driver whose worker was killed says so and ends. The next driver finds the worker of one
        that was killed still at work.
        """
        driver, killed = lives[0], 0
        path = Path(f"/proc/{driver.pid}/task/{driver.pid}/children")
        listed = path.read_text().split() if driver.is_alive() else []
        workers = [int(pid) for pid in listed if is_worker(int(pid))]
        choice = self.chance.choice(("driver", "worker", "both")) if workers else "driver"
        if choice != "worker":
            killed += driver.strike()
            time.sleep(self.chance.uniform(0, 0.5))
        for pid in workers if choice != "driver" else []:
            if is_worker(pid):
                os.kill(pid, signal.SIGKILL)
                killed += 1
        if choice == "worker":
            driver.wait()
        return killed


def is_worker(pid: int) -> bool:
    """Return True for a process of a grid that is alive."""
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return False
    return {b"simuljax.cli.main", b"ablate"} <= {*words}


class Prepare(Kind):
    """A corpus from a manifest, in shards of two utterances."""

    def function(self, to: Path) -> Callable[[], object]:
        root = self.place / "hums"
        if not root.exists():
            write_hums(root, {"train": 40, "valid": 4, "test": 6})
        return command("prepare", "manifest", "--from", root, "--to", to, "--workers", 1)

    def result(self, to: Path) -> Any:
        held = tree(to)
        return {name: hashlib.sha256(held[name]).hexdigest() for name in sorted(held)}


class Speak(Prepare):
    """A text corpus that is spoken."""

    def function(self, to: Path) -> Callable[[], object]:
        root = self.place / "text"
        if not root.exists():
            root.mkdir()
            write_lines(root, {"train": 30, "valid": 4, "test": 4})
        return command("speak", root, "--to", to, "--workers", 1)


class Evaluate(Kind):
    """An evaluation of a trained run."""

    def trained(self) -> Path:
        run = self.place / "trained"
        if not run.exists():
            finish(Train(self.place, self.corpus, self.chance).lives(run))
        return run

    def function(self, to: Path) -> Callable[[], object]:
        options = ("--branch", "text", "--mode", "offline", "--frames", 300)
        return command("evaluate", self.trained(), "--name", to.name, *options)

    def folder(self, to: Path) -> Path:
        return self.trained() / "eval" / to.name

    def result(self, to: Path) -> Any:
        return apart(lambda: evaluated(self.folder(to)))


class Serve(Evaluate):
    """A server: after every death, it answers at the same port as before."""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.port = free_port()

    def trained(self) -> Path:
        """Return a run that nobody trained."""
        run = self.place / "served"
        if not run.exists():
            apart(lambda: str(small_run(run)))
        return run

    def function(self, to: Path) -> Callable[[], object]:
        del to
        return command("serve", self.trained(), "--port", self.port, "--streams", 1)

    def result(self, to: Path) -> Any:
        """Start it, ask, and stop it."""
        life = self.lives(to)[0]
        try:
            until(lambda: not life.is_alive() or self.translation(), PATIENCE_S)
            return self.translation()
        finally:
            life.strike()

    def translation(self) -> str:
        """Return the answer; "" if there is none."""
        sound = (self.place / "corpus_hums" / "test0.wav").read_bytes()
        try:
            status, text = upload(f"http://127.0.0.1:{self.port}/v1/audio/translations", sound)
        except (OSError, http.client.HTTPException):
            return ""
        return f"{status} {text}"

    def strike(self, lives: Sequence[Life]) -> int:
        """Kill it while it starts, or while it answers."""
        if self.chance.random() < 0.7:
            until(lambda: not lives[0].is_alive() or self.translation(), PATIENCE_S)
        client = Life(self.translation, self.place / "client.log")
        time.sleep(self.chance.uniform(0, 0.3))
        killed = int(lives[0].strike())
        client.wait()
        return killed


KINDS = {"train": Train, "train2": TrainTogether, "ablate": Ablate, "prepare": Prepare}
KINDS |= {"speak": Speak, "evaluate": Evaluate, "serve": Serve}


def finish(lives: Sequence[Life]) -> None:
    """Wait for processes that nobody kills."""
    for life in lives:
        if life.wait():
            raise FaultError(f"it ended with {life.exitcode}:\n{life.said()}")


class Faults:
    """Kills of one kind, counted."""

    def __init__(self, name: str, place: Path, corpus: Path, seed: int) -> None:
        self.name, self.place, self.chance = name, place, random.Random(f"{name}/{seed}")
        self.kind = KINDS[name](place, corpus, self.chance)
        self.kills = self.ends = 0
        self.usual_s = 0.0

    def undisturbed(self) -> None:
        """Run the command once; its result is what the others are compared with."""
        to, started = self.place / f"{self.name}-whole", time.monotonic()
        if self.name != "serve":
            finish(self.kind.lives(to))
        self.wanted = self.kind.result(to)
        self.usual_s = time.monotonic() - started

    def disturbed(self, deadline: float, most: int) -> None:
        """Kill the command in a new directory until it ends; compare what it leaves."""
        to, left = self.place / f"{self.name}-{self.ends}", LIVES
        while left and self.kills < most and time.monotonic() < deadline:
            left -= 1
            lives = self.kind.lives(to)
            self.wait_for_a_moment(lives, to)
            if killed := self.kind.strike(lives):
                self.kills += killed
                for life in lives:
                    life.wait()
            elif self.name != "serve":
                break
        if self.name != "serve":
            finish(self.kind.lives(to))
        found = self.kind.result(to)
        if found != self.wanted:
            lines = [f"{line:.1000}" for line in differences(self.wanted, found)]
            raise FaultError("\n".join([f"{to} differs:", *lines]))
        self.ends += 1

    def wait_for_a_moment(self, lives: Sequence[Life], to: Path) -> None:
        """Wait for some changes of files and a little longer, or for any time."""

        def over() -> bool:
            return not all(life.is_alive() for life in lives)

        if self.name == "serve" or self.chance.random() < 0.3:
            until(over, self.chance.uniform(0, self.usual_s / (10 if self.name == "serve" else 2)))
            return
        folder = self.kind.folder(to)
        for _ in range(self.chance.randint(1, 4)):
            before = changes(folder)
            until(lambda: over() or changes(folder) != before, 60)  # noqa: B023
        time.sleep(self.chance.uniform(0, 0.05))


def small_corpus(place: Path) -> Path:
    """Prepare the corpus that is trained on."""
    hums, corpus = write_hums(place / "corpus_hums", SIZES), place / "corpus"
    wanted = command("prepare", "manifest", "--from", hums, "--to", corpus, "--workers", 1)
    finish([Life(wanted, place / "corpus.log")])
    return corpus


def run_kind(name: str, place: Path, corpus: Path, chosen: argparse.Namespace) -> dict[str, Any]:
    """Kill one command until there are enough kills or the time is over; return the counts."""
    faults, started = Faults(name, place, corpus, chosen.seed), time.monotonic()
    deadline = started + 60 * chosen.minutes
    faults.undisturbed()
    while faults.kills < chosen.kills and time.monotonic() < deadline:
        faults.disturbed(deadline, chosen.kills)
        print(f"{name:9} {faults.kills:4} kills, {faults.ends:3} ends as undisturbed", flush=True)
    counts = {"kills": faults.kills, "ends": faults.ends, "seed": chosen.seed}
    return {"command": name, **counts, "seconds": round(time.monotonic() - started)}


def start() -> None:
    """Read the arguments and kill."""
    from data_pipelines import prepare as preparing

    parser = argparse.ArgumentParser()
    parser.add_argument("kinds", nargs="*", default=[*KINDS], metavar="KIND")
    parser.add_argument("--minutes", type=float, default=8.0, help="of each kind")
    parser.add_argument("--kills", type=int, default=1_000_000, help="of each kind, at most")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--record", type=Path, help="file that gets a JSON line a kind")
    chosen = parser.parse_args()
    preparing.UTTERANCES_PER_SHARD = 2
    place = Path(tempfile.mkdtemp(prefix="simuljax-faults-"))
    try:
        corpus = small_corpus(place)
        for name in chosen.kinds:
            counts = run_kind(name, place, corpus, chosen)
            if chosen.record:
                with chosen.record.open("a") as out:
                    out.write(json.dumps(counts) + "\n")
    except FaultError as error:
        for life in multiprocessing.active_children():
            life.kill()
        sys.exit(f"{error}\n(kept in {place})")
    shutil.rmtree(place)


if __name__ == "__main__":
    start()
