"""Steps with several records in a batch, batches that are cut, and noise of a drawn scale."""

from __future__ import annotations

import json
import math
import random
from fractions import Fraction
from itertools import pairwise, product

import mpmath
import pytest
from epsilond_verifier import check
from epsilond_verifier.binomials import hits, most_displaced, tail
from epsilond_verifier.bounds import CannotCheck, normal_density
from epsilond_verifier.forms import Asked, read_form
from epsilond_verifier.laws import FixedSize, Mixture, Step, read_step, without_rare
from epsilond_verifier.laws import Poisson as PoissonLaw
from epsilond_verifier.reading import Reader
from epsilond_verifier.rules import Rule
from flint import acb, arb

from accounting.accountant import epsilon_for_delta
from accounting.canonical import canonical_text, number_to_string
from accounting.certificates import AT_MOST, MORE_THAN, NoCertificate, certify
from accounting.certificates.nodes import SampledStep
from accounting.events import Event, Gaussian, GaussianMixture, Poisson, TruncatedPoisson
from accounting.groups import group_epsilon_for_delta
from tests.clients.verifier.cases import ADD, NULL, REPLACE, changed, line, mutated, numbers, transform

pytestmark = pytest.mark.usefixtures("precise")


def _law(event: Event, relation: object, group: int = 1) -> object:
    reader = Reader(json.loads(canonical_text(event.to_json())), "event")
    return read_step(reader, str(relation), group).law


# Binomial laws against exact sums.


@pytest.mark.parametrize(
    ("trials", "q", "least"), [(7, 0.25, 3), (30, 0.5, 4), (30, 0.5, 26), (5, 0.75, 5), (9, 0.5, 1)]
)
def test_a_binomial_tail_is_an_exact_sum(trials: int, q: float, least: int) -> None:
    exact = sum(
        math.comb(trials, k) * Fraction(q) ** k * (1 - Fraction(q)) ** (trials - k) for k in range(least, trials + 1)
    )
    found = tail(trials, arb(q), least)
    assert found.contains(arb(exact.numerator) / exact.denominator) or found.overlaps(
        arb(exact.numerator) / exact.denominator
    )
    assert float(found.rad()) < 1e-35
    assert tail(trials, arb(q), trials + 1) == 0


def test_a_tail_of_very_many_records_is_known() -> None:
    """mpmath's incomplete beta function has nothing in common with the sum."""
    with mpmath.workdps(40):
        exact = mpmath.betainc(1001, 10**6 - 1000, 0, mpmath.mpf(0.00090), regularized=True)
        assert abs(mpmath.mpf(tail(10**6, arb(0.00090), 1001).mid().str(35, radius=False)) / exact - 1) < 1e-25


@pytest.mark.parametrize(
    ("q", "size", "most"), [(0.125, 2, 40), (0.25, 5, 60), (0.5, 1, 9), (0.25, 5, 8), (0.0625, 1, 200)]
)
def test_the_number_of_records_that_is_cut_most_is_found(q: float, size: int, most: int) -> None:
    def displaced(n: int) -> Fraction:
        kept = sum(math.comb(n, k) * Fraction(q) ** k * (1 - Fraction(q)) ** (n - k) for k in range(size + 1, n + 1))
        return size * kept / n

    exact = max(displaced(n) for n in range(size + 1, most + 1))
    found = most_displaced(most, arb(q), size)
    assert found.overlaps(arb(exact.numerator) / exact.denominator)
    assert float(found.rad()) < 1e-30


