from __future__ import annotations

import numpy as np
import pytest

from kerasformer.engines.arrays import row_lengths, similar_rows


def test_row_lengths_end_at_the_last_real_token():
    mask = np.array([[1, 1, 0, 0], [0, 1, 0, 1], [0, 0, 0, 0], [1, 1, 1, 1]])
    assert row_lengths(mask).tolist() == [2, 4, 1, 4]


@pytest.mark.parametrize(("max_rows", "max_slots"), [(1, None), (4, None), (64, None), (64, 100), (8, 5)])
def test_groups_have_little_padding(max_rows, max_slots):
    lengths = np.random.default_rng(0).integers(1, 60, 50)
    groups = similar_rows(lengths, max_rows, max_slots)
    assert sorted(np.concatenate(groups).tolist()) == list(range(50))
    for group in groups:
        slots = len(group) * lengths[group].max()
        assert len(group) <= max_rows
        assert lengths[group].sum() >= 0.9 * slots
        assert len(group) == 1 or max_slots is None or slots <= max_slots
