"""The calibrator of noisy mirror descent: worked numbers, its bound, the paper's own noise, refusals."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from accounting.errors import AccountingError
from accounting.events import Event, FullBatch, ZcDp
from accounting.targets import ApproximateDpTarget, ZcdpTarget
from calibrators.as_published import Verdict
from calibrators.bassily_guzman import noisy_mirror_descent as descent
from calibrators.bassily_guzman.lp_setting import LIPSCHITZ_ASSUMPTIONS, read_lp_setting
from calibrators.bassily_guzman.printed_lp_noise import printed_mirror_descent
from calibrators.phases.mirror_steps import MirrorPhase
from calibrators.provenance import Provenance
from calibrators.registry import calibrate
from calibrators.spec import Calibration, Spec, Unknown
from trainer.exact.generalized_gaussian import GeneralizedGaussianNoise
from trainer.lp_geometry import mirror_step
from trainer.streams import random_streams

RHO = 0.0243559703595
GIVEN = {"norm_order": 1.5, "lipschitz": 1.0, "radius": 1.0}


def spec(**changes: Any) -> Spec:
    return replace(Spec(10_000, ZcdpTarget(RHO), dimension=10, iterations=1000, assumptions=GIVEN), **changes)


def calibrated(**changes: Any) -> Calibration:
    return calibrate("noisy_mirror_descent", spec(**changes))


def number(items: tuple[Provenance, ...], name: str) -> float:
    [value] = [item.value for item in items if item.name == name]
    assert isinstance(value, float)
    return value


def test_noise_step_and_bound_are_the_worked_ones() -> None:
    """At rho of the (1, 1e-6) conversion; a zcdp target is solved in whole nano-units of rho."""
    found = calibrated()
    [phase] = found.plan.phases
    assert isinstance(phase, MirrorPhase)
    assert (phase.steps, phase.records, phase.noise_order) == (1000, 10_000, pytest.approx(3.0))
    assert phase.scale == pytest.approx(0.0405253969256, rel=1e-7)
    assert phase.step_size == pytest.approx(0.0396412340316, rel=1e-7)
    assert number(found.utility, "excess_risk_bound") == pytest.approx(0.0504525161453, rel=1e-7)
    assert number(found.utility, "gradient_evaluations") == 10**7
    assert found.plan.events == (phase.event,)
    assert found.plan.release.kind == "average"
    many = number(calibrated(iterations=10**7).utility, "excess_risk_bound")
    assert many == pytest.approx(0.00573115659527 + 1.0 / math.sqrt(0.5 * 10**7), rel=1e-3)


def test_the_default_step_is_the_best_and_the_bound_that_of_any() -> None:
    best = number(calibrated().utility, "excess_risk_bound")
    own = number(calibrated().hyperparameters, "step_size")
    for factor in (0.5, 0.9, 1.1, 2.0):
        found = calibrated(step_size=factor * own)
        assert number(found.utility, "excess_risk_bound") == pytest.approx(
            best * (factor + 1.0 / factor) / 2.0, rel=1e-9
        )
        assert not [item for item in found.hyperparameters if item.name == "step_size"]


@pytest.mark.parametrize(("p", "d"), [(1.5, 10), (1.2, 4), (2.0, 6), (1.05, 300)])
@pytest.mark.one_in(12)
def test_the_bound_holds_in_simulation(p: float, d: int) -> None:
    """On |<a, x> - 1/2|, whose subgradients have l_q norm 1; where r < q too."""
    setting = read_lp_setting(spec(dimension=d, assumptions=GIVEN | {"norm_order": p}), LIPSCHITZ_ASSUMPTIONS)
    scale, steps = 0.4, 60
    eta = descent.best_step_size(setting, scale, steps)
    q = p / (p - 1.0)
    a = np.arange(1.0, d + 1.0) / float(np.linalg.norm(np.arange(1.0, d + 1.0), q))
    noise, total = GeneralizedGaussianNoise(random_streams(3).noise), []
    for _ in range(20):
        x, seen = np.zeros(d), []
        for _ in range(steps):
            seen.append(x)
            g = np.sign(a @ x - 0.5) * a + scale * noise.rounded(d, setting.regularity.r, 2.0**30) / 2.0**30
            x = mirror_step(np, x, g, eta, p, 1.0)
        total.append(abs(a @ np.mean(seen, axis=0) - 0.5))
    assert np.mean(total) <= descent.excess_risk_bound(setting, scale, eta, steps)


def test_the_printed_noise_lacks_the_number_of_steps() -> None:
    setting = read_lp_setting(spec(), LIPSCHITZ_ASSUMPTIONS)
    steps, square = printed_mirror_descent(setting, 10_000, 1.0, 1e-6)
    assert steps == 22619
    assert square == pytest.approx(2.21048168927e-06, rel=1e-11)
    assert steps * square == pytest.approx(0.0499988853297, rel=1e-11)
    rho = setting.regularity.kappa * (2.0 / 10_000) ** 2 / (2.0 * square)
    assert steps * rho == pytest.approx(409.30445359, rel=1e-9)
    published = calibrated(target=ApproximateDpTarget(1.0, 1e-6)).as_published
    assert published is not None
    assert published.verdict is Verdict.UNSOUND
    assert "409.304" in published.why
    assert calibrated().as_published is None


@pytest.mark.parametrize(
    ("changes", "pointer"),
    [
        ({"iterations": None}, ("iterations",)),
        ({"batch_size": 100}, ("batch_size",)),
        ({"dimension": None}, ("dimension",)),
        ({"assumptions": GIVEN | {"smoothness": 1.0}}, ("assumptions", "smoothness")),
        ({"unknown": Unknown.BATCH_SIZE, "noise_multiplier": 1.0}, ("solve_for",)),
        ({"sampling": "poisson"}, ("sampling",)),
    ],
)
def test_what_it_cannot_do_is_refused_where_it_stands(changes: dict[str, Any], pointer: tuple[str, ...]) -> None:
    with pytest.raises(AccountingError) as refused:
        calibrated(**changes)
    assert refused.value.pointer == pointer


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"event": Event(ZcDp(1.0), FullBatch(), 2), "norm_order": 2.1}, "norm_order"),
        ({"noise_order": 5.0}, "noise_order"),
        ({"scale": 0.0}, "scale"),
        ({"records": 0}, "records"),
    ],
)
def test_phases_that_make_no_sense_are_refused(changes: dict[str, Any], message: str) -> None:
    [phase] = calibrated().plan.phases
    assert isinstance(phase, MirrorPhase)
    with pytest.raises(AccountingError, match=message):
        replace(phase, **changes)
