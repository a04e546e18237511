"""Neighbouring relations: which two data sets an analyst must not be able to tell apart."""

from __future__ import annotations

from enum import StrEnum


class NeighboringRelation(StrEnum):
    """The difference between two neighbouring data sets.

    The noise multiplier means the same under each (accounting convention: noise on the sum, over one record's
    contribution bound C); only the distance between the two sums changes.
    """

    ADD_OR_REMOVE_ONE = "add_or_remove_one"
    """One record comes or goes; the number of records is private. Distance of the sums: C."""
    REPLACE_ONE = "replace_one"
    """One record becomes another; the number of records is public. Distance of the sums: 2 C."""
    REPLACE_SPECIAL = "replace_special"
    """One record becomes a null record in its place; size and positions stay. Distance of the sums: C."""

    @property
    def sensitivity(self) -> float:
        """Largest distance between the two sums, in units of the contribution bound.

        >>> NeighboringRelation.REPLACE_ONE.sensitivity
        2.0
        """
        return 2.0 if self is NeighboringRelation.REPLACE_ONE else 1.0
