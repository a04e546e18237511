"""Yang, Zhang, Chen & Liu 2022, "Normalized/Clipped SGD with Perturbation for Differentially Private Non-Convex
Optimization" (arXiv 2206.13033). The algorithms are DP-SGD with clipping, DP-NSGD with normalisation, and Adam with
either.

The explicit step sizes and bounds here are derived. They replace equations (4)-(6) and (8)-(10), whose constants are
missing from the available text, and keep the paper's rate. `docs/algorithms/yang_nsgd.md` contains the proofs.
"""
