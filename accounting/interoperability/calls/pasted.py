"""A pasted call as it was read: its release, the charge of its library, and the assumptions of both."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from accounting.accountant import epsilon_for_delta
from accounting.dp_events import from_dp_event
from accounting.errors import AccountingError
from accounting.interoperability.batches import Batches
from accounting.interoperability.calls.facts import Assumed, Facts, Known
from accounting.interoperability.calls.snippet import Call
from accounting.interoperability.difference import Imported
from accounting.interoperability.dp_event_import import import_dp_event
from accounting.interoperability.opacus import OpacusHistory, import_opacus
from accounting.relations import NeighboringRelation
from accounting.solve.noise import solve_noise_multiplier

#: The relative margins by which the noise that was found is rounded down, until it is too little.
_MARGINS = (1e-5, 1e-4, 1e-3)
#: An event of dp-accounting, as `accounting.dp_event_reader` reads it.
DpEventJson = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class PastedCall:
    """The effect of a call on the privacy of the records.

    Attributes:
        library, function: The called function and its library.
        said: The arguments of the call that are numbers or words, by name.
        assumed: The further assumptions on which the numbers rely.
        record: The release, as the library would record it.
        charged: The event that dp-accounting is given, under `charged_relation`; None for Opacus, which has its own
            accountants.
        accountant: The accountant whose number is compared: one of Opacus' or of dp-accounting's.
        batches: The batches of the loader, if the record says Poisson samples.
        relation: The relation under which the record is accounted.
        delta: The delta at which the record is accounted.
        target_epsilon: The epsilon that the call asks for, if it looks for the noise by itself.
    """

    library: str
    function: str
    said: Mapping[str, str]
    assumed: tuple[Assumed, ...]
    record: OpacusHistory | DpEventJson
    charged: DpEventJson | None
    charged_relation: NeighboringRelation
    accountant: str
    batches: Batches
    relation: NeighboringRelation
    delta: float
    target_epsilon: float | None

    def imported(self) -> Imported:
        """Return the record as events, with what the library reports for it.

        Raises:
            InvalidValue, Unsupported: As `import_opacus` and `import_dp_event` do. The pointer is empty or names the
                batches.
        """
        try:
            return self._imported()
        except AccountingError as error:
            # Nobody filled in the contents of the record, so the pointer must not lead there.
            error.pointer = error.pointer if error.pointer == ("batches",) else ()
            raise

    def _imported(self) -> Imported:
        if isinstance(self.record, OpacusHistory):
            return import_opacus(self.record, self.relation, self.delta, self.batches)
        found = import_dp_event(self.record, self.relation, self.accountant, batches=self.batches)
        reported = replace(found.reported, library=self.library, relation=self.charged_relation)
        return replace(found, reported=reported)


@dataclass(frozen=True, slots=True)
class Surroundings:
    """The text pasted around a call, and the facts filled in.

    Attributes:
        calls: All calls in their order; a call inside another one comes after the call that holds it.
        known: The facts that are filled in.
    """

    calls: Sequence[Call]
    known: Known

    def last(self, *names: str) -> Call | None:
        """Return the last call of one of these names."""
        return next((each for each in reversed(self.calls) if each.name in names), None)

    def batches(self, facts: Facts, said: Batches, reason: str) -> Batches:
        """Return the batches of the loader: as filled in, otherwise as the call says or implies."""
        chosen = self.known.batches
        if chosen is not None and chosen is not said:
            facts.suppose("batches", chosen, "Filled in beside the call.")
            return chosen
        facts.suppose("batches", said, reason)
        return said

    def relation(self, facts: Facts, batches: Batches, theirs: NeighboringRelation) -> NeighboringRelation:
        """Return the relation that is asked for, else the library's own. It must have an account for shuffled
        batches."""
        if self.known.relation is not None:
            return self.known.relation
        if batches is Batches.SHUFFLED and theirs is NeighboringRelation.ADD_OR_REMOVE_ONE:
            facts.suppose(
                "neighboring_relation",
                NeighboringRelation.REPLACE_SPECIAL,
                "Adding or removing a record would move other records to other batches of a shuffled pass, and no "
                "accounting covers that. So a record is replaced by a null record instead.",
            )
            return NeighboringRelation.REPLACE_SPECIAL
        return theirs


def sampled_gaussian(noise: float, rate: float, steps: int) -> DpEventJson:
    """Return steps of the Gaussian mechanism on Poisson samples as an event of dp-accounting."""
    gaussian = {"class_name": "GaussianDpEvent", "noise_multiplier": float(noise)}
    sampled = {"class_name": "PoissonSampledDpEvent", "sampling_probability": float(rate), "event": gaussian}
    return {"class_name": "SelfComposedDpEvent", "event": sampled, "count": steps}


def least_noise(
    facts: Facts,
    charged: Callable[[float], DpEventJson],
    relation: NeighboringRelation,
    epsilon: float,
    delta: float,
    library: str,
) -> float:
    """Return the least noise at which the library's charge meets its target, rounded down; noted as an assumption.

    Guarantees: no_more_than_the_library_finds: its cost is proved to be at least the target, and the library's
        accountant bounds the cost from above.

    Raises:
        Incomplete: If no noise is proved to be small enough, so the library's own result is needed.
    """
    found = solve_noise_multiplier(
        lambda noise: from_dp_event(charged(noise), relation), relation, epsilon=epsilon, delta=delta
    ).noise_multiplier

    def costs(noise: float) -> float:
        return epsilon_for_delta(from_dp_event(charged(noise), relation), relation, delta).value.lower

    noise = next((each for each in (found * (1.0 - margin) for margin in _MARGINS) if costs(each) >= epsilon), None)
    if noise is None:
        facts.miss("noise_multiplier")
        facts.settle()
        raise AssertionError("something is missing")
    facts.suppose(
        "noise_multiplier",
        f"{noise:.6g}",
        f"{library} searches for the noise multiplier itself. This is the smallest value that meets the target by "
        "the library's own accounting, rounded down: the library's result is no smaller and costs no more. Fill "
        "in that result if you have it.",
    )
    return noise
