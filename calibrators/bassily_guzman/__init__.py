"""Private optimisation over the l1 ball and other sets that are not Euclidean: Bassily, Guzman & Nandi 2021 (COLT,
"Non-Euclidean Differentially Private Stochastic Convex Optimization", arXiv 2103.01278), Asi, Feldman, Koren & Talwar
2021 (ICML, "Private Stochastic Convex Optimization: Optimal Rates in l1 Geometry", arXiv 2103.01516), Guzman's talk of
April 2022.

Selection with Gumbel noise (`selection`), regularity of dual norms (`regularity`), tree Frank-Wolfe (`tree`,
`tree_risk`, `tree_sfw_l1`), rates (`rates`).
"""
