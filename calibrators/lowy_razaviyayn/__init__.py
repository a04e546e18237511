r"""Lowy & Razaviyayn, "Private Stochastic Optimization with Large Worst-Case Lipschitz Parameter" (ALT 2023, PMLR 201;
arXiv 2209.07403): stochastic optimisation when gradients have k moments and no uniform bound.

The paper's neighbours replace one record, and its budget is zero-concentrated: its $\varepsilon$ is
$\varepsilon_p = \sqrt{2\rho}$. One call of its mean oracle clips the gradients of $s$ records to length $C$, averages
them and adds $N(0, \sigma^2 I)$ with $\sigma^2 = 2 C^2 / (\rho s^2)$. Here the noise multiplier $z = \sigma s / C$
comes from the engine, for any target. If a formula of the paper needs $\varepsilon_p$, it is computed from the noise:
$\varepsilon_p = 2 / z$, under every neighbouring relation, because the utility of a run depends on its privacy only
through the noise.
"""
