"""Rules of one step against Arb's own rigorous integration on the real axis, and their envelopes against values."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from epsilond_verifier.bounds import CannotCheck, normal_density
from epsilond_verifier.laws import Atoms, FixedSize, Laplace, Poisson
from epsilond_verifier.rules import Rule
from flint import acb, arb, ctx

from accounting.certificates.nodes import SampledStep
from tests.clients.verifier.cases import above, line, panels, transform


@contextmanager
def precision(bits: int) -> Iterator[None]:
    before = ctx.prec
    ctx.prec = bits
    try:
        yield
    finally:
        ctx.prec = before


def _integral(law: Poisson | FixedSize, direction: str, z: acb, reach: float) -> acb:
    """Return M(z) on the real axis; beyond ``reach`` the integrand is nothing."""

    def powers(x: acb) -> acb:
        log_f = law.f(x).log()
        if isinstance(law, FixedSize):
            return ((z + 1) * log_f).exp() + (-z * log_f).exp() - law.f(x) - 1
        if direction == "add":
            return (-z * log_f).exp()
        return ((z + 1) * log_f - (z * law.f(-x).log() if law.replace else 0)).exp()

    low = 0.5 if isinstance(law, FixedSize) else -reach
    found = acb.integral(lambda x, _: normal_density(x, law.s) * powers(x), acb(low), acb(reach))
    return found + 1 if isinstance(law, FixedSize) else found


def _rule(kind: str, s: float, q: float, c: float, digits: float) -> tuple[Poisson | FixedSize, str, Rule]:
    chosen = SampledStep.of_one(kind, s, q)
    angle = chosen.steepest(c, 12.0)
    moment = 0.0 if kind == "add" else _log_moment(kind, s, q, c)
    if kind == "fixed_size":
        law: Poisson | FixedSize = FixedSize.of_one(arb(s), arb(q))
    else:
        law = Poisson.of_one(arb(s), arb(q), kind == "replace")
    direction = kind if kind in ("add", "remove") else "both"
    found = transform(law, direction, c, chosen.nodes(angle, c, digits, moment))
    assert isinstance(found, Rule)
    return law, direction, found


def _log_moment(kind: str, s: float, q: float, c: float) -> float:
    made = FixedSize if kind == "fixed_size" else Poisson
    law = made.of_one(arb(s), arb(q), kind == "replace")
    return float(_integral(law, kind, acb(c), 14 * s + c + 1).real.log().mid())


@pytest.mark.parametrize("kind", ["remove", "add", "replace", "fixed_size"])
@pytest.mark.one_in(4)
def test_every_value_is_within_the_error_and_below_the_envelope(kind: str) -> None:
    rng = random.Random(kind)
    tightest = 0.0
    with precision(140):
        for _ in range(3 if kind == "fixed_size" else 8):
            s, q = math.exp(rng.uniform(-0.7, 1.5)), math.exp(rng.uniform(-7, -0.5))
            c, digits = math.exp(rng.uniform(-0.7, 2.7)), rng.uniform(6, 40)
            law, direction, rule = _rule(kind, s, q, c, digits)
            for t in (math.exp(rng.uniform(-3, 3.5)) for _ in range(4)):
                truth = _integral(law, direction, acb(c, t), 16 * s + 2 * c + 2)
                value = rule.on_line(arb(t), 2)[1]
                assert value.overlaps(truth), (s, q, c, t)
                bare = Rule(rule.constant, rule.weights, rule.losses, arb(0)).on_line(arb(t), 2)[1]
                distance = abs(bare - truth)
                assert not distance > rule.error
                tightest = max(tightest, float(distance.mid()) / float(rule.error.mid()))
                for share in (0.3, 1.0):
                    assert not abs(truth) > rule.envelope(arb(share * t))
            assert not _integral(law, direction, acb(c), 16 * s + 2 * c + 2).real > rule.moment()
    # The errors are no idle promise: some value is far from its rule.
    assert 1e-6 < tightest <= 1.0


@pytest.mark.parametrize("kind", ["remove", "add", "replace"])
def test_nodes_that_are_left_out_are_in_the_error(kind: str) -> None:
    """The nodes end where the integrand is still large, at one end or the other, so that the tails are all there is."""
    law, direction = Poisson.of_one(arb(1), arb(0.2), kind == "replace"), kind if kind != "replace" else "both"
    largest = 0.0
    with precision(120):
        for low, high in ((-120, 60), (-30, 120), (-40, 70)):
            rule = transform(law, direction, 1.0, line(0.6, 0.05, low, high))
            assert isinstance(rule, Rule)
            bare = Rule(rule.constant, rule.weights, rule.losses, arb(0))
            for t in (0.0, 0.4, 2.0):
                distance = abs(bare.on_line(arb(t), 2)[1] - _integral(law, direction, acb(1, t), 30.0))
                assert distance < rule.error
                largest = max(largest, float(distance.mid()) / float(rule.error.mid()))
    assert largest > 0.05


def test_panels_that_are_too_few_are_in_the_error() -> None:
    law = FixedSize.of_one(arb(1), arb(0.2))
    with precision(120):
        for place in (
            panels(0.8, 12.0, 3, 4, 40, 24),
            panels(0.8, 12.0, 12, 24, 40, 3),
            panels(0.8, 12.0, 12, 24, 1, 24),
            panels(0.8, 12.0, 12, 24, 0, 24, 3),
        ):
            rule = transform(law, "both", 1.0, place)
            assert isinstance(rule, Rule)
            bare = Rule(rule.constant, rule.weights, rule.losses, arb(0))
            for t in (0.5, 3.0):
                distance = abs(bare.on_line(arb(t), 2)[1] - _integral(law, "both", acb(1, t), 30.0))
                assert distance < rule.error_at(arb(t))
                assert distance > 1e-5 * rule.error_at(arb(t))


@pytest.mark.thorough
def test_the_error_of_a_last_panel_grows_with_t_and_is_that_of_the_last_point_on_a_line() -> None:
    """Where the rest of the way is too long for t, only the growth is above the distance."""
    law, place = FixedSize.of_one(arb(1), arb(0.2)), panels(0.8, 12.0, 12, 30, 0, 24, 10)
    with precision(160):
        rule = transform(law, "both", 1.0, place)
        assert isinstance(rule, Rule)
        bare = Rule(rule.constant, rule.weights, rule.losses, arb(0))
        exceeded = False
        for t in (1.0, 10.0, 60.0, 120.0):
            truth = _integral(law, "both", acb(1, t), 30.0)
            distance = abs(bare.on_line(arb(t), 2)[1] - truth)
            assert distance < rule.error_at(arb(t))
            exceeded = exceeded or distance > rule.error_at(arb(0))
            assert rule.on_line(arb(t), 2)[1].overlaps(truth)
            assert rule.on_line(arb(t) / 4, 8)[1].rad() >= rule.error_at(arb(2 * t)) * 0.99
        assert exceeded
        assert str(rule.envelope(arb(50))) == str(rule.moment())
        # Its moment is one at t = 0.
        truth = _integral(law, "both", acb(1), 30.0)
        assert rule.moment() > abs(truth)
        assert rule.moment() - abs(truth) < 3 * rule.error_at(arb(0))


PANELS = panels(0.8, 12.0, 12, 24, 40, 24)


@pytest.mark.parametrize(
    ("place", "width", "nodes"),
    [
        (0.9, 0.05, line(0.06, 0.01, -1000, 1100)),
        (0.5, 0.3, line(0.35, 0.05, -200, 220)),
        # Here all of remove's law is above the cut, so that what it has at x < 1/2 is all that the bound is made of.
        (-6.0, 0.2, line(0.25, 0.04, -250, 275)),
    ],
)
@pytest.mark.one_in(3)
def test_an_envelope_above_a_cut_is_above_every_value_wherever_the_cut_is(
    place: float, width: float, nodes: dict[str, float]
) -> None:
    law = FixedSize.of_one(arb(1), arb(0.2))
    with precision(120):
        rule = transform(law, "both", 1.0, {**PANELS, "envelope": {**nodes, "place": place, "width": width}})
        assert isinstance(rule, Rule)
        for t in (0.0, 0.5, 2.0, 8.0, 30.0, 200.0):
            for later in (1.0, 1.7):
                truth = _integral(law, "both", acb(1, later * t), 20.0)
                assert abs(truth) < rule.envelope(arb(t)) + arb("1e-12")


def test_what_is_left_out_above_a_cut_has_the_errors_of_both_rules_and_what_is_before_a_half_twice() -> None:
    law, few = FixedSize.of_one(arb(1), arb(0.2)), panels(0.8, 12.0, 3, 6, 40, 24)
    nodes = line(0.35, 0.25, -40, 45)
    with precision(120):
        whole, share = transform(law, "both", 1.0, few), above(law, nodes, 0.9, 0.3).rule(arb(1))
        found = transform(law, "both", 1.0, {**few, "envelope": {**nodes, "place": 0.9, "width": 0.3}})
        assert isinstance(whole, Rule)
        assert isinstance(found, Rule)
        assert found.coarse is not None
        before = found.coarse[1] - abs(whole.at_zero() - share.at_zero()) - whole.error - share.error
        assert min(float(whole.error.mid()), float(share.error.mid())) > 1e-9
        # P(N(0.5, 0.3) > 0.9) twice.
        assert abs(before - 2 * arb("0.091211219725867876")) < arb("1e-15")


@pytest.mark.parametrize(("nodes", "least"), [(line(0.6, 0.198, -60, 80), -17), (line(0.2, 0.03, -400, 540), None)])
def test_a_share_errs_by_as_much_as_it_grows_beside_the_axis(nodes: dict[str, float], least: int | None) -> None:
    """Three widths above, e^18 of growth is all that is between the error and that of the whole law; at one, little."""
    with precision(120):
        law, width = Poisson.of_one(arb(1), arb(0.2)), arb(0.2)
        rule = above(law, nodes, 1.0, 0.2).rule(arb(1))
        bare = Rule(rule.constant, rule.weights, rule.losses, arb(0))
        for t in (0.5, 3.0):
            power = acb(2, t)

            def share(x: acb, _: bool, z: acb = power) -> acb:
                kept = ((1 - x) / (width * arb(2).sqrt())).erfc() / 2
                return normal_density(x, law.s) * (z * law.f(x).log()).exp() * kept

            distance = abs(bare.on_line(arb(t), 2)[1] - acb.integral(share, acb(-12), acb(16)))
            assert distance < rule.error
            assert least is None or distance > arb(least).exp() * rule.moment()


@pytest.mark.thorough
def test_an_envelope_above_a_cut_falls_where_that_of_the_panels_is_the_moment() -> None:
    """916370 such steps are below e^-35 from there on."""
    law = FixedSize.of_one(arb(0.96), arb(1.9e-5))
    level = panels(0.836, 12.5, 8, 39, 49, 31)
    cut = {**line(0.0133, 0.00343, -1891, 2712), "place": 1.72, "width": 0.147}
    with precision(144):
        alone, rule = transform(law, "both", 8.3, level), transform(law, "both", 8.3, {**level, "envelope": cut})
        assert alone.envelope(arb(1335)).overlaps(alone.moment())
        assert (rule.envelope(arb(1335)) / rule.moment()) ** 916_370 < arb(-35).exp()


def test_points_of_a_line_agree_with_each_by_itself() -> None:
    with precision(140):
        _, _, rule = _rule("remove", 1.0, 0.1, 3.0, 30.0)
        together = rule.on_line(arb(0.37), 50)
        for k in (0, 1, 7, 8, 48, 49):
            alone = rule.constant + sum(
                (
                    w * (acb(0, 1) * k * arb(0.37) * loss).exp()
                    for w, loss in zip(rule.weights, rule.losses, strict=True)
                ),
                acb(0),
            )
            assert together[k].overlaps(alone)
            assert abs(together[k] - alone).upper() < 2.1 * rule.error.upper() + arb(1e-30)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"angle": 1.58}, "the angle is below pi/2"),
        ({"spacing": 100.0}, "the spacing of the nodes is small enough"),
        ({"high": 2}, "the nodes extend beyond the peak"),
    ],
)
def test_nodes_for_which_the_theorem_does_not_hold_are_refused(change: dict[str, float], reason: str) -> None:
    numbers: dict[str, float] = {"angle": 0.8, "spacing": 0.1, "low": -90, "high": 150, **change}
    with precision(100), pytest.raises(CannotCheck, match=reason):
        transform(Poisson.of_one(arb(1), arb(0.1), False), "remove", 3.0, numbers)


def test_laplace_noise_and_atoms_have_their_transforms() -> None:
    """The values are integrals over the loss; the envelopes are above and fall."""
    with precision(120):
        lam, c = arb(0.7), 1.3
        laplace = transform(Laplace(lam), "both", c, {})
        for k, value in enumerate(laplace.on_line(arb(0.9), 40)):
            z = acb(arb(c), k * arb(0.9))
            # Under P the loss is lam with mass 1/2, -lam with mass e^-lam / 2, and has the density e^((l-lam)/2) / 4.
            between = acb.integral(lambda x, _, z=z: (z * x + (x - lam) / 2).exp() / 4, acb(-lam), acb(lam))
            assert value.overlaps((z * lam).exp() / 2 + (-lam - z * lam).exp() / 2 + between)
            assert not abs(value) > laplace.envelope(k * arb(0.9))
            assert not abs(value) > laplace.envelope(k * arb(0.4))
        outcomes = ((arb(3) / 4, arb(3).log()), (arb(1) / 4, -arb(3).log()))
        atoms = transform(Atoms(outcomes, outcomes), "both", 1.0, {})
        assert atoms.moment().overlaps(arb(9) / 4 + arb(1) / 12)
