"""`epsilond backup`, `epsilond check-backup` and `epsilond restore`: one file with everything that is kept."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from pydantic import ValidationError

from app.backups.archive import Done, open_archive
from app.backups.making import BackupRefused, make_backup, seal_of
from app.backups.manifest import ArchiveRefused, Manifest
from app.backups.restoring import RestoreRefused, restore
from app.cli.ledger import loss_body, print_loss
from app.cli.output import AsJson, example, print_error, print_facts, print_json, print_text, print_warnings
from app.cli.progress import Reached, progress_bar
from app.cli.refusals import Status, fail
from app.cli.setting_up import open_context, require_schema, require_secrets
from app.context import Context
from app.db.database import Database
from app.fence.marks import Loss
from app.fence.watching import fence_of
from app.kit import collector
from app.kit.timestamps import format_moment
from app.runs import loss as losses
from app.secrets.material import Purpose, SecretUnavailable
from app.settings import Settings

commands = typer.Typer(rich_markup_mode=None)

#: The progress bar advances after every this many bytes.
_STEP_BYTES = 2**20

Archive = Annotated[Path, typer.Argument(metavar="ARCHIVE", help="The path of the backup file.")]


@commands.command("backup", epilog=example("epsilond backup monday.backup"))
def write_backup(
    archive: Annotated[
        Path, typer.Argument(metavar="ARCHIVE", help="Write to this new file, which only its owner may read.")
    ],
    verifies: Annotated[
        bool,
        typer.Option(
            "--verify/--no-verify", help="Verify the ledger first, which takes a minute for a million entries."
        ),
    ] = True,
    as_json: AsJson = False,
) -> None:
    """Write the database and the files of the service to one file. The service may run meanwhile.

    The file does not contain the secrets, the checkpoints of runs or the fence: keep the secrets elsewhere. The file is
    as private as the data sets in it.
    """
    with open_context() as context, _refusals_in_one_line(archive):
        require_schema(context)
        require_secrets(context)
        with progress_bar("backing up, MiB") as reached:
            manifest = make_backup(context, archive, _counted(reached, None), verifies=verifies)
    _print(manifest, as_json, {"archive": str(archive)})


@commands.command("check-backup", epilog=example("epsilond check-backup monday.backup"))
def check_backup(archive: Archive, as_json: AsJson = False) -> None:
    """Verify a backup, and show its contents. This needs no database.

    Every part is compared with its hash. The whole is compared with its seal if the secret that sealed it is in the
    data folder or the settings.
    """
    collector.resume()
    with _refusals_in_one_line(archive), open_archive(archive) as opened:
        is_sealed = _check_seal(opened.check_seal)
        with progress_bar("checking, MiB") as reached:
            opened.check(_counted(reached, opened.manifest.total_bytes))
        manifest = opened.manifest
    _print(manifest, as_json, {"archive": str(archive), "seal": "checked" if is_sealed else "not checked"})
    if not is_sealed:
        print_warnings(
            [
                "Without the secret, the seal was not checked: somebody who changed the archive may have changed its "
                "hashes, too."
            ]
        )


@commands.command("restore", epilog=example("epsilond restore monday.backup --acknowledge-loss 'disk failed'"))
def restore_backup(
    archive: Archive,
    reason: Annotated[
        str | None,
        typer.Option(
            "--acknowledge-loss", help="If acknowledged entries are missing, enter the loss with this reason."
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Restore a backup into an empty database and data folder. Stop the service first.

    A backup of SQLite can be restored to PostgreSQL, and the other way round. The restored database is compared with
    the fence. If acknowledged entries are missing, the status is 1, and nothing is served until the loss is
    acknowledged.
    """
    with open_context(makes_database=True, restores=True) as context, _refusals_in_one_line(archive):
        with open_archive(archive) as opened, progress_bar("restoring, MiB") as reached:
            manifest = opened.manifest
            restore(context, opened, _counted(reached, 2 * manifest.total_bytes))
        loss = fence_of(context).check()
        done = losses.acknowledge(context, reason) if loss is not None and reason else None
    if done is None:
        _print(manifest, as_json, {"archive": str(archive), "loss": loss and loss_body(loss)})
        if loss is not None:
            _print_standing_loss(loss, context.settings, as_json)
            raise typer.Exit(Status.REFUSED)
        return
    life = {"life": done.life, "ended_runs": done.runs, "started": done.started, "charged": done.charged}
    _print(manifest, as_json, {"archive": str(archive), "loss": loss_body(done.loss), "acknowledged": life})
    if not as_json:
        print_text(done.in_words())


def _print_standing_loss(loss: Loss, settings: Settings, as_json: bool) -> None:
    if not as_json:
        print_loss(loss, settings)
    print_error(
        "The backup is restored. Nothing is served until the loss is acknowledged: epsilond ledger acknowledge-loss "
        "--yes --reason REASON (docs/operating/fence.md). Acknowledge nothing in a rehearsal "
        "(docs/operating/backups.md)."
    )


def _print(manifest: Manifest, as_json: bool, more: dict[str, Any]) -> None:
    ledger = manifest.ledger
    facts = {
        "made_at": format_moment(manifest.made_at),
        "service_version": manifest.service_version,
        "revision": manifest.revision,
        "database": manifest.database,
        "books_verified": manifest.is_verified,
        **ledger.model_dump(),
        "rows": sum(table.rows for table in manifest.tables),
        "files": len(manifest.files),
        "missing_files": list(manifest.missing_files),
        "bytes": manifest.total_bytes,
    }
    if as_json:
        print_json({**more, **facts})
        return
    shown = {name: value for name, value in {**more, **facts}.items() if value != [] and not isinstance(value, dict)}
    print_facts({name.replace("_", " "): value for name, value in shown.items()})
    print_warnings(
        f"The file {each} was missing in the data folder, and is not in the backup." for each in manifest.missing_files
    )


def _check_seal(check: Any) -> bool:
    """Compare the seal if the secret is here, and return whether the secret is here. Create no secret."""
    try:
        settings = Settings()
        context = Context(settings, Database("sqlite://"))
        if not context.secrets.exists(Purpose.CONTENT, 1):
            return False
        check(seal_of(context))
    except (ValidationError, SecretUnavailable):
        return False
    return True


def _counted(reached: Reached, total: int | None) -> Done:
    """Count bytes, and update a bar after every mebibyte."""
    seen = 0

    def done(size: int) -> None:
        nonlocal seen
        before, seen = seen, seen + size
        if before // _STEP_BYTES < seen // _STEP_BYTES:
            reached(seen // _STEP_BYTES, None if total is None else -(-total // _STEP_BYTES))

    return done


@contextmanager
def _refusals_in_one_line(archive: Path) -> Iterator[None]:
    try:
        yield
    except ArchiveRefused as refused:
        fail(f"{archive} is refused. {refused}")
    except (BackupRefused, RestoreRefused) as refused:
        fail(str(refused))
    except SecretUnavailable as refused:
        fail(refused.detail)
    except FileExistsError as error:
        fail(f"{error.filename} exists already and is not overwritten. Name a new file.")
    except OSError as error:
        fail(f"{error.filename or archive}: {error.strerror}.")
