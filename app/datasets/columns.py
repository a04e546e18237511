"""Declared columns: what the owner says about the data without looking at any single record."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, TypeAdapter, ValidationInfo, field_validator

from app.kit.fields import Name, Schema
from trainer import scaling

MAX_COLUMNS = 4096
MAX_CATEGORIES = 1000
MAX_MAGNITUDE = 1e100


class NumberColumn(Schema):
    """A number between two bounds that are known without looking at the data."""

    name: Name
    type: Literal["number"]
    lower: float = Field(
        ge=-MAX_MAGNITUDE, le=MAX_MAGNITUDE, description="Smallest value; smaller ones are raised to it."
    )
    upper: float = Field(
        ge=-MAX_MAGNITUDE, le=MAX_MAGNITUDE, description="Largest value; larger ones are lowered to it."
    )

    @field_validator("upper")
    @classmethod
    def _is_not_below_lower(cls, upper: float, info: ValidationInfo) -> float:
        if upper < info.data.get("lower", upper):
            raise ValueError("The upper bound must not be below the lower one.")
        return upper


class CategoryColumn(Schema):
    """One of a list of texts that is known without looking at the data."""

    name: Name
    type: Literal["category"]
    categories: list[Name] = Field(
        min_length=1,
        max_length=MAX_CATEGORIES,
        description="The values that may occur, as written in the file. Their places in this list are their codes: 0, "
        "1, 2, ...",
    )

    @field_validator("categories")
    @classmethod
    def _are_distinct(cls, categories: list[str]) -> list[str]:
        if len(set(categories)) < len(categories):
            raise ValueError("Every category must be listed once.")
        return categories


Column = Annotated[NumberColumn | CategoryColumn, Field(discriminator="type")]
COLUMN: TypeAdapter[Column] = TypeAdapter(Column)


def _with_distinct_names(columns: list[Column]) -> list[Column]:
    """Refuse two columns with the same name, because a header could not tell them apart."""
    if len({column.name for column in columns}) < len(columns):
        raise ValueError("Every column needs a name of its own.")
    return columns


def _of_a_column(label: str, info: ValidationInfo) -> str:
    """Refuse a label that names no declared column. If the columns are invalid or absent, accept any label."""
    columns = info.data.get("columns")
    if columns is not None and label not in {column.name for column in columns}:
        raise ValueError("The label must be the name of a declared column.")
    return label


Columns = Annotated[list[Column], Field(min_length=2, max_length=MAX_COLUMNS), AfterValidator(_with_distinct_names)]
#: The name of one of the `columns` that are declared before it.
Label = Annotated[Name, AfterValidator(_of_a_column)]


def split_label(columns: Sequence[Column], label: str) -> tuple[tuple[Column, ...], Column]:
    """Return the feature columns in their declared order, and the label's column."""
    return (
        tuple(column for column in columns if column.name != label),
        next(column for column in columns if column.name == label),
    )


def as_scaled(column: Column) -> scaling.Column:
    """Return how the trainer reads a column's values."""
    if isinstance(column, CategoryColumn):
        return scaling.CategoryColumn(len(column.categories))
    return scaling.NumberColumn(column.lower, column.upper)
