"""`epsilond ledger witnesses`, and the check that enough witnesses have cosigned."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated

import typer

from app.cli.output import AsJson, print_json, print_table, print_text
from app.cli.refusals import Status, fail
from app.cli.setting_up import open_context, require_schema, require_secrets
from app.context import Context
from app.kit.timestamps import format_moment
from app.ledger.checkpoints import InvalidNote, read_note
from app.ledger.cosignatures import WitnessKey, check_quorum
from app.ledger.cosigning import Result, Standing, ask_all, standings
from app.ledger.witnesses import Witness, Witnesses, WrongWitnesses, check_different, witnesses_of
from app.problems import Problem


def list_witnesses(
    asks: Annotated[bool, typer.Option("--ask", help="Ask every witness now to cosign all entries.")] = False,
    as_json: AsJson = False,
) -> None:
    """Show the newest checkpoint that each witness has cosigned.

    Status 1 means that too few witnesses have cosigned recently.
    """
    with open_context() as context:
        require_schema(context)
        witnesses = witnesses_of(context.settings)
        results = _ask(context, witnesses) if asks else {}
        with context.database.read() as session:
            found = standings(session, context)
    fresh = sum(each.is_fresh for each in found)
    if as_json:
        listed = [_body(each, results.get(each.witness)) for each in found]
        print_json({"witnesses": listed, "fresh": fresh, "quorum": witnesses.quorum})
    elif not found:
        print_text("Nobody cosigns: EPSILOND_WITNESSES is empty.")
    else:
        print_table(["witness", "address", "entries", "cosigned at", ""], [_row(each, results) for each in found])
        print_text(f"{fresh} of {len(found)} have cosigned lately; {witnesses.quorum} must.")
    if fresh < witnesses.quorum:
        raise typer.Exit(Status.REFUSED)


def check_witnessed(path: Path, note: str, given: Sequence[str], quorum: int | None) -> None:
    """End the command unless enough of the witnesses whose keys are given have cosigned a checkpoint."""
    try:
        keys = [WitnessKey.parse(text) for text in given]
        check_different(keys)
    except (InvalidNote, WrongWitnesses) as error:
        fail(f"--witness is refused: {error}.")
    if quorum is not None and quorum > len(keys):
        fail(f"--quorum is {quorum}, but --witness names only {len(keys)}.")
    try:
        checkpoint, signatures = read_note(note)
        check_quorum(keys, len(keys) if quorum is None else quorum, checkpoint, signatures)
    except InvalidNote as error:
        fail(f"The checkpoint {path} is refused: {error}.")


def _ask(context: Context, witnesses: Witnesses) -> Mapping[Witness, Result]:
    require_secrets(context)
    try:
        return {each.witness: each.result for each in ask_all(context, witnesses.members)}
    except Problem as problem:
        fail(problem.detail)


def _row(standing: Standing, results: Mapping[Witness, Result]) -> list[str]:
    result = results.get(standing.witness)
    return [
        standing.witness.key.name,
        standing.witness.address,
        "-" if standing.size is None else str(standing.size),
        "never" if standing.cosigned_at is None else format_moment(standing.cosigned_at),
        str(result) if result else "" if standing.is_fresh else "too old",
    ]


def _body(standing: Standing, result: Result | None) -> dict[str, object]:
    at = standing.cosigned_at
    return {
        "name": standing.witness.key.name,
        "public_key": str(standing.witness.key),
        "address": standing.witness.address,
        "tree_size": standing.size,
        "cosigned_at": None if at is None else format_moment(at),
        "is_fresh": standing.is_fresh,
        "result": None if result is None else str(result),
    }
