"""`simuljax profile start-up`: what is measured, beside what."""

import sys

import pytest

from simuljax.profile.start_up import StartUpProfile, cpu_seconds, run, table


@pytest.mark.slow
def test_every_command_has_a_ratio_to_import_jax():
    report = run(StartUpProfile(repeats=1))
    first, *others = report["rows"]
    assert first["ratio"] == 1 and len(others) == 3
    for row in others:
        assert row["ratio"] == pytest.approx(row["cpu_s"] / first["cpu_s"])
        assert row["command"] in table(report)


def test_the_time_is_that_of_the_child():
    busy = "import time\nwhile time.process_time() < 0.3: pass"
    assert 0.3 <= cpu_seconds([sys.executable, "-c", busy]) < 1
    assert cpu_seconds([sys.executable, "-c", "import time; time.sleep(0.5)"]) < 0.3


def test_no_repeats_are_refused():
    with pytest.raises(ValueError, match="repeats is 0"):
        StartUpProfile(repeats=0)
