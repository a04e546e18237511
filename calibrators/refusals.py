"""Refusals of requests that an algorithm cannot fulfil, and warnings about records that no step reads."""

from __future__ import annotations

from accounting.errors import Unsupported
from calibrators.spec import Spec, Unknown


def refuse(
    spec: Spec,
    *,
    sizes: str | None = None,
    penalty: str | None = None,
    batch_size: str | None = None,
    step_size: str | None = None,
) -> None:
    """Refuse requests of a spec that an algorithm cannot fulfil.

    Args:
        sizes: The reason why neither the number of steps nor the batch size can be solved for; None if they can.
        penalty, batch_size, step_size: The reason why the algorithm takes none; None if it takes one.

    Raises:
        Unsupported: If the spec asks for something that the algorithm cannot do.
    """
    if sizes is not None and spec.unknown in (Unknown.ITERATIONS, Unknown.BATCH_SIZE):
        raise Unsupported(sizes, pointer=("solve_for",))
    for name, why in (("penalty", penalty), ("batch_size", batch_size), ("step_size", step_size)):
        if why is not None and getattr(spec, name) is not None:
            raise Unsupported(why, pointer=(name,))


def unread(spec: Spec, read: int, why: str = "") -> list[str]:
    """Return a warning if some of the records are in no step.

    Args:
        read: The number of records that are in some step.
        why: The reason, in words.
    """
    left = spec.dataset_size - read
    return [f"{left} of {spec.dataset_size} records are not read{why and f': {why}'}."] if left > 0 else []
