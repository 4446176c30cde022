"""Reading and writing instances.log."""

import gzip
import json

import numpy as np
import pytest

from simuljax.eval import Record, RecordError, read_records, record_line, write_records
from simuljax.eval.logs import (
    as_records,
    find_faults,
    find_unit,
    parse_record,
    read_archive,
    write_archive,
)
from tests.eval.logs import made_up


def test_what_is_written_is_read(tmp_path):
    log, packed = tmp_path / "instances.log", tmp_path / "log.gz"
    odd = Record(index=99, prediction="a\u2028b\x85c", delays=(1.0,), source_length=2.0)
    records = [*as_records(made_up(0)), odd]  # lines end at \n alone
    write_records(log, records)
    packed.write_bytes(gzip.compress(log.read_bytes()))
    assert read_records(log) == read_records(tmp_path) == read_records(packed) == records
    assert json.loads(log.read_text().split("\n")[3]) == made_up(0)[3]
    log.write_bytes(b"\xef\xbb\xbf" + log.read_bytes().replace(b"\n", b"\r\n"))  # of Windows
    assert read_records(log) == records
    arrays = {"prediction": "ja nein", "delays": np.array([300, 600]), "elapsed": np.ones(2)}
    record = parse_record(arrays | {"source_length": np.float32(900), "index": np.int64(3)})
    line = json.loads(record_line(record))
    assert record.delays == (300, 600) and (line["elapsed"], line["index"]) == ([1, 1], 3)


def test_the_end_of_sentence_of_simuleval_1_0_is_kept_apart():
    entry = {
        "prediction": "ja nein </s>",
        "delays": [300, 600, 900],
        "elapsed": [310, 620, 930],
        "source_length": 900,
    }
    record = parse_record(entry)
    assert record.prediction == "ja nein"
    assert record.delays == (300, 600) and record.elapsed == (310, 620)
    assert (record.end_delay, record.end_elapsed) == (900, 930)
    assert {k: v for k, v in record.as_dict().items() if k in entry} == entry
    without = parse_record({"prediction": "ja </s>", "delays": [300], "source_length": 900})
    assert without.delays == (300,) and without.end_delay is None
    alone = parse_record({"prediction": "</s>", "delays": [900], "source_length": 900})
    assert alone.delays == () and alone.end_delay == 900


def test_references_are_counted_as_simuleval_does():
    record = Record(prediction="", delays=(), source_length=1.0, reference="ein  Haus ")
    assert record.reference_length("word") == 4
    assert record.reference_length("char") == 9
    without = Record(prediction="a b", delays=(1.0, 2.0), source_length=3.0)
    assert without.reference_length("word") == 2


def test_units_and_text_sources_are_recognised():
    chinese, german, single, empty = (
        [Record(prediction=text, delays=(1.0,) * count, source_length=3.0)]
        for text, count in (("你好吗", 3), ("ja nein", 2), ("I", 1), ("", 0))
    )
    assert find_unit(chinese + empty) == "char"
    assert find_unit(german) == find_unit(single) == find_unit(empty) == "word"
    faulty, sentence = (
        [Record(prediction="你好吗", delays=(1.0,) * count, source_length=3.0)] for count in (4, 1)
    )
    assert find_unit(chinese + faulty) == find_unit(chinese * 2 + sentence) == "char"
    assert find_unit(german + faulty) == find_unit(chinese + sentence) == "word"
    for wrong in (faulty, sentence):
        assert find_faults(chinese * 2 + wrong) == {"more or fewer delays than words": 1}
    sources = (("ein Haus", 2), ("talk.wav", 2000.0), (["talk.wav"], 1))
    found = [Record(prediction="a", delays=(1,), source=s, source_length=n) for s, n in sources]
    assert [record.has_text_source for record in found] == [True, False, False]


def test_of_one_index_the_last_counts():
    first, second = made_up(0, 2)
    again = first | {"prediction": "besser", "delays": [1.0], "elapsed": [1.0]}
    assert [r.prediction for r in as_records([first, second, again])] == [
        "besser",
        second["prediction"],
    ]
    bare = {k: v for k, v in first.items() if k != "index"}
    assert len(as_records([bare, bare])) == 2


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ('{"prediction": "a", "delays": [1.0], "sou', "line 2: not JSON"),
        ("[1, 2]", "line 2: not a JSON object"),
        ('{"prediction": "a", "source_length": 3}', "line 2: delays must be a list of numbers"),
        ('{"delays": [NaN], "source_length": 3}', "line 2: delays must be a list of numbers"),
        ('{"delays": [true], "source_length": 3}', "line 2: delays must be a list of numbers"),
        ('{"prediction": 3, "delays": [], "source_length": 3}', "line 2: prediction must be"),
        ('{"prediction": "a", "delays": [1]}', "line 2: source_length must be a number"),
        ('{"index": "x", "delays": [], "source_length": 3}', "line 2: index must be a whole"),
    ],
)
def test_errors_name_file_and_line(tmp_path, line, complaint):
    log = tmp_path / "bad.log"
    log.write_text(json.dumps(made_up(0, 1)[0]) + "\n" + line + "\n")
    with pytest.raises(RecordError, match=f"bad.log, {complaint}"):
        read_records(log)


def test_files_that_are_no_logs(tmp_path):
    empty, binary, cut = tmp_path / "empty", tmp_path / "binary", tmp_path / "cut"
    empty.write_text("\n\n")
    binary.write_bytes(b"\xff\xfe\x00")
    cut.write_bytes(gzip.compress(b"{}" * 100)[:-9])
    for path, complaint in ((empty, "no records"), (binary, "UTF-8"), (cut, "damaged")):
        with pytest.raises(RecordError, match=complaint):
            read_records(path)
    with pytest.raises(FileNotFoundError):
        read_records(tmp_path / "nowhere")


def test_logs_of_an_archive(tmp_path):
    logs = {}
    for name in ("a/test", "b/test"):
        write_records(tmp_path / "x.log", as_records(made_up(len(name))))
        logs[f"{name}/instances.log"] = (tmp_path / "x.log").read_bytes()
    path = write_archive(tmp_path / "logs.tar.xz", logs)
    assert read_archive(path) == logs
    first = path.read_bytes()
    assert write_archive(path, dict(reversed(logs.items()))).read_bytes() == first
    for name in (f"{tmp_path}:a/test", f"{path}:a/test/instances.log"):
        assert read_records(name) == as_records(made_up(len("a/test")))
    with pytest.raises(RecordError, match=r"there is no 'a/tset'; do you mean 'a/test'"):
        read_records(f"{tmp_path}:a/tset")
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "logs.tar.xz").write_bytes(first[:-40])
    with pytest.raises(RecordError, match=r"logs\.tar\.xz is damaged"):
        read_records(tmp_path / "broken:a/test")
