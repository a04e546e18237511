"""The secrets that belong to a database: the first start stores their check values, and later starts must match."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from app.auth import repository as keys
from app.auth import service
from app.auth.principal import SERVICE
from app.context import Context
from app.entries.kinds import EntryKind
from app.secrets import versions
from app.secrets.material import Purpose, SecretMaterial, kept_name
from app.tables.access import SecretVersion

#: The number of characters of a check value that are shown: enough to compare two values by eye.
_SHOWN = 16


class SecretRefused(Exception):
    """A secret does not belong to this database, or cannot be changed in this way; the message says why and what to
    do."""


@dataclass(frozen=True)
class Retired:
    """The result of retiring a version.

    Attributes:
        version: The version of the secret.
        revoked: Ids of API keys that were revoked with it.
    """

    version: int
    revoked: list[str]


def admit(context: Context) -> None:
    """Compare the secrets of this process with those of its database. A database without secrets adopts them.

    Guarantees:
        - one_wins: of servers with different secrets that start at once on a fresh database, one is admitted.
        - nothing_is_made: if the database knows a secret, no other secret is made in its place.

    Raises:
        SecretRefused: a secret is missing, or differs from the one that the database knows.
        SecretUnavailable: a secret cannot be read.
        OSError: a secret's file cannot be written.
    """
    with context.database.read() as session:
        known = versions.all_versions(session)
    _check(context.secrets, known)
    unknown = set(Purpose) - {row.purpose for row in known}
    if not unknown:
        return
    values = {}
    for purpose in unknown:
        context.secrets.make(purpose, 1)
        values[purpose] = context.secrets.check_value(purpose, 1)
    with context.database.write() as session:
        versions.enter_first(session, values, context.clock())
        # If another server entered its versions first, those versions count, and this server's secrets must agree with
        # them.
        _check(context.secrets, versions.all_versions(session))


def listed(context: Context) -> Sequence[SecretVersion]:
    """Return every version of every secret, including retired ones."""
    with context.database.read() as session:
        return versions.all_versions(session)


def kept(context: Context) -> dict[str, bytes]:
    """Return the secrets that a backup keeps: contents by file name in a data folder, wherever they are stored now.

    Versions no longer in use are included if they are still here: a backup from before a rotation needs them.

    Raises:
        SecretRefused: a secret that the database needs is missing or different, or as in `admit`.
    """
    admit(context)
    found = {}
    for row in listed(context):
        purpose = Purpose(row.purpose)
        if context.secrets.exists(purpose, row.version):
            found[kept_name(purpose, row.version)] = context.secrets.content(purpose, row.version)
    return found


def rotate(context: Context, purpose: Purpose) -> int:
    """Begin a new version of the secret, which is drawn here or, if somebody has provided its file, read from there.

    Older versions remain valid until they are retired. This can be done while servers are running.

    Returns:
        The new version.

    Raises:
        SecretRefused: the content secret is never rotated; or somebody else has just rotated; or as in `admit`.
    """
    if purpose is Purpose.CONTENT:
        raise SecretRefused(
            "The content secret is never rotated: with another secret, the service would not recognise the rows "
            "that it knows, and they could be bound to a second root budget. Nothing was changed."
        )
    admit(context)
    with context.database.read() as session:
        version = versions.newest(session, purpose) + 1
    context.secrets.make(purpose, version)
    value = context.secrets.check_value(purpose, version)
    with context.database.write() as session:
        versions.lock(session, purpose)
        known = [row for row in versions.all_versions(session) if row.purpose == purpose]
        if known[-1].version != version - 1:
            raise SecretRefused(f"Somebody else has just rotated the {purpose.words}. Nothing was changed.")
        if value in {row.check_value for row in known}:
            place = context.secrets.place(purpose, version)
            raise SecretRefused(f"{place} holds an older version of the {purpose.words}. Nothing was changed.")
        session.add(SecretVersion(purpose=purpose, version=version, check_value=value, created_at=context.clock()))
    return version


def retire(context: Context, purpose: Purpose, version: int, *, revokes_keys: bool = False) -> Retired:
    """End an older version: nothing verifies under it any more.

    Args:
        context: The process's context.
        purpose, version: The purpose and the version of the secret.
        revokes_keys: Whether to revoke API keys that are still under the version; otherwise such keys prevent the
            retirement.

    Guarantees:
        - no_key_is_left: no key that authenticates is under a version that is retired.

    Raises:
        SecretRefused: the version is the newest one or does not exist, or keys are still under it.
    """
    if purpose is Purpose.CONTENT:
        raise SecretRefused("The content secret never gets another version. Nothing was changed.")
    revoked: list[str] = []
    with context.database.write() as session:
        versions.lock(session, purpose)
        row = session.get(SecretVersion, (purpose, version))
        if row is None or row.retired_at is not None:
            raise SecretRefused(f"No version {version} of the {purpose.words} is in use.")
        if version == versions.newest(session, purpose):
            raise SecretRefused(f"Version {version} of the {purpose.words} is the newest one. Rotate first.")
        now = context.clock()
        if purpose is Purpose.KEYS:
            keys.lock_all(session)
            under = [key for key in keys.unended(session, now) if key.is_under_secret(version, now)]
            for account in [key for key in under if key.is_account]:
                service.end_sessions(session, context, account)
            left = [key for key in under if not key.is_account]
            if left and not revokes_keys:
                raise SecretRefused(
                    f"{len(left)} API key(s) are still under version {version}, such as {left[0].id}. A key moves "
                    "to the newest version when it is used. Wait, or revoke the remaining keys with "
                    "--revoke-keys."
                )
            for key in left:
                if key.secret_version == version:
                    key.revoked_at, kind = now, EntryKind.END
                    revoked.append(key.id)
                else:
                    # Only the token from before a rotation is hashed under this version: the key keeps its newest
                    # token.
                    key.previous_token_hash = key.previous_token_until = None
                    kind = EntryKind.CHANGE
                session.flush()
                service.enter(session, context, kind, key.id, SERVICE.id)
        row.retired_at = now
    return Retired(version, revoked)


def _check(material: SecretMaterial, known: Sequence[SecretVersion]) -> None:
    """Refuse if a secret that is in use is missing here, or differs."""
    faults = []
    for row in _needed(known):
        purpose = Purpose(row.purpose)
        place = material.place(purpose, row.version)
        expected = (
            f"the database expects version {row.version} with the check value {row.check_value[:_SHOWN]}..., entered "
            f"at {row.created_at:%Y-%m-%d %H:%M}"
        )
        if not material.exists(purpose, row.version):
            faults.append(f"The {purpose.words} is missing: {expected}, and {place} is not there.")
        elif (found := material.check_value(purpose, row.version)) != row.check_value:
            faults.append(
                f"The {purpose.words} is not the one of this database: {expected}, and {place} has {found[:_SHOWN]}...."
            )
    if faults:
        raise SecretRefused(
            " ".join(faults)
            + (
                " All servers of a database need the same secrets: share the data folder or the settings of the "
                "other servers, or restore the secrets from a backup (docs/operating/secrets.md)."
            )
        )


def _needed(known: Sequence[SecretVersion]) -> list[SecretVersion]:
    """Return the versions that a server needs: all in use, but only the newest of the signing keys."""
    signing = max((row.version for row in known if row.purpose == Purpose.SIGNATURES), default=1)
    return [
        row for row in known if row.retired_at is None and (row.purpose != Purpose.SIGNATURES or row.version == signing)
    ]
