"""The laws of the privacy loss of independent steps, from events and a relation, with what is assumed of them.

s is the noise multiplier, p_h the probability that h of the records in which data sets differ take part, p = (1-q, q)
for one record; f(x) = sum of p_h e^(h (2x-h) / (2 s^2)) and x ~ N(0, s^2). The numbers of an event are exact, and what
follows from them is a ball at the precision of the certificate.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property, reduce
from itertools import pairwise
from typing import Self

from flint import acb, acb_poly, arb, fmpq

from epsilond_verifier.binomials import hits, most_displaced, tail
from epsilond_verifier.bounds import CannotCheck, normal_cdf, refuse_unless, require
from epsilond_verifier.reading import Reader

RELATIONS = ("add_or_remove_one", "replace_one", "replace_special")
_COUNT, _SIZE, _BANDS = 10**8, 10**13, 4096
MOST_IN_GROUP, MOST_BRANCHES = 256, 64
COMPOSED = "compositions are dominated by those of the pairs, adaptive ones too (Zhu, Dong & Wang 2022)"
GAUSSIAN = "N(sensitivity, s^2) against N(0, s^2) dominates Gaussian noise (Balle & Wang 2018)"
SCHEDULE = "a record is in a full batch of each pass, begun ones too, and records apart cost no more than together"
POISSON = "(1-q) N(0) + q N(1) against N(0), both ways, dominates Poisson batches (Zhu, Dong & Wang 2022)"
REPLACED = "(1-q) N(0) + q N(1) against (1-q) N(0) + q N(-1) dominates replaced records (docs/sampling/poisson.md)"
FIXED_SIZE = "the symmetrised pair of sensitivity 2 dominates fixed sizes (Balle, Barthe & Gaboardi 2018, Theorem 9)"
GROUP = "a group's pair is that of records that all agree (docs/sampling/poisson.md)"
DRAWS = "draws, h of a record seen, with shares of at least h's probabilities, dominate (docs/concepts/certificates.md)"
CUT = "Poisson's pair or, seen to be so, a cut batch's dominates a random cut (docs/sampling/truncated_poisson.md)"
SCALES = "noise of a random scale is dominated by noise whose scale is seen"
LAPLACE = "L(sensitivity, b) against L(0, b) dominates Laplace noise"
RESPONSE = "the laws of two answers dominate randomised response: they are its outputs"
PURE = "randomised response of the same epsilon dominates every epsilon-DP step (Kairouz, Oh & Viswanath 2015)"
CORRELATED = (
    "a record's worst steps are as close as they may be (Kalinin & Lampert 2024, Theorem 2), and are one Gaussian "
    "mechanism (Smith & Thakurta 2022), or one sampled step a cycle (Choquette-Choo et al. 2023, Theorem 4)"
)


@dataclass(frozen=True)
class Normal:
    """A full batch: a normal loss of variance mu^2, M(z) = e^(mu^2 z (z+1) / 2); mu^2 as a rational if it is one."""

    mu_squared: arb
    rational: fmpq | None = None


@dataclass(frozen=True)
class Sampled:
    """A step on sampled batches: h records are there with probability p_h, or are replaced, h = 0, ..., H."""

    s: arb
    weights: tuple[arb, ...]
    replace: bool = False

    @classmethod
    def of_one(cls, s: arb, q: arb, replace: bool = False) -> Self:
        """Return the law of one record, of probability q."""
        return cls(s, (1 - q, q), replace)

    @property
    def q(self) -> arb:
        """Return the probability of one record."""
        return self.weights[1]

    @property
    def most(self) -> int:
        """Return H."""
        return len(self.weights) - 1

    @property
    def turned(self) -> arb:
        """Return s^2 / H: where x is above the axis by that, the terms of f are turned by up to 1."""
        return self.s * self.s / self.most

    @cached_property
    def _polynomial(self) -> acb_poly:
        return acb_poly([p * (-arb(h * h) / (2 * self.s * self.s)).exp() for h, p in enumerate(self.weights)])

    def f(self, x: acb) -> acb:
        """Return f(x), a polynomial in e^(x / s^2)."""
        return self._polynomial((x / (self.s * self.s)).exp())

    def mass_beyond(self, x: arb, way: int) -> arb:
        """Return the sum of p_h P(N(way h, s^2) > x)."""
        return sum((p * normal_cdf((way * h - x) / self.s) for h, p in enumerate(self.weights)), arb(0))


class FixedSize(Sampled):
    """Batches of a fixed size, s over the sensitivity 2: the loss is log f and -log f beyond x = 1/2, or 0."""


class Poisson(Sampled):
    """Poisson batches: log f for remove and -log f for add; of replaced records log f(x) - log f(-x), both ways."""


@dataclass(frozen=True)
class Mixture:
    """A step that shows which branch it takes: probabilities and laws."""

    branches: tuple[tuple[arb, Normal | Sampled], ...]


@dataclass(frozen=True)
class Draws:
    """``size`` draws with replacement, each of one record with probability q: shares choose a pair that dominates."""

    s: arb
    size: int
    q: arb

    def seen(self, shares: list[arb]) -> tuple[Mixture, arb]:
        """Return the branches of 1 to H draws, whose shares from 2 on are given, and the probability of more draws."""
        most = len(shares) + 1
        refuse_unless(most <= self.size, "no record is drawn more often than there are draws")
        rest, (_, *drawn) = tail(self.size, self.q, most + 1), hits(self.size, self.q, most)
        chosen, branches = [1 - rest - sum(shares, arb(0)), *shares], []
        for h, (share, p) in enumerate(zip(chosen, drawn, strict=True), 1):
            require(p <= share, f"the share of h = {h} draws is at least their probability")
            branches.append((share, FixedSize.of_one(self.s / (2 * h), p / share)))
        return Mixture(tuple(branches)), rest


@dataclass(frozen=True)
class Laplace:
    """Laplace noise, lam = sensitivity / b."""

    lam: arb


@dataclass(frozen=True)
class Atoms:
    """Finitely many outcomes: (probability, loss) in the direction remove and in the direction add."""

    remove: tuple[tuple[arb, arb], ...]
    add: tuple[tuple[arb, arb], ...]

    def outcomes(self, direction: str) -> tuple[tuple[arb, arb], ...]:
        """Return those of one direction."""
        return self.add if direction == "add" else self.remove


#: The law of one step's privacy loss.
Law = Normal | Sampled | Mixture | Draws | Laplace | Atoms


def delta_of_normal(mu: arb, e: arb) -> arb:
    """Return delta(e) of N(mu, 1) against N(0, 1)  (Balle & Wang 2018, Theorem 8)."""
    return normal_cdf(mu / 2 - e / mu) - e.exp() * normal_cdf(-mu / 2 - e / mu)


def is_symmetric(law: Law) -> bool:
    """Return whether the two directions have the same loss."""
    if isinstance(law, Mixture):
        return all(is_symmetric(branch) for _, branch in law.branches)
    return law.replace if isinstance(law, Poisson) else not isinstance(law, Atoms) or law.remove is law.add


def largest_loss(law: Law, direction: str) -> arb:
    """Return the least upper bound of the loss in one direction."""
    if isinstance(law, Mixture):
        return reduce(arb.max, [largest_loss(branch, direction) for _, branch in law.branches])
    if isinstance(law, Atoms):
        return reduce(arb.max, [loss for _, loss in law.outcomes(direction)])
    if isinstance(law, Laplace):
        return law.lam
    if isinstance(law, Poisson) and not law.replace and direction == "add":
        return -law.weights[0].log()
    raise CannotCheck(f"the loss of a step has no bound in the direction {direction}")


def without_rare(law: Law, kept: int) -> tuple[Law, arb]:
    """Return the law with at most this many records in a batch, or branches, 0 for all, and the mass that is left
    out."""
    if isinstance(law, Mixture):
        last = kept or len(law.branches)
        return Mixture(law.branches[:last]), sum((p for p, _ in law.branches[last:]), arb(0))
    if kept == 0:
        return law, arb(0)
    refuse_unless(isinstance(law, Poisson), "there is nothing rare to leave out of a step")
    assert isinstance(law, Poisson)
    return replace(law, weights=law.weights[: kept + 1]), sum(law.weights[kept + 1 :], arb(0))


@dataclass(frozen=True, slots=True)
class Step:
    """``count`` equal steps, and the theorem by which their pair dominates the mechanism."""

    law: Law
    count: int
    assumed: str


def read_step(event: Reader, relation: str, group: int) -> Step:
    """Read one event, as the ledger writes it, for a group of this many records."""
    mechanism, sampling = event.inside("mechanism"), event.inside("sampling")
    count = event.whole("count", 1, _COUNT)
    kind = mechanism.word("kind", *_MECHANISMS)
    if group > 1:
        refuse_unless(kind == "gaussian", f"{event.where}: no theorem of this verifier covers groups of records")
        step = _group(mechanism, sampling, count, relation, group)
    else:
        step = _MECHANISMS[kind](mechanism, sampling, count, relation)
    for reader in (event, mechanism, sampling):
        reader.close()
    return step


def _sensitivity(relation: str) -> int:
    return 2 if relation == "replace_one" else 1


def _noise(mechanism: Reader) -> arb:
    return arb(mechanism.real("noise_multiplier", 1e-3, 1e6))


def _covered(condition: bool, sampling: Reader, relation: str) -> None:
    refuse_unless(condition, f"{sampling.where}: no theorem of this verifier covers it under {relation}")


def _by_position(sampling: Reader) -> bool:
    return sampling.word("assignment", "by_position", "independent") == "by_position"


def _passes(sampling: Reader, kind: str, count: int, relation: str, why: str, scales: bool = False) -> tuple[int, str]:
    """Return the full batches that a record takes part in, where the schedule is fixed in advance, and why."""
    if kind == "full_batch":
        return count, why
    independent = kind == "disjoint_batches" and not _by_position(sampling)
    # Of two batches that are moved by one contribution each, either may draw the branch that costs most.
    refused = ("replace_one" if scales else "") if independent else "add_or_remove_one"
    _covered(relation != refused, sampling, relation)
    passes = 1 if kind == "disjoint_batches" else -(-count // sampling.whole("steps_per_epoch", 1, _COUNT))
    return passes, f"{SCHEDULE}; {why}"


def _full(s: arb, relation: str, count: int, assumed: str) -> Step:
    rational = None
    if s.is_exact():
        mantissa, exponent = s.man_exp()
        rational = (_sensitivity(relation) / (fmpq(mantissa) * fmpq(2) ** int(exponent))) ** 2
    return Step(Normal((_sensitivity(relation) / s) ** 2, rational), count, assumed)


def _poisson(s: arb, q: float, relation: str, count: int, assumed: str = "") -> Step:
    if q == 1.0:
        return _full(s, relation, count, assumed or GAUSSIAN)
    replaced = relation == "replace_one"
    pair = REPLACED if replaced else POISSON
    return Step(Poisson.of_one(s, arb(q), replaced), count, f"{assumed}; {pair}" if assumed else pair)


def _probability(sampling: Reader) -> float:
    return sampling.real("sampling_probability", 5e-324, 1.0)


def _group(mechanism: Reader, sampling: Reader, count: int, relation: str, group: int) -> Step:
    """Groups of records. All are in the same full batches, at worst; Bin(group, q) of them are in a Poisson batch."""
    s, kind = _noise(mechanism), sampling.word("kind", *_SCHEDULES, "poisson")
    if kind != "poisson":
        return _full(s / group, relation, *_passes(sampling, kind, count, relation, f"{GROUP}; {GAUSSIAN}"))
    q = _probability(sampling)
    if q == 1.0:
        return _full(s / group, relation, count, f"{GROUP}; {GAUSSIAN}")
    refuse_unless(group <= MOST_IN_GROUP, f"{sampling.where}: groups of at most {MOST_IN_GROUP} records are read")
    return Step(Poisson(s, tuple(hits(group, arb(q), group)), relation == "replace_one"), count, GROUP)


def _gaussian(mechanism: Reader, sampling: Reader, count: int, relation: str) -> Step:
    s, kind = _noise(mechanism), sampling.word("kind", *_SCHEDULES, *_BATCHES)
    if kind in _BATCHES:
        return _BATCHES[kind](s, sampling, count, relation)
    return _full(s, relation, *_passes(sampling, kind, count, relation, GAUSSIAN))


def _without_replacement(s: arb, sampling: Reader, count: int, relation: str) -> Step:
    n = sampling.whole("dataset_size", 1, _SIZE)
    b = sampling.whole("batch_size", 1, n)
    _covered(relation != "add_or_remove_one", sampling, relation)
    if b == n:
        return _full(s, relation, count, GAUSSIAN)
    # A record that becomes null is one that becomes another, so that the pair dominates there as well.
    return Step(FixedSize.of_one(s / 2, arb(fmpq(b, n))), count, FIXED_SIZE)


def _with_replacement(s: arb, sampling: Reader, count: int, relation: str) -> Step:
    n = sampling.whole("dataset_size", 2, _SIZE)
    b, q = sampling.whole("batch_size", 1, n), arb(fmpq(1, n))
    _covered(relation != "add_or_remove_one", sampling, relation)
    return Step(Draws(s, b, q) if b > 1 else FixedSize.of_one(s / 2, q), count, f"{DRAWS}; {FIXED_SIZE}")


def _truncated(s: arb, sampling: Reader, count: int, relation: str) -> Step:
    """Poisson's pair, or that of a cut batch.

    Of n places tau is the probability that the others fill a batch of B, tau r = B P(Bin(n, q) > B) / n. Where n is
    private, the largest such number over all n is g, and the record, in a cut batch, is at the distance 2.
    """
    q, n = _probability(sampling), sampling.whole("dataset_size", 1, _SIZE)
    size = sampling.whole("max_batch_size", 1, _SIZE)
    slots = sampling.word("truncation", "random", "random_slots") == "random_slots"
    private = relation == "add_or_remove_one" and not slots
    if size >= n:
        return _poisson(s, q, relation, count)
    refuse_unless(q < 1, f"{sampling.where}: a cut of all records is a batch of a fixed size")
    whole = _poisson(s, q, relation, count)
    if private:
        displaced = arb(q) * size / (size + 1)
        seen, near = most_displaced(n, arb(q), size) / displaced, arb(q) / (size + 1)
        cut: Sampled = Poisson(s, (1 - arb(q), near, displaced))
    else:
        seen = tail(n - 1, arb(q), size)
        cut = FixedSize.of_one(s / 2, size * tail(n, arb(q), size + 1) / (n * seen))
    assert isinstance(whole.law, Poisson)
    assumed = f"{CUT}; {whole.assumed}" if private else f"{CUT}; {whole.assumed}; {FIXED_SIZE}"
    return Step(Mixture(((1 - seen, whole.law), (seen, cut))), count, assumed)


def _mixture(mechanism: Reader, sampling: Reader, count: int, relation: str) -> Step:
    """Noise of a scale that is drawn, and seen; the weights are taken as proportions."""
    weights = [arb(weight) for weight in mechanism.reals("weights", MOST_BRANCHES, 5e-324, 1.0)]
    number = len(weights)
    scales = [arb(scale) for scale in mechanism.reals("noise_multipliers", number, 1e-3, 1e6, number)]
    q, assumed, kind = 1.0, "", sampling.word("kind", *_SCHEDULES, "poisson")
    if kind == "poisson":
        q = _probability(sampling)
    else:
        count, assumed = _passes(sampling, kind, count, relation, GAUSSIAN, scales=True)
    steps = [_poisson(scale, q, relation, count, assumed) for scale in scales]
    laws = [step.law for step in steps if isinstance(step.law, Normal | Poisson)]
    total = sum(weights, arb(0))
    branches = tuple((weight / total, law) for weight, law in zip(weights, laws, strict=True))
    return Step(Mixture(branches), count, f"{SCALES}; {steps[0].assumed}")


def _laplace(mechanism: Reader, sampling: Reader, count: int, relation: str) -> Step:
    lam = _sensitivity(relation) / _noise(mechanism)
    kind = sampling.word("kind", *_SCHEDULES)
    return Step(Laplace(lam), *_passes(sampling, kind, count, relation, LAPLACE))


def _response(mechanism: Reader, sampling: Reader, count: int, relation: str) -> Step:
    """u is the probability of the true answer, v that of each other one; a null record answers uniformly."""
    sampling.word("kind", "full_batch")
    _covered(relation != "add_or_remove_one", sampling, relation)
    k, p = mechanism.whole("num_categories", 2, 10**9), arb(mechanism.real("flip_probability", 1e-300, 1.0))
    u, v = 1 - p + p / k, p / k
    if relation == "replace_special":
        remove = ((u, (k * u).log()), ((k - 1) * v, (k * v).log()))
        add = ((arb(fmpq(1, k)), -(k * u).log()), (arb(fmpq(k - 1, k)), -(k * v).log()))
        return Step(Atoms(remove, add), count, RESPONSE)
    loss = (u / v).log()
    both = ((u, loss), (v, -loss), ((k - 2) * v, arb(0)))[: min(k, 3)]
    return Step(Atoms(both, both), count, RESPONSE)


def _pure(mechanism: Reader, sampling: Reader, count: int, _relation: str) -> Step:
    sampling.word("kind", "full_batch")
    loss = arb(mechanism.real("epsilon", 0.0, 1e6))
    both = ((1 / (1 + (-loss).exp()), loss), (1 / (1 + loss.exp()), -loss))
    return Step(Atoms(both, both), count, PURE)


def _correlated(mechanism: Reader, sampling: Reader, count: int, relation: str) -> Step:
    """sens^2 is the sum over t < T of y_t^2, y_t = c_t + y_(t-m), where a record's steps are m apart."""
    s, coefficients = _noise(mechanism), [arb(c) for c in mechanism.reals("coefficients", _BANDS, 0.0, 1e6)]
    falling = coefficients[0] > 0 and all(c >= d for c, d in pairwise(coefficients))
    refuse_unless(falling, f"{mechanism.where}: coefficients must be positive at first and may not increase")
    return _with_noise_over_steps(s, coefficients, sampling, count, relation)


