"""Laws of discrete mechanisms on neighbours, outcome by outcome, in long precision; and what follows from them."""

from __future__ import annotations

from collections.abc import Sequence

import mpmath as mp

Law = Sequence[mp.mpf]


@mp.workdps(40)
def randomized_response(k: int, p: float, against_null: bool) -> tuple[Law, Law]:
    """The true answer, another record's, and the rest together; with the null record, the true answer and the rest."""
    flip = mp.mpf(p)
    kept, other = 1 - flip + flip / k, flip / k
    if against_null:
        return [kept, (k - 1) * other], [mp.mpf(1) / k, mp.mpf(k - 1) / k]
    return [kept, other, (k - 2) * other], [other, kept, (k - 2) * other]


@mp.workdps(40)
def discrete_laplace(a: float, shift: int) -> tuple[Law, Law]:
    """Mass tanh(a/2) e^(-a |y|), shifted by k; outcomes beyond both centres together."""
    rate = mp.mpf(a)
    beyond = 1 / (1 + mp.exp(-rate))
    between = [mp.tanh(rate / 2) * mp.exp(-rate * y) for y in range(1, shift)]
    first = [beyond, *between, beyond * mp.exp(-rate * shift)]
    return first, first[::-1]


@mp.workdps(40)
def discrete_gaussian(s: float, shift: int) -> tuple[Law, Law]:
    """Mass e^(-y^2 / (2 s^2)), shifted by k, out to 15 deviations."""
    reach = int(15 * s) + shift + 2
    masses = {y: mp.exp(-(mp.mpf(y) ** 2) / (2 * mp.mpf(s) ** 2)) for y in range(-reach - shift, reach + shift + 1)}
    total = mp.fsum(masses.values())
    places = range(-reach, reach + shift + 1)
    return [masses[y] / total if y in masses else mp.mpf(0) for y in places], [
        masses[y - shift] / total if y - shift in masses else mp.mpf(0) for y in places
    ]


@mp.workdps(40)
def hockey_stick(first: Law, second: Law, epsilon: float) -> mp.mpf:
    """delta(eps), for any real eps."""
    growth = mp.exp(mp.mpf(epsilon))
    return mp.fsum(max(p - growth * q, mp.mpf(0)) for p, q in zip(first, second, strict=True))


@mp.workdps(40)
def excess(first: Law, second: Law, epsilon: float) -> mp.mpf:
    """delta(eps) over max(0, 1 - e^eps)."""
    return hockey_stick(first, second, epsilon) - max(mp.mpf(0), 1 - mp.exp(mp.mpf(epsilon)))


@mp.workdps(40)
def composed(first: Law, second: Law, count: int) -> tuple[Law, Law]:
    """All outcomes of several steps; those of equal loss are put together."""
    laws: dict[str, tuple[mp.mpf, mp.mpf]] = {"0": (mp.mpf(1), mp.mpf(1))}
    for _ in range(count):
        following: dict[str, tuple[mp.mpf, mp.mpf]] = {}
        for p, q in laws.values():
            for r, s in zip(first, second, strict=True):
                if r == 0 or s == 0:
                    continue
                key = mp.nstr(mp.log(p * r / (q * s)), 20)
                key = "0" if abs(mp.mpf(key)) < mp.mpf("1e-25") else key
                known = following.get(key, (mp.mpf(0), mp.mpf(0)))
                following[key] = (known[0] + p * r, known[1] + q * s)
        laws = following
    return [p for p, _ in laws.values()], [q for _, q in laws.values()]


@mp.workdps(40)
def log_moment(first: Law, second: Law, tilt: float) -> mp.mpf:
    """K(x) of the worse direction."""
    return max(
        mp.log(mp.fsum(p * (p / q) ** mp.mpf(tilt) for p, q in zip(a, b, strict=True) if p > 0 and q > 0))
        for a, b in ((first, second), (second, first))
    )


@mp.workdps(40)
def largest_mu(first: Law, second: Law) -> mp.mpf:
    """The largest mu of a Neyman-Pearson test's two errors: the mechanism is mu-GDP and no less."""
    order = sorted(range(len(first)), key=lambda i: first[i] / second[i])
    corners = []
    for cut in range(1, len(order)):
        missed, raised = mp.fsum(first[i] for i in order[:cut]), mp.fsum(second[i] for i in order[cut:])
        corners.append(_quantile(1 - missed) + _quantile(1 - raised))
    return max(corners)


def _quantile(probability: mp.mpf) -> mp.mpf:
    return mp.sqrt(2) * mp.erfinv(2 * probability - 1)
