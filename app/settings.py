"""Settings, read once from the environment when the process starts."""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterable
from functools import cached_property
from ipaddress import ip_network
from pathlib import Path
from typing import Literal

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from pydantic import Field, SecretStr, ValidationError
from pydantic_settings import BaseSettings, SettingsConfigDict

from accounting.near_names import nearest
from app.kit.data_keys import DataKeys, KeyFile, parse_keys
from app.kit.database_urls import location, with_driver
from app.kit.encryption import FileEncryption
from app.kit.private_files import write_private_once
from app.kit.signing_keys import new_signing_key, read_signing_key
from app.kit.web_addresses import Address, Network, parse_address
from app.setting_types import (
    DaskScheduler,
    DatabaseUrl,
    DataFolder,
    DataKey,
    DataKeyFile,
    Device,
    FencePlace,
    Networks,
    OptionalFile,
    PublicUrl,
    SigningKeyFile,
    TracesUrl,
    WebAddresses,
    Witnesses,
    ledger_url,
)

MIN_SECRET_LENGTH = 32
#: Variables that the command line, the client and docker-compose.yml read.
_OTHER_VARIABLES = {"EPSILOND_API_KEY", "EPSILOND_URL", "EPSILOND_POSTGRES_PASSWORD"}
#: Variables that Kubernetes and Docker set in containers if a service has the name epsilond.
_SERVICE_LINK = re.compile(r"EPSILOND(_[A-Z0-9]+)*_(SERVICE_(HOST|PORT(_.*)?)|PORT_[0-9]+_(TCP|UDP)(_.*)?)")


