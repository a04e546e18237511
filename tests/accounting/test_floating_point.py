"""Math, NumPy and SciPy err by no more than the engine's proofs assume (docs/concepts/floating_point.md)."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import mpmath as mp
import numpy as np
import pytest
import scipy
from numpy.typing import NDArray

from accounting.compiled import compiled
from accounting.fourier.moments import moments_at

Array = NDArray[Any]
PAGE = Path(__file__).parents[2] / "docs" / "concepts" / "floating_point.md"
#: The unit of the page's table.
UNIT = 2.0**-52


@dataclass(frozen=True)
class Function:
    """A function as the engine calls it, and where its error is looked for.

    Attributes:
        call: Of an array; those of `math` go element by element.
        exact: The same in long precision.
        points: Of a generator and a number.
        extended: The same in the platform's extended precision, where it has that: quick enough for millions of points.
        size: What the error is measured against, of the argument and the exact value; the value's own size if None.
    """

    call: Callable[[Array], Array]
    exact: Callable[[Any], Any]
    points: Callable[[np.random.Generator, int], Array]
    extended: Callable[[Array], Array] | None = None
    size: Callable[[Any, Any], Any] | None = None

    def error(self, points: Array, values: Array, *, digits: int = 50) -> float:
        """The largest error, in units."""
        worst = 0.0
        with mp.workdps(digits):
            for x, value in zip(points.tolist(), values.tolist(), strict=True):
                argument = mp.mpmathify(x)
                exact = self.exact(argument)
                scale = abs(exact) if self.size is None else self.size(argument, exact)
                if abs(exact) > 2.3e-308 and math.isfinite(abs(value)):
                    worst = max(worst, float(abs(value - exact) / scale) / UNIT)
        return worst


def one_by_one(function: Callable[[float], float]) -> Callable[[Array], Array]:
    return lambda points: np.array([function(x) for x in points.tolist()])


def spread(low: float, high: float, *, corners: tuple[float, ...] = ()) -> Callable[[np.random.Generator, int], Array]:
    """Points of every size between two ends: uniform ones, of uniform logarithm on either side of 0, and corners."""

    def drawn(draw: np.random.Generator, number: int) -> Array:
        uniform = draw.uniform(low, high, number // 2)
        sizes = np.exp(draw.uniform(math.log(1e-300), math.log(max(abs(low), abs(high))), number - number // 2))
        signed = np.where(draw.random(sizes.size) < 0.5, sizes, -sizes)
        points = np.concatenate([uniform, signed, np.array(corners)])
        return points[(points >= low) & (points <= high)]

    return drawn


def positive(low: float, high: float, *, near: tuple[float, ...] = ()) -> Callable[[np.random.Generator, int], Array]:
    """Points of uniform logarithm, and others close to some numbers."""

    def drawn(draw: np.random.Generator, number: int) -> Array:
        points = [np.exp(draw.uniform(math.log(low), math.log(high), number))]
        points += [place * (1.0 + draw.normal(size=number // 4) * 10.0 ** draw.uniform(-15, 0)) for place in near]
        every = np.concatenate(points)
        return every[(every >= low) & (every <= high)]

    return drawn


def plane(draw: np.random.Generator, number: int) -> Array:
    """Complex points about the upper half-plane's edge, and far from 0."""
    size = 10.0 ** draw.uniform(-6, 2, number)
    return size * np.exp(1j * draw.uniform(0.0, math.pi, number))


def at_least_one(_: Any, exact: Any) -> Any:
    return max(1, abs(exact))


def one(_: Any, __: Any) -> Any:
    return 1


def normal(x: Any) -> Any:
    return mp.erfc(-x / mp.sqrt(2)) / 2


def log_normal(x: Any) -> Any:
    return mp.log(normal(x)) if x < 5 else mp.log1p(-normal(-x))


def quantile(p: Any) -> Any:
    """Return the quantile, which Newton's iteration finds for the logarithm from SciPy's value."""
    return quantile_of_log(mp.log(p))


