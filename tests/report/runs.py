"""Runs for the tests of reports: the files that evaluations leave."""

import json

from simuljax.eval import score
from simuljax.eval.logs import NAME, as_records, write_records
from tests.eval.logs import made_up

USUAL = {
    "split": "test",
    "branch": "speech",
    "mode": "streamed",
    "checkpoint": "best",
    "read_ms": None,
    "predecision_ms": None,
    "threshold": 0.5,
    "k": None,
    "gather": "any",
    "force_finish": False,
    "avoid_eos_while_reading": False,
    "audio": "own",
}


def without_clock(entries):
    return [entry | {"elapsed": []} for entry in entries]


def slower(entries, by):
    """The same words, each `by` ms later, but not after the source's end."""
    return [
        entry
        | {
            "delays": [min(d + by, entry["source_length"]) for d in entry["delays"]],
            "elapsed": [e + by for e in entry["elapsed"]],
        }
        for entry in entries
    ]


def worse(entries, every=3):
    """Every third prediction says something else, in as many words."""
    return [
        entry | {"prediction": " ".join(["anders"] * len(entry["delays"]))}
        if i % every == 0
        else entry
        for i, entry in enumerate(entries)
    ]


def evaluation(run, name, entries=None, **config):
    """RUN/eval/NAME as `simuljax evaluate` writes it."""
    folder = run / "eval" / name
    folder.mkdir(parents=True)
    records = as_records(without_clock(made_up(0)) if entries is None else entries)
    write_records(folder / NAME, records)
    (folder / "scores.json").write_text(json.dumps(score(records) | {"steps": [8]}))
    (folder / "config.json").write_text(json.dumps(USUAL | {"run": str(run)} | config))
    return folder


def text_entries():
    """A log of a text branch: delays count words of the source."""
    source = "the house is quite small today"
    return [
        {
            "index": index,
            "prediction": "das Haus ist klein",
            "delays": [2, 2, 4, 6],
            "reference": "das Haus ist heute klein",
            "source": source,
            "source_length": 6,
        }
        for index in range(3)
    ]


def attribute(element, name):
    """Of an element of a page, that has to have it."""
    value = element.get(name)
    assert value is not None, f"{element.tag} has no {name}"
    return value
