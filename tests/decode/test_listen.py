"""What can be decided while the source is live, at words: only what later sound cannot change."""

import jax.numpy as jnp
import numpy as np

from simuljax.decode.state import encode_speech
from tests.decode import small
from tests.oracles import decisions

SIZE = 12  # states


def test_only_a_real_end_triggers_without_a_new_word():
    model = small.translator(kind="words")
    variables, random = small.parameters(model), np.random.default_rng(0)
    features = jnp.asarray(random.normal(size=(SIZE, 4 * SIZE, small.FEATURES)), jnp.float32)
    of_states = np.cumsum(random.random((SIZE, SIZE)) < 0.4, 1)
    labels, lengths = jnp.repeat(of_states, 4, axis=1), jnp.arange(1, SIZE + 1)

    @small.fast
    def hear(variables, ended):
        return encode_speech(model, variables, features, 4 * lengths, ended, labels).progress

    for live in (True, False):
        heard = hear(variables, jnp.full(SIZE, not live))
        for row, length in enumerate(lengths.tolist()):
            triggers = decisions.label_triggers(of_states[row], length)
            if live:  # the last state counts if it would with another one after it
                longer = decisions.label_triggers(np.append(of_states[row], 99), length + 1)
                triggers = longer[:SIZE] & triggers
            ends = np.asarray(heard.ends[row, : heard.count[row]])
            np.testing.assert_array_equal(ends, np.flatnonzero(triggers))