def _square_root(mechanism: Reader, sampling: Reader, count: int, relation: str) -> Step:
    """c_j = c_(j-1) (2j - 1) / (2j)."""
    s, coefficients, number = _noise(mechanism), [arb(1)], min(mechanism.whole("bands", 1, _COUNT), count)
    refuse_unless(number <= _BANDS, f"{mechanism.where}: at most {_BANDS} coefficients are read")
    for j in range(1, number):
        coefficients.append(coefficients[-1] * (2 * j - 1) / (2 * j))
    return _with_noise_over_steps(s, coefficients, sampling, count, relation)


def _with_noise_over_steps(s: arb, coefficients: list[arb], sampling: Reader, count: int, relation: str) -> Step:
    kind = sampling.word("kind", "full_batch", "cyclic_poisson", "fixed_order_epochs")
    apart = 1
    if kind == "cyclic_poisson":
        cycle, q = sampling.whole("cycle_length", 1, _COUNT), _probability(sampling)
        _covered(relation != ("add_or_remove_one" if _by_position(sampling) else "replace_one"), sampling, relation)
        refuse_unless(len(coefficients) <= cycle, f"{sampling.where}: noise reaches farther than a cycle")
        noise = s / _sensitivity_over_steps(coefficients, count, count)
        return _poisson(noise, q, relation, -(-count // cycle), CORRELATED)
    if kind == "fixed_order_epochs":
        _covered(relation != "add_or_remove_one", sampling, relation)
        apart = sampling.whole("steps_per_epoch", 1, _COUNT)
    return _full(s / _sensitivity_over_steps(coefficients, count, apart), relation, 1, CORRELATED)


def _sensitivity_over_steps(coefficients: list[arb], steps: int, apart: int) -> arb:
    column: list[arb] = []
    for t, c in enumerate(coefficients[:steps]):
        column.append(c + column[t - apart] if t >= apart else c)
    total = sum((y * y for y in column), arb(0))
    known = len(column)
    for t in range(max(0, known - apart), known):
        # Behind the last coefficient the column repeats its last ``apart`` entries.
        total += column[t] * column[t] * ((steps - 1 - t) // apart)
    return total.sqrt()


_SCHEDULES = ("full_batch", "shuffled_epochs", "disjoint_batches")
_BATCHES = {
    "poisson": lambda s, sampling, count, relation: _poisson(s, _probability(sampling), relation, count),
    "without_replacement": _without_replacement,
    "with_replacement": _with_replacement,
    "truncated_poisson": _truncated,
}
_MECHANISMS = {
    "gaussian": _gaussian,
    "gaussian_mixture": _mixture,
    "laplace": _laplace,
    "randomized_response": _response,
    "pure_dp": _pure,
    "correlated_gaussian": _correlated,
    "square_root_gaussian": _square_root,
}
