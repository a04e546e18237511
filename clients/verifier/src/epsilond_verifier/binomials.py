"""Computes binomial probabilities as balls, for up to 1e13 records and more."""

from __future__ import annotations

from flint import arb, ctx

from epsilond_verifier.bounds import refuse_unless, require

_MOST_TERMS, _BITS_OF_SEARCH = 20_000, 160


def hits(trials: int, q: arb, most: int) -> list[arb]:
    """Return P(Bin(trials, q) = h) for h = 0, ..., most."""
    return [arb.bin_uiui(trials, h) * q**h * (1 - q) ** (trials - h) for h in range(most + 1)]


def tail(trials: int, q: arb, least: int) -> arb:
    """Return P(Bin(trials, q) >= least) for 0 < q < 1, for an integer ``least``.

    The smaller of the two tails is summed: P(X >= least) itself, or P(X < least), which is then subtracted from 1."""
    if least > trials:
        return arb(0)
    if least <= trials * q:
        return 1 - tail(trials, 1 - q, trials - least + 1)
    return _mass(trials, q, least) * (1 + _odds(trials, q, least))


def most_displaced(most_records: int, q: arb, size: int) -> arb:
    """Return the largest g(n) = B P(Bin(n, q) > B) / n over all n up to ``most_records``, where B is ``size``.

    g(n + 1) / g(n) = (n + 1/R(n)) / (n + 1), where R(n) = P(Bin(n, q) > B) / (n q P(Bin(n, q) = B)) increases with n.
    So g is largest at the first n for which R is more than 1.
    """
    rising, peak = size, most_records
    with ctx.workprec(min(ctx.prec, _BITS_OF_SEARCH)):
        while peak - rising > 1:
            middle = (peak + rising) // 2
            least = middle * q
            odds = _odds(middle, q, size, least)
            require(odds > least or odds <= least, "the data set size with the most cuts is the computed one")
            rising, peak = (rising, middle) if odds > least else (middle, peak)
    return arb(size) / peak * tail(peak, q, size + 1)


def _mass(trials: int, q: arb, place: int) -> arb:
    """Return P(Bin(trials, q) = place). Extra bits make up for the digits that the factorials lose."""
    with ctx.extraprec(64):
        found = (arb(trials + 1).lgamma() - arb(place + 1).lgamma() - arb(trials - place + 1).lgamma()).exp()
        return found * q**place * (1 - q) ** (trials - place)


def _odds(trials: int, q: arb, place: int, enough: arb | None = None) -> arb:
    """Return P(Bin(trials, q) > place) / P(Bin(trials, q) = place), or a lower bound of it that is above ``enough``.

    The ratios of neighbouring masses decrease, so from some term on the rest is less than a geometric series.
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
    refuse_unless(trials <= place + _MOST_TERMS, "a binomial tail has more terms than this verifier adds up")
    return total
