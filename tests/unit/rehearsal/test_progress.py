"""How long a step has taken, in words."""

import pytest

from rehearsal.progress import _clock


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0.6, "1 s"), (119.4, "119 s"), (119.6, "2 min 0 s"), (150, "2 min 30 s"), (179.6, "3 min 0 s"), (3599.4, "59 min 59 s")],
)
def test_minutes_are_whole_ones_and_seconds_the_rest(seconds, words):
    assert _clock(seconds) == words
