"""Forms of proof against exact sums, closed forms and each other."""

from __future__ import annotations

import math
from fractions import Fraction

import mpmath as mp
import pytest
from epsilond_verifier.bounds import CannotCheck, Enclosure
from epsilond_verifier.forms import Asked, Work, read_form
from epsilond_verifier.laws import Atoms, DiscreteGaussian, DiscreteLaplace, FixedSize, Laplace, Mixture, Normal, Step
from epsilond_verifier.laws import Poisson as PoissonLaw
from epsilond_verifier.reading import Reader
from flint import arb, ctx

from accounting.certificates import AT_MOST
from accounting.certificates.certificate import Statement
from accounting.certificates.cut import cuts
from accounting.certificates.prover import _directed, _integrals
from accounting.certificates.witness import Direction, LineSearch
from accounting.events import Event, Gaussian, Poisson, WithoutReplacement
from accounting.relations import NeighboringRelation
from tests.clients.verifier.cases import strings


def _enclosure(form: dict[str, object], steps: list[Step], direction: str, epsilon: float) -> Enclosure:
    reader = Reader(strings(form), "form")
    proof = read_form(reader, Asked(steps, direction))
    reader.close()
    return proof(arb(epsilon))


pytestmark = pytest.mark.usefixtures("precise")


def _assert_around(found: Enclosure, exact: arb, width: float = 1e-40) -> None:
    assert not found.above < exact
    assert not found.below > exact
    assert (found.above - found.below).upper() < width


@pytest.mark.parametrize(
    ("first", "count", "k"), [(Fraction(3, 4), 7, 2), (Fraction(1, 3), 12, 5), (Fraction(9, 10), 3, 1)]
)
def test_two_outcomes_are_an_exact_sum(first: Fraction, count: int, k: int) -> None:
    """e^loss is rational, and so is delta where e^epsilon is."""
    ratio = Fraction(first, 1 - first)
    e_epsilon = ratio**k
    exact = sum(
        math.comb(count, j) * first**j * (1 - first) ** (count - j) * max(0, 1 - e_epsilon / ratio ** (2 * j - count))
        for j in range(count + 1)
    )
    loss = arb(ratio.numerator).log() - arb(ratio.denominator).log()
    masses = [arb(p.numerator) / p.denominator for p in (first, 1 - first)]
    outcomes = ((masses[0], loss), (masses[1], -loss))
    asked = Asked([Step(Atoms(outcomes, outcomes), count, "")], "both")
    found = read_form(Reader({"form": "outcomes"}, "form"), asked)(k * loss)
    _assert_around(found, arb(exact.numerator) / exact.denominator)


def test_three_outcomes_are_an_exact_sum() -> None:
    """Losses log 2, 0, -log 2 with masses 1/2, 1/4, 1/4: e^epsilon = 2 after 3 steps."""
    masses = {1: Fraction(1, 2), 0: Fraction(1, 4), -1: Fraction(1, 4)}
    exact = Fraction(0)
    for a, p in masses.items():
        for b, r in masses.items():
            for c, s in masses.items():
                exact += p * r * s * max(0, 1 - Fraction(2) / Fraction(2) ** (a + b + c))
    log2 = arb(2).log()
    both = ((arb(1) / 2, log2), (arb(1) / 4, arb(0)), (arb(1) / 4, -log2))
    found = read_form(Reader({"form": "outcomes"}, "form"), Asked([Step(Atoms(both, both), 3, "")], "both"))(log2)
    _assert_around(found, arb(exact.numerator) / exact.denominator)


