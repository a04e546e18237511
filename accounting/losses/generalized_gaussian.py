r"""The generalised Gaussian mechanism adds noise with a density proportional to exp(-|z|_r^2 / (2 sigma^2)). It is
accounted by Renyi divergences.

Contributions are bounded in l_q, the dual of the norm l_p of the parameters, 1/p + 1/q = 1. The noise has the smooth
norm l_r, which replaces l_q with the regularity constants (r - 1, kappa): see `regularity`. With sums at l_q distance
D, the Renyi divergence of every order a > 1 is at most a kappa D^2 / (2 sigma^2).

Proof. Let m be the distance, y = z - m = (1 - 1/a) z + (1/a) (z - a m). Smoothness of the squared norm at y, averaged:

    (1 - 1/a) |z|^2 + (1/a) |z - a m|^2 - |y|^2 <= (r - 1) (1/a) (1 - 1/a) |a m|^2.

Times a: -a |z - m|^2 + (a - 1) |z|^2 <= -|z - a m|^2 + (r - 1) a (a - 1) |m|^2. Integrated over z, with |m|_r^2 <=
kappa / (r - 1) D^2, this gives the bound. Bassily, Guzman & Nandi 2021 expand at z and get a^2 / (a - 1) in place of a.

Only moments are bounded: no single dominating pair of distributions is known. For p = 2 the noise is the Gaussian's.
"""

from __future__ import annotations

from accounting.events.generalized_gaussian import GeneralizedGaussian
from accounting.losses.rules import ChargedStep, MechanismRules, rules_for
from accounting.losses.stated import RenyiLineLoss, ZcdpLoss
from accounting.units import Between, exact, exactly


@rules_for(GeneralizedGaussian)
class GeneralizedGaussianRules(MechanismRules[GeneralizedGaussian]):
    """The rules of generalised Gaussian noise.

    Guarantees: renyi_line: a kappa D^2 / (2 s^2) at every order a; attained_by_gaussian_noise_only.

    >>> round(GeneralizedGaussianRules().loss(GeneralizedGaussian(1.5, 100, 2.0, 4.0), 1.0).rho, 12)
    0.0625
    """

    linear_in_order = True

    def loss(self, mechanism: GeneralizedGaussian, sensitivity: float) -> RenyiLineLoss:
        distance = sensitivity / mechanism.noise_multiplier
        rho = 0.5 * mechanism.charged_kappa * distance * distance * (1.0 + 1e-15)
        return ZcdpLoss(rho) if mechanism.is_gaussian else RenyiLineLoss(rho)

    def zcdp_rho(self, mechanism: GeneralizedGaussian, step: ChargedStep) -> Between:
        return exactly(exact(mechanism.charged_kappa) * (step.sensitivity / exact(mechanism.noise_multiplier)) ** 2 / 2)
