"""Evaluate models on a split: translate it, write the log and the scores, draw a sweep's curve.

Results go to RUN/eval/NAME/ (config.json, instances.log, scores.json); those of a model file go to
the runs, under its name. After an interruption, the records in instances.log.part are kept.

Every setting that is not the default is in the name of the results. One without effect is refused:
it would have the scores of the default under another name, and a sweep would draw a flat line.
"""

import functools
import hashlib
import itertools
import math
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from tqdm import tqdm

from data_pipelines.dataset import split_digest
from simuljax.cache import announce_compilation, enable_compilation_cache
from simuljax.config.decoding import check_policy, without_effect
from simuljax.config.evaluation import Evaluation, points
from simuljax.config.fields import ConfigError, differences, read_object, to_json, write_json
from simuljax.config.loading import code_in
from simuljax.config.model import ModelConfig
from simuljax.config.options import given_options, options_of, to_options
from simuljax.decode.policies import PolicyError
from simuljax.eval import Record, read_records, score, write_records
from simuljax.eval.curves import Point
from simuljax.eval.logs import NAME as LOG
from simuljax.eval.logs import record_line
from simuljax.eval.long_form import check_cut, score_longform
from simuljax.eval.scores import average_runs, normalise, word_difference, word_error_rate
from simuljax.lock import try_lock
from simuljax.report.figures import draw_curves
from simuljax.runs.recordings import RecordingsSplit, open_recordings, stream_settings
from simuljax.runs.split import RunSplit, of_text, open_examples
from simuljax.serve.cascade import RECOGNISING, Cascade, check_translator
from simuljax.serve.run_translator import RunTranslator, load_run
from simuljax.serve.translator import is_whisper, load
from simuljax.serve.whisper import WhisperStreaming
from simuljax.train.run import Which, open_run

# Settings without influence on a log, or compared elsewhere.
FREE = ("run", "name", "frames", "repeats", "steps", "data", "weights")
# Settings of earlier versions, with the value that all evaluations have now.
GONE = {"scores": "paper", "hysteresis_db": 4.0, "lead_ms": 200}
SCORES, CONFIG = "scores.json", "config.json"
DIGITS = {"BLEU": 2, "WER": 2, "AP": 3}
LONG_FORM = ("BLEU", "StreamLAAL", "LongYAAL", "n", "skipped")  # by segments
SHOWN = ("BLEU", "WER", "AL", "LAAL", "AP", "DAL", "ATD")
COMPILE_S = 30.0  # about, for the first batch on a few cores
OpenSplit = RunSplit | RecordingsSplit

THEN = {"k": "then_k", "threshold": "then_threshold"}  # options of the second model of a cascade
SHARED = ("gather", "force_finish", "avoid_eos_while_reading")  # by both models of a cascade
OF_WHISPER = {  # options beside those of its policy
    *("run", "corpus", "split", "name", "mode", "first", "repeats", "joined", "joined_pause_ms"),
    *("policy", "read_ms", "task", "language", "stammer_times", "stammer_words"),
}


