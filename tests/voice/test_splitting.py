import random
import re

import pytest

from simuljax.voice.splitting import split


@pytest.mark.parametrize(
    ("text", "pieces"),
    [
        ("", []),
        ("  \n ", []),
        ("Short. And whole.", ["Short. And whole."]),
        ("One two three. Four five six.", ["One two three.", "Four five six."]),
        ('He said "go now." They left him.', ['He said "go now."', "They left him."]),
        ("A b c. D e f. G h i. J k l. M.", ["A b c. D e f. G h i.", "J k l. M."]),
        ("It is 3.5 or 4.75 and not any more", ["It is 3.5 or 4.75", "and not any more"]),
        ("one two, three four, five six seven", ["one two, three four,", "five six seven"]),
        ("x" * 45, ["x" * 20, "x" * 20, "x" * 5]),
        (
            "今日は良い天気です。明日は雨が降るでしょう。",
            ["今日は良い天気です。", "明日は雨が降るでしょう。"],
        ),
    ],
)
def test_the_best_cut(text, pieces):
    assert split(text, 20) == pieces


@pytest.mark.parametrize("seed", range(20))
def test_nothing_is_lost_and_nothing_is_too_long(seed):
    draw = random.Random(seed)
    text = "".join(draw.choices("abcde .,!?\n“”。 ", k=500))
    limit = draw.randint(1, 90)
    pieces = split(text, limit)
    assert all(0 < len(piece) <= limit for piece in pieces)
    assert re.sub(r"\s", "", "".join(pieces)) == re.sub(r"\s", "", text)
