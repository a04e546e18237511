"""Privacy losses of steps: one file for each mechanism and for each sampling, with everything known about it.

* privacy_loss.py: the one protocol of a privacy loss.
* rules.py: the registries of mechanisms, of samplings, and of mechanisms under samplings.
* A mechanism's file (gaussian.py, laplace.py, exponential.py, ...) has its dominating pair, profile, moments, line for
  contour integrals, group, and costs in budgets, with the theorem on which they rest. stated.py has guarantees that are
  taken as stated.
* A sampling's file (poisson.py, without_replacement.py, ...) has the same for sampled steps; poisson_laplace.py has
  Poisson batches with Laplace noise. docs/sampling has a page for each scheme.
* The other files have the code that several of these share: laws of atoms, mixtures whose branch is seen, moments as
  integrals.

Every file of this folder is imported, so that rules are found where they are registered.
"""

from importlib import import_module
from pkgutil import iter_modules

for _module in iter_modules(__path__):
    import_module(f"{__name__}.{_module.name}")
