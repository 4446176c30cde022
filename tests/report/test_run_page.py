"""`simuljax report`: the files that it writes, and how it is called."""

import base64
import json

import pytest

from simuljax.cli.main import main
from simuljax.eval.logs import as_records, write_records
from simuljax.report import figures as pictures
from simuljax.report.collect import gather
from simuljax.report.run_page import Knowledge, Report, distinct_settings, write_report
from tests.eval.logs import made_up
from tests.report.runs import evaluation, slower, text_entries, without_clock


def test_the_page_has_the_figure_in_it(tmp_path):
    run = tmp_path / "run"
    evaluation(run, "e", made_up(0))
    page = write_report(Report(runs=(str(run),)))
    assert page == run / "report" / "index.html"
    figure = (run / "report" / "latency-quality.png").read_bytes()
    assert base64.b64encode(figure).decode() in page.read_text("utf-8")


def test_every_test_set_has_its_figure(tmp_path, monkeypatch):
    run, log, drawn = tmp_path / "run", tmp_path / "theirs.log", {}
    for name, by in (("a", 0), ("b", 500)):
        evaluation(run, name, slower(made_up(0), by), predecision_ms=by or None)
    evaluation(run, "offline", without_clock(made_up(0)), mode="offline")
    evaluation(run, "control", audio="other")
    evaluation(run, "t", text_entries(), branch="text")
    write_records(log, as_records(made_up(0)))
    save = pictures.save_figure
    monkeypatch.setattr(
        pictures,
        "save_figure",
        lambda figure, p, **keys: save(figure, drawn.setdefault(p.name, figure) and p, **keys),
    )
    page = write_report(
        Report(runs=(str(log), str(run)), out=tmp_path / "new" / "out", bucket_ms=500)
    )
    figures = [f"latency-quality-{i}.{kind}" for i in (1, 2) for kind in ("pdf", "png")]
    assert sorted(path.name for path in page.parent.iterdir()) == ["index.html", *figures]
    speech, text = (drawn[f"latency-quality-{i}.png"].axes[0] for i in (1, 2))
    assert speech.get_xlabel().startswith("AL (ms)")
    assert text.get_xlabel().startswith("AL (words)")
    legend = [each.get_text() for each in speech.get_legend().get_texts()]
    assert legend == ["run", "theirs.log", "with computation"]
    assert {"500 ms", "offline"} <= {each.get_text() for each in speech.texts}


def test_a_log_has_its_report_beside_it(tmp_path):
    log = tmp_path / "x.log"
    write_records(log, as_records(made_up(0)))
    assert (
        write_report(Report(runs=(str(log),), utterances=0)) == tmp_path / "report" / "index.html"
    )


def test_labels_leave_out_what_all_settings_share(tmp_path):
    run = tmp_path / "run"
    evaluation(run, "a", predecision_ms=320, k=1)
    assert [each.setting for each in distinct_settings(gather([run]))] == ["k=1, 320 ms"]
    evaluation(run, "b", predecision_ms=320, k=3)
    assert [each.setting for each in distinct_settings(gather([run]))] == ["k=1", "k=3"]


def test_no_point_no_figure(tmp_path):
    bare = [entry | {"reference": None} for entry in without_clock(made_up(0))]
    evaluation(tmp_path / "bare", "e", bare)
    page = write_report(Report(runs=(str(tmp_path / "bare"),)))
    assert [path.name for path in page.parent.iterdir()] == ["index.html"]
    assert "both a latency and a quality" in page.read_text("utf-8")


def test_a_run_shows_its_losses_and_its_header(tmp_path):
    run = tmp_path / "run"
    evaluation(run, "e", made_up(0))
    (run / "config.json").write_text(json.dumps({"run": "run", "training": {"seed": 7}}))
    lines = [
        {"step": s, "time": 1.8e9, "split": "train", "values": {"loss": 1 / s}} for s in (1, 2)
    ]
    (run / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    known = Knowledge(parameters_of=lambda _: 12_300_000, changed_fields=lambda _: {"lr": "0.1"})
    page = write_report(Report(runs=(str(run),)), known)
    assert (page.parent / "losses.pdf").exists()
    text = page.read_text("utf-8")
    for fact in ("12.3 M", "<dd>7</dd>", "2027-01-15", "simuljax report", "lr", "reaches"):
        assert fact in text, fact


def test_named_logs_are_a_line_and_tested(tmp_path):
    for k in (1, 3):
        write_records(tmp_path / f"k{k}.log", as_records(slower(made_up(0), 100 * k)))
    write_records(tmp_path / "x.log", as_records(made_up(0)))
    given = [f"theirs={tmp_path}/k1.log", f"theirs={tmp_path}/k3.log", f"ours={tmp_path}/x.log"]
    main(["report", *given, "--out", str(tmp_path / "out"), "--utterances", "2"])
    text = (tmp_path / "out" / "index.html").read_text("utf-8")
    assert "Report: ours, theirs" in text and "k3.log" in text and "p (Holm)" in text


def test_options_and_refusals(tmp_path, capsys):
    evaluation(tmp_path / "run", "e")
    out = tmp_path / "out"
    write_report(Report(runs=(str(tmp_path / "run"),), out=out, latency="LAAL", bucket_ms=250))
    assert "highest LAAL" in (out / "index.html").read_text("utf-8")
    for words, said in (([], "needs a run"), ([str(tmp_path / "run"), "--latency", "AP"], "AP")):
        with pytest.raises(SystemExit) as refused:
            main(["report", *words])
        assert refused.value.code == 2 and said in capsys.readouterr().err
