"""Schemas that are made of the engine's records take exactly what the records take."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Annotated, Any, Literal

import pytest
from pydantic import TypeAdapter, ValidationError

from accounting.described import Described, Real, Reals, Whole, Word
from accounting.errors import InvalidValue
from accounting.events import MECHANISMS, SAMPLINGS, ShuffleModel
from accounting.guarantees import GUARANTEES, LOSS, RenyiDpGuarantee
from app.wire.described import field_of, record_of, schema_of
from calibrators.geometry import DOMAINS, PENALTIES

KINDS: list[type[Described]] = [*MECHANISMS.values(), *SAMPLINGS.values(), *DOMAINS.values(), *PENALTIES.values()]
NUMBERS = [(each, name) for each in KINDS for name, within in each.ranges.items() if isinstance(within, Real | Whole)]


def takes(read: Callable[[Any], object], value: object) -> bool:
    try:
        read(value)
    except (InvalidValue, ValidationError):
        return False
    return True


@pytest.mark.parametrize(("kind", "name"), NUMBERS)
def test_numbers_have_the_ranges_of_the_engine(kind: type[Described], name: str) -> None:
    within = kind.ranges[name]
    assert isinstance(within, Real | Whole)
    schema = TypeAdapter(field_of(Annotated[float, within]))
    probes = [
        within.lower,
        within.upper,
        math.nextafter(within.lower, -math.inf),
        math.nextafter(within.upper, math.inf),
    ]
    probes += [within.lower - 1, within.upper + 1, within.lower + 0.5, 2, 2.0]
    answers = [takes(lambda value: within.read(name, value), probe) for probe in probes]
    assert answers == [takes(lambda value: schema.validate_python(value, strict=True), probe) for probe in probes]
    assert {True, False} == {*answers}


@pytest.mark.parametrize("within", [Reals(Real(0.0, 1.0), 3), Word({"one": "First.", "two": "Second."})])
def test_lists_and_words_are_those_of_the_engine(within: Reals | Word) -> None:
    schema = TypeAdapter(field_of(Annotated[object, within]))
    for probe in ([], [0.5], [0.1, 0.2, 0.3], [0.1] * 4, [2.0], "one", "three", ""):
        if isinstance(within, Word) == isinstance(probe, str):
            assert takes(lambda value: within.read("field", value), probe) == takes(schema.validate_python, probe)


@pytest.mark.parametrize("kind", KINDS)
def test_a_schema_is_named_and_described_as_the_record_is(kind: type[Described]) -> None:
    schema = schema_of(kind, "Schema")
    assert schema.__name__ == f"{kind.__name__}Schema"
    assert [*schema.model_fields] == ["kind", *kind.ranges]
    assert schema.model_fields["kind"].annotation == Literal[kind.kind]
    described = schema.__doc__ or ""
    assert described.endswith(".")
    assert not any(section in described for section in ("Attributes:", "Raises:", "Source:", ">>>", "``"))


def test_a_default_is_the_records() -> None:
    schema = schema_of(ShuffleModel, "Schema")
    assert schema.model_validate({"kind": "shuffle_model", "num_users": 9, "local_epsilon": 1.0}).model_dump() == {
        "kind": "shuffle_model",
        "num_users": 9,
        "local_epsilon": 1.0,
        "local_delta": 0.0,
    }
    assert ShuffleModel(9, 1.0).local_delta == 0.0


def test_a_request_may_have_a_narrower_range_than_the_engine() -> None:
    narrow = schema_of(RenyiDpGuarantee, "In", {LOSS: Real(0.0, 1e6)})
    body = {"kind": "renyi_dp", "orders": [2.0], "epsilons": [1e6]}
    assert record_of(narrow.model_validate(body), GUARANTEES) == RenyiDpGuarantee((2.0,), (1e6,))
    with pytest.raises(ValidationError, match="less than or equal to 1000000"):
        narrow.model_validate(body | {"epsilons": [2e6]})
    assert RenyiDpGuarantee((2.0,), (2e6,)).epsilons == (2e6,)
