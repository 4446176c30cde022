"""Evaluate models on a split: translate it, write the log and the scores, draw a sweep's curve.

Results go to RUN/eval/NAME/ (config.json, instances.log, scores.json); those of a model file go to
the runs, under its name. After an interruption, the records in instances.log.part are kept.

Every setting that is not the default is in the name of the results. One without effect is refused:
it would have the scores of the default under another name, and a sweep would draw a flat line.
"""

import itertools
import math
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

from tqdm import tqdm

from data_pipelines.dataset import digest
from simuljax.cache import announce_compilation
from simuljax.config.decoding import check_policy, without_effect
from simuljax.config.evaluation import Evaluation, points
from simuljax.config.fields import ConfigError, differences, read_json, to_json, write_json
from simuljax.config.model import ModelConfig
from simuljax.config.options import given_options, options_in, to_options
from simuljax.decode.policies import PolicyError
from simuljax.eval import Record, read_records, score, write_records
from simuljax.eval.curves import Point
from simuljax.eval.logs import NAME as LOG
from simuljax.eval.logs import record_line
from simuljax.eval.long_form import check_cut, score_longform
from simuljax.eval.scores import average_runs, normalise, word_difference, word_error_rate
from simuljax.report.figures import draw_curves
from simuljax.runs.recordings import (
    RecordingsSplit,
    check_settings,
    open_recordings,
    stream_settings,
)
from simuljax.runs.split import CascadeSplit, RunSplit, of_text, open_examples
from simuljax.serve.cascade import Cascade, check_translator
from simuljax.serve.cascade import load as load_cascade
from simuljax.serve.run import open_run
from simuljax.serve.run_translator import RunTranslator, load_run
from simuljax.serve.translator import Translator, is_whisper, load
from simuljax.serve.whisper import WhisperTranslator

LIVE = (
    *("read_ms", "policy", "gather", "force_finish", "avoid_eos_while_reading", "inside"),
    *("sentences", "joined"),
)
OF_SPEECH = ("read_ms", "predecision_ms", "units", "trailing", "inside", "audio", "joined")
FOLLOWING = ("then_k", "then_threshold")
SHARED = ("gather", "force_finish", "avoid_eos_while_reading")  # by both models of a cascade


def check(chosen: Evaluation) -> None:
    """Refuse settings that do not go together, before any run is opened."""
    if chosen.branch == "text" and chosen.mode == "live":
        raise ConfigError("--mode live needs speech; with --branch text use --mode streamed")
    if chosen.beam is not None and chosen.mode != "offline":
        raise ConfigError(
            f"--beam {chosen.beam.size} needs --mode offline, or --policy local-agreement: with "
            f"--mode {chosen.mode} committed words cannot be taken back"
        )
    if chosen.branch == "text" and chosen.then is not None:
        raise ConfigError("a cascade begins with speech: --then needs --branch speech")
    if long_form(chosen) and chosen.then is not None and not is_whisper(chosen.run):
        raise ConfigError(
            "--then translates one sentence a stream: leave --sentences, --joined out"
        )
    given = given_options(chosen)
    for name, why in _idle_together(chosen):
        if name in given:
            raise ConfigError(f"{_option(chosen, name)} would change nothing: {why}")
    if chosen.joined is not None:
        check_cut()


def _idle_together(chosen: Evaluation) -> Iterator[tuple[str, str]]:
    policy = None if chosen.policy is None else chosen.policy.name
    units = getattr(chosen.policy, "units", None)
    rules = (
        (chosen.mode == "offline", LIVE, "--mode offline waits for the whole source"),
        (chosen.branch == "text", OF_SPEECH, "with --branch text there is no speech"),
        (chosen.branch == "text" and policy == "wait-k", ("step_ms",), "a unit of text is a word"),
        (long_form(chosen), ("audio",), "utterances are played as they are, one after the other"),
        (chosen.joined is None, ("joined_pause_ms",), "nothing is joined: give --joined"),
        (chosen.then is None, FOLLOWING, "it belongs to the second run: give --then"),
        (units != "ctc", ("trailing",), "it is about words of a CTC head: give --units ctc"),
    )
    yield from ((name, why) for applies, names, why in rules if applies for name in names)


