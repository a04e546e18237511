"""`epsilond ledger`: verify, export and mend the ledger of all budgets."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer
from sqlalchemy.orm import Session

from app import VERSION
from app.cli.files import Output, whole_file
from app.cli.output import AsJson, example, print_json, print_table, print_text
from app.cli.progress import Reached, progress_bar
from app.cli.refusals import Status, fail
from app.cli.setting_up import open_context, require_schema, require_secrets
from app.cli.witnesses import check_witnessed, list_witnesses
from app.context import Context
from app.fence.marks import Loss
from app.fence.watching import fence_of
from app.kit import collector
from app.ledger import books_repository, exports, transparency
from app.ledger.amounts import in_short
from app.ledger.books import BadPlace, Books, StoredEntry
from app.ledger.checkpoints import Checkpoint, InvalidNote, VerifierKey, open_note, read_note
from app.ledger.export_verification import read_past, verify_export
from app.ledger.exports import ExportFormat
from app.ledger.price_search import on_all_cores
from app.ledger.price_verification import PriceReport, PriceVerification
from app.ledger.proofs import InvalidProof, check_proof
from app.ledger.recovery import rebuild_tables
from app.ledger.verdicts import CertificateReport, Past, Verdict, describe
from app.problems import Problem
from app.reservations.repricing import reprice
from app.settings import Settings

T = TypeVar("T")

#: A progress bar advances after this many entries.
_SEEN_AT_ONCE = 500

commands = typer.Typer(
    name="ledger", help="Verify, export and mend the books of all budgets.", no_args_is_help=True, rich_markup_mode=None
)


@commands.command("verify", epilog=example("epsilond ledger verify"))
def verify_ledger(
    export: Annotated[Path | None, typer.Option(help="Verify this export; this needs no database.")] = None,
    since: Annotated[
        Path | None, typer.Option(help="An older export that was kept elsewhere; nothing in it may have changed since.")
    ] = None,
    checkpoint: Annotated[
        Path | None,
        typer.Option(help="A checkpoint that was kept elsewhere; the entries must begin with those it was made from."),
    ] = None,
    public_key: Annotated[
        str | None,
        typer.Option(help="The public key that verifies the checkpoint; an export with a checkpoint needs it."),
    ] = None,
    witness: Annotated[
        list[str] | None, typer.Option(help="Public key of a witness that cosigns checkpoints; may be repeated.")
    ] = None,
    quorum: Annotated[
        int | None,
        typer.Option(help="How many of the witnesses must have cosigned the checkpoint; by default all.", min=1),
    ] = None,
    prices: Annotated[
        bool, typer.Option("--prices", help="Compare each charge with what its events cost by today's engine.")
    ] = False,
    proofs: Annotated[
        bool,
        typer.Option("--proofs", help="Verify the certificates of charges, as epsilond-verify does."),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Verify that nobody has changed the books.

    If they were changed, the first bad entry is shown, and the status is 1. With --prices, a charge below the certified
    lower end of today's price is bad, too. With --proofs, a certificate that does not prove the cost of its charge is
    bad, too.
    """
    if export is not None and checkpoint is not None and public_key is None:
        fail(
            "--checkpoint needs --public-key, the key that was kept with the checkpoint (`ledger public-key` "
            "prints it)."
        )
    if export is not None and proofs:
        fail("An export has no certificates, because they are only in the database: verify them without --export.")
    if checkpoint is None and (witness or quorum):
        fail("--witness needs --checkpoint, since witnesses cosign a checkpoint.")
    past = None if since is None else _read_past(since)
    kept = None if checkpoint is None else _read_checkpoint(checkpoint, public_key)
    if checkpoint is not None and (witness or quorum):
        check_witnessed(checkpoint, _read_text(checkpoint), witness or [], quorum)
    with on_all_cores() if prices else nullcontext() as search:
        charges = None if search is None else PriceVerification(search)
        if export is not None:
            collector.resume()
            file = export
            with progress_bar("verifying", lambda: _of_file(file, lambda: _entries_of(file))) as reached:
                verdict = _of_file(file, lambda: verify_export(file, Watched(past, reached), kept, charges))
        else:
            with open_context() as context:
                require_schema(context)
                with progress_bar("verifying", lambda: _entries_in(context)) as reached:
                    prove = (lambda session: _certificates_in(session, reached)) if proofs else None
                    verdict = transparency.verified(
                        context, past=Watched(past, reached), kept=kept, charges=charges, prove=prove
                    )
        if search is not None and charges is not None:
            with progress_bar("pricing") as search.reached:
                verdict = verdict.with_prices(charges)
    if as_json:
        report = {} if verdict.certificates is None else {"certificates": _certificates_body(verdict.certificates)}
        print_json(_verdict_body(verdict) | report)
    else:
        print_text(verdict.in_words())
        if verdict.prices is not None:
            _print_judgements(verdict.prices)
    if not verdict.valid:
        raise typer.Exit(Status.REFUSED)


