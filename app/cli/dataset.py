"""`epsilond dataset`: rows that runs train on, declared in public and uploaded once."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from app.cli.csv_columns import check_header, without_columns
from app.cli.output import AsJson, example, print_facts, print_page, print_warnings
from app.cli.requests import asked
from app.cli.server import DEFAULT_URL, Cursor, Dataset, IdempotencyKey, Limit, Server, Url, segment
from app.datasets.column_lines import columns_in

commands = typer.Typer(
    name="dataset",
    help="Rows that runs train on: declared in public, never shown.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

File = Annotated[
    Path, typer.Argument(metavar="FILE", exists=True, dir_okay=False, readable=True, help="CSV, Parquet or NPZ.")
]


@commands.command(
    epilog=example(
        "epsilond dataset upload visits.csv --rows 1000 --label ill --public "
        '--column "age: 0 to 120" --column "ill: no, yes"'
    )
)
def upload(
    file: File,
    rows: Annotated[int, typer.Option(help="About how many rows: a public number.")],
    label: Annotated[str, typer.Option(help="The column that a model predicts.")],
    column: Annotated[
        list[str] | None,
        typer.Option(help='A column and its values, such as "age: 0 to 120" or "smoker: no, yes"; once for each.'),
    ] = None,
    columns: Annotated[
        Path | None, typer.Option(exists=True, dir_okay=False, help="A file with such lines, in place of --column.")
    ] = None,
    ignore_columns: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAMES", help="Columns of a CSV file that are not uploaded, separated by commas; may be repeated."
        ),
    ] = None,
    name: Annotated[str | None, typer.Option(help="The name that people see; by default that of the file.")] = None,
    budget: Annotated[
        str | None, typer.Option(help="Id or name of the root budget that pays for every run on private rows.")
    ] = None,
    public: Annotated[bool, typer.Option("--public", help="Every row may be published.")] = False,
    capacity: Annotated[int | None, typer.Option(help="The largest number of rows that fits, a public number.")] = None,
    held_out_share: Annotated[
        float | None,
        typer.Option(help="Share of the private rows to hold out, in secret and at random, for evaluating runs."),
    ] = None,
    unit: Annotated[
        str | None, typer.Option(help="The privacy unit of a row; by default the unit of the budget.")
    ] = None,
    person_column: Annotated[str | None, typer.Option(help="A further column with ids of persons.")] = None,
    rows_per_person: Annotated[int | None, typer.Option(help="The most rows that one person may have.")] = None,
    idempotency_key: IdempotencyKey = None,
    url: Url = DEFAULT_URL,
    as_json: AsJson = False,
) -> None:
    """Upload a file and its declaration.

    Everything in the declaration is public, so it must not depend on any single record. Numbers outside their bounds
    are clipped. The file is refused if anything else differs from the declaration.
    """
    if (column is None) == (columns is None):
        raise typer.BadParameter("declare each column with --column, or all of them in a file", param_hint="--columns")
    server = Server(url)
    lines = columns.read_text(encoding="utf-8").splitlines() if columns is not None else column or []
    for line in lines:
        if line.strip() and not line.partition(":")[2].strip():
            raise typer.BadParameter(
                f'{line.strip()!r} names no values; write "age: 0 to 120" or "smoker: no, yes"',
                param_hint="--column" if columns is None else "--columns",
            )
    declared = columns_in(lines)
    ignored = [each.strip() for names in ignore_columns or () for each in names.split(",") if each.strip()]
    ids = [] if person_column is None else [person_column]
    check_header(file, dict.fromkeys([*(each["name"] for each in declared), label, *ids]), ignored)
    budget_id = budget and server.budget_id(budget)
    metadata = asked(
        None,
        [
            ("--name", "/name", name or file.stem),
            ("--public", "/public", public),
            ("--rows", "/declared_size", rows),
            ("--capacity", "/capacity", capacity),
            ("--held-out-share", "/held_out_share", held_out_share),
            ("--unit", "/privacy_unit", unit or (budget_id and _unit_of(server, budget_id))),
            ("--columns", "/columns", declared),
            ("--label", "/label", label),
            ("--person-column", "/person_column", person_column),
            ("--rows-per-person", "/rows_per_person", rows_per_person),
            ("--budget", "/budget_id", budget_id),
        ],
    )
    with without_columns(file, ignored) as sent:
        text = server.upload("/v1/datasets", sent, metadata, idempotency_key)
    server.tell(text, as_json, _print_dataset)


@commands.command("list", epilog=example("epsilond dataset list"))
def list_datasets(limit: Limit = None, cursor: Cursor = None, url: Url = DEFAULT_URL, as_json: AsJson = False) -> None:
    """List the data sets, the bundled ones first."""
    server = Server(url)
    server.tell(server.get("/v1/datasets", {"limit": limit, "cursor": cursor}), as_json, _print_datasets)


@commands.command(epilog=example("epsilond dataset show ds_digits"))
def show(
    dataset: Dataset,
    url: Url = DEFAULT_URL,
    as_json: AsJson = False,
) -> None:
    """Show what was declared about one data set."""
    server = Server(url)
    server.tell(server.get(f"/v1/datasets/{segment(server.dataset_id(dataset))}"), as_json, _print_dataset)


def _unit_of(server: Server, budget_id: str) -> str:
    return server.field(server.get(f"/v1/budgets/{segment(budget_id)}"), "privacy_unit")


def _print_dataset(dataset: Mapping[str, Any]) -> None:
    report = dataset.get("owner_report")
    print_facts(
        {
            "id": dataset["id"],
            "name": dataset["name"],
            "rows are": "public" if dataset["public"] else "private",
            "version": dataset["version"],
            "declared rows": dataset["declared_size"],
            "capacity": dataset["capacity"],
            "held out": dataset["held_out_share"],
            "one row is of a": dataset["privacy_unit"],
            "columns": len(dataset["columns"]),
            "predicted": dataset["label"],
            "budget": dataset["budget_id"],
            "rows in the file": report and report["rows"],
            "values clipped": report and report["values_clipped"],
        }
    )
    print_warnings([each["detail"] for each in dataset["warnings"]])


def _print_datasets(page: Mapping[str, Any]) -> None:
    print_page(
        page,
        ("id", "name", "rows are", "version", "declared rows", "columns", "predicted"),
        lambda each: (
            each["id"],
            each["name"],
            "public" if each["public"] else "private",
            each["version"],
            each["declared_size"],
            len(each["columns"]),
            each["label"],
        ),
    )
