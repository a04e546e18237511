"""Steps of atoms alone: moments and lines against the same sums in long precision."""

from __future__ import annotations

import mpmath as mp
import numpy as np
import pytest

from accounting.losses.atom_step import AtomStep
from accounting.losses.atomic import AtomicLoss
from accounting.losses.discrete_gaussian import DiscreteGaussianLoss
from accounting.losses.discrete_laplace import DiscreteLaplaceLoss
from accounting.losses.randomized_response import CategoricalResponseLoss
from tests.accounting.fourier import ratio_truths
from tests.accounting.losses import discrete_laws

LOSSES: list[tuple[AtomicLoss, tuple[discrete_laws.Law, discrete_laws.Law]]] = [
    (CategoricalResponseLoss(10, 0.9, False), discrete_laws.randomized_response(10, 0.9, False)),
    (CategoricalResponseLoss(10, 0.9, True), discrete_laws.randomized_response(10, 0.9, True)),
    (DiscreteLaplaceLoss(1.5, 6), discrete_laws.discrete_laplace(0.25, 6)),
    (DiscreteGaussianLoss(2.0, 1), discrete_laws.discrete_gaussian(2.0, 1)),
]


@pytest.mark.one_in(5)
@pytest.mark.parametrize(("loss", "laws"), LOSSES, ids=[str(loss) for loss, _ in LOSSES])
def test_moment_and_line_within_their_errors(
    loss: AtomicLoss, laws: tuple[discrete_laws.Law, discrete_laws.Law]
) -> None:
    for atoms, (p, q) in ((loss.atoms, laws), (loss.atoms.swapped, laws[::-1])):
        step = AtomStep(atoms, bounded=True, digits=44.0)
        with mp.workdps(40):
            pairs = [(a, mp.log(a / b)) for a, b in zip(p, q, strict=True) if a > 0 and b > 0]
            law = ratio_truths.Law(tuple(a for a, _ in pairs), tuple(b for _, b in pairs))
        table = step.table(np.array([1e-9, 0.4, 9.0]))
        for tilt, moment, error in zip(table.tilts, table.moments, table.errors, strict=True):
            with mp.workdps(40):
                assert abs(mp.log(law.moment(float(tilt)).real) - mp.mpf(float(moment))) <= error + 1e-25
        for tilt in (0.1, 3.0):
            line = step.line(tilt, 1.0)
            for t in (0.01, 1.0, 50.0):
                error, allowed = ratio_truths.distance(line, law, tilt, t)
                assert error <= allowed <= 1e-10
            # Losses on a lattice meet again, so nothing better than 1 bounds |M| for all t.
            assert (np.abs(line.log_envelope(np.array([0.0, 1.0, 1e9]))) < 1e-12).all()
