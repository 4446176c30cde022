"""Parameters from another model: what fits goes in, what does not is left and named."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from simuljax.train.transfer import Rule, transfer


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


def paths(moved: list) -> list[str]:
    return [m.path for m in moved]


def test_a_part_goes_in_and_the_rest_stays() -> None:
    own, donor = model(), model(fill=100)
    new, report = transfer(own, donor, [Rule.parse("speech/")])
    assert same(new["speech"], donor["speech"])
    assert same(new["decoder"], own["decoder"]) and same(new["speech_like"], own["speech_like"])
    assert not same(own["speech"], donor["speech"])  # what was given is not changed
    assert paths(report["transferred"]) == [
        "speech/above/layer/attention/kernel",
        "speech/subsampling/kernel",
    ]
    left = ["decoder/embedding/embedding", "decoder/layer/cross/heads/query/kernel"]
    assert paths(report["unused"]) == paths(report["no_rule"]) == [*left, "speech_like/bias"]
    assert not report["wrong_shape"] and not report["missing"]


def test_everything_goes_in_with_the_empty_rule_and_outlives_the_donor() -> None:
    donor = model(fill=5)
    new, report = transfer(model(), donor, [Rule(into="", source="")])
    jax.tree.map(lambda leaf: leaf.delete(), donor)
    assert same(new, model(fill=5)) and not report["unused"]


def test_one_part_feeds_several() -> None:
    own, donor = model(), model(fill=9)
    query = donor["decoder"]["layer"]["cross"]["heads"]["query"]
    own["decoder"]["layer"]["cross"]["decide_query"] = jax.tree.map(jnp.zeros_like, query)
    rules = [
        Rule.parse("decoder"),
        Rule.parse("decoder/layer/cross/decide_query <- decoder/layer/cross/heads/query"),
    ]
    for order in (rules, rules[::-1]):
        new, report = transfer(own, donor, order)
        assert same(new["decoder"]["layer"]["cross"]["heads"]["query"], query)
        assert same(new["decoder"]["layer"]["cross"]["decide_query"], query)
        assert len(report["transferred"]) == 3
    _, alone = transfer(own, donor, rules[:1])  # without the second rule there is no donor for it
    assert paths(alone["missing"]) == ["decoder/layer/cross/decide_query/kernel"]


def test_a_deeper_donor_gives_its_first_layers_and_a_shallower_none() -> None:
    new, report = transfer(model(layers=2), model(layers=5, fill=3), [Rule.parse("speech")])
    kernel = new["speech"]["above"]["layer"]["attention"]["kernel"]
    donor = model(layers=5, fill=3)["speech"]["above"]["layer"]["attention"]["kernel"]
    np.testing.assert_array_equal(kernel, donor[:2])
    assert "the first 2 of 5 layers" in [m.note for m in report["transferred"]]
    own = model(layers=5)
    new, report = transfer(own, model(layers=2, fill=3), [Rule.parse("decoder/layer")])
    assert same(new, own)
    assert [m.note for m in report["wrong_shape"]] == ["the donor has 2 layers, 5 are wanted"]
    own, flat = {"a": {"kernel": jnp.zeros((2, 4))}}, {"a": {"kernel": jnp.ones((3, 4))}}
    new, report = transfer(own, flat, [Rule.parse("a")])  # an axis that is no stack is not cut
    assert same(new, own) and len(report["wrong_shape"]) == 1


def test_another_vocabulary_is_left_and_named() -> None:
    own = model(vocabulary=7)
    new, report = transfer(own, model(vocabulary=9, fill=3), [Rule.parse("decoder")])
    assert same(new["decoder"]["embedding"], own["decoder"]["embedding"])
    (left,) = report["wrong_shape"]
    assert left.path == "decoder/embedding/embedding"
    assert left.note == "[9, 4] in the donor, [7, 4] here, another vocabulary"
    assert len(report["transferred"]) == 1
    assert "decoder/embedding/embedding" in paths(report["unused"])


def test_dtype_devices_and_structure_are_those_of_the_model() -> None:
    own = {"a": jnp.zeros(3, jnp.bfloat16), "none": {}}
    own = jax.device_put(own, jax.devices()[2])
    new, _ = transfer(own, {"a": np.ones(3, np.float32)}, [Rule.parse("a")])
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
        transfer(model(), model(), [Rule.parse(rule) for rule in rules])


def test_the_report_is_a_short_table() -> None:
    _, report = transfer(model(), model(layers=1), [Rule.parse("speech"), Rule.parse("decoder")])
    lines = str(report).splitlines()
    assert len(lines) == 5 and lines[0].startswith("transferred            2  ")
    assert "the donor has 1 layers, 2 are wanted" in lines[1]
    assert lines[2] == "left: not in donor     0"
