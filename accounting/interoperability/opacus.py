"""Histories of Opacus' accountants, and the numbers that Opacus derives from them.

`accountant.state_dict()` (in a checkpoint ``privacy_accountant_state_dict``) holds ``mechanism`` ("rdp", "prv" or
"gdp") and ``history``, a list of [noise multiplier, sample rate, number of steps]. Every step is charged as a Poisson
sample under add_or_remove_one, whatever the loader did: with ``poisson_sampling=False`` the loader shuffles, and the
history looks the same. So the kind of batches must be stated beside it.

* "rdp": moments of the sampled Gaussian at 153 orders (1.1 to 10.9, 12 to 63), converted by Balle et al. 2020, Theorem
  21 (the form of Canonne, Kamath & Steinke 2020, Proposition 12).
* "gdp": mu = q sqrt(T (e^(1/s^2) - 1)), the central limit theorem of Bu, Dong, Long & Su 2020, which is not a bound.
* "prv": the upper end of a discretised privacy loss: epsilon at 0.999 delta plus an allowance of 0.01 (Gopi, Lee &
  Wutschitz 2021). Its lattice errs by far less than this allowance, so the true epsilon at 0.999 delta gives its
  number.

Source: Opacus 1.6, `opacus/accountants`; a history that it wrote is in the tests.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import scipy

from accounting.accountant import epsilon_for_delta
from accounting.composition.composition import compose
from accounting.composition.gaussian_dp import epsilon_of_gaussian
from accounting.errors import AccountingError, InvalidValue, one_of
from accounting.events import Event, FullBatch, Gaussian, Poisson
from accounting.interoperability.batches import SHUFFLED_CHARGED_AS_POISSON, Batches, taken_in_order
from accounting.interoperability.difference import Difference, Imported, Reported
from accounting.numbers import MAX_COUNT, MAX_EVENTS, read_integer, read_real
from accounting.relations import NeighboringRelation

MECHANISMS = ("rdp", "prv", "gdp")
#: The errors for which "prv" allows: the error of epsilon, and the relative error of delta.
_PRV_EPSILON, _PRV_DELTA = 0.01, 1e-3
_ORDERS = np.array([1.0 + x / 10.0 for x in range(1, 100)] + [float(x) for x in range(12, 64)])


@dataclass(frozen=True, slots=True)
class OpacusHistory:
    """The record of an accountant of Opacus.

    Attributes:
        mechanism: ``rdp``, ``prv`` or ``gdp``.
        history: Entries (noise multiplier, sample rate, steps), in their order.
    """

    mechanism: str
    history: tuple[tuple[float, float, int], ...]

    @classmethod
    def from_state(cls, state: Mapping[str, object]) -> OpacusHistory:
        """Read an accountant's ``state_dict()``, or the same from JSON.

        Raises:
            InvalidValue: If the history has another form, or a number is out of range. The pointer leads to it.

        >>> OpacusHistory.from_state({"mechanism": "rdp", "history": [[1.1, 0.01, 500]]}).history
        ((1.1, 0.01, 500),)
        """
        mechanism, history = state.get("mechanism"), state.get("history")
        if mechanism not in MECHANISMS:
            raise InvalidValue(f"mechanism must be {one_of(MECHANISMS)}", pointer=("mechanism",))
        if isinstance(history, str) or not isinstance(history, Sequence) or not 1 <= len(history) <= MAX_EVENTS:
            raise InvalidValue(f"history must be a list of 1 to {MAX_EVENTS} entries", pointer=("history",))
        entries = []
        for index, entry in enumerate(history):
            if isinstance(entry, str) or not isinstance(entry, Sequence) or len(entry) != 3:
                raise InvalidValue(
                    "an entry of history must be [noise multiplier, sample rate, steps]", pointer=("history", index)
                )
            try:
                noise = Gaussian(read_real("noise_multiplier", entry[0], 0.0, math.inf)).noise_multiplier
                rate = read_real("sample_rate", entry[1], 0.0, 1.0, open_lower=True)
                entries.append((noise, rate, read_integer("steps", entry[2], 1, MAX_COUNT)))
            except AccountingError as error:
                raise InvalidValue(error.detail, pointer=("history", index)) from None
        return cls(str(mechanism), tuple(entries))

    def events(self, batches: Batches) -> tuple[Event, ...]:
        """Return the steps, as the loader took them.

        Raises:
            InvalidValue: If the sample rate of shuffled batches is not 1 over a whole number of batches.
            Unsupported: If the noise or the sample rate of shuffled batches changes inside an epoch.
        """
        steps = [
            Event(Gaussian(noise), Poisson(rate) if rate < 1.0 else FullBatch(), steps)
            for noise, rate, steps in self.history
        ]
        return taken_in_order(steps, batches)

    def reported_epsilon(self, delta: float) -> float | None:
        """Return the answer of `get_epsilon(delta)`, to about three digits (six for ``gdp``); None if it raises."""
        if self.mechanism == "prv":
            events = self.events(Batches.POISSON)
            found = epsilon_for_delta(events, NeighboringRelation.ADD_OR_REMOVE_ONE, delta * (1.0 - _PRV_DELTA))
            return found.value.estimate + _PRV_EPSILON if math.isfinite(found.value.estimate) else None
        if self.mechanism == "rdp":
            poisson = compose(self.events(Batches.POISSON), NeighboringRelation.ADD_OR_REMOVE_ONE)
            divergences = poisson.log_moment(_ORDERS - 1.0) / (_ORDERS - 1.0)
            kernel = np.log1p(-1.0 / _ORDERS) - (math.log(delta) + np.log(_ORDERS)) / (_ORDERS - 1.0)
            return float(np.min(divergences + kernel))
        if self.mechanism == "gdp" and len(self.history) == 1:
            [(noise, rate, steps)] = self.history
            if noise < 0.04:
                return None
            mu = rate * math.sqrt(steps * math.expm1(noise**-2))
            # Opacus searches for epsilon only between 0 and 500.
            inside = 2.0 * float(scipy.special.ndtr(0.5 * mu)) - 1.0 > delta
            epsilon = epsilon_of_gaussian(mu, delta, upward=True)
            return epsilon if inside and epsilon < 500.0 else None
        return None


def import_opacus(
    history: OpacusHistory, relation: NeighboringRelation, delta: float, batches: Batches = Batches.POISSON
) -> Imported:
    """Return a history as events, with what Opacus reports and why it differs.

    Args:
        history: The record of Opacus' accountant.
        relation: The relation under which the events will be accounted. Opacus means add_or_remove_one.
        delta: The delta at which Opacus' number is taken, in (0, 1).
        batches: The batches of the loader, which the history does not show.

    Guarantees:
        every_step_is_read: the events have as many steps as the history, with its noise.
        reported_as_opacus_reports: within 2e-3, relatively, of its answer (rdp, whose moments at fractional orders
            are bounded here), within 1e-3 (prv) and within 1e-5 (gdp).

    Raises:
        InvalidValue: If a number is out of range, or batches do not fit the sample rate.
        Unsupported: If the noise or the sample rate of shuffled batches changes inside an epoch.

    >>> history = OpacusHistory.from_state({"mechanism": "gdp", "history": [[1.1, 0.1, 50]]})
    >>> found = import_opacus(history, NeighboringRelation.ADD_OR_REMOVE_ONE, 1e-5)
    >>> round(found.reported.epsilon, 6), [difference.code for difference in found.differences]
    (3.394755, ['central_limit', 'sample_rate_of_the_loader', 'floor_of_the_expected_batch'])
    """
    delta = read_real("delta", delta, 0.0, math.nextafter(1.0, 0.0), open_lower=True)
    relation = NeighboringRelation(relation)
    events = history.events(batches)
    their_relation = NeighboringRelation.ADD_OR_REMOVE_ONE
    reported = Reported("Opacus", history.mechanism, their_relation, history.reported_epsilon(delta))
    differences = [_OF_MECHANISM[history.mechanism], _LOADER, _DIVISOR]
    if batches is Batches.SHUFFLED:
        differences.insert(0, SHUFFLED_CHARGED_AS_POISSON)
    if relation is NeighboringRelation.REPLACE_ONE:
        differences.append(_REPLACE_ONE)
    return Imported(events, reported, tuple(differences))


_OF_MECHANISM = {
    "rdp": Difference(
        "renyi_conversion",
        "Opacus converts Renyi moments at 153 fixed orders into epsilon, which loses some precision; the interval "
        "here is computed from the privacy loss itself.",
        unsound=False,
    ),
    "prv": Difference(
        "allowance_of_its_lattice",
        "Opacus' number is the upper end of a discretised privacy loss: 0.01 is added to epsilon, and a "
        "thousandth of delta is taken off, whatever the error of its lattice is.",
        unsound=False,
    ),
    "gdp": Difference(
        "central_limit",
        "Opacus' number treats the limit of infinitely many steps as exact (mu = q sqrt(T (e^(1/s^2) - 1))). It "
        "is not a bound: the true epsilon is usually larger.",
        unsound=True,
    ),
}
_LOADER = Difference(
    "sample_rate_of_the_loader",
    "The recorded sample rate is 1 over the number of batches, which differs from batch size over data set size where "
    "the last batch is short; the history is read as it stands.",
    unsound=False,
)
_DIVISOR = Difference(
    "floor_of_the_expected_batch",
    "Opacus divides the noisy sum by the whole number below sample rate times data set size. The privacy is that of "
    "the sum; the step is larger than with the expected size itself, and the divisor is a constant only where the size "
    "of the data set is public.",
    unsound=False,
)
_REPLACE_ONE = Difference(
    "add_or_remove_one",
    "Opacus' number is for adding or removing a record. Replacing one moves the sum by twice the clipping norm, and "
    "costs more.",
    unsound=True,
)
