"""Wang, Ye & Xu 2017, "Differentially Private Empirical Risk Minimization Revisited: Faster and More General" (arXiv
1802.05251). The algorithms are DP-GD, which takes full gradients with Gaussian noise; DP-SVRG and DP-SVRG++, which
reduce the variance of sampled gradients; and DP-AccMD, which takes accelerated steps in a ball. The last three are not
private as printed; the versions here are.

The paper's noise has an unspecified constant, and no single number suffices for it; here the noise comes from the
engine. The explicit bounds are derived here: `docs/algorithms/wang_erm.md` has the proofs for DP-GD, and the modules
have the others.
"""
