"""Records that say what their fields may hold."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

import pytest

from accounting.described import Described, Real, Reals, Whole, Word, from_json, register
from accounting.errors import InvalidValue


@dataclass(frozen=True, slots=True)
class Sample(Described):
    kind: ClassVar[str] = "sample"
    share: Annotated[float, Real(0.0, 1.0, "Of the records.", open_lower=True)]
    size: Annotated[int, Whole(1, 9)] = 3
    order: Annotated[str, Word({"sorted": "By name.", "drawn": "By chance."})] = "sorted"
    weights: Annotated[tuple[float, ...], Reals(Real(0.0), 2)] = (1.0,)


KNOWN = {"sample": Sample}


def test_fields_are_read_by_their_ranges() -> None:
    sample = Sample(1, 2.0, "drawn", [0, 1])  # type: ignore[arg-type]  # on purpose
    assert sample == Sample(1.0, 2, "drawn", (0.0, 1.0))
    assert (type(sample.share), type(sample.size), type(sample.weights)) == (float, int, tuple)


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        ("share", 0.0, "share must be in (0, 1], got 0.0"),
        ("share", "1", "share must be a number, not str"),
        ("size", 10, "size must be in [1, 9], got 10"),
        ("order", "random", "order must be sorted or drawn"),
        ("order", ["sorted"], "order must be sorted or drawn"),
        ("weights", (), "weights must be a list of 1 to 2 numbers"),
        ("weights", (1.0, 1.0, 1.0), "weights must be a list of 1 to 2 numbers"),
        ("weights", "1", "weights must be a list of 1 to 2 numbers"),
    ],
)
def test_what_is_outside_is_refused_by_name(field: str, value: object, said: str) -> None:
    with pytest.raises(InvalidValue) as refused:
        Sample(**{"share": 0.5, field: value})
    assert (refused.value.detail, refused.value.pointer) == (said, (field,))


def test_an_item_of_a_list_is_pointed_at() -> None:
    with pytest.raises(InvalidValue, match=r"weights must be in \[0, 1e\+12\], got -1\.0") as refused:
        Sample(0.5, weights=(1.0, -1.0))
    assert refused.value.pointer == ("weights", 1)


def test_json_is_read_back_with_numbers_as_strings_too() -> None:
    sample = Sample(0.1, 4, "drawn", (0.25, 2.0))
    assert sample.to_json() == {"kind": "sample", "share": 0.1, "size": 4, "order": "drawn", "weights": [0.25, 2.0]}
    assert from_json(sample.to_json(), KNOWN) == sample
    assert from_json(sample.to_json() | {"share": "0.1", "size": "4", "weights": ["0.25", "2"]}, KNOWN) == sample


@pytest.mark.parametrize("value", [{"kind": "other"}, {}, {"kind": ["sample"]}, "sample", None])
def test_an_unknown_kind_is_refused_where_it_is(value: object) -> None:
    with pytest.raises(InvalidValue, match=r"^sampling\.kind must be sample$") as refused:
        from_json(value, KNOWN, "sampling")
    assert refused.value.pointer == ("sampling", "kind")


def test_a_field_without_a_range_is_refused_where_the_kind_is_registered() -> None:
    @dataclass(frozen=True, slots=True)
    class Bare(Described):
        kind: ClassVar[str] = "bare"
        share: float

    with pytest.raises(TypeError, match=r"annotate Bare\.share with its range"):
        register(Bare, {})
    known: dict[str, type[Sample]] = {}
    register(Sample, known)
    assert known == KNOWN
    with pytest.raises(ValueError, match="Sample has the kind 'sample'; give Sample another one"):
        register(Sample, known)
