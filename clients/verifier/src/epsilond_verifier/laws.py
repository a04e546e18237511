"""The distributions of the privacy loss of independent steps, from events and a relation, with the theorems that are
assumed.

s is the noise multiplier, and p_h the probability that h of the records in which the data sets differ take part; for
one record, p = (1-q, q). f(x) is the sum of p_h e^(h (2x-h) / (2 s^2)), and x ~ N(0, s^2). The numbers of an event are
exact, and numbers that follow from them are balls at the precision of the certificate.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial, reduce
from itertools import accumulate, pairwise
from typing import Self

from flint import acb, acb_poly, arb, ctx, fmpq

from epsilond_verifier.binomials import hits, most_displaced, tail
from epsilond_verifier.bounds import CannotCheck, normal_cdf, refuse_unless, require
from epsilond_verifier.reading import Reader

RELATIONS = ("add_or_remove_one", "replace_one", "replace_special")
_COUNT, _SIZE, _BANDS = 10**8, 10**13, 4096
MOST_IN_GROUP, MOST_BRANCHES = 256, 64
#: From this standard deviation on (in steps of the grid), a sum of discrete Gaussians is treated as one of them.
_ADDED_UP = 3
COMPOSED = "compositions, also adaptive ones, are dominated by those of the pairs (Zhu, Dong & Wang 2022)"
GAUSSIAN = "N(sensitivity, s^2) against N(0, s^2) dominates Gaussian noise (Balle & Wang 2018)"
SCHEDULE = "a record is in at most one full batch of each pass; records in different batches cost no more than in one"
POISSON = "(1-q) N(0) + q N(1) against N(0), both ways, dominates Poisson batches (Zhu, Dong & Wang 2022)"
REPLACED = "(1-q) N(0) + q N(1) against (1-q) N(0) + q N(-1) dominates replaced records (docs/sampling/poisson.md)"
FIXED_SIZE = "the symmetrised pair of sensitivity 2 dominates fixed sizes (Balle, Barthe & Gaboardi 2018, Theorem 9)"
GROUP = "a group costs at most what equal records cost (docs/sampling/poisson.md)"
DRAWS = "draws are dominated by a mixture that reveals how often a record is drawn (docs/concepts/certificates.md)"
CUT = "a mixture that reveals whether a batch was cut dominates a random cut (docs/sampling/truncated_poisson.md)"
SCALES = "noise of a random scale is dominated by noise whose scale is revealed"
LAPLACE = "L(sensitivity, b) against L(0, b) dominates Laplace noise"
RESPONSE = "the distributions of the two answers dominate randomised response, since they are its outputs"
DISCRETE = "the largest shift dominates discrete noise: its law is log-concave (docs/concepts/certificates.md)"
PURE = "randomised response of the same epsilon dominates every epsilon-DP step (Kairouz, Oh & Viswanath 2015)"
CORRELATED = (
    "the worst steps of a record are as close together as allowed (Kalinin & Lampert 2024, Theorem 2), and are one "
    "Gaussian mechanism (Smith & Thakurta 2022), or one sampled step per cycle (Choquette-Choo et al. 2023, Theorem 4)"
)


@dataclass(frozen=True)
class Normal:
    """A full batch, whose loss is normal with variance mu^2: M(z) = e^(mu^2 z (z+1) / 2). ``rational`` is mu^2 if it is
    a rational number."""

    mu_squared: arb
    rational: fmpq | None = None


@dataclass(frozen=True)
class Sampled:
    """A step on sampled batches: with probability p_h, h of the added, removed or replaced records are in the batch,
    for h = 0, ..., H."""

    s: arb
    weights: tuple[arb, ...]
    replace: bool = False

    @classmethod
    def of_one(cls, s: arb, q: arb, replace: bool = False) -> Self:
        """Return the law for one record that is in a batch with probability q."""
        return cls(s, (1 - q, q), replace)

    @property
    def q(self) -> arb:
        """Return q, the probability that exactly one record is in a batch."""
        return self.weights[1]

    @property
    def most(self) -> int:
        """Return H, the largest number of records."""
        return len(self.weights) - 1

    @property
    def turned(self) -> arb:
        """Return s^2 / H. If Im x is that large, the arguments of the terms of f are at most 1."""
        return self.s * self.s / self.most

    @cached_property
    def _polynomial(self) -> acb_poly:
        return acb_poly([p * (-arb(h * h) / (2 * self.s * self.s)).exp() for h, p in enumerate(self.weights)])

    def f(self, x: acb) -> acb:
        """Return f(x), a polynomial in e^(x / s^2)."""
        return self._polynomial((x / (self.s * self.s)).exp())

    def ratio(self, x: arb) -> arb:
        """Return dP/dQ at x: f(x), or f(x) / f(-x) if records are replaced."""
        return self.f(acb(x)).real / (self.f(acb(-x)).real if self.replace else 1)

    def mass_beyond(self, x: arb, way: int) -> arb:
        """Return the sum over h of p_h P(N(way h, s^2) > x)."""
        return sum((p * normal_cdf((way * h - x) / self.s) for h, p in enumerate(self.weights)), arb(0))


class FixedSize(Sampled):
    """Batches of a fixed size, where s is divided by the sensitivity 2. The loss is log f or -log f beyond x = 1/2, and
    otherwise 0."""


class Poisson(Sampled):
    """Poisson batches. The loss is log f for remove and -log f for add; if records are replaced, it is log f(x) - log
    f(-x) in both directions."""


@dataclass(frozen=True)
class Mixture:
    """A step that reveals which branch it takes: the probabilities and the laws of the branches."""

    branches: tuple[tuple[arb, Normal | Sampled], ...]


@dataclass(frozen=True)
class Draws:
    """``size`` draws with replacement, each of which draws a given record with probability q. Shares select a
    dominating pair."""

    s: arb
    size: int
    q: arb

    def seen(self, shares: list[arb]) -> tuple[Mixture, arb]:
        """Return the branches for 1 to H draws of the record, and the probability of more. The given shares are those
        for 2 to H draws."""
        most = len(shares) + 1
        refuse_unless(most <= self.size, "there are shares for more draws of a record than are made")
        rest, (_, *drawn) = tail(self.size, self.q, most + 1), hits(self.size, self.q, most)
        chosen, branches = [1 - rest - sum(shares, arb(0)), *shares], []
        for h, (share, p) in enumerate(zip(chosen, drawn, strict=True), 1):
            require(p <= share, f"the share of {h} draws is at least their probability")
            branches.append((share, FixedSize.of_one(self.s / (2 * h), p / share)))
        return Mixture(tuple(branches)), rest


@dataclass(frozen=True)
class Laplace:
    """Laplace noise of scale b, with lam = sensitivity / b."""

    lam: arb


@dataclass(frozen=True)
class Atoms:
    """A step with finitely many outcomes, whose losses are at equal distances: (probability, loss) of each, in the
    direction remove and in the direction add."""

    remove: tuple[tuple[arb, arb], ...]
    add: tuple[tuple[arb, arb], ...]

    @property
    def number(self) -> int:
        """Return the number of outcomes."""
        return len(self.remove)

    def outcomes(self, direction: str) -> tuple[tuple[arb, arb], ...]:
        """Return the outcomes in one direction."""
        return self.add if direction == "add" else self.remove


@dataclass(frozen=True)
class OnGrid:
    """Discrete noise of parameter s, of laws that are k apart, in steps of a grid."""

    s: arb
    k: int


class DiscreteLaplace(OnGrid):
    """Discrete noise whose probability of y is proportional to e^(-|y| / s)."""

    @property
    def number(self) -> int:
        """Return the number of outcomes."""
        return self.k + 1

    def outcomes(self, _direction: str) -> list[tuple[arb, arb]]:
        """Return the losses (k - 2i) / s, with the masses of y <= 0, y = i, and y >= k."""
        end = 1 / (1 + (-1 / self.s).exp())
        inside = [(1 / (2 * self.s)).tanh() * (-i / self.s).exp() for i in range(1, self.k)]
        masses = [end, *inside, end * (-self.k / self.s).exp()]
        return [(mass, (self.k - 2 * i) / self.s) for i, mass in enumerate(masses)]


@dataclass(frozen=True)
class DiscreteGaussian(OnGrid):
    """Discrete noise: the probability of y is proportional to e^(-y^2 / (2 s^2)), and beyond K about 2^-precision."""

    factor: arb

    @classmethod
    def of(cls, s: arb, k: int, count: int) -> tuple[Self, int]:
        """Return the law and count of ``count`` steps, as one step if their noise adds up to such noise (Theorem E)."""
        if not s >= _ADDED_UP:
            return cls(s, k, arb(1)), count
        r = 2 / ((arb.pi() * s) ** 2).expm1()
        spread = ((1 + r) / (1 - r)) ** (count - 1)
        return cls(s * arb(count).sqrt(), k * count, spread.union(1 / spread)), 1

    @property
    def reach(self) -> int:
        """Return K."""
        return int(float(self.s * (2 * ctx.prec * arb(2).log()).sqrt())) + 2

    @property
    def number(self) -> int:
        """Return the number of outcomes."""
        return 2 * self.reach + 1

    def outcomes(self, _direction: str) -> list[tuple[arb, arb]]:
        """Return the losses k (2y + k) / (2 s^2) for |y| <= K: masses beyond are less than a geometric series."""
        half = [(-((y / self.s) ** 2) / 2).exp() for y in range(self.reach + 1)]
        ratio = (-(self.reach + arb(1) / 2) / self.s**2).exp()
        total = 2 * sum(half[1:], arb(0)) + 1 + arb(0, (2 * half[-1] * ratio / (1 - ratio)).upper())
        places = range(-self.reach, self.reach + 1)
        return [(self.factor * half[abs(y)] / total, self.k * (2 * y + self.k) / (2 * self.s**2)) for y in places]


#: The theorems by which the pair of a step dominates the mechanism.
Why = tuple[str, ...]
Law = Normal | Sampled | Mixture | Draws | Laplace | Atoms | DiscreteLaplace | DiscreteGaussian


def delta_of_normal(mu: arb, e: arb) -> arb:
    """Return delta(e) of N(mu, 1) against N(0, 1)  (Balle & Wang 2018, Theorem 8)."""
    return normal_cdf(mu / 2 - e / mu) - e.exp() * normal_cdf(-mu / 2 - e / mu)


def is_symmetric(law: Law) -> bool:
    """Return whether the two directions have the same loss."""
    if isinstance(law, Mixture):
        return all(is_symmetric(branch) for _, branch in law.branches)
    return law.replace if isinstance(law, Poisson) else not isinstance(law, Atoms) or law.remove is law.add


def largest_loss(law: Law, direction: str) -> arb:
    """Return the least upper bound of the loss in one direction; raise `CannotCheck` if there is none."""
    if isinstance(law, Mixture):
        return reduce(arb.max, [largest_loss(branch, direction) for _, branch in law.branches])
    if isinstance(law, Atoms):
        return reduce(arb.max, [loss for _, loss in law.outcomes(direction)])
    if isinstance(law, Laplace | DiscreteLaplace):
        return law.lam if isinstance(law, Laplace) else law.k / law.s
    if isinstance(law, Poisson) and not law.replace and direction == "add":
        return -law.weights[0].log()
    raise CannotCheck(f"the privacy loss of a step has no bound in the direction {direction}")


def without_rare(law: Law, kept: int) -> tuple[Law, arb]:
    """Return the law restricted to batches with at most ``kept`` of the records, or to the first ``kept`` branches, and
    the mass that is left out. 0 keeps everything."""
    if isinstance(law, Mixture):
        last = kept or len(law.branches)
        return Mixture(law.branches[:last]), sum((p for p, _ in law.branches[last:]), arb(0))
    if kept == 0:
        return law, arb(0)
    refuse_unless(isinstance(law, Poisson), "'kept' must be 0 except for Poisson batches and mixtures")
    assert isinstance(law, Poisson)
    return replace(law, weights=law.weights[: kept + 1]), sum(law.weights[kept + 1 :], arb(0))


@dataclass(frozen=True, slots=True)
class Step:
    """``count`` equal steps, and the theorems by which their pair dominates the mechanism."""

    law: Law
    count: int
    assumed: Why


def sum_of_largest(steps: Sequence[Step], direction: str) -> arb:
    """Return the sum of the largest losses of all steps in one direction."""
    return sum((step.count * largest_loss(step.law, direction) for step in steps), arb(0))


def read_step(event: Reader, relation: str, group: int) -> Step:
    """Read one event, as the ledger writes it, for a group of this many records."""
    mechanism, sampling = event.inside("mechanism"), event.inside("sampling")
    count, kind = event.whole("count", 1, _COUNT), mechanism.word("kind", *_MECHANISMS)
    if group == 1:
        return _MECHANISMS[kind](mechanism, sampling, count, relation)
    refuse_unless(kind == "gaussian", f"{event.where}: for groups, this verifier covers Gaussian noise only")
    return _gaussian(mechanism, sampling, count, relation, group)


def _sensitivity(relation: str) -> int:
    return 2 if relation == "replace_one" else 1


def _noise(mechanism: Reader) -> arb:
    return arb(mechanism.real("noise_multiplier", 1e-3, 1e6))


def _probability(sampling: Reader) -> float:
    return sampling.real("sampling_probability", 5e-324, 1.0)


def _covered(condition: bool, sampling: Reader, relation: str) -> None:
    refuse_unless(condition, f"{sampling.where}: this verifier does not cover this sampling under {relation}")


def _by_position(sampling: Reader) -> bool:
    return sampling.word("assignment", "by_position", "independent") == "by_position"


def _schedule(sampling: Reader, kind: str, count: int, relation: str, scales: bool = False) -> tuple[float, int, Why]:
    """Return the probability that a record is in a batch, the number of batches, and the assumed theorems.

    For a schedule that is fixed in advance, the batches are the full batches in which a record takes part.
    """
    if kind in ("poisson", "full_batch"):
        return _probability(sampling) if kind == "poisson" else 1.0, count, ()
    independent = kind == "disjoint_batches" and not _by_position(sampling)
    # If two batches each move by one contribution, either may draw the branch that costs most.
    refused = ("replace_one" if scales else "") if independent else "add_or_remove_one"
    _covered(relation != refused, sampling, relation)
    passes = 1 if kind == "disjoint_batches" else -(-count // sampling.whole("steps_per_epoch", 1, _COUNT))
    return 1.0, passes, (SCHEDULE,)


def _pair(s: arb, q: float, relation: str, group: int = 1) -> tuple[Normal | Poisson, Why]:
    """Return the law for a group whose records are each in the batch with probability q, and the assumed theorems."""
    replaced, agree = relation == "replace_one", (GROUP,) if group > 1 else ()
    if q == 1.0:
        mu = _sensitivity(relation) * group / s
        rational = (_sensitivity(relation) * group / s.fmpq()) ** 2 if s.is_exact() else None
        return Normal(mu**2, rational), (*agree, GAUSSIAN)
    refuse_unless(group <= MOST_IN_GROUP, f"on Poisson batches, a group may have at most {MOST_IN_GROUP} records")
    pair = REPLACED if replaced else POISSON
    return Poisson(s, tuple(hits(group, arb(q), group)), replaced), agree or (pair,)


def _gaussian(mechanism: Reader, sampling: Reader, count: int, relation: str, group: int = 1) -> Step:
    s, kind = _noise(mechanism), sampling.word("kind", *_SCHEDULES, "poisson", *(_BATCHES if group == 1 else ()))
    if kind in _BATCHES:
        return _BATCHES[kind](s, sampling, count, relation)
    q, count, why = _schedule(sampling, kind, count, relation)
    law, pair = _pair(s, q, relation, group)
    return Step(law, count, why + pair)


def _mixture(mechanism: Reader, sampling: Reader, count: int, relation: str) -> Step:
    """Read noise of a random scale that is revealed; the weights need not add up to 1."""
    weights = mechanism.reals("weights", MOST_BRANCHES, 5e-324, 1.0)
    scales = mechanism.reals("noise_multipliers", len(weights), 1e-3, 1e6, len(weights))
    kind, total = sampling.word("kind", *_SCHEDULES, "poisson"), sum(map(arb, weights), arb(0))
    q, count, why = _schedule(sampling, kind, count, relation, scales=True)
    pairs = [_pair(arb(scale), q, relation) for scale in scales]
    branches = tuple((weight / total, law) for weight, (law, _) in zip(weights, pairs, strict=True))
    return Step(Mixture(branches), count, (SCALES, *why, *pairs[0][1]))


def _of_a_size(replaced: bool, s: arb, sampling: Reader, count: int, relation: str) -> Step:
    """Read batches of b of n records, drawn with replacement or without. For b = 1 the two are the same."""
    n = sampling.whole("dataset_size", 1 + replaced, _SIZE)
    b = sampling.whole("batch_size", 1, n)
    _covered(relation != "add_or_remove_one", sampling, relation)
    if replaced and b > 1:
        return Step(Draws(s, b, arb(fmpq(1, n))), count, (DRAWS, FIXED_SIZE))
    if b == n:
        law, pair = _pair(s, 1.0, relation)
        return Step(law, count, pair)
    # Replacement by null is a special case of replacement by another record, so the pair dominates here as well.
    return Step(FixedSize.of_one(s / 2, arb(fmpq(b, n))), count, (FIXED_SIZE,))


def _truncated(s: arb, sampling: Reader, count: int, relation: str) -> Step:
    """Read truncated Poisson batches: a mixture of Poisson's pair and the pair of a batch that was cut.

    With n places, tau is the probability that the other records fill a batch of B, and tau r = B P(Bin(n, q) > B) / n,
    where r is the probability that such a batch has the record. If n is private, g is the largest such number
    over all n, and a record in a cut batch may move the sum by 2.
    """
    n, b = sampling.whole("dataset_size", 1, _SIZE), sampling.whole("max_batch_size", 1, _SIZE)
    sampled, cuts = _probability(sampling), sampling.word("truncation", "random", "random_slots")
    (whole, pair), q = _pair(s, sampled, relation), arb(sampled)
    if b >= n:
        return Step(whole, count, pair)
    refuse_unless(sampled < 1, f"{sampling.where}: truncated Poisson batches need a probability below 1")
    if relation == "add_or_remove_one" and cuts == "random":
        near = q / (b + 1)
        seen, cut = most_displaced(n, q, b) / (b * near), Poisson(s, (1 - q, near, b * near))
        return Step(Mixture(((1 - seen, whole), (seen, cut))), count, (CUT, *pair))
    seen = tail(n - 1, q, b)
    fixed = FixedSize.of_one(s / 2, b * tail(n, q, b + 1) / (n * seen))
    return Step(Mixture(((1 - seen, whole), (seen, fixed))), count, (CUT, *pair, FIXED_SIZE))


def _laplace(mechanism: Reader, sampling: Reader, count: int, relation: str) -> Step:
    lam = _sensitivity(relation) / _noise(mechanism)
    _, count, why = _schedule(sampling, sampling.word("kind", *_SCHEDULES), count, relation)
    return Step(Laplace(lam), count, (*why, LAPLACE))


def _response(mechanism: Reader, sampling: Reader, count: int, relation: str) -> Step:
    """Read randomised response: u is the probability of the true answer, and v that of each other answer. A null record
    answers uniformly."""
    sampling.word("kind", "full_batch")
    _covered(relation != "add_or_remove_one", sampling, relation)
    k, p = mechanism.whole("num_categories", 2, 10**9), arb(mechanism.real("flip_probability", 1e-300, 1.0))
    u, v = 1 - p + p / k, p / k
    if relation == "replace_special":
        remove = ((u, (k * u).log()), ((k - 1) * v, (k * v).log()))
        add = ((arb(fmpq(1, k)), -(k * u).log()), (arb(fmpq(k - 1, k)), -(k * v).log()))
        return Step(Atoms(remove, add), count, (RESPONSE,))
    loss = (u / v).log()
    both = ((u, loss), ((k - 2) * v, arb(0)), (v, -loss))[:: 2 if k == 2 else 1]
    return Step(Atoms(both, both), count, (RESPONSE,))


def _pure(mechanism: Reader, sampling: Reader, count: int, _relation: str) -> Step:
    sampling.word("kind", "full_batch")
    loss = arb(mechanism.real("epsilon", 0.0, 1e6))
    both = ((1 / (1 + (-loss).exp()), loss), (1 / (1 + loss.exp()), -loss))
    return Step(Atoms(both, both), count, (PURE,))


def _discrete(
    law: Callable[[arb, int, int], tuple[Law, int]], mechanism: Reader, sampling: Reader, count: int, relation: str
) -> Step:
    """Read discrete noise. The contribution bound is a whole number of steps of the grid."""
    sampling.word("kind", "full_batch")
    grid = mechanism.real("grid", 1e-4, 1.0)
    steps = round(1 / grid)
    refuse_unless(abs(steps * grid - 1) <= 1e-9, f"{mechanism.where}: the grid must be the inverse of an integer")
    # Steps whose noise is added up to one step are still a composition.
    why = (DISCRETE, COMPOSED)[: min(count, 2)]
    return Step(*law(_noise(mechanism) * steps, _sensitivity(relation) * steps, count), why)


def _stated(mechanism: Reader, _count: int) -> list[arb]:
    coefficients = [arb(c) for c in mechanism.reals("coefficients", _BANDS, 0.0, 1e6)]
    falling = coefficients[0] > 0 and all(c >= d for c, d in pairwise(coefficients))
    refuse_unless(falling, f"{mechanism.where}: the first coefficient must be positive, and none may increase")
    return coefficients


def _square_root(mechanism: Reader, count: int) -> list[arb]:
    """Return the coefficients c_j = c_(j-1) (2j - 1) / (2j), beginning with 1."""
    number = min(mechanism.whole("bands", 1, _COUNT), count)
    refuse_unless(number <= _BANDS, f"{mechanism.where}: there may be at most {_BANDS} coefficients")
    return list(accumulate(range(1, number), lambda c, j: c * (2 * j - 1) / (2 * j), initial=arb(1)))


def _correlated(
    read: Callable[[Reader, int], list[arb]], mechanism: Reader, sampling: Reader, count: int, relation: str
) -> Step:
    """Read noise that is correlated over steps: sens^2 is the sum over t < T of y_t^2, with y_t = c_t + y_(t-m), where
    the steps of a record are m apart."""
    s, c = _noise(mechanism), read(mechanism, count)
    kind, q, apart, cycles = sampling.word("kind", "full_batch", "cyclic_poisson", "fixed_order_epochs"), 1.0, 1, 1
    if kind == "cyclic_poisson":
        cycle, q, apart = sampling.whole("cycle_length", 1, _COUNT), _probability(sampling), count
        _covered(relation != ("add_or_remove_one" if _by_position(sampling) else "replace_one"), sampling, relation)
        refuse_unless(len(c) <= cycle, f"{sampling.where}: there are more coefficients than steps in a cycle")
        cycles = -(-count // cycle)
    elif kind == "fixed_order_epochs":
        _covered(relation != "add_or_remove_one", sampling, relation)
        apart = sampling.whole("steps_per_epoch", 1, _COUNT)
    column: list[arb] = []
    for t, own in enumerate(c[:count]):
        column.append(own + column[t - apart] if t >= apart else own)
    # After the last coefficient, the column repeats its last ``apart`` entries.
    last = range(max(0, len(column) - apart), len(column))
    total = sum((y * y for y in column), arb(0)) + sum(column[t] ** 2 * ((count - 1 - t) // apart) for t in last)
    law, pair = _pair(s / total.sqrt(), q, relation)
    return Step(law, cycles, (CORRELATED, *pair))


_SCHEDULES = ("full_batch", "shuffled_epochs", "disjoint_batches")
_BATCHES: dict[str, Callable[[arb, Reader, int, str], Step]] = {
    "without_replacement": partial(_of_a_size, False),
    "with_replacement": partial(_of_a_size, True),
    "truncated_poisson": _truncated,
}
_MECHANISMS: dict[str, Callable[[Reader, Reader, int, str], Step]] = {
    "gaussian": _gaussian,
    "gaussian_mixture": _mixture,
    "laplace": _laplace,
    "randomized_response": _response,
    "pure_dp": _pure,
    "discrete_laplace": partial(_discrete, lambda s, k, count: (DiscreteLaplace(s, k), count)),
    "discrete_gaussian": partial(_discrete, DiscreteGaussian.of),
    "correlated_gaussian": partial(_correlated, _stated),
    "square_root_gaussian": partial(_correlated, _square_root),
}
