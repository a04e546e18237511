"""Fifteen random specs per scheme against an independent referee; `make soak` runs a thousand.

`make test` runs the schemes of `QUICK`, and `make test-all` the others.
"""

from __future__ import annotations

import pytest

from tests.accounting.campaign import SCHEMES, run_campaign

#: Schemes that take long for each spec.
FEW = {
    "gaussian_truncated_poisson": 5,
    "gaussian_random_allocation": 5,
    "report_noisy_max": 6,
    "group_laplace": 2,
    "group_poisson": 2,
    "group_exponential": 4,
}
#: One scheme of full batches, one of samples and one of a discrete mechanism.
QUICK = {"gaussian_full_batch", "gaussian_poisson", "exponential"}
#: Schemes that take long for any: `make soak` runs them.
LATER = {"gaussian_with_replacement", "group_fixed_size"}
#: Where something is claimed from below of half the specs alone.
SHARE_FROM_BELOW = {"generalized_gaussian": 0.25}


@pytest.mark.parametrize(
    "scheme",
    [
        pytest.param(scheme, marks=() if scheme in QUICK else pytest.mark.thorough)
        for scheme in SCHEMES
        if scheme not in LATER
    ],
)
def test_random_specs_agree_with_the_referee(scheme: str) -> None:
    specs = FEW.get(scheme, 15)
    outcome = run_campaign(scheme, specs)
    assert outcome.violations == []
    assert outcome.unbounded == 0
    assert outcome.upper_bounds_checked == specs
    assert outcome.lower_bounds_checked > SHARE_FROM_BELOW.get(scheme, 0.45) * specs
