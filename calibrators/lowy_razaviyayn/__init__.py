r"""Lowy & Razaviyayn, "Private Stochastic Optimization with Large Worst-Case Lipschitz Parameter" (ALT 2023, PMLR 201;
arXiv 2209.07403). The paper is about stochastic optimisation when gradients have k bounded moments but no uniform
bound.

The paper's neighbouring data sets differ in one replaced record, and its privacy is zCDP. The paper's $\varepsilon$ is
$\varepsilon_p = \sqrt{2\rho}$. One call of its mean oracle clips the gradients of $s$ records to length $C$, averages
them and adds $N(0, \sigma^2 I)$ with $\sigma^2 = 2 C^2 / (\rho s^2)$. Here the noise multiplier $z = \sigma s / C$
comes from the engine, for any target. If a formula of the paper needs $\varepsilon_p$, it is computed from the noise as
$\varepsilon_p = 2 / z$. This is done under every neighbouring relation, because the utility of a run depends on its
privacy only through the noise.
"""
