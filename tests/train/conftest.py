"""What is dear to compile, once for all tests of the loop."""

import pytest

from simuljax.train.drive import Driver
from simuljax.train.loop import drive
from tests.train import runs, small


@pytest.fixture(scope="session")
def driver() -> Driver:
    """The compiled functions of `runs.training()`; one by `fit` itself would be compiled anew."""
    return drive(runs.MODEL, [runs.training()], small.HEARD)
