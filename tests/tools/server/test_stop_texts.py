from __future__ import annotations

import pytest

from kerasformer.tools.server.stop_texts import StopTexts


@pytest.mark.parametrize(
    ("pieces", "stops", "passed", "found"),
    [
        (["ab", "cd"], (), ["ab", "cd", ""], False),
        (["a", "bc", "d"], ("bc",), ["a", "", ""], True),
        (["a", "b", "cd"], ("bc",), ["a", "", "", ""], True),
        (["a", "b", "xd"], ("bc",), ["a", "", "bxd", ""], False),
        (["aab"], ("aac",), ["aab"], False),
        (["aa", "a", "b"], ("aab",), ["", "a", "", ""], True),
        (["x ab"], ("b", "ab"), ["x "], True),
        (["end"], ("d!",), ["en", "d"], False),
    ],
)
def test_a_text_up_to_a_stop_sequence(pieces, stops, passed, found):
    filtered = StopTexts(stops)
    received = [*map(filtered.put, pieces), filtered.end()]
    assert received[: len(passed)] == passed and "".join(received) == "".join(passed)
    assert filtered.found == found
