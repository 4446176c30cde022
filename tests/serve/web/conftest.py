"""A small translator, and a server for it."""

import pytest

from tests.serve.web.servers import load_small, running


@pytest.fixture(scope="session")
def translator(tmp_path_factory):
    return load_small(tmp_path_factory.mktemp("runs") / "small")


@pytest.fixture(scope="module")
def live(translator):
    with running(translator) as server:
        yield server
