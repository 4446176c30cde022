"""The table of results/policies is what the logs that lie there give."""

from experiments.papi2022.policies_figure import POLICIES, SYSTEMS, row, table


def test_the_table_is_that_of_the_logs():
    made = table([row(name, runs) for name, runs in SYSTEMS.items()])
    kept = (POLICIES / "table.txt").read_text().splitlines()
    assert made.splitlines() == [line for line in kept if line.startswith("|")]
