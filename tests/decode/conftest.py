"""Compile with little effort: these programs run a few times each."""

import jax
import pytest


@pytest.fixture(scope="module", autouse=True)
def quickly():
    jax.config.update("jax_disable_most_optimizations", True)
    yield
    jax.config.update("jax_disable_most_optimizations", False)