class Settings(BaseSettings):
    """Every setting, its default and its meaning; `docs/reference/settings.md` is generated from this class."""

    model_config = SettingsConfigDict(
        env_prefix="EPSILOND_", frozen=True, extra="ignore", env_ignore_empty=True, use_attribute_docstrings=True
    )

    host: str = "127.0.0.1"
    """Address to listen on."""

    public_url: PublicUrl = ""
    """Address by which browsers and clients know the service if a proxy is in front of it, such as
    https://privacy.example or https://example.org/epsilond (`docs/operating/proxies.md`). The proxy removes its path.

    Empty: there is no path, and the browser's request decides whether cookies are limited to https."""

    trusted_proxies: Networks = ""
    """Networks of proxies, separated by blanks, such as 127.0.0.1/32, whose header X-Forwarded-For says which address a
    request comes from. Empty: it comes from whoever is connected."""

    port: int = Field(8000, ge=0, le=65535)
    """Port to listen on; 0 takes a free one and prints it."""

    data_dir: DataFolder = Path("var")
    """Folder of the service's own files: data sets, models, secret. A relative path starts where the process is
    started."""

    database_url: DatabaseUrl = ""
    """SQLAlchemy URL of the database, SQLite or PostgreSQL. Empty: the file epsilond.sqlite3 in the data folder."""

    fence: FencePlace = None
    """The place outside the database where the service records what it has acknowledged (`docs/operating/fence.md`):
    the path of a file, or the SQLAlchemy URL of another database. All servers of a database must have the same. Empty:
    the file fence in the data folder."""

    secret_key: SecretStr | None = Field(None, min_length=MIN_SECRET_LENGTH)
    """Secret of data contents and request bodies, and version 1 of the secret of API keys and sessions, at least 32
    characters (`docs/operating/secrets.md`). All servers of a database must have the same. Empty: one is made and kept
    in the data folder."""

    oidc_file: OptionalFile = None
    """File that names an OpenID Connect provider, and what its people and machines may do here
    (`docs/operating/sign_in.md`). It needs EPSILOND_PUBLIC_URL. Empty: everybody needs a key."""

    data_key: DataKey = None
    """Key that files of data sets and checkpoints of runs are encrypted with: 32 bytes, as 64 hexadecimal digits or in
    base64. Older keys, which only decrypt, follow after blanks or commas. Empty: files are not encrypted. Keep it apart
    from the backups; without it, everything that it encrypted is lost."""

    data_key_file: DataKeyFile = None
    """File that holds the data keys, one per line, the newest first, in place of EPSILOND_DATA_KEY. It is read again
    after a change, so that keys can be rotated (`docs/operating/secrets.md`)."""

    checkpoint_key_file: SigningKeyFile = None
    """File that holds the Ed25519 key that checkpoints of the ledger are signed with, in PEM without a password
    (`openssl genpkey -algorithm ed25519`), version 1; later versions are files beside it. All servers of a database
    must have the same. Empty: one is made and kept in the data folder."""

    witnesses: Witnesses = ""
    """Programs of others that cosign the ledger's checkpoints (`docs/operating/witnesses.md`): for each its public key
    and then its address, all separated by blanks. Empty: nobody cosigns."""

    witness_quorum: int | None = Field(None, ge=1, le=100)
    """Witnesses that must have cosigned a checkpoint before it counts as witnessed. Empty: all."""

    witness_interval_s: float = Field(60.0, ge=1, le=86_400)
    """Seconds after which witnesses are asked to cosign again. Cosignatures that are three times as old count as
    missing in health and metrics."""

    workers: int = Field(1, ge=0, le=64)
    """Runs that the server carries out at once, in as many worker processes or on a Dask cluster; 0 leaves them to
    `worker`."""

    worker_threads: int = Field(1, ge=1, le=1024)
    """Threads of the matrix products in each worker process. More threads help if steps take many rows of large models
    and cores are idle; threads that share a core wait for each other."""

    device: Device = "cpu"
    """The device on which workers take the steps of runs: their processor, or the first CUDA device that they see, with
    CuPy (`docs/operating/gpu.md`). All workers of a database must have the same."""

    dask_without_tls: bool = False
    """Whether the connection to a Dask scheduler on another machine may be unencrypted. Rows and checkpoints then cross
    the network in the clear."""

    dask_scheduler: DaskScheduler = None
    """Address of a Dask scheduler, such as tls://scheduler.example:8786, whose cluster carries out the steps of runs
    (`docs/operating/dask.md`). Empty: the worker processes do. The cluster is trusted with the rows."""

    queued_runs_per_key: int = Field(2000, ge=1, le=100_000)
    """The number of runs of one API key that may wait for a worker; the next one is answered 429."""

    approvals: int = Field(1, ge=1, le=5)
    """The number of principals, other than the requester, that must approve a request to change a budget's limit. Keys
    with the scope `limits` change limits without a request."""

    certify_charges: bool = False
    """Keep with every reservation a certificate of what its events cost alone, as if each request asked for one
    (`docs/concepts/certificates.md`). It takes up to a few seconds for events that were not reserved before."""

    webhook_addresses: WebAddresses = ""
    """URLs below which webhooks may be, separated by blanks, such as https://hooks.example/epsilond
    (`docs/operating/webhooks.md`). Host and port must be the same, and the path below. Only an http:// URL in it allows
    one without TLS. Empty: there are no webhooks."""

    webhook_networks: Networks = ""
    """Networks of private or otherwise special addresses to which webhooks may lead nevertheless, separated by blanks,
    such as 10.20.0.0/16. A name that leads to any other such address is not asked."""

    requests_per_second: float = Field(5000.0, ge=0, le=1e6)
    """The average number of requests per second that each server process answers for one API key, with twice as many at
    once; 0 for no limit. A key may have a limit of its own."""

    concurrent_requests: int = Field(200, ge=0, le=100_000)
    """The number of requests of one API key that each server process handles at the same time; 0 for no limit. Streams
    of progress have limits of their own. A key may have a limit of its own."""

    entries_per_day: int = Field(50_000, ge=0, le=10**9)
    """Entries of the ledger that one API key may write on one day (UTC) before its requests for anything new are
    refused; 0 for no quota (`docs/operating/limits.md`)."""

    entry_bytes_per_day: int = Field(64 * 2**20, ge=0, le=10**15)
    """Bytes of entries that one API key may write to the ledger on one day (UTC) before its requests for anything new
    are refused; 0 for no quota."""

    open_reservations_per_key: int = Field(5000, ge=0, le=10**6)
    """Reservations of one API key that may be pending or started at one time, those of its runs included; 0 for no
    quota."""

    extensions_per_reservation: int = Field(100, ge=0, le=10**6)
    """How often one reservation may be extended; 0 for no quota."""

    failed_authentications_per_minute: int = Field(300, ge=0, le=100_000)
    """Requests without a valid key from one address (IPv6: one /64 network) that are answered 401; further ones are
    answered 429. Requests with a valid key are answered nevertheless. 0 for no limit."""

    checkpoint_interval_s: float = Field(30.0, gt=0, le=3600)
    """Seconds between two checkpoints of a run: at most this much work is lost with its worker. They stay in the data
    folder until the run has ended."""

    release_interval_s: float = Field(1.0, gt=0, le=60)
    """Everything that is shown of a run on private data (progress, cancellation, its end) is shown at a multiple of
    this many seconds after its start. A shorter interval reveals more if the machine is late."""

    max_upload_bytes: int = Field(512 * 2**20, ge=1024, le=2**34)
    """Largest upload of a data set, in bytes."""

    cache_entries: int = Field(4096, ge=0, le=1_000_000)
    """The number of answers of calibrations, accounts and conversions that each server process remembers; 0 for
    none."""

    cache_bytes: int = Field(64 * 2**20, ge=2**20, le=2**36)
    """The most memory, in bytes, that these answers may take in each server process."""

    warm_up: bool = True
    """Whether a server loads the numerical code when it starts, while it already answers requests, so that the first
    calibration does not wait for it. It takes two seconds of a core."""

    traces_url: TracesUrl = ""
    """Address that traces are sent to by OTLP over HTTP, such as http://127.0.0.1:4318/v1/traces
    (`docs/operating/tracing.md`). It needs the packages of `make tracing`. Empty: nothing is traced."""

    traces_ratio: float = Field(1.0, ge=0, le=1)
    """The share of traces that is recorded, among those that begin in this service."""

    traces_parents: Networks = ""
    """Networks of proxies and clients, separated by blanks, whose header `traceparent` says which trace a request
    belongs to and whether it is recorded. Empty: each request begins a trace of its own."""

    drain_s: float = Field(0.0, ge=0, le=300)
    """Seconds after SIGTERM in which requests are still answered while `/health/ready` is 503, so that a load balancer
    notices first. Let the orchestrator wait longer by the same time."""

    log_level: Literal["debug", "info", "warning", "error"] = "info"
    """The lowest level of log lines that are printed."""

    log_format: Literal["auto", "json", "console"] = "auto"
    """Shape of the log: JSON lines, or text for people. auto: text on a terminal, JSON elsewhere."""

    @property
    def sqlalchemy_url(self) -> str:
        """Return the database URL with its driver: psycopg 3 for PostgreSQL."""
        return with_driver(ledger_url(self.data_dir, self.database_url))

    @property
    def fence_place(self) -> str | Path:
        """Return the URL of the fence's database, or the path of its file."""
        place = "" if self.fence is None else self.fence.get_secret_value()
        if "://" in place:
            return with_driver(place)
        return Path(place) if place else self.data_dir / "fence"

    @property
    def fence_in_words(self) -> str:
        """Return the place of the fence in words, without secrets, and whether a setting or the default determines
        it."""
        place, says = self.fence_place, "the default" if self.fence is None else "named by EPSILOND_FENCE"
        if isinstance(place, Path):
            return f"{place.absolute()} ({says})"
        host, _, name = location(place)
        return f"the database {name}{f' on {host}' if host else ''} ({says})"

    @cached_property
    def public_address(self) -> Address | None:
        """Return the address that the service is known by; None if none is set."""
        return parse_address(self.public_url) if self.public_url else None

    @property
    def public_path(self) -> str:
        """Return the path that stands before every path of the service in its public address; empty at the root."""
        return "" if self.public_address is None else self.public_address.path

    @cached_property
    def trusted_networks(self) -> tuple[Network, ...]:
        """Return the networks of the proxies whose headers are believed."""
        return tuple(ip_network(network) for network in self.trusted_proxies.split())

    @cached_property
    def tracing_networks(self) -> tuple[Network, ...]:
        """Return the networks whose clients may send the trace that a request belongs to."""
        return tuple(ip_network(network) for network in self.traces_parents.split())

    @property
    def secret_file(self) -> Path:
        """Return the file of the first secret, which is used unless ``secret_key`` is set."""
        return self.data_dir / "secret.key"

    @property
    def local_token_file(self) -> Path:
        """Return the file of the token that a server without keys has (`app.auth.local_token`)."""
        return self.data_dir / "local-token"

    @property
    def unfinished_restore_file(self) -> Path:
        """Return the file that exists during a restore, and after a restore that was killed (`app.backups`)."""
        return self.data_dir / "unfinished-restore"

    @property
    def checkpoint_file(self) -> Path:
        """Return the file of the first key that signs checkpoints of the ledger."""
        return self.checkpoint_key_file or self.data_dir / "checkpoint.key"

    @cached_property
    def secret(self) -> bytes:
        """Return the first secret: of contents for ever, and of keys until it is rotated (`app.secrets.material`).

        It is made once, and only the service's user can read its file.
        """
        if self.secret_key is not None:
            return self.secret_key.get_secret_value().encode()
        if not self.secret_file.exists():
            write_private_once(self.secret_file, secrets.token_hex(32).encode())
        return self.secret_file.read_bytes().strip()

    @cached_property
    def checkpoint_key(self) -> Ed25519PrivateKey:
        """Return the first key that signs checkpoints of the ledger.

        It is made once, and only the service's user can read its file.

        Raises:
            ValueError: the file holds something else.
        """
        if self.checkpoint_key_file is None and not self.checkpoint_file.exists():
            write_private_once(self.checkpoint_file, new_signing_key())
        return read_signing_key(self.checkpoint_file)

    @cached_property
    def encryption(self) -> FileEncryption:
        """Return the object that reads and writes the private files of the data folder."""
        if self.data_key is not None:
            return FileEncryption(DataKeys(*parse_keys(self.data_key.get_secret_value())))
        return FileEncryption(DataKeys() if self.data_key_file is None else KeyFile(self.data_key_file))


