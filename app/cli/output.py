"""The output of commands: tables for people, one JSON document for programs.

On a terminal tables fit its width; elsewhere a row is a line, without colours or frames, for grep and awk.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal
from typing import Annotated, Any

import typer

from app.entries.kinds import WITHOUT_A_KEY

#: The number of significant digits of an interval's ends, which are rounded outward.
_DIGITS = 10

AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document, and nothing else.")]


def example(command: str) -> str:
    """Return the example that ends a command's help. A test runs it; words in capitals stand for earlier results."""
    return f"\b\nExample:\n  {command}"


def print_json(value: object) -> None:
    """Print a value as one line of JSON."""
    print_text(json.dumps(value, ensure_ascii=False))


def print_answer(text: str | bytes, as_json: bool, in_tables: Callable[[Any], None]) -> None:
    """Print an answer: its JSON unchanged, or tables.

    Args:
        text: The answer, a JSON document.
        as_json: Whether the JSON is printed.
        in_tables: A function that prints the parsed answer as tables.
    """
    if as_json:
        print_text(text)
    else:
        in_tables(json.loads(text))


def print_text(text: str | bytes) -> None:
    """Print a text unchanged, with a line end."""
    typer.echo(text)


def print_error(text: str) -> None:
    """Print a line on standard error."""
    typer.echo(text, err=True)


def who(id: str, name: str | None) -> str:
    """Return the name and id of a key; the id alone where no name is known.

    >>> who("key_1", "notebook"), who("key_1", None), who("loopback", "this machine")
    ('notebook (key_1)', 'key_1', 'this machine')
    """
    if name is None:
        return id
    return name if id in WITHOUT_A_KEY else f"{name} ({id})"


def print_warnings(warnings: Iterable[str]) -> None:
    """Print sentences that belong to a table, outside of it. So programs that read the table need not know them."""
    for warning in warnings:
        print_error(f"warning: {clean(warning)}")


def print_facts(facts: Mapping[str, object]) -> None:
    """Print a line for each fact that has a value."""
    _print([(name, _cell(value)) for name, value in facts.items() if value not in (None, "")], header=())


def print_table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Print a line for each row, under a line with the columns' names."""
    _print([tuple(map(_cell, row)) for row in rows], header=tuple(columns))


def print_page(page: Mapping[str, Any], columns: Sequence[str], row: Callable[[Any], Sequence[object]]) -> None:
    """Print a page of a server's list as a table, and how to get the next page.

    Args:
        page: The page, with ``items`` and ``next_cursor``.
        columns: The names of the columns.
        row: Returns the cells of an item.
    """
    print_table(columns, map(row, page["items"]))
    if page["next_cursor"] is not None:
        print_error(f"There are more items: --cursor {clean(page['next_cursor'])}")


def clean(text: str) -> str:
    """Escape characters that a terminal would obey, or that would change the order in which it shows the text.

    >>> clean("a\\x1b[2Jb")
    'a\\\\x1b[2Jb'
    """
    return "".join(each if each.isprintable() else ascii(each)[1:-1] for each in text)


def interval(ends: Mapping[str, Any]) -> tuple[str, str]:
    """Return the ends of an interval, each rounded outward.

    >>> interval({"lower": 0.12345678912, "upper": 1 / 3})
    ('0.1234567891', '0.3333333334')
    >>> interval({"lower": 10.0, "upper": 120.0})
    ('10', '120')
    >>> interval({"lower": None, "upper": None})
    ('-', '-')
    """
    return _rounded(ends["lower"], ROUND_FLOOR), _rounded(ends["upper"], ROUND_CEILING)


def amounts(fields: Mapping[str, Any]) -> str:
    """Return a budget's amounts for one cell. Amounts per order appear only in JSON.

    >>> amounts({"epsilon": 1.5, "orders": [2.0, 3.0]})
    'epsilon 1.5'
    """
    return ", ".join(f"{name} {_cell(value)}" for name, value in fields.items() if isinstance(value, int | float))


def price_in_words(price: Mapping[str, Any] | None) -> str | None:
    """Return one line with the plan's own cost and, if known, what it adds to the budget.

    >>> alone = {"delta": 1e-5, "tight": {"lower": 0.99, "upper": 0.9993}, "charged": 1.0027}
    >>> price_in_words({**alone, "adds": 0.41, "left": 0.3})
    'tight epsilon 0.9993 at delta 1e-05, charged as 1.0027, adds 0.41 of 0.3 left'
    """
    if price is None:
        return None
    said = f"tight epsilon {interval(price['tight'])[1]} at delta {price['delta']}"
    if price["charged"] is not None:
        said += f", charged as {_rounded(price['charged'], ROUND_CEILING)}"
    if price.get("adds") is None:
        return said
    return f"{said}, adds {_rounded(price['adds'], ROUND_CEILING)} of {_rounded(price['left'], ROUND_FLOOR)} left"


def percent(share: float) -> str:
    """Return a used share, rounded up.

    >>> percent(0.48), percent(0.9993001)
    ('48 %', '99.94 %')
    """
    return f"{Decimal(repr(100 * share)).normalize(Context(prec=4, rounding=ROUND_CEILING)):f} %"


def _rounded(value: float | None, rounding: str) -> str:
    if value is None:
        return "-"
    return f"{float(Context(prec=_DIGITS, rounding=rounding).create_decimal(repr(value))):.{_DIGITS}g}"


def _cell(value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list | tuple):
        return ", ".join(map(_cell, value))
    return clean(str(value))


def _print(rows: Sequence[Sequence[str]], header: Sequence[str]) -> None:
    if sys.stdout.isatty():
        _print_framed(rows, header)
        return
    lines = [header, *rows] if header else rows
    widths = [max(map(len, cells)) for cells in zip(*lines, strict=True)]
    for line in lines:
        print_text("  ".join(map(str.ljust, line, widths)).rstrip())


def _print_framed(rows: Sequence[Sequence[str]], header: Sequence[str]) -> None:
    # Imported here, because output for programs has no frames.
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=SIMPLE_HEAD if header else None, show_header=bool(header), pad_edge=False)
    for place in range(len(header or (rows[0] if rows else ()))):
        # Users copy names and ids, so these are folded where they do not fit, and never cut.
        table.add_column(header[place] if header else "", overflow="fold", style="" if header or place else "bold")
    for row in rows:
        table.add_row(*map(Text, row))
    Console(file=sys.stdout, highlight=False, markup=False, emoji=False).print(table)
