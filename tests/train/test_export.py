"""A run to give away says what the run said."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from simuljax.errors import SimuljaxError
from simuljax.models.parameters import by_path
from simuljax.models.tensor_file import read_tensors
from simuljax.models.tensor_file import stored as stored_as
from simuljax.serve.run_translator import load_run
from simuljax.train.run import Export, export, find_params, load_checkpoint, open_run
from tests.written_runs import UPDATES, WORDS, write_run

LINE = " ".join(WORDS[:9])


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return write_run(tmp_path_factory.mktemp("runs") / "mt", speech=None)


def params(directory):
    loaded = load_checkpoint(open_run(directory))
    assert loaded.steps == (UPDATES,)
    return loaded.params


def stored(directory):
    """The types of parameters on the disk."""
    tensors, _ = read_tensors(params_of(directory))
    return {str(tensor.dtype) for tensor in tensors.values()}


def test_it_translates_as_the_run_does(run, tmp_path):
    to = export(Export(run=run, to=tmp_path / "given", checkpoint="averaged"))
    jax.tree.map(np.testing.assert_array_equal, params(to), params(run))
    assert load_run(to).translate_text(LINE) == load_run(run).translate_text(LINE)


def test_bfloat16_is_rounded_and_kept_so(run, tmp_path):
    wide, narrow = (
        export(Export(run=run, to=tmp_path / dtype, dtype=dtype))
        for dtype in ("float32", "bfloat16")
    )
    rounded = jax.tree.map(lambda p: p.astype(jnp.bfloat16).astype(jnp.float32), params(run))
    jax.tree.map(np.testing.assert_array_equal, params(narrow), rounded)
    assert {leaf.dtype for leaf in jax.tree.leaves(params(narrow))} == {jnp.dtype("float32")}
    assert (stored(wide), stored(narrow)) == ({"float32"}, {"bfloat16"})


@pytest.mark.parametrize(("dtype", "levels"), [("int8", 127), ("int7", 63)])
def test_whole_numbers_are_within_half_a_level(run, tmp_path, dtype, levels):
    narrow = export(Export(run=run, to=tmp_path / "narrow", dtype=dtype))
    assert stored(narrow) == {"int8", "float32"}
    for name, (was, now) in pairs(params(run), params(narrow)).items():
        inputs = {"kernel": -2, "embedding": -1}.get(name.split("/")[-1])
        if inputs is None:
            np.testing.assert_array_equal(now, was)
        else:
            level = np.abs(was).max(inputs, keepdims=True) / levels
            assert (np.abs(now - was) <= level * 0.5001).all(), name
            assert np.abs(now - was).max() > 0, "nothing was rounded"


def test_what_is_rounded_more_is_smaller(run, tmp_path):
    sizes = [
        params_of(export(Export(run=run, to=tmp_path / dtype, dtype=dtype))).stat().st_size
        for dtype in ("float32", "bfloat16", "int8", "int7")
    ]
    assert sizes[0] > 1.5 * sizes[1] > 1.5 * sizes[2] > 1.5 * sizes[3]


def params_of(directory):
    path = find_params(directory)
    assert path is not None
    return path


def pairs(one, other):
    one, other = (by_path(jax.tree.map(np.asarray, tree)) for tree in (one, other))
    assert one.keys() == other.keys()
    return {name: (one[name], other[name]) for name in one}


def test_channels_of_zeros_stay_zeros():
    kernel = np.zeros((3, 4, 2), np.float32)
    kernel[0, :, 1] = [1, -2, 3, 0]
    held = stored_as("params/x/kernel", kernel, "int8")
    product = held["params/x/kernel"] * held["params/x/kernel:scale"]
    np.testing.assert_allclose(product, kernel, atol=3 / 254)
    assert (product[1:] == 0).all() and (product[..., 0] == 0).all()
    assert held["params/x/kernel"][0, 2, 1] == 127


@pytest.mark.parametrize(("rows", "dtype"), [(1500, "float16"), (15, "float32")])
def test_other_large_parameters_are_float16(rows, dtype):
    (kept,) = stored_as("params/positions", np.ones((rows, 384), np.float32), "int8").values()
    assert kept.dtype == dtype


@pytest.mark.parametrize(("dtype", "place"), [("int8", 4), ("int8", -9), ("int7", 40)])
def test_damage_is_noticed(run, tmp_path, dtype, place):
    file = params_of(export(Export(run=run, to=tmp_path / "given", dtype=dtype)))
    whole = bytearray(file.read_bytes())
    whole[place] ^= 1
    file.write_bytes(whole)
    with pytest.raises(SimuljaxError, match=str(file)):
        params(file.parent)