def environment_of(settings: Settings) -> dict[str, str]:
    """Return the environment in which another process reads the same settings."""
    values = {name: getattr(settings, name) for name in type(settings).model_fields}
    values |= {name: value.get_secret_value() for name, value in values.items() if isinstance(value, SecretStr)}
    # An empty variable counts as not set, and hides the value in the environment of this process.
    return {f"EPSILOND_{name.upper()}": "" if value is None else str(value) for name, value in values.items()}


def settings_faults(error: ValidationError) -> str:
    """Return a line for each wrong setting: its variable and the fault, without the value, which may be secret."""
    faults = error.errors(include_url=False, include_input=False, include_context=False)
    return "\n".join(f"EPSILOND_{str(fault['loc'][0]).upper()}: {fault['msg']}." for fault in faults)


def unknown_variables(environment: Iterable[str]) -> list[str]:
    """Return a sentence for each variable that looks like a setting but is not one. Otherwise, a misspelt name would
    silently leave a setting, such as the key that encrypts files, at its default.

    >>> unknown_variables(["EPSILOND_DATA_KEYFILE", "EPSILOND_PORT", "EPSILOND_API_KEY", "HOME"])
    ['EPSILOND_DATA_KEYFILE is not a setting, and has no effect. Did you mean EPSILOND_DATA_KEY_FILE?']
    """
    known = {f"EPSILOND_{name.upper()}" for name in Settings.model_fields}
    names = [name for name in environment if name.startswith("EPSILOND_") and name not in known | _OTHER_VARIABLES]
    found = []
    for name in sorted(each for each in names if not _SERVICE_LINK.fullmatch(each)):
        # The prefix that all names share is left out of the comparison.
        near = nearest(name.removeprefix("EPSILOND_").lower(), list(Settings.model_fields))
        meant = "" if near is None else f" Did you mean EPSILOND_{near.upper()}?"
        found.append(f"{name} is not a setting, and has no effect.{meant}")
    return found
