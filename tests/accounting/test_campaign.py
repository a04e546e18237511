"""Fifteen random specs per scheme against an independent referee; `make soak` runs a thousand."""

from __future__ import annotations

import pytest

from tests.accounting.campaign import SCHEMES, run_campaign


@pytest.mark.parametrize("scheme", list(SCHEMES))
def test_random_specs_agree_with_the_referee(scheme: str) -> None:
    outcome = run_campaign(scheme, 15)
    assert outcome.violations == []
    assert outcome.unbounded == 0
    assert outcome.upper_bounds_checked == 15
    assert outcome.lower_bounds_checked > 7
