"""Binomial probabilities in balls: of 1e13 records, too."""

from __future__ import annotations

from flint import arb, ctx

from epsilond_verifier.bounds import require

#: The bits of a tail's evaluation. They are limited because its time grows with them.
_BITS = 160


def hits(trials: int, q: arb, most: int) -> list[arb]:
    """Return P(Bin(trials, q) = h) for h = 0, ..., most."""
    return [arb.bin_uiui(trials, h) * q**h * (1 - q) ** (trials - h) for h in range(most + 1)]


def tail(trials: int, q: arb, least: int) -> arb:
    """Return P(Bin(trials, q) >= least), 0 < q < 1: the regularised incomplete beta function I_q(least, trials - least
    + 1), or 1 less the other tail, for which the arguments are the other way round."""
    if least > trials:
        return arb(0)
    if least <= trials * q:
        return 1 - tail(trials, 1 - q, trials - least + 1)
    with ctx.workprec(_BITS):
        return q.beta_lower(least, trials - least + 1, regularized=True)


def most_displaced(most_records: int, q: arb, size: int) -> arb:
    """Return the largest g(n) = B P(Bin(n, q) > B) / n of all n up to ``most_records``.

    g rises up to the first n with g(n + 1) < g(n), and falls from there on.
    """

    def g(n: int) -> arb:
        with ctx.workprec(_BITS):
            return size * tail(n, q, size + 1) / n

    rising, peak = size, most_records
    while peak - rising > 1:
        middle = (peak + rising) // 2
        before, after = g(middle), g(middle + 1)
        require(after < before or after >= before, "the number of records that is cut most is known")
        rising, peak = (rising, middle) if after < before else (middle, peak)
    return g(peak)