def quantile_of_log(log_p: Any) -> Any:
    x = mp.mpf(float(scipy.special.ndtri_exp(float(log_p))))
    for _ in range(4):
        mass = normal(x)
        x -= (mp.log(mass) - log_p) * mass * mp.sqrt(2 * mp.pi) * mp.exp(x * x / 2)
    return x


def scaled_erfc(x: Any) -> Any:
    return mp.exp(x * x) * mp.erfc(x) if x < 1e6 else (1 - 1 / (2 * x * x) + 3 / (4 * x**4)) / (x * mp.sqrt(mp.pi))


def grown(x: Any, exact: Any) -> Any:
    return abs(exact) * (1 + x * x)


EXPONENTS = spread(-745.0, 709.0, corners=(0.0, -0.0, 1e-320, 709.78, -708.4))
SMALL = spread(-40.0, 40.0, corners=(0.0, 1e-320))
LOGARITHMS = positive(1e-307, 1e308, near=(1.0, 2.0, math.e))
AFTER_ONE = spread(-1.0 + 1e-15, 1e15, corners=(0.0, -0.5, 1e-320))
ANGLES = spread(-1e6, 1e6, corners=(math.pi, math.pi / 2, 355.0, 1e15))
QUANTILES = spread(-38.0, 38.0, corners=(-8.3, -1.0, 0.0, 5.0, 8.3))

#: NumPy's functions of doubles that are exact or one operation; all others of doubles are to be on the page.
ARITHMETIC = frozenset(
    (
        "abs",
        "absolute",
        "add",
        "ceil",
        "conj",
        "clip",
        "copysign",
        "divide",
        "fabs",
        "floor",
        "fmax",
        "fmin",
        "maximum",
        "minimum",
    )
) | {"multiply", "negative", "nextafter", "reciprocal", "rint", "sign", "spacing", "square", "subtract", "trunc"}
TRANSCENDENTAL = frozenset(
    name
    for name in dir(np)
    if isinstance(getattr(np, name), np.ufunc)
    and {"d->d", "dd->d"} & set(getattr(np, name).types)
    and name not in ARITHMETIC
)
EXACT = frozenset(
    f"math.{name}"
    for name in (
        "ceil",
        "comb",
        "factorial",
        "floor",
        "fsum",
        "isfinite",
        "isinf",
        "isnan",
        "isqrt",
        "nextafter",
        "prod",
    )
)