def check_model(chosen: Evaluation, model: ModelConfig) -> None:
    """Refuse a branch that the model does not have, and a policy that it cannot run."""
    if chosen.branch == "text" and model.text is None:
        raise ConfigError(f"{chosen.run} has no text branch: leave --branch text out")
    if chosen.branch == "speech" and model.speech is None:
        raise ConfigError(f"{chosen.run} has no speech branch: use --branch text")
    try:
        check_policy(chosen.policy, model, chosen.branch)
    except PolicyError as error:
        raise ConfigError(f"{chosen.run}: {error}") from None


def check_effects(chosen: Evaluation, model: ModelConfig, then: ModelConfig | None = None) -> None:
    """Refuse settings that this model does not have, or that change nothing for it and `then`."""
    check_model(chosen, model)
    idle = idle_settings(chosen, model)
    if then is not None:
        second = idle_of_text(chosen, then)
        idle = {name: why for name, why in idle.items() if name not in SHARED or name in second}
        idle |= {name: why for name, why in second.items() if name in FOLLOWING}
    for name, why in idle.items():
        option = _option(chosen, name)
        raise ConfigError(f"{chosen.run}: {option} would change nothing: it {why}; leave it out")


def idle_settings(chosen: Evaluation, model: ModelConfig) -> dict[str, str]:
    """Return the settings without effect on what the model writes, and when, with the reasons."""
    source = "whole" if chosen.mode == "offline" else "live"
    return without_effect(chosen.decoding(), model, source=source, branch=chosen.branch)


def idle_of_text(chosen: Evaluation, model: ModelConfig) -> dict[str, str]:
    """Return the same of the second model of a cascade, by the names of its options."""
    try:
        idle = idle_settings(of_text(chosen, model), model)
    except ValueError as error:
        raise ConfigError(f"{chosen.then}: {error}") from None
    own = {"k": "then_k", "threshold": "then_threshold"}
    named = {own.get(name, name): why for name, why in idle.items()}
    waits = model.monotonic.policy == "wait_k"
    if chosen.mode == "offline" and chosen.then_k is not None and not waits:
        named["then_k"] = "applies only to a live source"
    return named


def _option(chosen: Evaluation, name: str) -> str:
    value: Any = given_options(chosen).get(name)
    flag = options_in(chosen)[name].flag
    return flag if value is True else f"{flag} {value}"


# Settings without influence on a log, or compared elsewhere.
FREE = ("run", "name", "frames", "repeats", "steps", "data")
# Settings of earlier versions, with the value that all evaluations have now.
GONE = {"scores": "paper", "hysteresis_db": 4.0, "lead_ms": 200}
SCORES, CONFIG = "scores.json", "config.json"
DIGITS = {"BLEU": 2, "WER": 2, "AP": 3}
LONG_FORM = ("BLEU", "StreamLAAL", "LongYAAL", "n", "skipped")  # by segments
SHOWN = ("BLEU", "WER", "AL", "LAAL", "AP", "DAL", "ATD")
COMPILE_S = 30.0  # about, for the first batch on a few cores
Source = RunSplit | CascadeSplit | RecordingsSplit


def plan_evaluations(
    chosen: Evaluation, sweep: tuple[str, ...] = (), also: tuple[Path, ...] = ()
) -> dict[Path, list[Evaluation]]:
    """Return every setting of every model; reject any that is impossible, before the first runs."""
    settings = points(chosen, sweep)
    asked = {run: [replace(each, run=run) for each in settings] for run in (chosen.run, *also)}
    for each in asked.values():
        check_all(each)
    return asked


def evaluate_all(asked: Mapping[Path, Sequence[Evaluation]]) -> list[dict[str, Any]]:
    """Evaluate, print the scores and the next command; draw a curve if there are several."""
    all_scores, curves = [], {}
    first = next(iter(asked.values()))[0]
    latency = "AL" if first.joined is None else "StreamLAAL"
    for run, each in asked.items():
        scores = [evaluate(one) for one in each]
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


