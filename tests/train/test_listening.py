"""Heavier latency weights make a translator quicker; and it is the audio that it translates.

The latency term is DAL in states, summed over sentences and divided by tokens: with 5 tokens to a
sentence, a state (40 ms) less for every token is worth lambda / 5 of a nat per token, .01 for .05.
That is little beside what it costs to guess one of 12 words, so a translator gets quicker as far
as it still hears the word it writes, and no further: 3 states of lag, and 1 for windows of 2. Both
weights come near that, .1 nearer, by less than one look at a training tells from chance (.1 states,
4 ms): hence the mean of several.
"""

import itertools
from dataclasses import dataclass

import numpy as np
import pytest

from simuljax.train.step import CompiledUpdate, TrainState
from tests.train import listening
from tests.train.listening import Delay, held_out

pytestmark = pytest.mark.slow
LAMBDAS = (0.0, 0.05, 0.1)
PLAIN = 500  # updates
LOOKS, BETWEEN = 6, 100  # at the delays of the second phase, and updates between them


@dataclass(frozen=True, kw_only=True)
class Trained:
    driver: CompiledUpdate
    state: TrainState
    seed: int


@pytest.fixture(scope="module")
def driver() -> CompiledUpdate:
    return listening.driver()


@pytest.fixture(scope="module", params=[0, 1], ids="seed {}".format)
def trained(driver, request) -> Trained:
    """Without a latency term, as the first of two phases."""
    seed = request.param
    state = listening.train(driver, listening.first(driver, seed), PLAIN, seed=seed)
    return Trained(driver=driver, state=state, seed=seed)


def test_delays_fall_as_lambda_grows(trained):
    """The mean delay that training expects, and that of the decisions of streams."""
    delays = [lagging(trained, weight) for weight in LAMBDAS]
    for weight, delay in zip(LAMBDAS, delays, strict=True):
        print(f"seed {trained.seed}  lambda {weight:.2f}  {delay}")
    for slower, quicker in itertools.pairwise(delays):
        assert quicker.expected < 0.97 * slower.expected
        assert quicker.decided < 0.99 * slower.decided
        assert quicker.accuracy > 0.9  # not by guessing
    assert delays[1].expected < 0.9 * delays[0].expected
    assert delays[1].decided < 0.95 * delays[0].decided


def lagging(trained: Trained, weight: float) -> Delay:
    """The mean of several looks at a training that is the same but for the weight."""
    state, looks = trained.state, []
    for number in range(LOOKS):
        seed = 100 * trained.seed + 10 + number
        state = listening.train(trained.driver, state, BETWEEN, latency=weight, seed=seed)
        looks.append(listening.delay(trained.driver, state))
    return listening.mean(looks)


def test_it_is_the_audio_that_is_translated(trained):
    """With that of another utterance, what is written is right no more often than by chance.

    Of 12 words 1 in 12 is right; end-of-sentence, a fifth of all tokens, comes after 3 to 5.
    """
    own = np.arange(len(held_out().index))
    scores = {
        name: listening.accuracy(
            listening.translated(trained.driver, trained.state, whose), held_out()
        )
        for name, whose in (("own", own), ("another's", np.roll(own, 1)))
    }
    print(f"seed {trained.seed}  " + "  ".join(f"{k} audio {v:.1%}" for k, v in scores.items()))
    assert scores["own"] > 0.85 and scores["another's"] < 0.2
