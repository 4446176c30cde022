"""A run to give away says what the run said."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import orbax.checkpoint
import pytest

from simuljax.cli.main import main
from simuljax.serve import translator as live
from simuljax.serve.run import Export, export, load_checkpoint, open_run
from simuljax.train.checkpoint import CHECKPOINTS
from tests.written_runs import UPDATES, WORDS, write_run

LINE = " ".join(WORDS[:9])


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return write_run(tmp_path_factory.mktemp("runs") / "mt")


def params(directory):
    loaded = load_checkpoint(open_run(directory))
    assert loaded.steps == (UPDATES,)
    return loaded.params


def stored(directory):
    """The types of parameters on the disk: sizes of files vary with how they are put together."""
    at = directory / CHECKPOINTS / str(UPDATES) / "state"
    found: Any = orbax.checkpoint.PyTreeCheckpointer().metadata(at)
    return {str(leaf.dtype) for leaf in jax.tree.leaves(found.item_metadata["params"])}


@pytest.mark.parametrize("checkpoint", ["best", "averaged"])
def test_it_translates_as_the_run_does(run, tmp_path, checkpoint):
    to = export(Export(run=run, to=tmp_path / "given", checkpoint=checkpoint))
    jax.tree.map(np.testing.assert_array_equal, params(to), params(run))
    assert live.load(to).translate_text(LINE) == live.load(run).translate_text(LINE)


def test_bfloat16_is_rounded_and_kept_so(run, tmp_path):
    wide, narrow = (
        export(Export(run=run, to=tmp_path / dtype, dtype=dtype))
        for dtype in ("float32", "bfloat16")
    )
    rounded = jax.tree.map(lambda p: p.astype(jnp.bfloat16).astype(jnp.float32), params(run))
    jax.tree.map(np.testing.assert_array_equal, params(narrow), rounded)
    assert {leaf.dtype for leaf in jax.tree.leaves(params(narrow))} == {jnp.dtype("float32")}
    assert (stored(wide), stored(narrow)) == ({"float32"}, {"bfloat16"})


def test_nothing_is_overwritten(run, tmp_path, capsys):
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "something").touch()
    with pytest.raises(SystemExit) as ended:
        main(["export", str(run), "--to", str(tmp_path / "full")])
    assert ended.value.code == 2
    assert "not empty" in capsys.readouterr().err
    main(["export", str(run), "--to", str(tmp_path / "new")])
    assert "MiB" in capsys.readouterr().out


def test_what_is_no_run_is_refused(tmp_path, capsys):
    with pytest.raises(SystemExit) as ended:
        main(["export", str(tmp_path), "--to", str(tmp_path / "new")])
    assert ended.value.code == 2
    assert "is no run" in capsys.readouterr().err
    assert not (tmp_path / "new").exists()
