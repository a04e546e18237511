"""This module is shared by algorithms that release one mean of all records. They take one step of size 1."""

from __future__ import annotations

import math

from accounting.errors import InvalidValue, Unsupported
from calibrators.lowy_razaviyayn.moments import LARGEST, Moments
from calibrators.lowy_razaviyayn.zcdp import paper_epsilon
from calibrators.refusals import refuse
from calibrators.spec import Spec


def check_one_step(spec: Spec, name: str) -> None:
    """Refuse specs that do not fit a single release of a mean of all records.

    Raises:
        InvalidValue: If the spec asks for more than one step, a batch that is not all records, or a step size other
            than 1.
        Unsupported: If the number of steps or the batch size is solved for, or if a domain or a penalty is given.
    """
    refuse(spec, sizes=f"{spec.unknown} cannot be solved for, because {name} always takes one step with all records")
    for field, value, only in (
        ("iterations", spec.iterations, 1),
        ("batch_size", spec.batch_size, spec.dataset_size),
        ("step_size", spec.step_size, 1.0),
    ):
        if value not in (None, only):
            raise InvalidValue(
                f"{field} must be {only}, because {name} takes one step of size 1 with all {spec.dataset_size} "
                f"records; leave it out. Got {value!r}",
                code="overdetermined",
                pointer=(field,),
            )
    for field, given, instead in (
        ("domain", spec.domain, "project the released mean"),
        ("penalty", spec.penalty, "shrink the released mean"),
    ):
        if given is not None:
            raise Unsupported(
                f"{name} takes no {field}; {instead} instead, which costs no privacy",
                code=f"unsupported_{field}",
                pointer=(field, "kind"),
            )


def balanced_threshold(moments: Moments, noise_multiplier: float, dataset_size: int, dimension: int) -> float:
    """Return C = r_k (epsilon_p n / sqrt(d))^(1/k) with epsilon_p = 2/z. With this C, noise and squared bias contribute
    about equally to the error.

    This is the threshold of Theorems 9 and 11 of the paper for one round.

    >>> round(balanced_threshold(Moments(2.0, 3.0), 2.0, 400, 16), 9)
    30.0
    """
    signal = paper_epsilon(noise_multiplier) * dataset_size / math.sqrt(dimension)
    return float(min(LARGEST, moments.bound * signal ** (1.0 / moments.order)))
