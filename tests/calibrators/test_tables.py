"""The papers' tables: their numbers at known settings, their growth, and that they know our algorithms."""

from __future__ import annotations

import math

import pytest

from accounting.errors import InvalidValue
from calibrators.comparison import Expression, Row, Setting, Table
from calibrators.tables import TABLES, find_table
from tests.conformance.latex import page_faults

AT = Setting(10_000, 100, 1.0, 1e-6)

every_table = pytest.mark.parametrize("table", TABLES.values(), ids=TABLES)


def row(table: str, method: str) -> Row:
    [found] = [row for row in find_table(table).rows if row.method.startswith(method)]
    return found


# n = 10000, d = 100, epsilon = 1, delta = 1e-6, and 1 for every constant.
@pytest.mark.parametrize(
    ("table", "method", "expected"),
    [
        ("l1_population", "tree", 1.0581933641),
        ("lp_population", "noisy stochastic Frank-Wolfe, linear", 0.0161421356237),
        ("lp_population", "Euclidean", 0.0137169221888),
        ("nonconvex_population", "private", 0.128478499619),
        ("nonconvex_population", "noisy", 0.109511622784),
        ("nonconvex_population", "proximally", 0.2),
        ("nonconvex_erm", "DP-SGD", 100**0.25 * math.log(1e6) ** 0.25 / 100.0),
        ("convex_erm", "DP-SVRG++", math.sqrt(100 * math.log(1e6)) / 1e4),
        ("strongly_convex_erm", "gradient", 100 * math.log(1e6) / 1e8 * math.log(1e4) ** 2),
        ("convex_population", "DP-SGD-Gradient", 0.0137169221888),
    ],
)
def test_rates_at_a_known_setting(table: str, method: str, expected: float) -> None:
    assert row(table, method).utility.at(AT) == pytest.approx(expected, rel=1e-10)


@pytest.mark.parametrize(
    ("table", "expected"),
    [("lp_population", 0.01), ("l1_population", 0.0224596602629), ("strongly_convex_erm", 1e-6), ("convex_erm", 1e-3)],
)
def test_lower_bounds_at_a_known_setting(table: str, expected: float) -> None:
    lower = find_table(table).lower_bound
    assert lower is not None
    assert lower.at(AT) == pytest.approx(expected, rel=1e-10)


def test_gradients_at_a_known_setting() -> None:
    proximal = row("nonconvex_population", "proximally").gradients
    assert proximal is not None
    assert proximal.at(AT) == 1e6
    accelerated = row("high_dimensional_erm", "DP-AccMD").gradients
    assert accelerated is not None
    assert accelerated.at(AT) == pytest.approx(1e6 / 101**0.25)


@every_table
def test_more_records_and_weaker_privacy_never_make_it_worse(table: Table) -> None:
    for private in table.rows:
        values = [
            private.utility.at(Setting(size, 100, epsilon, 1e-6))
            for size, epsilon in ((10**5, 0.5), (10**6, 0.5), (10**6, 2.0), (10**7, 2.0))
        ]
        if private.utility.value is None:
            assert values == [None] * 4
        else:
            assert all(value is not None and value > 0.0 for value in values)
            assert sorted(values, key=lambda value: -(value or 0.0)) == values, private.method


@every_table
def test_no_private_method_beats_the_lower_bound_by_more_than_logarithms(table: Table) -> None:
    if table.lower_bound is None:
        return
    at = Setting(10**8, 1000, 1.0, 1e-10)
    lower = table.lower_bound.at(at)
    assert lower is not None
    for private in table.rows:
        utility = private.utility.at(at)
        assert utility is not None
        assert utility > lower / math.log(at.dataset_size) ** 2, private.method


@every_table
def test_formulas_render_and_methods_are_known_by_name(table: Table) -> None:
    formulas = [row.utility.formula for row in table.rows] + [
        row.gradients.formula for row in table.rows if row.gradients
    ]
    formulas += [table.lower_bound.formula] if table.lower_bound else []
    assert page_faults("\n\n".join(f"$`{formula}`$" for formula in formulas)) == []
    assert len({row.method for row in table.rows}) == len(table.rows)
    assert table.source
    assert table.measure


def test_what_is_not_finite_is_left_out() -> None:
    assert Expression("x", lambda at: math.inf).at(AT) is None
    assert Expression("x", lambda at: math.log(at.dimension - 100)).at(AT) is None
    assert Expression("x").at(AT) is None


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("dataset_size", 1),
        ("dimension", 0),
        ("epsilon", 0.0),
        ("delta", 1.0),
        ("delta", 0.0),
        ("holder_exponent", 1.1),
        ("condition_number", 0.5),
        ("moment_order", 1.0),
        ("norm_order", 1.0),
        ("gaussian_width", 0.0),
    ],
)
def test_a_setting_out_of_range_is_refused(field: str, value: float) -> None:
    given = {"dataset_size": 10, "dimension": 1, "epsilon": 1.0, "delta": 0.1} | {field: value}
    with pytest.raises(InvalidValue) as caught:
        Setting(**given)  # type: ignore[arg-type]  # that is the test
    assert caught.value.pointer == (field,)


def test_an_unknown_table_is_refused_with_those_there_are() -> None:
    with pytest.raises(InvalidValue, match="convex_erm") as caught:
        find_table("table_4")
    assert caught.value.pointer == ("table",)
