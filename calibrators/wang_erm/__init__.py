"""Wang, Ye & Xu 2017, "Differentially Private Empirical Risk Minimization Revisited: Faster and More General"
(arXiv 1802.05251): here DP-GD, full gradients with Gaussian noise.

The paper's noise has an unspecified constant, which no single number can be; here the noise comes from the engine. The
explicit bounds are derived: `docs/algorithms/wang_erm.md` has the proofs.
"""
