"""This module states the recommended numbers and the error bounds of Algorithm 12 for a plan, each with its source."""

from __future__ import annotations

import math
from dataclasses import dataclass

from calibrators.lowy_razaviyayn.lower_bounds import failed_conditions, strongly_convex_lower_rate
from calibrators.lowy_razaviyayn.median_of_means import MedianOfMeans, medians_rate, normal_length
from calibrators.lowy_razaviyayn.medians_setting import warnings_of
from calibrators.lowy_razaviyayn.moments import PAPER
from calibrators.lowy_razaviyayn.zcdp import paper_rho
from calibrators.phases.median_of_means import MedianPhase
from calibrators.provenance import GRADIENT, Provenance, ProvenanceKind, Units

#: The units of a squared distance between means.
_SQUARED = Units(loss=2, parameter=-2)

HOLDS = (
    "the records are independent and identically distributed, and dataset_size is their number",
    "each coordinate has a k-th central moment of at most gamma, and the mean's norm is at most L",
)
_TOO_SMALL = "tau >= 2 L; this does not hold here"
_TOO_FEW = "m >= ln(2 d / zeta) / 0.4802; this does not hold here"
_BIAS = r"\beta = \tfrac{(k-1)^{k-1}}{k^k} \gamma (2/\tau)^{k-1}"
_DEVIATION = r"\tfrac{\min(\gamma^{1/k}, \tau)}{\sqrt{b p}}"
_P = r"p = \tfrac12 \left(1 - \sqrt{1 - (\zeta/(2d))^{2/m}}\right)"
_PRINTED = r"10 \sqrt d \left(\gamma^{1/k}/\sqrt b + \gamma (2/\tau)^{k-1}\right)"


