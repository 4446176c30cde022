"""The command `simuljax score`."""

import gzip
import json
import math

import pytest
import tyro

from simuljax.cli import main as cli
from simuljax.cli.score import score_command, table
from simuljax.eval import score
from simuljax.eval.logs import Record, as_records, write_records
from simuljax.eval.scores import build_report
from tests.eval.logs import made_up


@pytest.fixture
def log(tmp_path):
    write_records(tmp_path / "instances.log", as_records(made_up(2)))
    return tmp_path / "instances.log"


def run(*args):
    command = tyro.cli(score_command, args=[str(arg) for arg in args])
    command()


def test_a_table_with_and_without_computation(log, capsys):
    run(log)
    out = capsys.readouterr().out
    plain, aware = score(made_up(2)), score(made_up(2), computation_aware=True)
    for name in ("AL", "LAAL", "DAL", "ATD", "YAAL"):
        (line,) = [line for line in out.splitlines() if line.split()[:1] == [name]]
        assert line.split() == [name, f"{plain[name]:.1f}", "ms", f"{aware[name]:.1f}", "ms"]
    assert "20 utterances\n" in out and "profile simuleval-1.1" in out
    assert plain["signature"] in out


def test_json_is_what_score_says(log, tmp_path, capsys):
    run(log, "--json", "-", "--profile", "simuleval-1.0")
    report = json.loads(capsys.readouterr().out)
    aware = report.pop("computation_aware")
    assert report == score(made_up(2), profile="simuleval-1.0")
    assert aware == score(made_up(2), profile="simuleval-1.0", computation_aware=True)
    path = tmp_path / "new" / "deep" / "scores.json"
    run(log, "--computation-aware", "--json", path)
    assert json.loads(path.read_text()) == score(made_up(2), computation_aware=True)
    assert "with computation" not in capsys.readouterr().out


def test_json_has_null_where_there_is_no_value(tmp_path, capsys):
    late = [r | {"delays": [r["source_length"]] * len(r["delays"])} for r in made_up(2)]
    write_records(tmp_path / "log", as_records(late))
    assert math.isnan(score(late)["YAAL"])
    run(tmp_path / "log", "--json", "-")
    assert json.loads(capsys.readouterr().out)["YAAL"] is None


def test_a_log_without_a_clock_has_one_column():
    report = build_report(as_records(r | {"elapsed": []} for r in made_up(2)))
    assert "computation_aware" not in report
    assert "by the source" not in table(report)


def test_an_interpreters_log_has_no_bleu_and_says_so(tmp_path, capsys):
    """500 words of a talk of 200 s, each 0.4 s late: none is 97 s ahead of its speaker."""
    times = tuple(400.0 * i for i in range(1, 501))
    for reference in (None, ""):
        record = Record(
            prediction=" ".join(["so"] * 500),
            delays=times,
            source_length=200_000.0,
            source="talk.wav",
            reference=reference,
        )
        write_records(tmp_path / "log", [record])
        run(tmp_path / "log")
        out = capsys.readouterr().out
        rows = {line.split()[0]: line.split()[1] for line in out.splitlines() if line}
        assert rows["BLEU"] == "-" and float(rows["AL"]) == pytest.approx(400, abs=0.1)
        assert out.count("no references") == 1
        run(tmp_path / "log", "--json", "-")
        said = capsys.readouterr()
        assert json.loads(said.out)["BLEU"] is None and said.err.count("no references") == 1


def test_text_is_counted_in_words(tmp_path, capsys):
    record = {"prediction": "a b", "delays": [1, 2], "elapsed": [0, 0], "reference": "a b"}
    write_records(tmp_path / "log", as_records([record | {"source": "x y", "source_length": 2}]))
    run(tmp_path / "log")
    assert "1.0 words" in capsys.readouterr().out


def test_skipped_utterances_are_told(capsys):
    silent = {"prediction": "", "delays": [], "reference": "ja", "source_length": 9.0}
    assert "21 utterances, 1 of them" in table(build_report(as_records([*made_up(2), silent])))


def test_long_form_scores_stand_below():
    long_form = {"BLEU": 16.4, "StreamLAAL": 1869.7, "StreamLAAL_CA": math.nan}
    long_form |= {"LongYAAL": 1082.9, "LongYAAL_CA": math.nan, "n": 468, "skipped": 3}
    text = table(build_report(as_records(made_up(2))) | {"long_form": long_form})
    assert "1869.7 ms" in text and "468 segments, 3 of them without a word" in text


@pytest.mark.parametrize("name", ["instances.log", "instances.log.gz"])
def test_the_directory_of_a_log_will_do(log, capsys, tmp_path, name):
    """Gzipped too, as published results have it."""
    (tmp_path / "published").mkdir()
    pack = gzip.compress if name.endswith("gz") else bytes
    (tmp_path / "published" / name).write_bytes(pack(log.read_bytes()))
    run(tmp_path / "published")
    assert "20 utterances" in capsys.readouterr().out


FAULTS = {
    "a time below 0": {"delays": [-5, 200]},
    "times that decrease": {"delays": [300, 200], "elapsed": [300, 310]},
    "more or fewer delays than words": {"delays": [1], "elapsed": [1]},
    "elapsed below the delay": {"elapsed": [1, 2]},
}


@pytest.mark.parametrize("fault", FAULTS)
def test_times_that_cannot_be_right_are_counted_or_refused(tmp_path, capsys, fault):
    good = {"prediction": "one two", "delays": [100, 200], "elapsed": [150, 260]}
    good |= {"reference": "one two", "source": "a.wav", "source_length": 1000}
    log, fine = tmp_path / "a.log", tmp_path / "fine.log"
    log.write_text(f"{json.dumps(good)}\n{json.dumps(good | FAULTS[fault])}\n")
    fine.write_text(json.dumps(good))
    cli.main(["score", str(log)])
    assert f"warning: {log}: of 2 records 1 with {fault};" in capsys.readouterr().err
    with pytest.raises(SystemExit, match="1"):
        cli.main(["score", str(log), "--strict"])
    assert f"1 with {fault}" in capsys.readouterr().err
    cli.main(["score", str(fine), "--strict"])
    assert capsys.readouterr().err == ""