@pytest.mark.parametrize("count", [1, 2, 3])
def test_discrete_laplace_steps_are_an_exact_sum(count: int) -> None:
    """With e^(-1/s) = 1/2 all masses are rational: noise y has 2^-|y| / 3."""
    k, e_epsilon = 3, Fraction(7, 2)
    noise = {y: Fraction(1, 3) / 2 ** abs(y) for y in range(1, k)}
    one = {k: Fraction(2, 3), -k: Fraction(2, 3) / 2**k} | {k - 2 * y: mass for y, mass in noise.items()}
    total = {0: Fraction(1)}
    for _ in range(count):
        sums: dict[int, Fraction] = {}
        for a, p in total.items():
            for b, q in one.items():
                sums[a + b] = sums.get(a + b, Fraction(0)) + p * q
        total = sums
    assert sum(total.values()) == 1
    exact = sum(p * max(0, 1 - e_epsilon / Fraction(2) ** loss) for loss, p in total.items())
    steps = [Step(DiscreteLaplace(1 / arb(2).log(), k), count, ())]
    proof = read_form(Reader({"form": "outcomes"}, "form"), Asked(steps, "both"))
    found = proof(arb(7).log() - arb(2).log())
    _assert_around(found, arb(exact.numerator) / exact.denominator)
    largest = count * k * math.log(2.0)
    assert _enclosure({"form": "bounded"}, steps, "both", largest + 1e-9).above == 0
    with pytest.raises(CannotCheck, match="largest loss"):
        _enclosure({"form": "bounded"}, steps, "both", largest - 1e-9)


def _discrete_gaussian_delta(s: mp.mpf, k: int, count: int, e: float) -> mp.mpf:
    """Return delta by a sum over the noises of all steps."""
    reach = int(19 * s)
    masses = {y: mp.exp(-(mp.mpf(y) ** 2) / (2 * s * s)) for y in range(-reach, reach + 1)}
    total = mp.fsum(masses.values())
    sums = {0: mp.mpf(1)}
    for _ in range(count):
        added: dict[int, mp.mpf] = {}
        for a, p in sums.items():
            for b, q in masses.items():
                added[a + b] = added.get(a + b, mp.mpf(0)) + p * q / total
        sums = added
    losses = {y: k * (2 * y + count * k) / (2 * s * s) for y in sums}
    return mp.fsum(p * max(mp.mpf(0), 1 - mp.exp(e - losses[y])) for y, p in sums.items())


@pytest.mark.parametrize(("s", "k", "count"), [(0.75, 1, 1), (0.75, 2, 3), (2.9, 1, 3), (3.0, 2, 1), (3.0, 2, 3)])
def test_discrete_gaussian_steps_are_an_exact_sum(s: float, k: int, count: int) -> None:
    """From a deviation of 3 steps of the grid on, their sum is taken as one step."""
    law, steps = DiscreteGaussian.of(arb(s), k, count)
    assert steps == (1 if s >= 3.0 else count)
    with mp.workdps(75), ctx.workprec(240):
        exact = arb(mp.nstr(_discrete_gaussian_delta(mp.mpf(s), k, count, 0.75), 72))
        law, steps = DiscreteGaussian.of(arb(s), k, count)
        _assert_around(_enclosure({"form": "outcomes"}, [Step(law, steps, ())], "both", 0.75), exact, 1e-37)


def test_mass_that_is_missing_is_counted_from_above() -> None:
    half = arb(1) / 2
    both = ((half, half), (arb(2) / 5, -half))
    found = _enclosure({"form": "outcomes"}, [Step(Atoms(both, both), 2, ())], "both", 0.25)
    assert abs(found.above - found.below - (1 - arb(81) / 100)) < 1e-40
    assert abs(found.below - (1 - (-arb(3) / 4).exp()) / 4) < 1e-40


def test_a_mass_that_may_be_negative_counts_as_none() -> None:
    """The square of a negative bound is no bound: a sum of two losses would have the mass 1/4 instead of 0."""
    both = ((arb(0, 0.5), arb(1)), (arb(1), arb(-1)))
    found = _enclosure({"form": "outcomes"}, [Step(Atoms(both, both), 2, ())], "both", 0.25)
    assert found.below == found.above == 0


def test_masses_of_discrete_gaussian_noise_allow_for_what_is_not_summed() -> None:
    class Short(DiscreteGaussian):
        reach = 3

    with mp.workdps(45):
        total = mp.fsum(mp.exp(-mp.mpf(y * y) / 8) for y in range(-40, 41))
        for y, (mass, _) in zip(range(-3, 4), Short(arb(2), 1, arb(1)).outcomes("both"), strict=True):
            exact = mp.exp(-mp.mpf(y * y) / 8) / total
            assert mass.overlaps(arb(mp.nstr(exact, 40)))
            assert mass.rad() < 0.3 * exact


