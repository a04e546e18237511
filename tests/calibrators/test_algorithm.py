"""The constants a caller gave, beside what a theorem asks for."""

from __future__ import annotations

from typing import Any

import pytest

from accounting.errors import InvalidValue
from calibrators.algorithm import Assumption, read_assumptions
from calibrators.provenance import LOSS, PURE

KNOWN = (
    Assumption("gap", "D", LOSS, "a bound", open_lower=True),
    Assumption("share", "q", PURE, "a share", upper=0.5),
    Assumption("constant", "c", PURE, "open", open_lower=True, required=False, default=2.0),
    Assumption("extra", "e", PURE, "used where given", required=False),
)


def test_what_is_given_is_there_what_has_a_default_is_always_there_and_what_is_required_is_missed() -> None:
    given = read_assumptions(KNOWN, {"gap": 3})
    assert dict(given.values) == {"gap": 3.0, "constant": 2.0}
    assert given.missing == ("share",)
    assert (given["gap"], given.get("extra"), given.get("constant")) == (3.0, None, 2.0)
    assert read_assumptions(KNOWN, {"constant": 5.0})["constant"] == 5.0
    assert read_assumptions(KNOWN, {"extra": 0.0}).get("extra") == 0.0


def test_inputs_from_elsewhere_are_missed_after_the_constants() -> None:
    needed = [("dimension", None), ("batch_size", 3)]
    assert read_assumptions(KNOWN, {"share": 0.1}, needed=needed).missing == ("gap", "dimension")
    assert read_assumptions(KNOWN, {"share": 0.1, "gap": 1.0}, needed=[("dimension", 1)]).missing == ()


def test_an_unknown_constant_is_refused_with_those_there_are() -> None:
    with pytest.raises(InvalidValue, match="gap, share, constant, extra") as caught:
        read_assumptions(KNOWN, {"gap": 1.0, "lipschitz": 1.0})
    assert (caught.value.code, caught.value.pointer) == ("unknown_assumption", ("assumptions", "lipschitz"))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("gap", 0.0),
        ("gap", -1.0),
        ("gap", float("nan")),
        ("gap", float("inf")),
        ("gap", "1"),
        ("gap", True),
        ("share", 0.5000001),
        ("share", -1e-9),
        ("constant", 0.0),
        ("extra", -1.0),
    ],
)
def test_a_constant_outside_its_range_is_refused_where_it_stands(name: str, value: Any) -> None:
    with pytest.raises(InvalidValue, match=name) as caught:
        read_assumptions(KNOWN, {name: value})
    assert caught.value.pointer == ("assumptions", name)


def test_the_ends_of_a_closed_range_are_in_it() -> None:
    assert read_assumptions(KNOWN, {"share": 0.5})["share"] == 0.5
    assert read_assumptions(KNOWN, {"share": 0})["share"] == 0.0
