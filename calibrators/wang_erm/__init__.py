"""Wang, Ye & Xu 2017, "Differentially Private Empirical Risk Minimization Revisited: Faster and More General" (arXiv
1802.05251). The algorithms are DP-GD, which takes full gradients with Gaussian noise; DP-SVRG and DP-SVRG++, which
reduce the variance of sampled gradients; and DP-AccMD, which takes accelerated steps in a ball. DP-SVRG, DP-SVRG++ and
DP-AccMD are not private as printed, but the versions here are private.

The paper's noise has an unspecified constant, and no single value of it suffices for all epsilon. Here the accounting
engine computes the noise. The explicit bounds are derived here. `docs/algorithms/wang_erm.md` contains the proofs for
DP-GD, and the modules contain the other proofs.
"""
