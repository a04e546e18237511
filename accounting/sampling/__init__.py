"""How records are chosen for a step, and the pair of distributions that dominates it: one file per theorem.

| file | scheme | what is proved there |
|---|---|---|
| poisson.py | Poisson, Gaussian noise | the pair under each relation, its profile in closed form |
| laplace.py | Poisson, Laplace noise | the same, with moments |
| without_replacement.py | batches of a fixed size | the symmetrised pair (Balle, Barthe & Gaboardi 2018, Theorem 9) |
| schedules.py | shuffled epochs, disjoint batches | how often a record takes part; which relations are refused |
| poisson_moments.py | Poisson, Gaussian noise | Renyi moments, rounded up (Mironov, Talwar & Zhang 2019) |
| ratio_quadrature.py | all sampled pairs | moments as integrals over the likelihood ratio, and their error |
| symmetrized_moments.py | all sampled pairs | from such integrals to log-moments |

docs/sampling has a page for each scheme.
"""