def check(chosen: Evaluation, model: ModelConfig | None, then: ModelConfig | None = None) -> None:
    """Refuse what this model cannot do, and settings that would change nothing.

    Whisper's model is None; `then` is the second model of a cascade.
    """
    given, long = given_options(chosen), is_long_form(chosen)
    for is_wrong, why in (
        (chosen.branch == "text" and chosen.mode == "live", "--mode live needs --branch speech"),
        (chosen.branch == "text" and chosen.then, "--then needs --branch speech"),
        (
            chosen.beam is not None and chosen.mode != "offline",
            "--beam needs --mode offline, or --policy local-agreement: words that were committed "
            "cannot be taken back",
        ),
        (
            model is not None and chosen.then and long,
            "--then translates one sentence a stream: leave --sentences, --joined out",
        ),
        (
            model is not None and getattr(model, chosen.branch) is None,
            f"it has no {chosen.branch} branch; choose the other with --branch",
        ),
        (
            model is not None and given.keys() & {"task", "language"},
            "--task and --language are for Whisper models; this is a run",
        ),
        (
            model is None and chosen.then and chosen.task,
            "a recogniser transcribes: leave --task out",
        ),
    ):
        if is_wrong:
            raise ConfigError(f"{chosen.run}: {why}")
    if model is None:
        known = {*OF_WHISPER, *(options_of(type(chosen.policy)) if chosen.policy else ())}
        if chosen.then is not None:
            known |= {"then", "checkpoint", *THEN.values(), *SHARED}
        for name in given.keys() - known:
            raise ConfigError(f"{_flag(name)} is for trained runs; {chosen.run} is a Whisper model")
    else:
        try:
            check_policy(chosen.policy, model, chosen.branch)
        except PolicyError as error:
            raise ConfigError(f"{chosen.run}: {error}") from None
    for name, why in without_effect_here(chosen, model, then).items():
        if name in given:
            value = "" if given[name] is True else f" {given[name]}"
            raise ConfigError(
                f"{chosen.run}: {_flag(name)}{value} would change nothing: it {why}; leave it out"
            )
    if chosen.joined is not None:
        check_cut()


def without_effect_here(
    chosen: Evaluation, model: ModelConfig | None, then: ModelConfig | None
) -> dict[str, str]:
    """Return options without effect in this evaluation, with the reason; some may not be given."""
    text, policy = chosen.branch == "text", chosen.policy
    steps = ("step_ms",) if policy is not None and policy.name == "wait-k" else ()
    rules = (
        (chosen.mode == "offline", "a live source", ("read_ms", "policy", "joined")),
        (text, "speech", ("read_ms", "units", "trailing", "audio", "joined", *steps)),
        (is_long_form(chosen), "recordings of one sentence", ("audio",)),
        (chosen.joined is None, "recordings made by --joined", ("joined_pause_ms",)),
        (chosen.then is None, "the second run, --then", THEN.values()),
        (
            getattr(policy, "units", None) != "ctc",
            "words of a CTC head, --units ctc",
            ("trailing",),
        ),
    )
    idle = {name: f"applies only to {to}" for out, to, names in rules if out for name in names}
    if model is not None:
        idle |= _without_effect(chosen, model)
    if then is not None:
        second = _without_effect(of_text(chosen, then), then)
        own = {new: second[name] for name, new in THEN.items() if name in second}
        both = {name: why for name, why in second.items() if name in SHARED}
        if model is not None:
            both = {name: why for name, why in both.items() if name in idle}
        whole = "applies only to a live source"
        if chosen.mode == "offline" and model is None:
            own = dict.fromkeys(THEN.values(), whole)
        elif chosen.mode == "offline" and then.monotonic.policy != "wait_k":
            own["then_k"] = whole
        idle = {name: why for name, why in idle.items() if name not in SHARED} | both | own
    return idle


def _without_effect(chosen: Evaluation, model: ModelConfig) -> dict[str, str]:
    source = "whole" if chosen.mode == "offline" else "live"
    return without_effect(chosen.decoding(), model, source=source, branch=chosen.branch)


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"


class Models:
    """The models of evaluations, each opened and loaded once; settings are checked once."""

    def __init__(self) -> None:
        self.open = functools.cache(open_run)
        self.load = functools.lru_cache(maxsize=2)(functools.partial(_load, self.open))  # a cascade
        self.check = functools.cache(functools.partial(_check, self.open))


def _load(opened: Any, path: Path, checkpoint: Which, usual: WhisperStreaming | None = None) -> Any:
    return load(path, settings=usual) if is_whisper(path) else load_run(opened(path), checkpoint)


def _check(opened: Any, chosen: Evaluation) -> None:
    model = None if is_whisper(chosen.run) else opened(chosen.run).model
    then = opened(chosen.then) if chosen.then else None
    if model is None and then is not None:
        check_translator(then)
    check(chosen, model, then and then.model)