def check_all(each: Sequence[Evaluation]) -> None:
    """Reject settings that the model of these evaluations cannot have."""
    for chosen in each:
        check(chosen)
    if is_whisper(each[0].run):
        for chosen in each:
            check_settings(chosen)
        check_translators(each)
        return
    for name in given_options(each[0]).keys() & {"task", "language"}:
        raise ConfigError(f"--{name} is for Whisper models; {each[0].run} is a run")
    model = open_run(each[0].run).model
    then = open_run(each[0].then).model if each[0].then else None
    for chosen in each:
        check_effects(chosen, model, then)


def check_translators(each: Sequence[Evaluation]) -> None:
    """Reject settings that change nothing for the text model that follows Whisper."""
    if each[0].then is None:
        return
    then = open_run(each[0].then)
    check_translator(then)
    for chosen in each:
        idle = idle_of_text(chosen, then.model)
        if chosen.mode == "offline":
            given = given_options(chosen).keys() & {*FOLLOWING}
            idle |= dict.fromkeys(given, "applies only to a live source")
        for name, why in idle.items():
            option = _option(chosen, name)
            raise ConfigError(f"{chosen.then}: {option} would change nothing: it {why}")


def evaluate(chosen: Evaluation) -> dict[str, Any]:
    """Translate what the log lacks of the split, write the results and return the scores."""
    check_all([chosen])
    source = open_source(chosen)
    steps = [*source.steps]
    open_folder(chosen, steps, corpus_of(chosen))
    passes = chosen.repeats if chosen.mode == "live" else 1
    logs = [LOG, *(f"instances-{i}.log" for i in range(2, passes + 1))]
    runs = [translate_split(source, chosen.folder / log) for log in logs]
    if not any(record.prediction for record in runs[0]):
        tqdm.write("no words were written: the model may need more training", file=sys.stderr)
    scores = score(runs[0]) | {"word_difference": word_difference(runs[0]), "steps": steps}
    if chosen.task == "transcribe":
        scores["WER"] = word_error_rate(_normalised(record) for record in runs[0])
    if chosen.joined is not None and isinstance(source, RecordingsSplit):
        scores["long_form"] = score_longform(runs[0], source.segments())
    if chosen.mode == "live":
        clocked = [score(records, computation_aware=True) for records in runs]
        scores["computation_aware"] = average_runs(clocked)
    write_json(chosen.folder / SCORES, scores)
    return scores


def open_source(chosen: Evaluation) -> Source:
    """Load the model and open the split."""
    if is_whisper(chosen.run):
        return _open_whisper(chosen)
    alone = load_run(chosen.run, chosen.checkpoint)
    then = load_run(chosen.then, chosen.checkpoint) if chosen.then else None
    model = Cascade(alone, then) if then else alone  # refuses runs that do not go together
    if long_form(chosen) or chosen.mode == "live":
        settings = {"decoding": chosen.decoding()} | translating(chosen, then)
        return _open_recordings(chosen, model, settings)
    examples = open_examples(alone.run, chosen)
    if then is not None:
        return CascadeSplit(translator=alone, examples=examples, chosen=chosen, then=then)
    return RunSplit(translator=alone, examples=examples, chosen=chosen)


def _open_whisper(chosen: Evaluation) -> RecordingsSplit:
    """Load Whisper, and the translator of what it recognises if there is one."""
    given = stream_settings(chosen)
    if chosen.then is None:
        model = cast(WhisperTranslator, load(chosen.run))
        return _open_recordings(chosen, model.having(**given), {})
    loaded = load_cascade(chosen.run, chosen.then, chosen.checkpoint)
    assert isinstance(loaded.recogniser, WhisperTranslator)
    cascade = Cascade(loaded.recogniser.having(**given), loaded.translator)
    return _open_recordings(chosen, cascade, translating(chosen, cascade.translator))


def translating(chosen: Evaluation, then: RunTranslator | None) -> dict[str, Any]:
    """Return the settings of the second model in streams of a cascade."""
    return {"translating": {"decoding": of_text(chosen, then.run.model).decoding()}} if then else {}


