"""Makes events for the most common steps; any other event is the mapping that the API documents."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def gaussian(
    noise_multiplier: float,
    *,
    sampling_probability: float | None = None,
    sampling: Mapping[str, Any] | None = None,
    count: int = 1,
) -> dict[str, Any]:
    """Return an event of steps with Gaussian noise.

    Args:
        noise_multiplier: Noise divided by the bound on one record's contribution.
        sampling_probability: The probability that a Poisson sample contains a record, independently of all others.
        sampling: Any other sampling scheme, such as ``{"kind": "shuffled_epochs", "steps_per_epoch": 100}``. If both
            are left out, batches are full.
        count: The number of steps.

    >>> gaussian(1.1, sampling_probability=0.01, count=500)["sampling"]
    {'kind': 'poisson', 'sampling_probability': 0.01}
    """
    if sampling is not None and sampling_probability is not None:
        raise ValueError(
            "sampling_probability is only for Poisson samples: leave it out if sampling names another scheme"
        )
    if sampling_probability is not None:
        sampling = {"kind": "poisson", "sampling_probability": sampling_probability}
    event: dict[str, Any] = {"mechanism": {"kind": "gaussian", "noise_multiplier": noise_multiplier}, "count": count}
    if sampling is not None:
        event["sampling"] = dict(sampling)
    return event