FUNCTIONS = {
    "math.exp": Function(one_by_one(math.exp), mp.exp, EXPONENTS),
    "math.expm1": Function(one_by_one(math.expm1), mp.expm1, EXPONENTS),
    "math.log": Function(one_by_one(math.log), mp.log, LOGARITHMS),
    "math.log1p": Function(one_by_one(math.log1p), mp.log1p, AFTER_ONE),
    "math.log2": Function(one_by_one(math.log2), lambda x: mp.log(x) / mp.log(2), LOGARITHMS),
    "math.sqrt": Function(one_by_one(math.sqrt), mp.sqrt, LOGARITHMS),
    "math.tanh": Function(one_by_one(math.tanh), mp.tanh, SMALL),
    "math.cosh": Function(one_by_one(math.cosh), mp.cosh, SMALL),
    "math.sin": Function(one_by_one(math.sin), mp.sin, ANGLES, size=one),
    "math.cos": Function(one_by_one(math.cos), mp.cos, ANGLES, size=one),
    "math.hypot": Function(
        one_by_one(lambda x: math.hypot(x, 1.0 / 3.0)), lambda x: mp.sqrt(x * x + mp.mpf(1.0 / 3.0) ** 2), SMALL
    ),
    "math.atan2": Function(
        one_by_one(lambda x: math.atan2(x, 1.0 / 3.0)), lambda x: mp.atan2(x, mp.mpf(1.0 / 3.0)), SMALL
    ),
    "math.erfc": Function(one_by_one(math.erfc), mp.erfc, spread(-26.0, 26.0)),
    "math.erf": Function(one_by_one(math.erf), mp.erf, spread(-6.0, 6.0)),
    "math.lgamma": Function(one_by_one(math.lgamma), mp.loggamma, positive(1e-3, 1e9, near=(1, 2)), size=at_least_one),
    "numpy.exp": Function(np.exp, mp.exp, EXPONENTS, np.exp),
    "numpy.expm1": Function(np.expm1, mp.expm1, EXPONENTS, np.expm1),
    "numpy.log": Function(np.log, mp.log, LOGARITHMS, np.log),
    "numpy.log1p": Function(np.log1p, mp.log1p, AFTER_ONE, np.log1p),
    "numpy.sqrt": Function(np.sqrt, mp.sqrt, LOGARITHMS, np.sqrt),
    "numpy.tanh": Function(np.tanh, mp.tanh, SMALL, np.tanh),
    "numpy.sinh": Function(np.sinh, mp.sinh, SMALL, np.sinh),
    "numpy.arcsinh": Function(np.arcsinh, mp.asinh, SMALL),
    "numpy.sin": Function(np.sin, mp.sin, ANGLES, np.sin, one),
    "numpy.cos": Function(np.cos, mp.cos, ANGLES, np.cos, one),
    "numpy.hypot": Function(lambda x: np.hypot(x, 1.0 / 3.0), lambda x: mp.sqrt(x * x + mp.mpf(1.0 / 3.0) ** 2), SMALL),
    "numpy.arctan2": Function(lambda x: np.arctan2(x, 1.0 / 3.0), lambda x: mp.atan2(x, mp.mpf(1.0 / 3.0)), SMALL),
    "numpy.logaddexp": Function(
        lambda x: np.logaddexp(x, 1.0), lambda x: x + mp.log1p(mp.exp(1 - x)), EXPONENTS, size=at_least_one
    ),
    "scipy.special.erfcx": Function(scipy.special.erfcx, scaled_erfc, spread(0.0, 1e8)),
    "scipy.special.erfcx, x < 0": Function(scipy.special.erfcx, scaled_erfc, spread(-26.0, 0.0), size=grown),
    "scipy.special.ndtr": Function(scipy.special.ndtr, normal, QUANTILES, size=grown),
    "scipy.special.log_ndtr": Function(scipy.special.log_ndtr, log_normal, QUANTILES, size=grown),
    "scipy.special.ndtri": Function(scipy.special.ndtri, quantile, positive(1e-300, 0.99), size=at_least_one),
    "scipy.special.ndtri_exp": Function(
        scipy.special.ndtri_exp,
        quantile_of_log,
        lambda draw, number: -positive(0.01, 2000.0)(draw, number),
        size=at_least_one,
    ),
    "scipy.special.erfinv": Function(scipy.special.erfinv, mp.erfinv, spread(-0.99, 0.99)),
    "scipy.special.expit": Function(scipy.special.expit, lambda x: 1 / (1 + mp.exp(-x)), SMALL),
    "scipy.special.gammaln": Function(
        scipy.special.gammaln, mp.loggamma, positive(1e-3, 1e9, near=(1, 2)), size=at_least_one
    ),
    "scipy.special.wofz": Function(scipy.special.wofz, lambda z: mp.exp(-z * z) * mp.erfc(-1j * z), plane),
}
#: Every row of the page's table: the function, its bound in units.
ASSUMED = {
    name: float(bound)
    for name, bound in re.findall(r"^\| `([a-z_0-9.]+(?:, x < 0)?)` \| ([\d.]+) \|", PAGE.read_text(), re.M)
}


def points_of(name: str, number: int, seed: int) -> Array:
    return FUNCTIONS[name].points(np.random.default_rng(seed), number)


def values_of(name: str, points: Array) -> Array:
    with np.errstate(all="ignore"):
        return np.asarray(FUNCTIONS[name].call(points))


def test_the_page_and_the_tests_have_the_same_functions() -> None:
    assert set(ASSUMED) == set(FUNCTIONS)


