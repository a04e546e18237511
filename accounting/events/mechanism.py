"""The interface of mechanisms: one class for each kind, in a file of its own, found by its registration."""

from __future__ import annotations

from typing import Annotated, ClassVar, TypeVar

from accounting.described import Described, Real, register
from accounting.events.samplings import FullBatch, Sampling
from accounting.numbers import MAX_NOISE_MULTIPLIER, MIN_NOISE_MULTIPLIER
from accounting.relations import NeighboringRelation

NoiseMultiplier = Annotated[
    float,
    Real(
        MIN_NOISE_MULTIPLIER,
        MAX_NOISE_MULTIPLIER,
        "Scale of the noise on the SUM of contributions over one record's contribution bound: standard deviation for "
        "Gaussian kinds, scale b for Laplace kinds; the same under every neighbouring relation.",
    ),
]
Epsilon = Annotated[float, Real(0.0, 1e6)]


class Mechanism(Described):
    """The base of all mechanisms: what one step releases. It is a frozen dataclass whose fields are its JSON.

    How it is accounted is in `accounting.losses`, in the file of the same name.

    Attributes:
        samplings: The samplings for which a pair of distributions, or a bound, is proved.
        relations: The relations under which it is accounted.
        why_refused: The reason why the mechanism is refused under the other relations.
        filters: The kinds of budget in which it has a cost; see `accounting.filters`.
        norm: The norm in which contributions are bounded, for a mechanism that adds noise to them.
        noise_multiplier_is: The meaning of the noise multiplier of a mechanism that adds noise.
        parts_cost_less: Whether several steps, each moved by a part of a distance, never cost more than one step that
            is moved by the whole distance. If so, the records of one owner cost no more in different batches than in
            the same batch.
    """

    __slots__ = ()
    samplings: ClassVar[tuple[type[Sampling], ...]] = (FullBatch,)
    relations: ClassVar[tuple[NeighboringRelation, ...]] = tuple(NeighboringRelation)
    why_refused: ClassVar[str] = ""
    filters: ClassVar[tuple[str, ...]]
    norm: ClassVar[str] = ""
    noise_multiplier_is: ClassVar[str] = ""
    parts_cost_less: ClassVar[bool] = False

    def resolved(self, sampling: Sampling, count: int) -> tuple[Mechanism, Sampling, int]:
        """Return the mechanism, the sampling and the number of the steps that one record takes part in.

        Only a mechanism whose noise is correlated over steps is replaced by another one.
        """
        return self, *sampling.resolved(count)

    @property
    def from_below(self) -> Mechanism | None:
        """Return the mechanism from which lower ends are computed: itself, unless `resolved` returns one that costs
        more.

        Return None if no mechanism is known whose `resolved` form costs no more than this one.
        """
        return self

    @property
    def reveals_nothing(self) -> bool:
        """Return whether the output is the same for all data sets, so that it costs nothing. This is rare.

        Every other mechanism costs something in every budget, however little that is (`accounting.filters.costs`).
        """
        return False


MechanismClass = TypeVar("MechanismClass", bound=type[Mechanism])

#: Every mechanism by its kind. `accounting.events` imports all files of its folder, so that the table is complete.
MECHANISMS: dict[str, type[Mechanism]] = {}


def mechanism(cls: MechanismClass) -> MechanismClass:
    """Register a mechanism under its kind."""
    register(cls, MECHANISMS)
    return cls
