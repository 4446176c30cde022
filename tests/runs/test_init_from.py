"""Parameters from another model: what fits goes in, what does not is left and named."""

from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from simuljax.config.fields import ConfigError
from simuljax.runs.init_from import check_rules, check_vocabularies, table, transfer

QUERY = "decoder/layer/cross/heads/query"


def model(*, layers: int = 2, vocabulary: int = 7, width: int = 4, fill: float = 0.0) -> dict:
    def array(*shape: int) -> jax.Array:
        return fill + jnp.arange(np.prod(shape), dtype="float32").reshape(shape)

    return {
        "speech": {
            "subsampling": {"kernel": array(3, width)},
            "above": {"layer": {"attention": {"kernel": array(layers, width, width)}}},
        },
        "speech_like": {"bias": array(2)},
        "decoder": {
            "embedding": {"embedding": array(vocabulary, width)},
            "layer": {"cross": {"heads": {"query": {"kernel": array(layers, width, width)}}}},
        },
    }


def same(one: dict, other: dict) -> bool:
    return all(jax.tree.leaves(jax.tree.map(lambda a, b: bool((a == b).all()), one, other)))


def test_a_part_goes_in_and_the_rest_stays() -> None:
    own, donor = model(), model(fill=100)
    new, report = transfer(own, donor, ["speech/"])
    assert same(new["speech"], donor["speech"])
    assert same(new["decoder"], own["decoder"]) and same(new["speech_like"], own["speech_like"])
    assert not same(own["speech"], donor["speech"])  # what was given is not changed
    assert report["transferred"] == [
        "speech/above/layer/attention/kernel",
        "speech/subsampling/kernel",
    ]
    left = ["decoder/embedding/embedding", f"{QUERY}/kernel", "speech_like/bias"]
    assert report["unused"] == report["no_rule"] == left
    assert not report["wrong_shape"] and not report["missing"]


def test_everything_goes_in_with_the_empty_rule_and_outlives_the_donor() -> None:
    donor = model(fill=5)
    new, report = transfer(model(), donor, [""])
    jax.tree.map(lambda leaf: leaf.delete(), donor)
    assert same(new, model(fill=5)) and not report["unused"]


def test_one_part_feeds_several() -> None:
    own, donor = model(), model(fill=9)
    query = donor["decoder"]["layer"]["cross"]["heads"]["query"]
    own["decoder"]["layer"]["cross"]["decide_query"] = jax.tree.map(jnp.zeros_like, query)
    rules = ["decoder", f"decoder/layer/cross/decide_query <- {QUERY}"]
    for order in (rules, rules[::-1]):
        new, report = transfer(own, donor, order)
        assert same(new["decoder"]["layer"]["cross"]["heads"]["query"], query)
        assert same(new["decoder"]["layer"]["cross"]["decide_query"], query)
        assert f"decoder/layer/cross/decide_query/kernel <- {QUERY}/kernel" in report["transferred"]
    _, alone = transfer(own, donor, rules[:1])  # without the second rule there is no donor for it
    assert alone["missing"] == ["decoder/layer/cross/decide_query/kernel"]


def test_a_deeper_donor_gives_its_first_layers_and_a_shallower_none() -> None:
    new, report = transfer(model(layers=2), model(layers=5, fill=3), ["speech"])
    kernel = new["speech"]["above"]["layer"]["attention"]["kernel"]
    donor = model(layers=5, fill=3)["speech"]["above"]["layer"]["attention"]["kernel"]
    np.testing.assert_array_equal(kernel, donor[:2])
    path = "speech/above/layer/attention/kernel"
    assert f"{path} (the first 2 of 5 layers)" in report["transferred"]
    own = model(layers=5)
    new, report = transfer(own, model(layers=2, fill=3), ["decoder/layer"])
    assert same(new, own)
    assert report["wrong_shape"] == [f"{QUERY}/kernel (the donor has 2 layers, 5 are wanted)"]
    own, flat = {"a": {"kernel": jnp.zeros((2, 4))}}, {"a": {"kernel": jnp.ones((3, 4))}}
    new, report = transfer(own, flat, ["a"])  # an axis that is no stack is not cut
    assert same(new, own) and len(report["wrong_shape"]) == 1


def test_another_vocabulary_is_left_and_named() -> None:
    own = model(vocabulary=7)
    new, report = transfer(own, model(vocabulary=9, fill=3, layers=1), ["decoder", "speech"])
    assert same(new["decoder"]["embedding"], own["decoder"]["embedding"])
    note = "[9, 4] in the donor, [7, 4] here, another vocabulary"
    assert f"decoder/embedding/embedding ({note})" in report["wrong_shape"]
    assert "decoder/embedding/embedding" in report["unused"]
    lines = table(report).splitlines()
    assert len(lines) == 5 and lines[0].startswith("transferred            1  ")
    assert "the donor has 1 layers, 2 are wanted" in lines[1]
    assert lines[2] == "left: not in donor     0"


def test_dtype_devices_and_structure_are_those_of_the_model() -> None:
    own = jax.device_put({"a": jnp.zeros(3, jnp.bfloat16), "none": {}}, jax.devices()[2])
    new, _ = transfer(own, {"a": np.ones(3, np.float32)}, ["a"])
    assert new["a"].dtype == jnp.bfloat16 and new["a"].devices() == {jax.devices()[2]}
    assert jax.tree.structure(new) == jax.tree.structure(own)


@pytest.mark.parametrize(
    ("rules", "words"),
    [
        (["speach/"], r"model has no parameters under 'speach'.*'speech'"),
        (["speech <- encoder"], r"donor has no parameters under 'encoder'"),
        (["speech", "speech/ <- decoder"], "Several rules fill 'speech'"),
    ],
)
def test_rules_that_cannot_be_meant(rules: list[str], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        transfer(model(), model(), rules)


def test_the_vocabulary_is_that_of_the_side_it_comes_from() -> None:
    ours, theirs, other = (SimpleNamespace(pieces=tuple(p), size=3) for p in ("abc", "xyz", "uvw"))
    init, donor = SimpleNamespace(run="donor"), SimpleNamespace(source=ours, target=theirs)
    paths = ("text/embedding/embedding", "decoder/embedding/embedding")
    rules = check_rules(["text/embedding <- decoder/embedding"], paths, paths)

    def check(source: Any) -> None:
        data: Any = SimpleNamespace(vocabularies=SimpleNamespace(source=source, target=other))
        check_vocabularies(init, rules, donor, data, paths)  # pyright: ignore[reportArgumentType]

    check(theirs)
    with pytest.raises(ConfigError, match=r"text/embedding.* from decoder/embedding.*target voc"):
        check(ours)