def test_the_engine_calls_no_function_that_the_page_does_not_have() -> None:
    source = "".join(path.read_text() for path in (PAGE.parents[2] / "accounting").rglob("*.py"))
    called = {f"scipy.special.{name}" for name in re.findall(r"scipy\.special\.(\w+)", source)}
    called |= {f"math.{name}" for name in re.findall(r"\bmath\.(\w+)\(", source)}
    called |= {f"numpy.{name}" for name in set(re.findall(r"\bnp\.(\w+)\(", source)) & TRANSCENDENTAL}
    named = {name.partition(",")[0] for name in re.findall(r"`((?:math|numpy|scipy)\.[a-z_0-9.]+)", PAGE.read_text())}
    assert called - named - EXACT == set()


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_function_keeps_to_what_is_assumed_of_it(name: str) -> None:
    points = points_of(name, 400, seed=1)
    assert FUNCTIONS[name].error(points, values_of(name, points)) <= ASSUMED[name]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_an_array_has_the_values_of_its_elements_to_what_is_assumed(name: str) -> None:
    """NumPy takes other instructions for long arrays than for short ones."""
    points = points_of(name, 64, seed=2)
    alone = np.array([values_of(name, points[index : index + 1])[0] for index in range(points.size)])
    assert FUNCTIONS[name].error(points, alone) <= ASSUMED[name]


@pytest.mark.soak
@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_function_keeps_to_what_is_assumed_of_it_at_many_points(name: str) -> None:
    points = points_of(name, 100_000, seed=3)
    assert FUNCTIONS[name].error(points, values_of(name, points)) <= ASSUMED[name]


@pytest.mark.soak
@pytest.mark.skipif(np.finfo(np.longdouble).nmant < 63, reason="no extended precision here")
@pytest.mark.parametrize("name", [name for name, function in FUNCTIONS.items() if function.extended])
def test_an_elementary_function_keeps_to_what_is_assumed_of_it_at_millions_of_points(name: str) -> None:
    function, worst = FUNCTIONS[name], 0.0
    assert function.extended is not None
    for seed in range(4):
        points = points_of(name, 1_000_000, seed)
        with np.errstate(all="ignore"):
            exact = function.extended(points.astype(np.longdouble))
            size = np.abs(exact) if function.size is None else 1.0
            errors = np.abs(values_of(name, points) - exact) / size / UNIT
        finite = np.isfinite(errors) & (np.abs(exact) > 2.3e-308)
        worst = max(worst, float(errors[finite].max()))
    assert worst <= ASSUMED[name]


def summands(draw: np.random.Generator, number: int) -> Array:
    """Return numbers of all sizes and both signs, which cancel."""
    return draw.normal(size=number) * 10.0 ** draw.uniform(-12, 0, number)


@pytest.mark.parametrize("number", [2, 9, 127, 129, 1000, 30_000])
@pytest.mark.one_in(3)
def test_sums_and_products_keep_to_any_order(number: int) -> None:
    """An error of n units of 2^-53 times the sum of the moduli, n the number of summands: so in any order."""
    draw = np.random.default_rng(number)
    for _ in range(20):
        terms, others = summands(draw, number), summands(draw, number)
        most = number * 2.0**-53 * math.fsum(np.abs(terms))
        exact = math.fsum(terms)
        assert abs(float(terms.sum()) - exact) <= most
        assert abs(float(terms[None, :].sum(axis=1)[0]) - exact) <= most
        assert abs(float(np.cumsum(terms)[-1]) - exact) <= most
        products = terms * others
        twice = [_product_error(a, b) for a, b in zip(terms.tolist(), others.tolist(), strict=True)]
        exact = math.fsum([*products.tolist(), *twice])
        most = number * 2.0**-53 * math.fsum(np.abs(products))
        assert abs(float(terms @ others) - exact) <= most
        table = np.tile(terms, (3, 1))
        assert np.all(np.abs(table @ others - exact) <= most)
        assert np.all(np.abs((table @ np.tile(others, (2, 1)).T) - exact) <= most)
        complex_table = table + 1j * table[::-1]
        assert np.all(np.abs((complex_table @ others.astype(complex)).real - exact) <= 2.0 * most)


