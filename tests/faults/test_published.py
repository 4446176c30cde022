"""The published table of reported cases names tests that exist."""

import re

from tests.fuzz.test_readers import BAD
from tests.helpers.corpora import REPOSITORY

PAGE = REPOSITORY / "experiments" / "results" / "hardening.md"


def test_every_test_that_the_table_names_exists():
    rows = [line for line in PAGE.read_text().splitlines() if line.count("|") == 5]
    tests = [row.split("|")[4] for row in rows]
    named = [found for cell in tests for found in re.findall(r"([\w/]+\.py)(?:::(\w+))?", cell)]
    assert len(named) > 25
    for path, name in named:
        text = (REPOSITORY / "tests" / path).read_text()
        assert f"def {name}(" in text or not name, (path, name)
    cases = [cell for cell in tests if "`fuzz[" in cell]
    assert {case for cell in cases for case in re.findall(r"\[(.+?)\]`", cell)} - {*BAD} <= {
        "member that expands",  # of audio in an archive
        "broken member",
    }