@dataclass(frozen=True, slots=True)
class PlannedMedians:
    """A plan of this algorithm, together with what is known about the records.

    Attributes:
        phase: The plan's single phase.
        noise_multiplier: The noise multiplier z.
        records: The number n of records.
        medians: The medians before noise is added.
        mean_bound: The bound L on the mean.
        order_constant: The order constant c.
    """

    phase: MedianPhase
    noise_multiplier: float
    records: int
    medians: MedianOfMeans
    mean_bound: float
    order_constant: float

    def warnings(self) -> tuple[str, ...]:
        """Return sentences about numbers that are left out."""
        return warnings_of(self.phase.truncation_radius, self.mean_bound)

    def utility(self) -> tuple[Provenance, ...]:
        """Return bounds on the error with their probabilities, bounds on the bias, the noise, and rates that are known
        only up to constants.
        """
        medians, derived, exact = self.medians, ProvenanceKind.DERIVED, ProvenanceKind.EXACT
        noise = self.phase.noise_stddev * normal_length(self.phase.dimension, medians.failure_probability)
        few = () if medians.printed_error is not None else (_TOO_FEW,)
        return (
            self._length(
                "error_bound",
                medians.error() + noise,
                rf"\|\tilde\nu - \nu\| \le \sqrt d \left(\beta + {_DEVIATION}\right)"
                rf" + \sigma \left(\sqrt d + \sqrt{{2\ln(2/\zeta)}}\right),\; {_P}",
                derived,
                self._likely(),
            ),
            self._length(
                "error_before_noise",
                medians.error(),
                rf"\|\hat\nu - \nu\| \le \sqrt d \left(\beta + {_DEVIATION}\right),\; {_BIAS}",
                derived,
                self._likely(),
            ),
            self._length("error_before_noise_printed", medians.printed_error, _PRINTED, exact, self._likely(*few)),
            self._length("bias", medians.bias, _BIAS, derived, (*HOLDS, "of each coordinate")),
            self._length(
                "bias_printed", medians.printed_bias, r"10 \gamma (2/\tau)^{k-1}", exact, (*HOLDS, "of each coordinate")
            ),
            Provenance(
                "noise_variance",
                self.phase.dimension * self.phase.noise_stddev**2,
                r"d \sigma^2 = d^2 z^2 \tau^2/b^2",
                f"{PAPER}, Algorithm 12",
                exact,
                ("the bound is for all coordinates together",),
                units=_SQUARED,
            ),
            *self._rates(),
            self._lower_rate(),
        )

    def _rates(self) -> tuple[Provenance, ...]:
        c, k, g = self.order_constant, self.medians.moment_order, self.medians.coordinate_moment
        d, radius = self.phase.dimension, self.phase.truncation_radius
        rate = medians_rate(d, k, g, radius, self.records)
        squared = rate**2 + d * self.phase.noise_stddev**2
        formula = r"R = \sqrt d \left(\gamma^{1/k}/\sqrt n + \gamma (2/\tau)^{k-1}\right)"
        words = (*HOLDS, f"order_constant c = {c:g}", "the rate is without logarithms", *self._outside)
        found = (
            ("bias_rate", c * rate, rf"c R,\; {formula}", GRADIENT),
            ("mean_squared_error_rate", c * squared, rf"c (R^2 + d\sigma^2),\; {formula}", _SQUARED),
        )
        return tuple(
            Provenance(
                name,
                value if self._is_covered else None,
                text,
                f"{PAPER}, Lemma 52",
                ProvenanceKind.ORDER,
                words,
                units=units,
            )
            for name, value, text, units in found
        )

    def _lower_rate(self) -> Provenance:
        c, k, d = self.order_constant, self.medians.moment_order, self.phase.dimension
        rho = paper_rho(self.noise_multiplier)
        longest = math.sqrt(d) * self.medians.coordinate_moment
        outside = tuple(f"needs {words}" for words in failed_conditions(d, rho))
        return Provenance(
            "lower_rate",
            None if outside else c * strongly_convex_lower_rate(k, longest, 1.0, d, self.records, rho),
            r"c\, \gamma^{2/k} d \left(\tfrac1n + \min\{1, \sqrt d/(\sqrt\rho\, n)\}^{(2k-2)/k}\right),\; \rho = 2/z^2",
            f"{PAPER}, Theorem 8 (its mean estimation, under Assumption 3)",
            ProvenanceKind.ORDER,
            (
                "a lower bound on the squared error for the worst distribution of records with these k and "
                "gamma, for every algorithm that is as private as this plan in zCDP when a record is replaced",
                f"order_constant c = {c:g}",
                *outside,
            ),
            units=_SQUARED,
        )

    def _likely(self, *further: str) -> tuple[str, ...]:
        return (*HOLDS, f"with probability at least 1 - zeta = {1.0 - self.medians.failure_probability:g}", *further)

    def _length(
        self, name: str, value: float | None, formula: str, kind: ProvenanceKind, words: tuple[str, ...]
    ) -> Provenance:
        """Return a bound on the distance from the mean. The bound is vacuous if it is at least L, because the point 0
        is within L of the mean.
        """
        kept = value if self._is_covered else None
        return Provenance(
            name,
            kept,
            formula,
            f"{PAPER}, Lemma 52" + (" (constants derived)" if kind is ProvenanceKind.DERIVED else ""),
            kind,
            (*words, *self._outside),
            vacuous=None if kept is None or "bound" not in name else kept >= self.mean_bound,
            units=GRADIENT,
        )

    @property
    def _outside(self) -> tuple[str, ...]:
        return () if self._is_covered else (_TOO_SMALL,)

    @property
    def _is_covered(self) -> bool:
        return self.phase.truncation_radius >= 2.0 * self.mean_bound


def recommended(groups: int, radius: float | None) -> tuple[Provenance, ...]:
    """Return the recommended numbers: one step, an m that suffices, and tau if the moments are known."""
    derived = ProvenanceKind.DERIVED
    found = (
        Provenance("iterations", 1.0, "1", f"{PAPER}, Algorithm 12 (written as one step: derived)", derived),
        Provenance(
            "num_groups",
            float(groups),
            r"m = \lceil \ln(2d/\zeta)/0.4802 \rceil",
            f"{PAPER}, Lemma 52 (with a smaller constant: derived)",
            derived,
        ),
    )
    if radius is None:
        return found
    return (
        *found,
        Provenance(
            "truncation_radius",
            radius,
            r"\tau = \max\left\{2L,\; 2 \gamma^{1/k} \left(\tfrac{(k-1)^k}{k^k} \tfrac{\sqrt d}{2N}\right)^{1/k}"
            r"\right\},\; N = \tfrac{z\sqrt d}{b} \left(\sqrt d + \sqrt{2\ln(2/\zeta)}\right)",
            f"{PAPER}, Lemma 52 (bias and noise balanced: derived)",
            derived,
            units=GRADIENT,
        ),
    )