def test_discrete_noise_says_how_many_outcomes_it_has() -> None:
    for law in (DiscreteLaplace(arb(3), 4), DiscreteGaussian(arb(3), 4, arb(1))):
        assert law.number == len(law.outcomes("both"))


def test_sums_take_their_work_from_what_is_left() -> None:
    for form, law in (("outcomes", DiscreteLaplace(arb(3), 10)), ("laplace", Laplace(arb(1)))):
        for left, times in ((40_000, 1), (100_000, 10)):
            asked = Asked([Step(law, 100, ())], "both", Work(left), times)
            with pytest.raises(CannotCheck, match="the work exceeds"):
                read_form(Reader({"form": form}, "form"), asked)


def test_discrete_noise_has_one_form() -> None:
    step = Step(DiscreteGaussian(arb(5), 1, arb(1)), 1, ())
    line = {"tilt": 1.0, "steps": [{}]}
    for form, reason in (
        ({"form": "one_step"}, "closed form"),
        ({"form": "bounded"}, "no bound"),
        ({"form": "chernoff", **line}, "the only form is the sum over outcomes"),
    ):
        with pytest.raises(CannotCheck, match=reason):
            _enclosure(form, [step], "both", 1.0)
    with pytest.raises(CannotCheck, match="at most 200000 terms, not"):
        _enclosure({"form": "outcomes"}, [Step(DiscreteGaussian(arb(1e5), 1, arb(1)), 1, ())], "both", 1.0)
    with pytest.raises(CannotCheck, match="at most 200000 terms, not 300000"):
        _enclosure({"form": "outcomes"}, [Step(DiscreteLaplace(arb(9), 100), 3000, ())], "both", 1.0)


def _laplace(lam: arb, count: int, e: float) -> mp.mpf:
    """Return delta at e; below 0 it follows from P and Q being each other's mirror images."""
    if e < 0.0:
        return 1 - mp.exp(e) + mp.exp(e) * _laplace(lam, count, -e)
    found = _enclosure({"form": "laplace"}, [Step(Laplace(lam), count, ())], "both", e)
    assert found.above is found.below or found.above.overlaps(found.below)
    assert found.above.rad() < 1e-35
    return mp.mpf(found.above.mid().str(45, radius=False))


@pytest.mark.parametrize("lam", [0.25, 1.5])
@pytest.mark.parametrize("count", [2, 3, 4, 7])
def test_laplace_steps_follow_from_one_step_less(count: int, lam: float) -> None:
    """The first loss is lam, -lam or between them with the density e^(-(lam - l) / 2) / 4; the others come on top."""
    alone = _enclosure({"form": "one_step"}, [Step(Laplace(arb(lam)), 1, ())], "both", 0.125)
    assert alone.above.overlaps(_enclosure({"form": "laplace"}, [Step(Laplace(arb(lam)), 1, ())], "both", 0.125).above)
    with mp.workdps(40):
        for e in (0.0, 0.3 * lam, 1.1 * lam, (count - 1.75) * lam):

            def rest(loss: float, e: float = e) -> mp.mpf:
                return _laplace(arb(lam), count - 1, e - float(loss))

            kinks = {e - k * lam for k in range(-count, count + 1)} | {-lam, lam, e}
            pieces = sorted(kink for kink in kinks if -lam <= kink <= lam)
            between = mp.quad(lambda loss: mp.exp((loss - lam) / 2) / 4 * rest(loss), pieces, maxdegree=4)
            exact = rest(lam) / 2 + mp.exp(-lam) * rest(-lam) / 2 + between
            assert abs(_laplace(arb(lam), count, e) - exact) < 1e-14


def test_laplace_steps_at_the_end_of_their_losses() -> None:
    """No loss is above T lam; where a ball leaves that open, delta is a ball around 0."""
    lam = arb(1) / 3
    steps = [Step(Laplace(lam), 6, ())]
    for beyond in (2.0, 2.5, 400.0):
        found = _enclosure({"form": "laplace"}, steps, "both", beyond)
        assert found.above.contains(0)
        assert found.above < 1e-30
    assert _enclosure({"form": "laplace"}, steps, "both", 1.999).below > 0


