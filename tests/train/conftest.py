"""What is dear to compile, once for all tests of the loop."""

import pytest

from simuljax.train.loop import compile_update
from simuljax.train.step import CompiledUpdate
from tests.train import runs


@pytest.fixture(scope="session")
def driver() -> CompiledUpdate:
    """The compiled functions of `runs.training()`; another one would be compiled anew."""
    return compile_update(runs.MODEL, [runs.training()], runs.data())
