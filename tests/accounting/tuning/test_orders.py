"""The edge of the region of tests, beside the plain minimum of all lines."""

from __future__ import annotations

import numpy as np
import pytest

from accounting.tuning.orders import _Edge


@pytest.mark.parametrize("reach", [0.05, 1.0, 20.0, 800.0])
def test_the_edge_is_the_lowest_of_all_lines(reach: float) -> None:
    """Never below it, which would be unsound; lines may be dominated, parallel, or too steep for a number."""
    rng = np.random.default_rng(7)
    u = np.geomspace(1e-12, 1.0, 400)
    for count in (1, 2, 5, 150):
        epsilons = np.concatenate([rng.uniform(0.0, reach, count), [0.0, 0.0]])
        with np.errstate(over="ignore"):
            slopes = np.exp(epsilons)
        deltas = rng.uniform(0.9, 1.1, epsilons.size) * np.exp(-3.0 * epsilons) * rng.choice([1e-6, 0.3])
        lowest = np.minimum((slopes[:, None] * u + deltas[:, None]).min(axis=0), 1.0)
        found = _Edge(slopes, deltas)(u)
        assert np.all(found >= lowest)
        assert found == pytest.approx(lowest, rel=1e-12, abs=0.0)
