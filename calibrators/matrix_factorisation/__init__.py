"""Choquette-Choo, Ganesh, McKenna, McMahan, Rush, Thakurta & Xu 2023, "(Amplified) Banded Matrix Factorization: A
Unified Approach to Private Training" (arXiv 2306.08153): DP-SGD in which a banded matrix correlates the noise over
steps.

The matrices here are Toeplitz, as in Kalinin & Lampert 2024 (arXiv 2405.13763) and McKenna 2025 (arXiv 2405.15913), and
their coefficients do not increase, so the sensitivity to one record is known exactly.
`docs/concepts/correlated_noise.md` has the theorems, the choice of bands, and tables.
"""
