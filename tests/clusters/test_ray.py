"""A grid as tasks of Ray on two nodes of this machine; one of them dies."""

import importlib
import json
import subprocess
import time

import pytest

from simuljax.ablate.launchers import simuljax_command
from tests.helpers.grids import REPOSITORY, environment, spoken_corpus

pytestmark = pytest.mark.slow
PATIENCE_S = 900


def test_a_grid_on_two_nodes_of_which_one_dies(tmp_path):
    pytest.importorskip("ray", reason="needs `pip install 'simuljax[ray]'`")
    library = importlib.import_module("ray.cluster_utils")
    corpus = spoken_corpus(tmp_path / "data" / "phrasebook")
    cluster = library.Cluster(initialize_head=True, head_node_args={"num_cpus": 0})
    nodes = [cluster.add_node(num_cpus=1) for _ in range(2)]
    places = {"SIMULJAX_DATA": str(corpus.parent), "SIMULJAX_RUNS": str(tmp_path / "runs")}
    variables = environment(RAY_ADDRESS=cluster.address, **places)
    command = simuljax_command("ablate", str(REPOSITORY / "tests/clusters/grid.py"))
    command += ["--engine", "ray", "--gpus", "0", "--cpus", "1", "--workers", "2"]
    log = tmp_path / "grid.log"
    try:
        with log.open("w") as out:
            grid = subprocess.Popen(command, env=variables, stdout=out, stderr=out)
        deadline = time.monotonic() + PATIENCE_S
        while len(list((tmp_path / "runs").glob("*/metrics.jsonl"))) < 2:  # one on each node
            assert grid.poll() is None and time.monotonic() < deadline, log.read_text()
            time.sleep(0.1)
        cluster.remove_node(nodes[1], allow_graceful=False)
        status = grid.wait(PATIENCE_S)
        print(log.read_text())
        assert status == 1
        ended = list((tmp_path / "runs").glob("*/ended.json"))
        assert len(ended) == 1  # that of the other node
        before = ended[0].stat().st_mtime_ns
        cluster.add_node(num_cpus=1)
        done = subprocess.run(command, env=variables, capture_output=True, text=True)
        print(done.stdout, done.stderr)
        assert done.returncode == 0
        assert ended[0].stat().st_mtime_ns == before  # not trained again
    finally:
        cluster.shutdown()
    runs = [json.loads(p.read_text()) for p in (tmp_path / "runs").glob("*/ended.json")]
    assert [run["step"] for run in runs] == [200, 200]
    assert (tmp_path / "runs" / "summary" / "index.html").exists()