def test_a_tail_with_too_many_terms_is_refused() -> None:
    with pytest.raises(CannotCheck, match="more terms than"):
        tail(10**13, arb(0.25), 10**13 // 4 + 1)


def test_a_number_of_records_that_is_not_known_to_be_cut_most_is_refused() -> None:
    """With a probability of so few digits, neither of two neighbouring numbers is known to be cut more."""
    assert most_displaced(200, arb(0.0625), 1) > 0
    with pytest.raises(CannotCheck, match="with the most cuts"):
        most_displaced(200, arb(0.0625, 0.03), 1)


# Theorem A for several records.


def _integral(law: PoissonLaw, direction: str, z: acb, reach: float) -> acb:
    def powers(x: acb) -> acb:
        log_f = law.f(x).log()
        if direction == "add":
            return (-z * log_f).exp()
        return ((z + 1) * log_f - (z * law.f(-x).log() if law.replace else 0)).exp()

    return acb.integral(lambda x, _: normal_density(x, law.s) * powers(x), acb(-reach), acb(reach))


@pytest.mark.parametrize("kind", ["remove", "add", "replace"])
@pytest.mark.one_in(3)
def test_every_value_is_within_the_error_and_below_the_envelope(kind: str) -> None:
    """Weights need not add up to 1: rare ones may be left out."""
    rng = random.Random(11)
    for _ in range(6):
        most = rng.randint(2, 6)
        s, c = rng.uniform(0.7, 3.0) * most**0.5, rng.uniform(0.3, 3.0)
        drawn = [rng.uniform(0.3, 1.0)] + [rng.uniform(1e-4, 0.3) for _ in range(most)]
        weights = [w / (1.1 * sum(drawn)) for w in drawn]
        step = SampledStep(kind, s, tuple(map(math.log, weights)))
        law = PoissonLaw(arb(s), tuple(map(arb, weights)), kind == "replace")
        direction = "both" if kind == "replace" else kind
        reach = 12.0 * s + most * (c + 1.0) + 5.0
        moment = float(_integral(law, direction, acb(c), reach).real.log().mid())
        chosen = step.nodes(step.steepest(c, 10.0), c, rng.uniform(2.0, 14.0), moment)
        nodes = {key: float(str(value)) for key, value in chosen.items()}
        rule = transform(law, direction, c, nodes)
        assert isinstance(rule, Rule)
        for t in (0.0, 0.4, 3.0, 11.0):
            truth = _integral(law, direction, acb(c, t), reach)
            assert not abs(rule.on_line(arb(max(t, 1e-9)), 2)[0 if t == 0.0 else 1] - truth) > rule.error + arb(1e-25)
            assert not abs(truth) > rule.envelope(arb(t)) + arb(1e-25)
            assert all(float(loss.imag.upper()) >= 0.0 for loss in rule.losses)


@pytest.mark.parametrize("kind", ["remove", "add", "replace"])
def test_the_error_is_the_one_that_is_proved(kind: str) -> None:
    """Theorem A's E for three records, term by term, as the page has it."""
    s, c, angle, d, low, high = 2.0, 1.5, 0.6, 0.21, -95, 140
    weights = (0.5, 0.25, 0.125, 0.0625)
    law = PoissonLaw(arb(s), tuple(map(arb, weights)), kind == "replace")
    rule = transform(law, "both" if kind == "replace" else kind, c, line(angle, d, low, high))
    assert isinstance(rule, Rule)
    with mpmath.workdps(40):
        s, c, angle, d = map(mpmath.mpf, (s, c, angle, d))
        theta, far, near = angle * s * s / 3, high * d, -low * d

        def f(x: object) -> object:
            return sum(w * mpmath.exp(h * (2 * x - h) / (2 * s * s)) for h, w in enumerate(weights))

        def growth(v: object) -> object:
            return 1 if kind == "remove" else mpmath.cos(3 * v / (2 * s * s)) ** -c

        falls = mpmath.exp(-far * d / s**2 + (0 if kind == "add" else 3 * (c + 1) * d / s**2))
        right = f(far) ** -c if kind == "add" else f(far) ** (c + 1) * (mpmath.mpf(2) ** c if kind == "replace" else 1)
        left = mpmath.mpf(2) ** c if kind == "add" else f(-near) ** (c + 1)
        left *= f(near) ** -c if kind == "replace" else 1
        drops, peak = mpmath.exp(-near * d / s**2), d * mpmath.exp(theta**2 / (2 * s**2)) * growth(theta)
        tails = peak * mpmath.npdf(far, 0, s) * right * falls / (1 - falls)
        tails += peak * mpmath.npdf(near, 0, s) * left * drops / (1 - drops)
        kappa = (mpmath.exp(2 * theta**2 / s**2) * growth(2 * theta) + 1) / mpmath.expm1(2 * mpmath.pi * theta / d)
        total = mpmath.mpf(abs(rule.at_zero()).mid().str(40, radius=False))
        exact = kappa / (1 - kappa) * (total + tails) + tails
        assert abs(mpmath.mpf(rule.error.mid().str(40, radius=False)) / exact - 1) < mpmath.mpf(10) ** -25


def test_what_is_left_out_is_in_the_tails() -> None:
    """With three records the peak of f^(c+1) is at 3 (c+1): nodes up to there alone are refused."""
    law = PoissonLaw(arb(2), (arb(0.5), arb(0.25), arb(0.125), arb(0.125)))
    with pytest.raises(CannotCheck, match="beyond the peak"):
        transform(law, "remove", 1.0, line(0.5, 0.1, -150, 59))
    truth = _integral(law, "remove", acb(1), 40.0)
    for high in (61, 75, 90, 140):
        rule = transform(law, "remove", 1.0, line(0.9, 0.1, -150, high))
        assert isinstance(rule, Rule)
        assert not abs(rule.at_zero() - truth) > rule.error
    assert float(rule.error.mid()) < 1e-5


# One step against quadrature.


@pytest.mark.parametrize("replaced", [False, True])
@pytest.mark.parametrize("epsilon", [0.05, 0.7, 2.5])
@pytest.mark.one_in(6)
def test_one_step_of_a_group_is_an_integral(replaced: bool, epsilon: float) -> None:
    s, q, k = 1.3, 0.25, 3
    event = Event(Gaussian(s), Poisson(q))
    step = Step(_law(event, REPLACE if replaced else ADD, k), 1, "")  # type: ignore[arg-type]
    with mpmath.workdps(30):
        weights = [mpmath.binomial(k, h) * mpmath.mpf(q) ** h * (1 - mpmath.mpf(q)) ** (k - h) for h in range(k + 1)]

        def density(x: object, way: int) -> object:
            return sum(w * mpmath.npdf(x, way * h, s) for h, w in enumerate(weights))

        laws = {"P": lambda x: density(x, 1), "Q": lambda x: density(x, -1) if replaced else mpmath.npdf(x, 0, s)}
        for direction in ["both"] if replaced else ["remove", "add"]:
            first, other = (laws["Q"], laws["P"]) if direction == "add" else (laws["P"], laws["Q"])
            gain = lambda x: first(x) - mpmath.exp(epsilon) * other(x)  # noqa: B023, E731
            edges = [mpmath.mpf(n) / 4 for n in range(-60, 81)]
            signs = [gain(x) > 0 for x in edges]
            roots = [
                mpmath.findroot(gain, (edges[i], edges[i + 1]), solver="anderson")
                for i in range(len(edges) - 1)
                if signs[i] != signs[i + 1]
            ]
            inside = [*edges[:1], *roots, *edges[-1:]]
            exact = sum(max(mpmath.quad(gain, mpmath.linspace(a, b, 9)), 0) for a, b in pairwise(inside))
            found = read_form(Reader({"form": "one_step"}, "form"), Asked([step], direction))(arb(epsilon))
            assert abs(mpmath.mpf(found.above.mid().str(25, radius=False)) - exact) < mpmath.mpf(10) ** -16
            assert float(found.above.rad()) < 1e-30


def test_a_mixture_has_the_sums_of_its_branches() -> None:
    laws = [PoissonLaw.of_one(arb(1), arb(0.25)), PoissonLaw.of_one(arb(2), arb(0.5))]
    mixed = Mixture(((arb(0.25), laws[0]), (arb(0.75), laws[1])))
    places = [line(0.9, 0.2, -50, 60), line(0.4, 0.3, -60, 60)]
    found = transform(mixed, "remove", 1.0, {"branches": places})
    alone = [transform(law, "remove", 1.0, place) for law, place in zip(laws, places, strict=True)]
    t = arb(2)
    assert str(found.moment()) == str(alone[0].moment() / 4 + alone[1].moment() * 3 / 4)
    assert str(found.envelope(t)) == str(alone[0].envelope(t) / 4 + alone[1].envelope(t) * 3 / 4)
    lines = [each.on_line(t, 3) for each in alone]
    for k, value in enumerate(found.on_line(t, 3)):
        assert str(value) == str(lines[0][k] / 4 + lines[1][k] * 3 / 4)


def test_one_step_of_a_mixture_is_the_sum_of_its_branches() -> None:
    """With all else left out the bounds are as far apart as what is left out says."""
    branches = tuple((arb(p), PoissonLaw.of_one(arb(s), arb(0.25))) for p, s in ((0.75, 1.0), (0.25, 0.5)))
    step, e = Step(Mixture(branches), 1, ""), arb(0.5)
    alone = [
        read_form(Reader({"form": "one_step"}, "form"), Asked([Step(law, 1, "")], "remove"))(e) for _, law in branches
    ]
    both = read_form(Reader({"form": "one_step"}, "form"), Asked([step], "remove"))(e)
    one = read_form(Reader({"form": "one_step", "kept": ["1"]}, "form"), Asked([step], "remove"))(e)
    balls = [each.above for each in alone]
    assert both.above.overlaps(0.75 * balls[0] + 0.25 * balls[1])
    assert one.above.overlaps(0.75 * balls[0] + arb(0.25))
    assert one.below.overlaps(0.75 * balls[0] - e.exp() * arb(0.25))
    seven = Asked([Step(Mixture(branches), 7, "")], "add")
    many = read_form(Reader({"form": "bounded", "kept": ["1"]}, "form"), seven)(arb(50))
    assert many.above == arb(7) / 4


# What is left out.


def test_what_is_left_out_is_counted_on_both_sides() -> None:
    law = _law(Event(Gaussian(1.0), Poisson(0.5)), ADD, 4)
    assert isinstance(law, PoissonLaw)
    kept, mass = without_rare(law, 2)
    assert isinstance(kept, PoissonLaw)
    assert kept.most == 2
    assert mass == arb(5) / 16
    whole, nothing = without_rare(law, 0)
    assert whole is law
    assert nothing == 0
    with pytest.raises(CannotCheck, match="'kept' must be 0"):
        without_rare(FixedSize.of_one(arb(1), arb(0.5)), 1)


def test_hits_of_a_group_are_binomial() -> None:
    for h, p in enumerate(hits(5, arb(0.25), 5)):
        exact = math.comb(5, h) * Fraction(1, 4) ** h * Fraction(3, 4) ** (5 - h)
        assert p.overlaps(arb(exact.numerator) / exact.denominator)


def test_of_a_group_at_most_256_records_are_told_apart() -> None:
    sampled, full = Event(Gaussian(1.0), Poisson(0.5)), Event(Gaussian(1.0))
    assert len(_law(sampled, ADD, 256).weights) == 257  # type: ignore[attr-defined]
    with pytest.raises(CannotCheck, match="at most 256 records"):
        _law(sampled, ADD, 257)
    assert _law(full, ADD, 257).mu_squared == 257**2  # type: ignore[attr-defined]


# The weights of a cut against all data sets and batches.


@pytest.mark.parametrize(("n", "size"), [(4, 1), (5, 2), (6, 3)])
def test_a_cut_has_the_probabilities_of_all_batches(n: int, size: int) -> None:
    """tau: the others fill a batch; r: given that, the record gets in."""
    q = Fraction(1, 4)
    full, inside = Fraction(0), Fraction(0)
    for others in product((0, 1), repeat=n - 1):
        a = sum(others)
        if a >= size:
            p = q**a * (1 - q) ** (n - 1 - a)
            full += p
            inside += p * q * size / (a + 1)
    law = _law(Event(Gaussian(1.0), TruncatedPoisson(0.25, size, n, "random")), REPLACE)
    assert isinstance(law, Mixture)
    (_, whole), (seen, cut) = law.branches
    assert isinstance(whole, PoissonLaw)
    assert whole.replace
    assert isinstance(cut, FixedSize)
    assert seen.overlaps(arb(full.numerator) / full.denominator)
    r = inside / full
    assert cut.q.overlaps(arb(r.numerator) / r.denominator)
    assert cut.s == arb(0.5)


def test_a_private_number_of_records_has_the_weights_of_the_worst_one() -> None:
    q, size, most = Fraction(1, 4), 3, 30
    worst = max(
        size * sum(math.comb(n, k) * q**k * (1 - q) ** (n - k) for k in range(size + 1, n + 1)) / n
        for n in range(size + 1, most + 1)
    )
    law = _law(Event(Gaussian(1.0), TruncatedPoisson(0.25, size, most, "random")), ADD)
    assert isinstance(law, Mixture)
    (_, whole), (seen, cut) = law.branches
    assert isinstance(whole, PoissonLaw)
    assert isinstance(cut, PoissonLaw)
    exact = worst * (size + 1) / (q * size)
    assert seen.overlaps(arb(exact.numerator) / exact.denominator)
    for found, weight in zip(cut.weights, (1 - q, q / 4, 3 * q / 4), strict=True):
        assert found.overlaps(arb(weight.numerator) / weight.denominator)
    # Slots are public, and a cut takes a null record's place.
    slots = _law(Event(Gaussian(1.0), TruncatedPoisson(0.25, size, most, "random_slots")), ADD)
    null = _law(Event(Gaussian(1.0), TruncatedPoisson(0.25, size, most, "random")), NULL)
    assert isinstance(slots, Mixture)
    assert isinstance(null, Mixture)
    assert isinstance(slots.branches[1][1], FixedSize)
    assert str(slots.branches[1]) == str(null.branches[1])


# Whole certificates.

CASES = {
    "group": ((Event(Gaussian(2.0), Poisson(0.01), 300),), ADD, 4, True),
    "group, replaced": ((Event(Gaussian(4.0), Poisson(0.02), 200),), REPLACE, 3, True),
    "large group": ((Event(Gaussian(4.0), Poisson(0.01), 200),), ADD, 40, True),
    "group, full batches": ((Event(Gaussian(40.0), count=20), Event(Gaussian(30.0), Poisson(0.2), 10)), ADD, 8, True),
    "cut": ((Event(Gaussian(4.0), TruncatedPoisson(0.01, 1050, 100_000, "random"), 1000),), ADD, 1, False),
    "cut often": ((Event(Gaussian(4.0), TruncatedPoisson(0.05, 10, 300, "random"), 100),), ADD, 1, False),
    "cut, replaced": ((Event(Gaussian(4.0), TruncatedPoisson(0.05, 20, 300, "random"), 100),), REPLACE, 1, False),
    "slots": ((Event(Gaussian(4.0), TruncatedPoisson(0.01, 1250, 100_000, "random_slots"), 1000),), ADD, 1, False),
    "scales": ((Event(GaussianMixture((0.5, 0.5), (30.0, 50.0)), count=100),), ADD, 1, True),
    "scales on batches": ((Event(GaussianMixture((0.25, 0.75), (2.0, 3.0)), Poisson(0.01), 500),), REPLACE, 1, True),
    "scales, seldom there": ((Event(GaussianMixture((0.5, 0.5), (0.5, 0.7)), Poisson(0.001), 10),), ADD, 1, True),
    "cut, seldom there": (
        (Event(Gaussian(1.0), TruncatedPoisson(0.001, 60, 50_000, "random"), 10),),
        REPLACE,
        1,
        False,
    ),
}


@pytest.mark.one_in(6)
@pytest.mark.parametrize("name", CASES)
def test_what_is_true_is_verified_and_what_is_false_is_not(name: str) -> None:
    events, relation, group, both = CASES[name]
    delta = 1e-6
    found = (
        group_epsilon_for_delta(events, relation, delta, group)
        if group > 1
        else epsilon_for_delta(events, relation, delta)
    )
    ends = found.value
    above = certify(AT_MOST, events, relation, ends.upper, delta, group)
    assert len(above.data) <= 4096
    assert ("seldom" in name) == (b'"form":"cut"' in above.data)
    made = [(above.data, ends.lower * (1 - 1e-5))]
    if both:
        below = certify(MORE_THAN, events, relation, ends.lower * (1 - 1e-9), delta, group)
        made.append((below.data, ends.upper * (1 + 1e-5)))
    else:
        with pytest.raises(NoCertificate, match="is not attained"):
            certify(MORE_THAN, events, relation, ends.lower, delta, group)
    with pytest.raises(NoCertificate):
        certify(AT_MOST, events, relation, ends.lower * (1 - 1e-4), delta, group)
    rng = random.Random(3)
    for data, beyond in made:
        false = changed(data, ["statement", "epsilon"], number_to_string(beyond))
        assert check(false).verdict != "verified"
        # A value of a cut takes the verifier thirty times as long.
        for _ in range(2 if "seldom" in name else 8):
            moved = false
            for where, text in rng.sample(numbers(false), 2):
                moved = changed(moved, where, mutated(text, rng))
            first = next(iter(json.loads(moved)["witness"]["directions"]))
            kept = changed(moved, ["witness", "directions", first, "kept"], [str(rng.randint(0, 3)) for _ in events])
            assert check(moved).verdict != "verified"
            assert check(kept).verdict != "verified"


@pytest.mark.parametrize(
    ("name", "where", "value"),
    [
        ("group", ["group_size"], "5"),
        ("group", ["events", 0, "sampling", "sampling_probability"], "0.0101"),
        ("group", ["events", 0, "mechanism", "noise_multiplier"], "1.99"),
        ("cut often", ["events", 0, "sampling", "max_batch_size"], "12"),
        ("cut often", ["events", 0, "sampling", "sampling_probability"], "0.0505"),
        ("cut, replaced", ["events", 0, "sampling", "dataset_size"], "330"),
        ("cut, replaced", ["events", 0, "sampling", "max_batch_size"], "17"),
        ("scales on batches", ["events", 0, "mechanism", "weights"], ["0.5", "0.5"]),
        ("scales on batches", ["events", 0, "mechanism", "noise_multipliers"], ["1.9", "3"]),
    ],
)
@pytest.mark.one_in(4)
def test_an_event_that_costs_more_is_not_verified(name: str, where: list[str | int], value: object) -> None:
    events, relation, group, _ = CASES[name]
    delta = 1e-6
    found = (
        group_epsilon_for_delta(events, relation, delta, group)
        if group > 1
        else epsilon_for_delta(events, relation, delta)
    )
    data = certify(AT_MOST, events, relation, found.value.upper, delta, group).data
    assert check(data).verdict == "verified"
    altered = check(changed(data, ["statement", *where], value))
    assert altered.verdict in ("refuted", "cannot check"), altered


@pytest.mark.parametrize(
    ("name", "where", "value", "reason"),
    [
        ("group", ["witness", "directions", "remove", "kept"], ["0", "0"], "must be a list of length 1"),
        ("group", ["witness", "directions", "remove", "kept"], ["-1"], "must be an integer"),
        ("group", ["statement", "group_size"], "1", "must be an integer"),
        ("cut", ["statement", "group_size"], "2", "must be one of full_batch, shuffled_epochs"),
        ("scales", ["statement", "group_size"], "2", "for groups, this verifier covers"),
        (
            "cut",
            ["statement", "events", 0, "sampling", "truncation"],
            "arbitrary",
            "must be one of random, random_slots",
        ),
        (
            "scales on batches",
            ["statement", "events", 0, "mechanism", "weights"],
            ["1"],
            "must be a list of length 1",
        ),
    ],
)
def test_what_it_cannot_read_is_refused_with_the_reason(
    name: str, where: list[str | int], value: object, reason: str
) -> None:
    events, relation, group, _ = CASES[name]
    data = certify(AT_MOST, events, relation, 60.0, 1e-6, group).data
    found = check(changed(data, where, value))
    assert found.verdict == "cannot check"
    assert reason in found.reason