@pytest.mark.parametrize("direction", ["remove", "add"])
def test_one_sampled_step_loses_less_than_with_a_full_batch_beside_it(direction: str) -> None:
    """The closed form and the contour integral share nothing but the pair."""
    law, epsilon = PoissonLaw.of_one(arb(1), arb(0.3), False), 0.2
    steps = [Step(law, 1, ""), Step(Normal(arb(0.25)), 1, "")]
    # A full batch beside it lets the contour end; without it the closed form answers.
    closed = _enclosure({"form": "one_step"}, steps[:1], direction, epsilon)
    search = _search((Event(Gaussian(1.0), Poisson(0.3)), Event(Gaussian(2.0))), direction, epsilon)
    line = search.chosen()
    assert line is not None
    form, _ = search.contour(line)
    form["far"] = search.direction.far(line.tilt, line.period)
    both = _enclosure(form, steps, direction, epsilon)
    # Both together lose more, and the contour's interval is narrow.
    assert both.is_more_than(closed.above)
    assert float((both.above - both.below).upper()) < 1e-11


def _search(events: tuple[Event, ...], direction: str, epsilon: float) -> LineSearch:
    stated = Statement(AT_MOST, events, NeighboringRelation.ADD_OR_REMOVE_ONE, epsilon, 1e-3)
    directed = _directed(stated, direction, 0.0, 1.0)
    return LineSearch(directed, directed.log_estimate)


@pytest.mark.thorough
def test_two_lines_and_a_cut_enclose_the_same_number() -> None:
    """Different tilts, periods and spacings; the cut leaves the bulk out of its sum."""
    events = (Event(Gaussian(0.5), Poisson(0.001), 10),)
    direction: Direction = _search(events, "remove", 2.1).direction
    steps = [Step(PoissonLaw.of_one(arb(0.5), arb(0.001), False), 10, "")]
    found = []
    form, _ = next(cuts(direction, math.log(1e-6)))
    found.append({**form, "far": direction.far(float(str(form["tilt"])), float(str(form["period"])))})
    windowed, _ = list(_integrals(direction, math.log(1e-6)))[-1]
    found.append({**windowed, "far": direction.far(float(str(windowed["tilt"])), float(str(windowed["period"])))})
    balls = [_enclosure(each, steps, "remove", 2.1) for each in found]
    assert found[0]["form"] == "cut"
    for one in balls:
        for other in balls:
            assert not other.below > one.above


@pytest.mark.thorough
def test_a_line_whose_aliases_nobody_bounds_proves_nothing_from_below() -> None:
    """Nor does Chernoff's bound, at a tilt of it."""
    direction = _search((Event(Gaussian(0.5), Poisson(0.001), 10),), "remove", 2.1).direction
    steps = [Step(PoissonLaw.of_one(arb(0.5), arb(0.001), False), 10, "")]
    whole, _ = list(_integrals(direction, math.log(1e-6)))[-1]
    cut, _ = next(cuts(direction, math.log(1e-6)))
    tilted = {"form": "chernoff", "tilt": whole["tilt"], "steps": whole["steps"]}
    for form in (whole, cut, tilted):
        assert "far" not in form
        found = _enclosure(form, steps, "remove", 2.1)
        assert found.above.is_finite()
        assert not found.below.is_finite()


def test_nodes_above_a_cut_and_those_of_an_envelope_have_no_envelope() -> None:
    """Nothing would evaluate it."""
    events = (Event(Gaussian(0.5), Poisson(0.001), 10),)
    steps = [Step(PoissonLaw.of_one(arb(0.5), arb(0.001), False), 10, "")]
    form, _ = next(cuts(_search(events, "remove", 2.1).direction, math.log(1e-6)))
    (whole,), above = form["steps"], form["above"]
    assert isinstance(whole, dict)
    assert isinstance(above, dict)
    alone = {key: value for key, value in whole.items() if key != "envelope"}
    assert _enclosure({**form, "steps": [{**alone, "envelope": alone}]}, steps, "remove", 2.1).above.is_finite()
    for changed in (
        {**form, "above": {**above, "envelope": above}},
        {**form, "steps": [{**alone, "envelope": {**alone, "envelope": alone}}]},
    ):
        with pytest.raises(CannotCheck, match=r"has unknown keys: \['envelope'\]"):
            _enclosure(changed, steps, "remove", 2.1)