def is_long_form(chosen: Evaluation) -> bool:
    """Return True if recordings may have many sentences, which only streams translate."""
    return chosen.sentences != "one" or chosen.joined is not None


def plan_evaluations(
    chosen: Evaluation, sweep: tuple[str, ...] = (), also: tuple[Path, ...] = ()
) -> tuple[dict[Path, list[Evaluation]], Models]:
    """Return every setting of every model; reject any that is impossible, before the first runs."""
    settings, models = points(chosen, sweep), Models()
    asked = {run: [replace(each, run=run) for each in settings] for run in (chosen.run, *also)}
    for each in itertools.chain.from_iterable(asked.values()):
        models.check(each)
    return asked, models


def evaluate_all(
    asked: Mapping[Path, Sequence[Evaluation]], models: Models
) -> list[dict[str, Any]]:
    """Evaluate, print the scores and the next command; draw a curve if there are several."""
    all_scores, curves = [], {}
    first = next(iter(asked.values()))[0]
    latency = "AL" if first.joined is None else "StreamLAAL"
    for run, each in asked.items():
        scores = [_evaluate_locked(one, models) for one in each]
        print(table(run, each, scores), flush=True)
        all_scores += scores
        curves[str(run)] = [
            Point(latency_ms=s[latency], quality=s["BLEU"], label=one.label)
            for one, s in zip(each, map(_flat, scores), strict=True)
        ]
    drawn = any(math.isfinite(p.latency_ms) for curve in curves.values() for p in curve)
    if len(all_scores) > 1 and first.branch == "speech" and drawn:
        print(f"curve: {draw_curves(curves, first.folder.with_name('curve.png'), latency=latency)}")
    print(f"next: simuljax report {' '.join(str(each[0].results) for each in asked.values())}")
    return all_scores


def _evaluate_locked(chosen: Evaluation, models: Models) -> dict[str, Any]:
    """Evaluate under the lock that a grid's processes take too: two would write one log."""
    chosen.folder.mkdir(parents=True, exist_ok=True)
    with try_lock(chosen.folder) as mine:
        if not mine:
            raise ConfigError(
                f"another process works on {chosen.folder}: wait until it has ended, or give this "
                "evaluation a --name"
            )
        return evaluate(chosen, models)


def evaluate(chosen: Evaluation, models: Models | None = None) -> dict[str, Any]:
    """Translate what the log lacks of the split, write the results and return the scores."""
    enable_compilation_cache()
    models = models or Models()
    models.check(chosen)
    split = open_split(chosen, models)
    steps = [*split.steps]
    open_folder(chosen, steps, corpus_of(chosen, models))
    passes = chosen.repeats if chosen.mode == "live" else 1
    logs = [LOG, *(f"instances-{i}.log" for i in range(2, passes + 1))]
    runs = [translate_split(split, chosen.folder / log) for log in logs]
    if not any(record.prediction for record in runs[0]):
        tqdm.write("no words were written: the model may need more training", file=sys.stderr)
    scores = score(runs[0]) | {"word_difference": word_difference(runs[0]), "steps": steps}
    if chosen.task == "transcribe":
        pairs = ((normalise(r.reference or ""), normalise(r.prediction)) for r in runs[0])
        scores["WER"] = word_error_rate(pairs)
    if chosen.joined is not None and isinstance(split, RecordingsSplit):
        scores["long_form"] = score_longform(runs[0], split.segments())
    if chosen.mode == "live":
        clocked = [score(records, computation_aware=True) for records in runs]
        scores["computation_aware"] = average_runs(clocked)
    write_json(chosen.folder / SCORES, scores)
    return scores


