"""The docs' page of settings is what the declarations say, and so is the help of commands."""

from pathlib import Path

import pytest

from simuljax.cli import main as cli
from simuljax.config.reference import reference

DOCS = Path(__file__).parents[2] / "docs"
FILE = """
from pathlib import Path
from tests.helpers.experiments import experiment
EXPERIMENT = experiment(Path("corpus"), Path("run"))
"""


def test_the_page_is_up_to_date():
    """Run `python -m simuljax.config.reference > docs/reference.md` after a change."""
    assert (DOCS / "reference.md").read_text() == reference()


def test_the_help_of_train_says_what_fields_are(tmp_path, capsys):
    (tmp_path / "one.py").write_text(FILE)
    with pytest.raises(SystemExit):
        cli.main(["train", str(tmp_path / "one.py"), "--help"])
    shown = " ".join(capsys.readouterr().out.replace("│", " ").split())
    assert "Rate at the end of the warm-up. (above 0 and at most 100)" in shown
    assert "Updates between log lines. (at least 1)" in shown


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("--training.optimiser.learning-rate", "nan"),
        ("--training.updates", "-5"),
        ("--training.objective.wave-augment.reverb", "1.5"),
        ("--training.log-every", "0"),
        ("--model.decoder-layers", "0"),
        ("--model.width.dropout", "1"),
    ],
)
def test_train_refuses_a_value_out_of_range(tmp_path, capsys, option, value):
    (tmp_path / "one.py").write_text(FILE)
    with pytest.raises(SystemExit) as refused:
        cli.main(["train", str(tmp_path / "one.py"), option, value])
    assert refused.value.code == 2
    field = option.rpartition(".")[2].replace("-", "_")
    assert f".{field} is " in " ".join(capsys.readouterr().err.replace("│", " ").split())


def test_the_help_of_evaluate_has_the_options_of_the_policy(capsys):
    with pytest.raises(SystemExit):
        cli.main(["evaluate", "--policy", "edatt", "--help"])
    shown = capsys.readouterr().out
    assert "--alpha" in shown and "--last-frames" in shown and "--first-ms" not in shown
