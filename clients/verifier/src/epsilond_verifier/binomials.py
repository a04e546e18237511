"""Binomial probabilities in balls: of 1e13 records, too."""

from __future__ import annotations

from flint import arb, ctx

from epsilond_verifier.bounds import refuse_unless, require

_MOST_TERMS, _BITS_OF_SEARCH = 20_000, 160


def hits(trials: int, q: arb, most: int) -> list[arb]:
    """Return P(Bin(trials, q) = h) for h = 0, ..., most."""
    return [arb.bin_uiui(trials, h) * q**h * (1 - q) ** (trials - h) for h in range(most + 1)]


def tail(trials: int, q: arb, least: int) -> arb:
    """Return P(Bin(trials, q) >= least), 0 < q < 1: masses from ``least`` on, or 1 less those before it."""
    if least > trials:
        return arb(0)
    if least <= trials * q:
        return 1 - tail(trials, 1 - q, trials - least + 1)
    return _mass(trials, q, least) * (1 + _odds(trials, q, least))


def most_displaced(most_records: int, q: arb, size: int) -> arb:
    """Return the largest g(n) = B P(Bin(n, q) > B) / n of all n up to ``most_records``.

    g(n + 1) / g(n) = (n + 1/R(n)) / (n + 1), where R(n) = P(Bin(n, q) > B) / (n q P(Bin(n, q) = B)) rises with n. So g
    is largest at the first n whose R is more than 1.
    """
    rising, peak = size, most_records
    with ctx.workprec(min(ctx.prec, _BITS_OF_SEARCH)):
        while peak - rising > 1:
            middle = (peak + rising) // 2
            least = middle * q
            odds = _odds(middle, q, size, least)
            require(odds > least or odds <= least, "the number of records that is cut most is known")
            rising, peak = (rising, middle) if odds > least else (middle, peak)
    return arb(size) / peak * tail(peak, q, size + 1)


def _mass(trials: int, q: arb, place: int) -> arb:
    """Return P(Bin(trials, q) = place), whose factorials lose the digits of the number of trials."""
    with ctx.extraprec(64):
        found = (arb(trials + 1).lgamma() - arb(place + 1).lgamma() - arb(trials - place + 1).lgamma()).exp()
        return found * q**place * (1 - q) ** (trials - place)


def _odds(trials: int, q: arb, place: int, enough: arb | None = None) -> arb:
    """Return P(Bin(trials, q) > place) / P(Bin(trials, q) = place), or something above ``enough`` that is at most it.

    Ratios of neighbouring masses fall, so that from some term on the rest is less than a geometric series.
    """
    term, total, odds = arb(1), arb(0), q / (1 - q)
    for k in range(place, min(trials, place + _MOST_TERMS)):
        ratio = (trials - k) * odds / (k + 1)
        term *= ratio
        total += term
        if enough is not None and total > enough:
            return total
        rest = term * ratio / (1 - ratio) if ratio < 1 else total
        if rest < total * arb(2) ** -ctx.prec:
            return total + arb(0, rest.upper())
    refuse_unless(trials <= place + _MOST_TERMS, "the tail of a binomial law has too many terms")
    return total
