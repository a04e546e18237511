"""This module refuses plans whose messages a run cannot draw, or that are not private under their relation."""

from __future__ import annotations

from accounting.errors import InvalidValue
from calibrators.phases.shuffled_counts import ShuffledBits
from calibrators.plan import Plan
from trainer.structured_steps import check_positions

#: The most bits of all users and coordinates: they take about a minute of one core, at 5e9 a second.
MAX_MESSAGE_BITS = 3 * 10**11


def check_bits(plan: Plan) -> None:
    """Refuse more messages than a run draws.

    Raises:
        InvalidValue: If the phase has more bits than `MAX_MESSAGE_BITS`.
    """
    for phase in plan.phases:
        if isinstance(phase, ShuffledBits) and phase.message_bits > MAX_MESSAGE_BITS:
            raise InvalidValue(
                f"the messages have {phase.message_bits:.3g} bits ({phase.batch_size} records, {phase.dimension} "
                f"coordinates, {phase.levels + phase.noise_bits} bits each), and a run draws at most "
                f"{MAX_MESSAGE_BITS:.0e}: ask for a larger epsilon, or trust a curator with "
                "clipped_mean or coordinatewise_mean",
                pointer=("target",),
            )


def check_messages(plan: Plan, phase: ShuffledBits) -> None:
    """Refuse a relation under which counted messages are not private, or for which the phase was not made.

    Raises:
        InvalidValue: If a record may come or go, or changes by more than the phase charges for.
    """
    check_positions(plan, "messages are counted, so that n is public")
    if phase.change < plan.neighboring_relation.sensitivity:
        raise InvalidValue(
            "the phase charges for smaller changes of a record than the relation allows",
            pointer=("phases", 0, "change"),
        )