def open_split(chosen: Evaluation, models: Models) -> OpenSplit:
    """Load the models and open the split."""
    settings: dict[str, Any] = {}
    then = models.load(chosen.then, chosen.checkpoint) if chosen.then else None
    model = models.load(chosen.run, chosen.checkpoint, RECOGNISING if then else None)
    if is_whisper(chosen.run):
        model = model.having(**stream_settings(chosen))
    else:
        settings["decoding"] = chosen.decoding()
    both = model if then is None else Cascade(model, then)  # refuses what does not go together
    if isinstance(model, RunTranslator) and chosen.mode != "live" and not is_long_form(chosen):
        examples = open_examples(model.run, chosen)
        return RunSplit(translator=model, examples=examples, chosen=chosen, then=then)
    if then is not None:
        settings["translating"] = {"decoding": of_text(chosen, then.run.model).decoding()}
    both.backend(**settings)  # rejects settings that it cannot have
    corpus = corpus_of(chosen, models)
    split = open_recordings(corpus, chosen.split, chosen.first)
    if not split:
        raise ConfigError(f"the split {chosen.split} of {corpus} is empty")
    if isinstance(both, RunTranslator) and not is_long_form(chosen):
        split = [replace(each, transcript=each.transcript.lower()) for each in split]
    return RecordingsSplit(model=both, split=split, chosen=chosen, settings=settings)


def corpus_of(chosen: Evaluation, models: Models) -> Path:
    """Return the corpus of an evaluation: as given, or that of the run."""
    if chosen.corpus is not None:
        return chosen.corpus
    if is_whisper(chosen.run):
        raise ConfigError(f"{chosen.run} was not trained here: name a --corpus")
    return models.open(chosen.run).config.data.directory


def check_data(chosen: Evaluation, corpus: Path) -> dict[str, str | None]:
    """Return digests of the split and of a model file; reject a folder with results of others.

    Folders of earlier versions lack digests: of a model file they then need the same path.
    """
    corpus, before = chosen.corpus or corpus, read_object(chosen.folder / CONFIG)
    now = {"data": split_digest(corpus, chosen.split), "weights": _digest(chosen.run)}
    in_place = Path(str(before.get("run", chosen.run))).resolve() == chosen.run.resolve()
    for name, what in (("data", f"{chosen.split} in {corpus}"), ("weights", str(chosen.run))):
        was = before.get(name)
        is_unknown = was is None and (name == "data" or in_place)
        if not is_unknown and now[name] not in (None, was):
            raise ConfigError(
                f"{chosen.folder} holds results of other {name} than {what} now: give this "
                "evaluation a --name, or remove that directory"
            )
    return now


def _digest(model: Path) -> str | None:
    """Return a digest of a model file; None for a directory."""
    if not model.is_file():
        return None
    status = model.stat()
    return _file_digest(model.resolve(), status.st_size, status.st_mtime_ns)


@functools.cache
def _file_digest(path: Path, *_: int) -> str:
    """Hash a file, once for every size and time of change."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()[:16]


def check_folder(chosen: Evaluation, corpus: Path) -> dict[str, Any]:
    """Return what the folder's config.json has to say; reject a folder of another evaluation."""
    digests, folder = check_data(chosen, corpus), chosen.folder
    new: dict[str, Any] = to_json(to_options(chosen)) | digests
    new |= {"code": code} if (code := code_in(new)) else {}
    if (folder / CONFIG).exists():
        defaults: Any = to_json(to_options(Evaluation(run=chosen.run)))  # of newer settings
        known = defaults | {"code": code} | read_object(folder / CONFIG)
        old = {name: known[name] for name in known if (name, known[name]) not in GONE.items()}
        changed = differences(_comparable(old), _comparable({"code": code} | new))
        if changed:
            raise ConfigError(
                f"{folder} holds another evaluation ({'; '.join(changed)}): give this one a "
                "--name, or remove that directory"
            )
    return new


