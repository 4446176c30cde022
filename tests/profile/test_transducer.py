"""`simuljax profile transducer`: group by group the loss takes a fraction of the memory."""

import json

import pytest

from simuljax.cli.main import main

pytestmark = pytest.mark.slow  # compiles much


@pytest.mark.slow
def test_groups_take_less_than_the_whole_lattice(capsys):
    sizes = {"batch": 4, "groups": 10, "labels": 12, "vocabulary": 500, "width": 32}
    small = [word for name, n in sizes.items() for word in (f"--{name}", str(n))]
    main(["profile", "transducer", *small, "--json"])
    report = json.loads(capsys.readouterr().out)
    cost = {row["lattice"]: row for row in report["rows"]}
    assert cost["grouped"]["temp_mib"] < 0.3 * cost["whole_lattice"]["temp_mib"]
    assert cost["loss_alone"]["ms"] > 0
    assert report["logits_mib"] == pytest.approx(4 * 10 * 13 * 500 * 4 / 2**20)
