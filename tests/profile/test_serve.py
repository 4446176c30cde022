"""`simuljax profile serve`: real sockets, clients in processes of their own."""

import json

import pytest

from simuljax.profile.measure import environment
from simuljax.profile.serve import ServeProfile, run, summary, table
from tests.serve.web.servers import small_run


@pytest.mark.slow
def test_speakers_of_a_run_are_timed(tmp_path):
    model = small_run(tmp_path / "small")
    report = run(
        ServeProfile(model=model, streams=3, seconds=3.0, warm_up=0.5, utterance=2.0, chunk_ms=60)
    )
    assert report["clients"] == 3 and report["refused"] == 0 and report["words"] > 5
    assert 0 < report["push_to_word_ms"]["p50"] <= report["push_to_word_ms"]["p99"]
    assert 0 < report["stepping"] <= 1 and report["steps_per_s"] > 0
    assert report["first_word_s"] > report["ready_s"] and report["loop_us_per_frame"] > 0
    assert f"of {report['clients']} speakers keep up" in table(report)


def client(reads: list[float], refused: int = 0) -> dict:
    return {"words": [], "reads": reads, "late": [1.0], "refused": refused, "read_ms": 280.0}


def test_one_keeps_up_if_its_reads_end_in_time():
    found = summary([client([50.0] * 9 + [400.0]), client([300.0] * 9 + [50.0]), client([], 2)])
    assert (found["keep_up"], found["clients"], found["refused"]) == (1, 3, 2)
    assert found["push_to_word_ms"] is None and found["push_to_read_ms"]["p50"] == 175


def test_settings_without_anything_to_measure():
    with pytest.raises(ValueError, match="streams is 0"):
        ServeProfile(streams=0)


def test_a_report_of_a_model_file_is_json(tmp_path):
    """The settings of a report hold the path of the model."""
    stored = json.dumps(environment(ServeProfile(model=tmp_path)))
    assert json.loads(stored)["config"]["model"] == str(tmp_path)