def open_folder(chosen: Evaluation, steps: list[int], corpus: Path) -> None:
    """Make the folder of the results, empty if it holds those of other checkpoints."""
    new, folder, path = check_folder(chosen, corpus), chosen.folder, chosen.folder / CONFIG
    folder.mkdir(parents=True, exist_ok=True)
    if path.exists():
        before = read_object(path).get("steps")
        if before == steps:
            return
        print(f"{folder} is of updates {before}, not {steps}: evaluating again")
        (folder / SCORES).unlink(missing_ok=True)  # first: without scores it is not done
        for stale in [*folder.glob("instances*.log*"), *folder.glob("*.png")]:
            stale.unlink()
    write_json(path, new | {"steps": steps})


def _comparable(config: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in config.items() if name not in FREE}


def translate_split(split: OpenSplit, log: Path) -> list[Record]:
    """Return the records of a log; translate first what it lacks."""
    if log.exists():
        return read_records(log)
    part = log.with_name(log.name + ".part")
    # Rows of a manifest may have been mended since, which moves those behind them.
    held = [r for r in read_partial(part) if split.source_of(r.index or 0) == r.source]
    records = {record.index: record for record in held}
    with part.open("w", encoding="utf-8") as file:
        write_lines(file, records.values())
        left = split.records({index or 0 for index in records})
        for some in _shown(split, left, len(records)):
            write_lines(file, some)
            records |= {record.index: record for record in some}
    write_records(part, sorted(records.values(), key=lambda record: record.index or 0))
    part.rename(log)
    return read_records(log)


def _shown(split: OpenSplit, batches: Iterator[list[Record]], done: int) -> Iterator[list[Record]]:
    """Show a bar of utterances; before the first of them, that the model compiles."""
    name = f"{split.chosen.run} {split.chosen.folder.name}"
    with announce_compilation(name, about_s=COMPILE_S):
        first = next(batches, [])
    with tqdm(desc=split.chosen.folder.name, unit="utt", total=len(split), initial=done) as bar:
        for some in itertools.chain([first], batches):
            bar.update(len(some))
            yield some


def write_lines(file: Any, records: Iterable[Record]) -> None:
    """Write a line for each record, all the way to the disk."""
    file.writelines(record_line(record) + "\n" for record in records)
    file.flush()


def read_partial(part: Path) -> list[Record]:
    """Return the records of an interrupted evaluation; half a line at the end is dropped."""
    if not part.exists():
        return []
    *lines, _ = part.read_bytes().split(b"\n")
    if not lines:
        return []
    part.write_bytes(b"".join(line + b"\n" for line in lines))
    return read_records(part)


def table(run: Path, each: Sequence[Evaluation], scores: Sequence[Mapping[str, Any]]) -> str:
    """Format the scores, one line per evaluation."""
    shown = LONG_FORM if "long_form" in scores[0] else SHOWN
    names = [name for name in shown if name in _flat(scores[0])]
    names += ["AL_CA"] if any("computation_aware" in one for one in scores) else []
    wide = max(len(one.folder.name) for one in each) + 2
    lines = [
        f"{run} (as SimulEval {scores[0]['profile']})",
        f"{'':{wide}}" + "".join(f"{name:>{_width(name)}}" for name in names),
    ]
    for one, found in zip(each, scores, strict=True):
        values = _flat(found) | {"AL_CA": found.get("computation_aware", {}).get("AL")}
        cells = [_cell(name, values.get(name)) for name in names]
        lines.append(f"{one.folder.name:{wide}}" + "".join(cells))
    return "\n".join(lines)


def _flat(scores: Mapping[str, Any]) -> dict[str, Any]:
    """Return the scores, with those by segments in the first place."""
    return {**scores, **scores.get("long_form", {})}


def _cell(name: str, value: float | None) -> str:
    if value is None or math.isnan(value):
        return f"{'-':>{_width(name)}}"
    return f"{value:{_width(name)}.{DIGITS.get(name, 0)}f}"


def _width(name: str) -> int:
    return max(9, len(name) + 2)
