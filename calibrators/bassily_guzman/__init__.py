"""This package contains algorithms for private optimisation over the l1 ball and other domains that are not Euclidean.

The papers are Bassily, Guzman & Nandi 2021 (COLT, "Non-Euclidean Differentially Private Stochastic Convex
Optimization", arXiv 2103.01278); Asi, Feldman, Koren & Talwar 2021 (ICML, "Private Stochastic Convex Optimization:
Optimal Rates in l1 Geometry", arXiv 2103.01516); Bassily, Guzman & Menart 2021 (NeurIPS, arXiv 2107.05585); and
Guzman's talk of April 2022.

Modules for the l1 ball:

- `selection`: selection with Gumbel noise;
- `dp_fw`: full-batch Frank-Wolfe;
- `recursion`, `poly_sfw`, and `private_sfw_nonconvex_l1` (after Bassily, Guzman & Menart): Frank-Wolfe with a recursive
  gradient estimate;
- `generalized_linear_l1` (after Bassily, Guzman & Menart): Frank-Wolfe on smoothed links;
- `tree`, `tree_sfw_l1`: tree Frank-Wolfe;
- `printed_selection`, `printed_poly_sfw`: the noise that the papers print;
- `rates`: rates.

Modules for balls of l_p, 1 < p <= 2:

- `generalized_gaussian`: generalised Gaussian noise;
- `lp_setting`: the assumptions on the losses and the domain;
- `noisy_mirror_descent`: mirror descent;
- `noisy_sfw_lp`, `noisy_sfw_nonconvex_lp`: Frank-Wolfe for convex losses and for other smooth losses, with bounds in
  `estimate_risk`;
- `printed_lp_noise`: the noise that the papers print;
- `lp_rates`: rates.

Modules for weakly convex losses in the l2 norm, after Bassily, Guzman & Menart:

- `proximal_weakly_convex`: proximal rounds;
- `proximal_setting`: the assumptions on the losses and the domain;
- `proximal_point`: the bounds and their proofs;
- `proximal_utility`: the numbers in the answer that follow from these bounds.
"""
