"""Certificates of what a reservation's events cost alone. They are computed before any lock is taken, and remembered.

In an approximate_dp or pure_dp budget the charge itself is certified: its epsilon at its delta, which is 0 if
epsilons add up. In an approximate_gaussian_dp or gaussian_dp budget it is the Gaussian that is charged. If the Gaussian
has no certificate, and in all other budgets, the certificate covers the tight epsilon at the delta of the budget, or of
its reports. All of this
together takes at most the time that the processes allow one job.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from typing import Any

from accounting.certificates import CertifiedEnd, certified_price, certify_upper
from accounting.errors import AccountingError
from accounting.events import Event
from accounting.filters import PrivacyFilter
from accounting.units import Amounts, exact
from app.context import Context
from app.kit.process_pool import JobFailed
from app.ledger.amounts import amounts_in_words
from app.ledger.certificate_verification import GAUSSIAN, WITH_EPSILON
from app.ledger.commands import Quote
from app.problems import Problem
from app.reservations.prices import delta_of
from app.reservations.quotes import terms

#: The code of the warning that a reservation lacks the certificate that was asked for. It has none; or, in a Gaussian
#: budget, one for the epsilon of its events instead of the charged amounts.
NO_CERTIFICATE = "no_certificate"

#: The share of a job's time that a certificate of Gaussian amounts may take; the rest is left for the tight epsilon.
_SHARE_OF_AMOUNTS = 0.5

#: The number of certificates that are remembered; beyond that, all are forgotten.
_MOST_KNOWN = 1024
_KNOWN: dict[tuple[Any, ...], CertifiedEnd] = {}


def certified(context: Context, budget_id: str, events: tuple[Event, ...], quote: Quote) -> Quote:
    """Return the price with a certificate, or with a warning that says why there is none.

    Args:
        context: The process's context.
        budget_id: The budget, which exists.
        events: What is to be released.
        quote: The price of the events.

    Guarantees: it returns when one job's time is over, with whatever it has by then.
    """
    own, seconds = terms(context, budget_id), context.processes.seconds
    until, no_amounts = time.monotonic() + seconds, None
    if own.filter.kind in GAUSSIAN and events:
        price_terms = own.filter.price_terms
        rate = None if price_terms is None else exact(price_terms[1][0])
        question = (events, own.relation, quote.amounts, rate)
        priced = _certified_end(context, seconds * _SHARE_OF_AMOUNTS, certified_price, question)
        if priced.certificate is not None:
            return replace(quote, certificate=priced.certificate)
        no_amounts = f"The amounts that are charged have no certificate: {priced.reason}."
    epsilon, delta = None, delta_of(own.filter, own.report_delta)
    if own.filter.kind in WITH_EPSILON:
        epsilon, delta = _charge(own.filter, quote.amounts)
    found = CertifiedEnd(0.0, 0.0, None, "the budget has no delta, and neither have its reports")
    if delta is not None and events:
        left = max(0.0, until - time.monotonic())
        found = _certified_end(context, left, certify_upper, (events, own.relation, delta, epsilon))
    if found.certificate is None:
        said = f"There is no certificate of this charge: {found.reason}."
    elif no_amounts is not None:
        said = f"The certificate states the tight epsilon of the events, at delta {delta!r}."
    else:
        return replace(quote, certificate=found.certificate)
    detail = " ".join(each for each in (no_amounts, said, "The charge stands.") if each is not None)
    return replace(quote, certificate=found.certificate, warnings=(*quote.warnings, (NO_CERTIFICATE, detail)))


def _charge(own: PrivacyFilter, amounts: Amounts) -> tuple[float, float]:
    """Return the epsilon and the delta that a budget charges (0 in pure_dp), with an epsilon that rounding does not
    increase.

    If epsilons add up and delta is 0, both are rounded to the nearest number, like the epsilons of the events.
    """
    words = amounts_in_words(own, amounts)
    epsilon, delta = Fraction(str(words["epsilon"])), float(str(words.get("delta", 0)))
    nearest = float(epsilon)
    exact = delta == 0.0 or Fraction(nearest) <= epsilon
    return nearest if exact else math.nextafter(nearest, 0.0), delta


def _certified_end(
    context: Context, seconds: float, function: Callable[..., CertifiedEnd], question: tuple[Any, ...]
) -> CertifiedEnd:
    found = _KNOWN.get((function, *question))
    if found is None:
        try:
            found = context.processes.run_within(seconds, function, *question)
        except (AccountingError, JobFailed, Problem) as failure:
            return CertifiedEnd(0.0, 0.0, None, str(failure))  # a later attempt may succeed
        if len(_KNOWN) >= _MOST_KNOWN:
            _KNOWN.clear()
        _KNOWN[(function, *question)] = found
    return found