@pytest.mark.parametrize(
    ("relation", "fixed"),
    [
        (NeighboringRelation.REPLACE_ONE, True),
        (NeighboringRelation.REPLACE_ONE, False),
        (NeighboringRelation.ADD_OR_REMOVE_ONE, False),
    ],
)
@pytest.mark.one_in(3)
def test_a_cut_agrees_with_the_whole_line(relation: NeighboringRelation, fixed: bool) -> None:
    """A batch of a fixed size is cut with remove's law, and a replaced record with its own."""
    noise, q, count, epsilon = (2.0, 0.01, 30, 3.0) if fixed else (1.0, 0.01, 30, 3.0)
    sampling = WithoutReplacement(10, 1000) if fixed else Poisson(q)
    replaced = relation is NeighboringRelation.REPLACE_ONE
    law = FixedSize.of_one(arb(noise) / 2, arb(1) / 100) if fixed else PoissonLaw.of_one(arb(noise), arb(q), replaced)
    stated = Statement(AT_MOST, (Event(Gaussian(noise), sampling, count),), relation, epsilon, 1e-6)
    name = "both" if replaced else "remove"
    direction = _directed(stated, name, 0.0, 1.0)
    line = LineSearch(direction, direction.log_estimate).chosen()
    assert line is not None
    whole, _ = LineSearch(direction, direction.log_estimate).contour(line)
    cut, _ = next(cuts(direction, direction.log_estimate - 2.0))
    found = []
    for form in (whole, cut):
        far = direction.far(float(str(form["tilt"])), float(str(form["period"])))
        found.append(_enclosure({**form, "far": far}, [Step(law, count, "")], name, epsilon))
    for one in found:
        width = float((one.above - one.below).upper())
        assert 0.0 <= width < 1e-6 * float(one.above.mid())
        for other in found:
            assert not other.below > one.above


def test_a_form_answers_for_its_laws_alone() -> None:
    step = Step(FixedSize.of_one(arb(1), arb(0.1)), 2, "")
    reasons = {
        "gaussian": "closed form",
        "one_step": "closed form",
        "outcomes": "sum over outcomes",
        "laplace": "sum of polynomials",
    }
    for form, reason in reasons.items():
        with pytest.raises(CannotCheck, match=reason):
            _enclosure({"form": form}, [step], "both", 1.0)
    one, many = Step(Laplace(arb(0.5)), 1, ()), Step(Laplace(arb(0.5)), 1001, ())
    for steps in ([many], [one, one]):
        with pytest.raises(CannotCheck, match="at most 1000 equal steps of Laplace noise"):
            _enclosure({"form": "laplace"}, steps, "both", 1.0)
    with pytest.raises(CannotCheck, match="no bound"):
        _enclosure({"form": "bounded"}, [step], "both", 1.0)
    lost = _enclosure({"form": "bounded"}, [Step(Laplace(arb(0.5)), 2, "")], "both", 1.0)
    assert lost.above == 0
    assert not lost.below.is_finite()


def test_full_batches_beside_another_step_have_no_closed_form() -> None:
    full, sampled = Step(Normal(arb(0.25)), 1, ()), Step(PoissonLaw.of_one(arb(1), arb(0.3)), 1, ())
    both = _enclosure({"form": "gaussian"}, [full, full], "remove", 0.2)
    assert both.above.overlaps(_enclosure({"form": "one_step"}, [Step(Normal(arb(0.5)), 1, ())], "remove", 0.2).above)
    for steps in ([full, sampled], [sampled, full], [sampled, sampled]):
        for form in ("gaussian", "one_step"):
            with pytest.raises(CannotCheck, match="closed form"):
                _enclosure({"form": form}, steps, "remove", 0.2)


def _cut_form(law: PoissonLaw | FixedSize, count: int, epsilon: float) -> tuple[dict[str, object], list[Step]]:
    """Return a cut of steps with probability 0.01, with its aliases bounded."""
    fixed = isinstance(law, FixedSize)
    event = Event(Gaussian(2.0 if fixed else 1.0), WithoutReplacement(10, 1000) if fixed else Poisson(0.01), count)
    relation = NeighboringRelation.REPLACE_ONE if fixed else NeighboringRelation.ADD_OR_REMOVE_ONE
    stated = Statement(AT_MOST, (event,), relation, epsilon, 1e-6)
    direction = _directed(stated, "both" if fixed else "remove", 0.0, 1.0)
    form, _ = next(cuts(direction, direction.log_estimate - 2.0))
    far = direction.far(float(str(form["tilt"])), float(str(form["period"])))
    return {**form, "far": far}, [Step(law, count, ())]


