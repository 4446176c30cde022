"""Terms: names, options and schedules are checked before anything is compiled."""

import math
from typing import Any

import pytest

from simuljax.config.fields import ConfigError
from simuljax.config.json import differences, from_json, to_json
from simuljax.config.training import Objective
from simuljax.losses import JointObjective, Term


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"name": "dar", "start": -1}, "Term.start is -1"),
        ({"name": "dar", "weight": math.nan}, "Term.weight is nan"),
        ({"name": "dar", "ramp": -2}, "Term.ramp is -2"),
        ({"name": "dra"}, "dar"),
        ({"name": "dar", "options": {"temprature": 2.0}}, "temperature"),
    ],
)
def test_a_term_that_cannot_be_is_refused(given: dict[str, Any], said: str):
    with pytest.raises(ConfigError, match=said):
        Term(**given)


def test_names_differ_and_options_exist():
    for wrong in ({"latency_metric": "LAG"}, {"distillation": 2.0}):
        with pytest.raises(ConfigError, match=next(iter(wrong))):
            JointObjective(**wrong)
    with pytest.raises(ConfigError, match="'kd'"):
        Objective(terms=(Term(name="kd"), Term(name="kd")))
    with pytest.raises(ConfigError, match="latency"):
        Objective().with_weights(latency=0.1)


def test_json_and_differences():
    one = Objective(terms=JointObjective().terms(latency_after="convergence"))
    assert from_json(Objective, to_json(one)) == one
    other = one.with_weights(kd=0.5)
    assert differences(to_json(one), to_json(other)) == ["terms.kd.weight was 0.2 and is 0.5"]
