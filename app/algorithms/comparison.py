"""`GET /v1/algorithms/compare`: the papers' tables, evaluated at the caller's sizes."""

from __future__ import annotations

from typing import Literal

from pydantic import ConfigDict, Field

from accounting.numbers import MAX_DATASET_SIZE
from app.kit.fields import Schema
from app.problems import refused_at
from calibrators.comparison import MAX_COMPARED_DIMENSION, Expression, Row, Setting, Table
from calibrators.registry import ALGORITHMS
from calibrators.tables import TABLES, find_table

_WARNING = (
    "Every number is known only up to a constant, and all constants are taken as 1: those that a table leaves open and "
    "those of the problem. Compare how numbers of one table grow; POST /v1/calibrate has bounds with their constants."
)


class SettingQuery(Schema):
    """The setting in which the tables are evaluated."""

    model_config = ConfigDict(strict=False)  # every value in a query is text

    dataset_size: int = Field(10_000, ge=2, le=MAX_DATASET_SIZE, description="n")
    dimension: int = Field(100, ge=1, le=MAX_COMPARED_DIMENSION, description="d, the number of parameters")
    epsilon: float = Field(1.0, gt=0, le=1e6, description="epsilon of the target (epsilon, delta)")
    delta: float = Field(1e-6, gt=0, lt=1, description="delta of the target (epsilon, delta)")
    holder_exponent: float = Field(0.5, ge=0, le=1, description="alpha of Hoelder smooth losses")
    condition_number: float = Field(10.0, ge=1, le=1e12, description="kappa of strongly convex or PL objectives")
    moment_order: float = Field(4.0, ge=2, le=1e6, description="k of heavy-tailed gradients")
    norm_order: float = Field(1.5, gt=1, le=2, description="p of l_p geometries")
    gaussian_width: float | None = Field(
        None,
        gt=0,
        le=1e12,
        description="Gaussian width of the constraint set; if left out, that of the l2 ball, sqrt(d)",
    )
    table: str | None = Field(None, max_length=64, description="One table's name; if left out, all of them.")


class ExpressionBody(Schema):
    """A formula and its value with 1 for every constant."""

    formula: str = Field(description="LaTeX.")
    value: float | None = Field(description="Null if the table has no formula to evaluate, or none that is finite.")
    kind: Literal["order"] = Field("order", description="Known up to a constant.")


class RowBody(Schema):
    """A method, with its results."""

    method: str
    algorithm: str | None = Field(description="Its name in `GET /v1/algorithms`, if it is one of them.")
    conditions: str = Field(description="What the method demands of losses, domain and penalty.")
    utility: ExpressionBody
    gradient_evaluations: ExpressionBody | None = Field(description="Null if the table does not say.")
    remark: str | None


class TableBody(Schema):
    """A paper's table."""

    name: str
    title: str
    source: str
    measure: str = Field(description="What `utility` is.")
    rows: list[RowBody]
    lower_bound: ExpressionBody | None = Field(
        description="The value that no private method beats; null if none is known."
    )
    remark: str | None


class ComparisonAnswer(Schema):
    setting: SettingQuery = Field(description="The requested setting, with defaults filled in.")
    tables: list[TableBody]
    warnings: list[str]


def compare(asked: SettingQuery) -> ComparisonAnswer:
    """Evaluate the tables at a setting.

    Raises:
        Problem: 422 when there is no such table.
    """
    names = list(TABLES) if asked.table is None else [asked.table]
    with refused_at("query"):
        setting = Setting(**asked.model_dump(exclude={"table"}))
        tables = [_table(find_table(name), setting) for name in names]
    return ComparisonAnswer(setting=asked, tables=tables, warnings=[_WARNING])


def _table(table: Table, at: Setting) -> TableBody:
    return TableBody(
        name=table.name,
        title=table.title,
        source=table.source,
        measure=table.measure,
        rows=[_row(row, at) for row in table.rows],
        lower_bound=_expression(table.lower_bound, at),
        remark=table.remark or None,
    )


def _row(row: Row, at: Setting) -> RowBody:
    utility = _expression(row.utility, at)
    assert utility is not None, "every row has one"
    return RowBody(
        method=row.method,
        algorithm=row.algorithm if row.algorithm in ALGORITHMS else None,
        conditions=row.conditions,
        utility=utility,
        gradient_evaluations=_expression(row.gradients, at),
        remark=row.remark or None,
    )


def _expression(expression: Expression | None, at: Setting) -> ExpressionBody | None:
    return None if expression is None else ExpressionBody(formula=expression.formula, value=expression.at(at))
