"""Private optimisation over the l1 ball and other sets that are not Euclidean: Bassily, Guzman & Nandi 2021 (COLT,
"Non-Euclidean Differentially Private Stochastic Convex Optimization", arXiv 2103.01278), Asi, Feldman, Koren & Talwar
2021 (ICML, "Private Stochastic Convex Optimization: Optimal Rates in l1 Geometry", arXiv 2103.01516), Guzman's talk of
April 2022.

Selection with Gumbel noise (`selection`), full-batch Frank-Wolfe (`dp_fw`), Frank-Wolfe with a recursive estimate
(`recursion`, `poly_sfw`, and `private_sfw_nonconvex_l1` after Bassily, Guzman & Menart 2021, NeurIPS, arXiv
2107.05585), Frank-Wolfe on smoothed links (`generalized_linear_l1`, after the same), tree Frank-Wolfe (`tree`,
`tree_sfw_l1`), the printed noise (`printed_selection`, `printed_poly_sfw`), rates (`rates`).

Balls of l_p, 1 < p <= 2: generalised Gaussian noise (`generalized_gaussian`), the setting (`lp_setting`), mirror
descent (`noisy_mirror_descent`), Frank-Wolfe for convex losses (`noisy_sfw_lp`) and others (`noisy_sfw_nonconvex_lp`)
with its bounds (`estimate_risk`), the printed noise (`printed_lp_noise`), rates (`lp_rates`).

Weakly convex losses in the l2 norm, after Bassily, Guzman & Menart 2021: proximal rounds (`proximal_weakly_convex`),
the setting (`proximal_setting`), the bounds and their proofs (`proximal_point`), and the answers made from them
(`proximal_utility`).
"""
