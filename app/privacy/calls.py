"""A pasted call of another library as a source of `/v1/import`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

from pydantic import Field

from accounting.errors import AccountingError
from accounting.interoperability import Batches
from accounting.interoperability.calls import MAX_LENGTH, Incomplete, Known, PastedCall, read_call
from accounting.numbers import MAX_COUNT, MAX_DATASET_SIZE
from accounting.relations import NeighboringRelation
from app.kit.fields import OptionalInteger, Schema
from app.problems import Problem, ProblemItem, from_accounting, json_pointer


class CallSource(Schema):
    """Python with a call of Opacus, JAX Privacy, TensorFlow Privacy or dp-accounting. It is read, and never run.

    The other fields give what the call does not say. If a number is missing, the refusal names it.
    """

    kind: Literal["call"]
    code: str = Field(
        min_length=1,
        max_length=MAX_LENGTH,
        description="The call, with the assignments of its numbers if these are elsewhere in the code.",
    )
    dataset_size: OptionalInteger = Field(None, ge=1, le=MAX_DATASET_SIZE, description="A public number of records.")
    batch_size: OptionalInteger = Field(None, ge=1, le=MAX_DATASET_SIZE)
    epochs: float | None = Field(None, gt=0, le=MAX_COUNT)
    steps: OptionalInteger = Field(None, ge=1, le=MAX_COUNT)
    noise_multiplier: float | None = Field(
        None, ge=1e-3, le=1e6, description="The noise that the library found, if the call lets it search for the noise."
    )
    batches: Batches | None = Field(
        None, strict=False, description="What the loader really does; if null, what the call says."
    )

    def read(self, delta: float | None, relation: NeighboringRelation | None) -> PastedCall:
        """Return the releases of the call, and how its library charges for them.

        Raises:
            AccountingError: as for `read_call`.
        """
        return read_call(
            self.code,
            Known(
                dataset_size=self.dataset_size,
                batch_size=self.batch_size,
                epochs=self.epochs,
                steps=self.steps,
                noise_multiplier=self.noise_multiplier,
                delta=delta,
                batches=self.batches,
                relation=relation,
            ),
        )


class AssumedBody(Schema):
    """An assumption about something that the call does not say and on which the numbers depend."""

    name: str
    value: str
    reason: str = Field(description="The reason for the assumption, and what would contradict it.")


class CallBody(Schema):
    """The pasted call as it was understood."""

    library: str
    function: str
    said: dict[str, str] = Field(description="Its arguments that are numbers or words.")
    assumed: list[AssumedBody]
    target_epsilon: float | None = Field(description="The target of the call, if it searches for the noise itself.")

    @classmethod
    def of(cls, call: PastedCall) -> CallBody:
        return cls(
            library=call.library,
            function=call.function,
            said=dict(call.said),
            assumed=[AssumedBody(name=each.name, value=each.value, reason=each.reason) for each in call.assumed],
            target_epsilon=call.target_epsilon,
        )


@contextmanager
def refused_in_call() -> Iterator[None]:
    """Turn refusals in the block into HTTP problems. A missing number is reported at its field. Other faults are
    reported at their field or at the text."""
    try:
        yield
    except Incomplete as error:
        items = [
            ProblemItem(pointer=json_pointer(_place(name)), code=error.code, detail=detail)
            for name, detail in error.missing.items()
        ]
        raise Problem(422, error.code, error.detail, errors=items) from None
    except AccountingError as error:
        place = _place(str(error.pointer[0])) if error.pointer else ("source", "code")
        if error.code == "unsupported_relation":
            place = ("neighboring_relation",)
        error.pointer = ()
        raise from_accounting(error, *place) from None


def _place(field: str) -> tuple[str, ...]:
    """Return the pointer to a field of `Known` in the request. For fields inside the text, this is the pointer to the
    text."""
    if field == "delta":
        return ("delta",)
    return ("source", field if field in CallSource.model_fields else "code")
