"""A small translator, and a server for it."""

import pytest

import simuljax
from tests.serve.web.servers import running, small_run


@pytest.fixture(scope="session")
def translator(tmp_path_factory):
    return simuljax.load(small_run(tmp_path_factory.mktemp("runs") / "small"))


@pytest.fixture(scope="module")
def live(translator):
    with running(translator) as server:
        yield server
