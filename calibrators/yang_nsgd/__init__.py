"""Yang, Zhang, Chen & Liu 2022, "Normalized/Clipped SGD with Perturbation for Differentially Private Non-Convex
Optimization" (arXiv 2206.13033): DP-SGD with clipping, DP-NSGD with normalisation, and Adam on either.

The explicit step sizes and bounds here are derived: they replace equations (4)-(6) and (8)-(10), whose constants are
missing from the available text, and keep the paper's rate. `docs/algorithms/yang_nsgd.md` has the proofs.
"""