def long_form(chosen: Evaluation) -> bool:
    """Return True if recordings may have many sentences, which only streams translate."""
    return chosen.sentences != "one" or chosen.joined is not None


def _open_recordings(
    chosen: Evaluation, model: Translator, settings: dict[str, Any]
) -> RecordingsSplit:
    model.backend(**settings)  # rejects settings that it cannot have
    corpus = corpus_of(chosen)
    split = open_recordings(corpus, chosen.split)
    if not split:
        raise ConfigError(f"the split {chosen.split} of {corpus} is empty")
    if isinstance(model, RunTranslator) and not long_form(chosen):
        split = [replace(each, transcript=each.transcript.lower()) for each in split]
    return RecordingsSplit(model=model, split=split, chosen=chosen, settings=settings)


def corpus_of(chosen: Evaluation) -> Path:
    """Return the corpus of an evaluation: as given, or that of the run."""
    if chosen.corpus is None and is_whisper(chosen.run):
        raise ConfigError(f"{chosen.run} was not trained here: name a --corpus")
    return chosen.corpus or open_run(chosen.run).config.data.directory


def _normalised(record: Record) -> tuple[list[str], list[str]]:
    return normalise(record.reference or ""), normalise(record.prediction)


def check_data(chosen: Evaluation, corpus: Path) -> str | None:
    """Return the digest of the split; reject a folder that holds results of other data."""
    corpus = chosen.corpus or corpus
    path, now = chosen.folder / CONFIG, digest(corpus, chosen.split)
    before = read_json(path).get("data") if path.exists() else None  # old ones do not say
    if None not in (before, now) and before != now:
        raise ConfigError(
            f"{chosen.folder} holds results of other data than {chosen.split} in {corpus} now: "
            "give this evaluation a --name, or remove that directory"
        )
    return now


def open_folder(chosen: Evaluation, steps: list[int], corpus: Path) -> None:
    """Make the folder of the results; reject one that holds another evaluation."""
    data = check_data(chosen, corpus)
    folder, new = chosen.folder, to_json(to_options(chosen)) | {"steps": steps, "data": data}
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / CONFIG
    if path.exists():
        defaults: Any = to_json(to_options(Evaluation(run=chosen.run)))  # of newer settings
        known = defaults | read_json(path)
        old = {name: known[name] for name in known if (name, known[name]) not in GONE.items()}
        changed = differences(_comparable(old), _comparable(new))
        if changed:
            raise ConfigError(
                f"{folder} holds another evaluation ({'; '.join(changed)}): give this one a "
                "--name, or remove that directory"
            )
        if old.get("steps") == steps:
            return
        print(f"{folder} is of updates {old.get('steps')}, not {steps}: evaluating again")
        (folder / SCORES).unlink(missing_ok=True)  # first: without scores it is not done
        for stale in [*folder.glob("instances*.log*"), *folder.glob("*.png")]:
            stale.unlink()
    write_json(path, new)


def _comparable(config: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in config.items() if name not in FREE}


def translate_split(source: Source, log: Path) -> list[Record]:
    """Return the records of a log; translate first what it lacks."""
    if log.exists():
        return read_records(log)
    part = log.with_name(log.name + ".part")
    records = {record.index: record for record in read_partial(part)}
    with part.open("w", encoding="utf-8") as file:
        write_lines(file, records.values())
        left = source.records({index or 0 for index in records})
        for some in _shown(source, left, len(records)):
            write_lines(file, some)
            records |= {record.index: record for record in some}
    write_records(part, sorted(records.values(), key=lambda record: record.index or 0))
    part.rename(log)
    return read_records(log)


def _shown(source: Source, batches: Iterator[list[Record]], done: int) -> Iterator[list[Record]]:
    """Show a bar of utterances; before the first of them, that the model compiles."""
    name = source.chosen.folder.name
    with announce_compilation(f"{source.chosen.run} {name}", about_s=COMPILE_S):
        first = next(batches, [])
    with tqdm(desc=name, unit="utt", total=len(source), initial=done) as bar:
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