@commands.command("export", epilog=example("epsilond ledger export --output ledger.ndjson"))
def export_ledger(
    output: Annotated[Path, typer.Option(help="Write to this new file, which only its owner may read.")],
    file_format: Annotated[
        ExportFormat, typer.Option("--format", help="ndjson can be verified by itself; csv is a table for people.")
    ] = ExportFormat.NDJSON,
    as_json: AsJson = False,
) -> None:
    """Write all entries to a file. Keep it elsewhere, for `ledger verify --since`."""
    with open_context() as context:
        require_schema(context)
        export = exports.export(context)
        count = sum(head.sequence for head in export.heads.values())
        with whole_file(output) as file, progress_bar("exporting", lambda: count) as reached:
            written = 0
            for part in export.parts(file_format, VERSION):
                file.write(part)
                written += part.count(b"\n")
                reached(min(written, count), None)
    if as_json:
        print_json({"entries": count, "output": str(output)})
    else:
        print_text(f"{count} entries were written to {output}.")


@commands.command("checkpoint", epilog=example("epsilond ledger checkpoint --output checkpoint.txt"))
def sign_checkpoint(
    output: Output = None,
    witnessed: Annotated[
        bool, typer.Option("--witnessed", help="Take the newest checkpoint that enough witnesses have cosigned.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Sign all entries so far in one note. Keep it elsewhere, for `ledger verify --checkpoint`."""
    with open_context() as context:
        require_schema(context)
        require_secrets(context)
        with _refusals_in_one_line():
            signed = transparency.witnessed(context) if witnessed else transparency.checkpoint(context)
    if output is not None:
        with whole_file(output) as file:
            file.write(signed.note.encode())
    if as_json:
        print_json({"size": signed.checkpoint.size, "note": signed.note, "output": output and str(output)})
    elif output is None:
        print_text(signed.note.removesuffix("\n"))
    else:
        print_text(f"The checkpoint of {signed.checkpoint.size} entries was written to {output}.")


commands.command("witnesses", epilog=example("epsilond ledger witnesses"))(list_witnesses)


@commands.command("public-key", epilog=example("epsilond ledger public-key"))
def print_public_key(as_json: AsJson = False) -> None:
    """Print the public key that verifies the checkpoints of this ledger. Keep the key with them."""
    with open_context() as context:
        require_schema(context)
        require_secrets(context)
        with _refusals_in_one_line():
            key = str(transparency.verifier_key(context))
    if as_json:
        print_json({"public_key": key})
    else:
        print_text(key)


@commands.command("prove", epilog=example("epsilond ledger prove --proof proof.json --public-key PUBLIC_KEY"))
def check_proof_file(
    proof: Annotated[Path, typer.Option(help="The JSON of a proof of inclusion or consistency.")],
    public_key: Annotated[str, typer.Option(help="The public key that verifies the checkpoints of the ledger.")],
    checkpoint: Annotated[
        Path | None, typer.Option(help="A checkpoint of one of the proof's sizes that was kept elsewhere.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Check that a proof shows what it states. The status is 1 if it does not. This needs no database."""
    kept = None if checkpoint is None else _read_checkpoint(checkpoint, public_key)
    try:
        shown = str(check_proof(_read_text(proof), _public_key(public_key), kept))
    except InvalidProof as error:
        fail(f"Not proved: {error}.")
    if as_json:
        print_json({"proved": shown})
    else:
        print_text(f"proved: {shown}")


@commands.command("rebuild", epilog=example("epsilond ledger rebuild"))
def rebuild_ledger(as_json: AsJson = False) -> None:
    """Rebuild budgets and reservations from the entries where they differ. Stop the service first."""
    with open_context() as context:
        require_schema(context)
        try:
            with context.database.write() as session:
                rebuilt = rebuild_tables(session)
        except BadPlace as bad:
            fail(f"Nothing was changed: {describe(bad)}. Restore a backup.")
    if as_json:
        print_json(asdict(rebuilt))
    else:
        print_text(
            f"{rebuilt.entries} entries were read. Rebuilt: {rebuilt.budgets} budgets, {rebuilt.reservations} "
            f"reservations, {rebuilt.limit_requests} limit requests, the exposed steps of {rebuilt.exposed} budgets."
        )


@commands.command("reprice", epilog=example("epsilond ledger reprice"))
def reprice_ledger(as_json: AsJson = False) -> None:
    """Compute again the prices of older engines, and raise charges that were too low. No charge is lowered."""
    with open_context() as context:
        require_schema(context)
        charges = []
        for charge in reprice(context):
            charges.append(charge)
            if as_json:
                continue
            if charge.after is not None:
                print_text(
                    f"{charge.reservation_id} of {charge.budget_id}: {charge.before} is raised to {charge.after}"
                )
            if charge.failure is not None:
                print_text(f"{charge.reservation_id} of {charge.budget_id} has no price: {charge.failure}")
    raised = sum(charge.after is not None for charge in charges)
    failed = sum(charge.failure is not None for charge in charges)
    if as_json:
        print_json({"charges": [asdict(charge) for charge in charges], "raised": raised, "failed": failed})
    else:
        print_text(
            f"{len(charges)} charges of older engines: {raised} raised, {failed} without a price; the others are "
            "high enough."
        )
    if failed:
        raise typer.Exit(Status.REFUSED)


@commands.command("acknowledge-loss", epilog=example("epsilond ledger acknowledge-loss --reason 'disk failed'"))
def acknowledge_loss(
    reason: Annotated[
        str | None, typer.Option(help="The reason, for everybody who reads the ledger later; --yes needs it.")
    ] = None,
    is_confirmed: Annotated[
        bool, typer.Option("--yes", help="Go on with this database for good. Without it, the loss is only shown.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Show which acknowledged entries the database has lost.

    With --yes, enter the loss and go on without the lost entries. Releases made after this copy are then no longer in
    the ledger. Runs that had not ended are ended.
    """
    from app.runs import loss as losses

    with open_context() as context:
        require_schema(context)
        if not is_confirmed:
            _print_found(fence_of(context).check(), context.settings, as_json)
            return
        if not reason:
            fail("Give --reason: why the loss is acknowledged, such as 'the disk failed; backup of Monday'.")
        try:
            done = losses.acknowledge(context, reason)
        except losses.NothingToAcknowledge as error:
            fail(str(error))
    if as_json:
        print_json(
            {**loss_body(done.loss), "life": done.life}
            | {"ended_runs": done.runs, "started": done.started, "charged": done.charged}
        )
    else:
        print_text(done.in_words())


def _print_found(loss: Loss | None, settings: Settings, as_json: bool) -> None:
    if as_json:
        print_json({"missing": []} if loss is None else loss_body(loss))
        return
    if loss is None:
        print_text("The database has everything that was acknowledged.")
        return
    print_loss(loss, settings)
    print_text("Nothing was changed. To enter the loss and go on with this database for good, give --yes and --reason.")


def print_loss(loss: Loss, settings: Settings) -> None:
    """Print the missing entries by budget, and the place of the fence.

    The fence is the record of acknowledged entries outside the database; the settings name its place."""
    print_text(loss.in_words())
    # Answers over HTTP never name the folder; this command does.
    print_text(f"The fence's place: {settings.fence_in_words}.")
    if loss.missing:
        rows = [[each.budget_id, str(each.acknowledged), str(each.found)] for each in loss.missing]
        print_table(["budget", "acknowledged", "found"], rows)


def loss_body(loss: Loss) -> dict[str, Any]:
    """Return the missing entries as JSON."""
    return {
        "reason": str(loss.reason),
        "acknowledged_entries": loss.acknowledged,
        "missing_entries": loss.entries,
        "missing": [
            {"budget_id": each.budget_id, "acknowledged": each.acknowledged, "found": each.found}
            for each in loss.missing
        ],
    }


def _print_judgements(report: PriceReport) -> None:
    rows = [
        [
            str(each.verdict).replace("_", " "),
            each.budget_id,
            str(each.sequence),
            str(each.entries),
            in_short(each.charged),
            each.reason or f"{in_short(each.least)} to {in_short(each.price)}",
        ]
        for each in report.listed
    ]
    if rows:
        print_table(["", "budget", "first entry", "entries", "charged", "price today"], rows)


def _read_past(path: Path) -> Past:
    past, verdict = _of_file(path, lambda: read_past(path))
    if not verdict.valid:
        fail(f"The older export cannot be used for the comparison: {verdict.in_words()}.")
    return past


def _read_checkpoint(path: Path, public_key: str | None) -> Checkpoint:
    note = _read_text(path)
    try:
        return read_note(note)[0] if public_key is None else open_note(note, _public_key(public_key))
    except InvalidNote as error:
        fail(f"The checkpoint {path} is refused: {error}.")


def _public_key(text: str) -> VerifierKey:
    try:
        return VerifierKey.parse(text)
    except InvalidNote as error:
        fail(f"--public-key is refused: {error}.")


def _read_text(path: Path) -> str:
    try:
        return _of_file(path, path.read_bytes).decode()
    except UnicodeDecodeError:
        fail(f"Cannot read {path}: it is not text in UTF-8.")


class Watched(Past):
    """The state that was kept earlier, if any, and the number of entries that were compared with it so far."""

    def __init__(self, past: Past | None, reached: Reached) -> None:
        super().__init__()
        self._past, self._reached, self._seen = past or Past(), reached, 0

    def check(self, entry: StoredEntry) -> None:
        self._past.check(entry)
        self._seen += 1
        if self._seen % _SEEN_AT_ONCE == 0:
            self._reached(self._seen, None)

    def check_nothing_is_missing(self, books: Books) -> None:
        self._past.check_nothing_is_missing(books)


def _entries_in(context: Context) -> int:
    with context.database.read() as session:
        chains = (books_repository.budgets(session, ""), books_repository.register(session, ""))
        return sum(row.sequence for rows in chains for row in rows)


def _entries_of(export: Path) -> int:
    """Estimate the number of entries of an export by its lines."""
    with export.open("rb") as file:
        return sum(1 for _ in file)


def _verdict_body(verdict: Verdict) -> dict[str, Any]:
    """Return a verdict as `POST /v1/ledger/verify` answers with it."""
    # Imported here, because only `--json` needs the schemas.
    from app.ledger.schemas import VerdictBody

    return VerdictBody.of(verdict).model_dump(mode="json")


def _certificates_in(session: Session, reached: Reached) -> CertificateReport:
    """Verify the certificates in the database."""
    # Imported here, because only `--proofs` needs it.
    from accounting.certificates import NoCertificate
    from app.ledger.certificate_verification import verify_certificates

    count = books_repository.count_certified(session)
    try:
        return verify_certificates(session, reached=lambda seen: reached(seen, count))
    except NoCertificate as reason:
        fail(f"Certificates cannot be verified here: {reason}.")


def _certificates_body(report: CertificateReport) -> dict[str, Any]:
    return {"reservations": report.reservations, "certificates": report.certificates}


@contextmanager
def _refusals_in_one_line() -> Iterator[None]:
    try:
        yield
    except Problem as problem:
        fail(problem.detail)


def _of_file(path: Path, read: Callable[[], T]) -> T:
    try:
        return read()
    except OSError as error:
        fail(f"Cannot read {path}: {error.strerror}.")
