"""Evaluators, which bound delta and epsilon of a composition: one per file, behind one interface.

| file | evaluator | theorem |
|---|---|---|
| evaluator.py | the interface, and the bounds that it answers | |
| gaussian_dp.py | full-batch Gaussians in closed form | Balle & Wang 2018, Theorem 8; Dong, Roth & Su 2022, Cor. 3.3 |
| basic.py | one step, sums of largest losses, total variation | hockey sticks of single steps |
| renyi.py | moments, for every list | Chernoff with its best kernel: Canonne, Kamath & Steinke 2020, Prop. 12 |
| fourier.py | contour integrals, for every step that has a pair | `accounting.fourier` |
| convolution.py | a lattice, where those are wide | rounding in convex order, bounded by a Gaussian pair |
| lattice.py, line.py | one step's law on it; the bounds read from the composed law | Doroshenko et al. 2022 |

`accounting.accountant` has the rule that asks them. docs/concepts/accounting.md says what each of them rests on.
"""
