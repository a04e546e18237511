"""This module refuses requests that an algorithm cannot fulfil, and warns about records that no step reads."""

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
    """Refuse a spec that asks for something that an algorithm cannot do.

    Args:
        sizes: The reason why the number of steps and the batch size cannot be solved for; None if they can.
        penalty, batch_size, step_size: The reason why the algorithm does not take this value from a request; None if it
            does.

    Raises:
        Unsupported: If the spec asks for something that the algorithm cannot do.
    """
    if sizes is not None and spec.unknown in (Unknown.ITERATIONS, Unknown.BATCH_SIZE):
        raise Unsupported(sizes, pointer=("solve_for",))
    for name, why in (("penalty", penalty), ("batch_size", batch_size), ("step_size", step_size)):
        if why is not None and getattr(spec, name) is not None:
            raise Unsupported(why, pointer=(name,))


def unread(spec: Spec, read: int, why: str = "") -> list[str]:
    """Return a warning if no step reads some of the records.

    Args:
        read: The number of records that some step reads.
        why: The reason why records are left over, in words.
    """
    left = spec.dataset_size - read
    return [f"{left} of {spec.dataset_size} records are not read{why and f': {why}'}."] if left > 0 else []
