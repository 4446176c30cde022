"""Parameters in which nothing is zero by accident, as the biases of a new model are."""

import jax
import numpy as np


def random_parameters(model, *given, seed=0, **options):
    """Normal numbers in the shapes that `model.init` would make; nothing is compiled."""
    shapes = jax.eval_shape(lambda: model.init(jax.random.key(0), *given, **options))
    random = np.random.default_rng(seed)

    def draw(path, leaf):
        middle = 1.0 if path[-1].key == "scale" else 0.0
        return (middle + 0.3 * random.normal(size=leaf.shape)).astype(np.float32)

    return jax.tree_util.tree_map_with_path(draw, shapes)