@pytest.mark.parametrize("number", [3, 1000, 100_000])
def test_compensated_sums_lose_nothing_on_the_way(number: int) -> None:
    """Masses that are lost one by one behind a large one: log M(0) of a law of mass a little above 1."""
    log_mass = np.full(number, math.log(2.0**-53))
    log_mass[0] = 0.0
    nothing = np.zeros(number)
    (log_moment,), _, _, _ = moments_at(log_mass, nothing, nothing, 0.0, np.zeros(1), False, 0.0)
    assert log_moment == pytest.approx(math.log1p((number - 1) * 2.0**-53), abs=4.0 * UNIT)


@compiled
def _compiled_functions(x: Array, y: Array, values: Array) -> None:
    for j in range(x.size):
        values[0, j], values[1, j] = math.exp(x[j]), math.expm1(x[j])
        values[2, j], values[3, j] = math.log(abs(x[j])), math.log1p(abs(x[j]))
        values[4, j], values[5, j] = math.sin(x[j]), math.cos(x[j])
        values[6, j], values[7, j] = math.erfc(0.05 * x[j]), math.atan2(x[j], y[j])
        values[8, j] = math.sqrt(abs(x[j]))


def test_compiled_functions_are_those_of_math_to_the_bit() -> None:
    draw = np.random.default_rng(8)
    sizes = np.exp(draw.uniform(-200.0, 6.0, 20_000))
    x = np.concatenate([draw.uniform(-700.0, 700.0, 20_000), np.where(draw.random(sizes.size) < 0.5, sizes, -sizes)])
    y, values = draw.permutation(x), np.empty((9, x.size))
    _compiled_functions(x, y, values)
    for found, function in zip(
        values,
        (
            lambda a, _: math.exp(a),
            lambda a, _: math.expm1(a),
            lambda a, _: math.log(abs(a)),
            lambda a, _: math.log1p(abs(a)),
            lambda a, _: math.sin(a),
            lambda a, _: math.cos(a),
            lambda a, _: math.erfc(0.05 * a),
            math.atan2,
            lambda a, _: math.sqrt(abs(a)),
        ),
        strict=True,
    ):
        assert found.tolist() == [function(a, b) for a, b in zip(x.tolist(), y.tolist(), strict=True)]


def test_nothing_is_fused_in_a_compiled_loop() -> None:
    """A fused product and difference would see what the product's rounding left out."""

    @compiled
    def difference(a: float, b: float, c: float) -> float:
        return a * b - c

    a = 1.0 + 2.0**-30
    assert difference(a, a, a * a) == 0.0


def _product_error(a: float, b: float) -> float:
    """Return the rounding error of a product, as a float."""
    return float(Fraction(float(a)) * Fraction(float(b)) - Fraction(float(a) * float(b)))


def test_fsum_and_nextafter_are_exact() -> None:
    draw = np.random.default_rng(5)
    for number in (3, 50, 1000):
        terms = summands(draw, number).tolist()
        assert math.fsum(terms) == float(sum(map(Fraction, terms)))
    assert math.nextafter(1.0, 2.0) == 1.0 + UNIT


def test_operations_are_those_of_ieee_doubles() -> None:
    """Rounded to nearest, with subnormal numbers, and without a wider register in between."""
    tiny = 5e-324
    assert tiny / 2.0 == 0.0
    assert tiny * 1.5 == 2.0 * tiny
    assert np.array([2.0**-1030]) * 0.5 == 2.0**-1031
    assert 1.0 + 2.0**-53 == 1.0
    assert float(Fraction(1.0 + 2.0**-52) * Fraction(1.0 - 2.0**-53)) == (1.0 + 2.0**-52) * (1.0 - 2.0**-53)