def test_a_mixture_of_equal_branches_is_cut_as_one_law() -> None:
    law = PoissonLaw.of_one(arb(1), arb("0.01"))
    form, steps = _cut_form(law, 30, 3.0)
    alone = _enclosure(form, steps, "remove", 3.0)
    cut = {key: form.pop(key) for key in ("place", "width")}
    above, bulk, far = form["above"], form["bulk"], form["far"]
    assert isinstance(above, dict)
    assert isinstance(bulk, dict)
    assert isinstance(far, dict)
    ends = {key: bulk.pop(key) for key in ("start", "end")}
    twice = {
        **form,
        "steps": [{"branches": form["steps"] * 2}],
        "above": {"branches": [above | cut] * 2},
        "bulk": {**bulk, "branches": [ends] * 2},
        "far": {**far, "steps": [{"branches": far["steps"] * 2}]},
    }
    mixed = [Step(Mixture(((arb(0.25), law), (arb(0.75), law))), 30, ())]
    both = _enclosure(twice, mixed, "remove", 3.0)
    assert both.above.overlaps(alone.above)
    assert both.below.overlaps(alone.below)
    assert float((both.above - both.below).upper()) < 1e-6 * float(alone.above.mid())
    # Another place for one of the two encloses the same number, and full batches are not cut.
    lower = {**cut, "place": float(str(cut["place"])) - 0.3}
    moved = _enclosure({**twice, "above": {"branches": [above | cut, above | lower]}}, mixed, "remove", 3.0)
    assert not moved.below > both.above
    assert not both.below > moved.above
    full = [Step(Mixture(((arb(0.25), law), (arb(0.75), Normal(arb(1))))), 30, ())]
    with pytest.raises(CannotCheck, match="the theorem about a cut needs equal steps on sampled batches"):
        _enclosure({**twice, "steps": [{"branches": [*form["steps"], {}]}]}, full, "remove", 3.0)


def test_a_cut_is_for_equal_steps_and_not_for_poisson_batches_in_the_direction_add() -> None:
    form, steps = _cut_form(PoissonLaw.of_one(arb(1), arb("0.01")), 30, 3.0)
    with pytest.raises(CannotCheck, match="the direction add"):
        _enclosure(form, steps, "add", 3.0)
    with pytest.raises(CannotCheck, match="the theorem about a cut needs equal steps"):
        _enclosure(form, [*steps, *steps], "remove", 3.0)


def test_aliases_are_bounded_at_a_tilt_above_the_line() -> None:
    """Below it their bound would be negative."""
    form, steps = _cut_form(PoissonLaw.of_one(arb(1), arb("0.01")), 30, 3.0)
    far = form["far"]
    assert isinstance(far, dict)
    for tilt in (form["tilt"], 0.5 * float(str(form["tilt"]))):
        with pytest.raises(CannotCheck, match="the tilt of 'far' is larger than that of the line"):
            _enclosure({**form, "far": {**far, "tilt": tilt}}, steps, "remove", 3.0)


def test_what_a_fixed_size_does_not_have_before_a_half_is_in_the_bounds_of_its_cut() -> None:
    """Cut at 0.75 with a width of 0.1, P(N(0.75, 0.1) <= 0.5) = 0.0062 is added to P in each of two steps."""
    form, steps = _cut_form(FixedSize.of_one(arb(1), arb("0.01")), 2, 3.0)
    above = {"angle": 0.1, "spacing": 0.02, "low": -900, "high": 900}
    wide = _enclosure({**form, "place": 0.75, "width": 0.1, "above": above}, steps, "both", 3.0)
    extra = 0.006209665
    # The transform is known within that, so that the sum is known to eleven digits alone.
    assert 1e-10 > float(wide.above.rad()) > 1e-12
    apart = float((wide.above.mid() - wide.below.mid()).mid())
    assert apart > (1.0 + extra) ** 2 - 1.0
