"""Settings, read once from the environment when the process starts."""

from __future__ import annotations

import re
import secrets
from functools import cached_property
from importlib.util import find_spec
from ipaddress import ip_address, ip_network
from pathlib import Path
from typing import Literal

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, load_pem_private_key
from pydantic import Field, SecretStr, ValidationError, ValidationInfo, field_validator
from pydantic_core import PydanticCustomError
from pydantic_settings import BaseSettings, SettingsConfigDict
from sqlalchemy import URL, make_url
from sqlalchemy.exc import ArgumentError

from app.kit.data_keys import DataKeys, KeyFile, parse_keys
from app.kit.encryption import FileEncryption
from app.kit.private_files import write_private_once
from app.kit.web_addresses import Address, Network, parse_address

MIN_SECRET_LENGTH = 32

_SQLITE = ("sqlite", "sqlite+pysqlite")
_POSTGRESQL = ("postgresql", "postgres", "postgresql+psycopg")

#: The modules that `make tracing` installs.
_TRACING = ("opentelemetry.sdk.trace", "opentelemetry.exporter.otlp.proto.http")

_DASK_ADDRESS = re.compile(r"(tls|tcp)://([A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\]):[0-9]{1,5}")


class Settings(BaseSettings):
    """Every setting, its default and its meaning; `docs/reference/settings.md` is generated from this class."""

    model_config = SettingsConfigDict(env_prefix="EPSILOND_", frozen=True, extra="ignore", env_ignore_empty=True)

    host: str = Field("127.0.0.1", description="Address to listen on.")
    public_url: str = Field(
        "",
        description="Address by which browsers and clients know the service if a proxy is in front of it, such as "
        "https://privacy.example or https://example.org/epsilond (`docs/operating/proxies.md`). The proxy removes its "
        "path. Empty: there is no path, and the browser's request decides whether cookies are limited to https.",
    )
    trusted_proxies: str = Field(
        "",
        description="Networks of proxies, separated by blanks, such as 127.0.0.1/32, whose header X-Forwarded-For says "
        "which address a request comes from. Empty: it comes from whoever is connected.",
    )
    port: int = Field(8000, ge=0, le=65535, description="Port to listen on; 0 takes a free one and prints it.")
    data_dir: Path = Field(
        Path("var"),
        description="Folder of the service's own files: data sets, models, secret. A relative path starts where the "
        "process is started.",
    )
    database_url: str = Field(
        "",
        description="SQLAlchemy URL of the database, SQLite or PostgreSQL. Empty: the file epsilond.sqlite3 in the "
        "data folder.",
    )
    fence: SecretStr | None = Field(
        None,
        description="The place outside the database where the service records what it has acknowledged "
        "(`docs/operating/fence.md`): the path of a file, or the SQLAlchemy URL of another database. All servers of a "
        "database must have the same. Empty: the file fence in the data folder.",
    )
    secret_key: SecretStr | None = Field(
        None,
        min_length=MIN_SECRET_LENGTH,
        description="Secret of data contents and request bodies, and version 1 of the secret of API keys and "
        "sessions, at least 32 characters (`docs/operating/secrets.md`). All servers of a database must have the "
        "same. Empty: one is made and kept in the data folder.",
    )
    oidc_file: Path | None = Field(
        None,
        description="File that names an OpenID Connect provider, and what its people and machines may do here "
        "(`docs/operating/sign_in.md`). It needs EPSILOND_PUBLIC_URL. Empty: everybody needs a key.",
    )
    data_key: SecretStr | None = Field(
        None,
        description="Key that files of data sets and checkpoints of runs are encrypted with: 32 bytes, as 64 "
        "hexadecimal digits or in base64. Older keys, which only decrypt, follow after blanks or commas. Empty: files "
        "are not encrypted. Keep it apart from the backups; without it, everything that it encrypted is lost.",
    )
    data_key_file: Path | None = Field(
        None,
        description="File that holds the data keys, one per line, the newest first, in place of EPSILOND_DATA_KEY. It "
        "is read again after a change, so that keys can be rotated (`docs/operating/secrets.md`).",
    )
    checkpoint_key_file: Path | None = Field(
        None,
        description="File that holds the Ed25519 key that checkpoints of the ledger are signed with, in PEM without a "
        "password (`openssl genpkey -algorithm ed25519`), version 1; later versions are files beside it. All servers "
        "of a database must have the same. Empty: one is made and kept in the data folder.",
    )
    witnesses: str = Field(
        "",
        description="Programs of others that cosign the ledger's checkpoints (`docs/operating/witnesses.md`): for "
        "each its public key and then its address, all separated by blanks. Empty: nobody cosigns.",
    )
    witness_quorum: int | None = Field(
        None,
        ge=1,
        le=100,
        description="Witnesses that must have cosigned a checkpoint before it counts as witnessed. Empty: all.",
    )
    witness_interval_s: float = Field(
        60.0,
        ge=1,
        le=86_400,
        description="Seconds after which witnesses are asked to cosign again. Cosignatures that are three times as old "
        "count as missing in health and metrics.",
    )
    workers: int = Field(
        1,
        ge=0,
        le=64,
        description="Runs that the server carries out at once, in as many worker processes or on a Dask cluster; 0 "
        "leaves them to `worker`.",
    )
    worker_threads: int = Field(
        1,
        ge=1,
        le=1024,
        description="Threads of the matrix products in each worker process. More threads help if steps take many rows "
        "of large models and cores are idle; threads that share a core wait for each other.",
    )
    device: Literal["cpu", "cuda"] = Field(
        "cpu",
        description="The device on which workers take the steps of runs: their processor, or the first CUDA device "
        "that they see, with CuPy (`docs/operating/gpu.md`). All workers of a database must have the same.",
    )
    dask_without_tls: bool = Field(
        False,
        description="Whether the connection to a Dask scheduler on another machine may be unencrypted. Rows and "
        "checkpoints then cross the network in the clear.",
    )
    dask_scheduler: str | None = Field(
        None,
        description="Address of a Dask scheduler, such as tls://scheduler.example:8786, whose cluster carries out the "
        "steps of runs (`docs/operating/dask.md`). Empty: the worker processes do. The cluster is trusted with the "
        "rows.",
    )
    queued_runs_per_key: int = Field(
        2000,
        ge=1,
        le=100_000,
        description="The number of runs of one API key that may wait for a worker; the next one is answered 429.",
    )
    approvals: int = Field(
        1,
        ge=1,
        le=5,
        description="Principals that must approve a request for another limit of a budget, none of them the one who "
        "asked. Keys with the scope `limits` change limits without a request.",
    )
    certify_charges: bool = Field(
        False,
        description="Keep with every reservation a certificate of what its events cost alone, as if each request "
        "asked for one (`docs/concepts/certificates.md`). It takes up to a few seconds for events that were not "
        "reserved before.",
    )
    webhook_addresses: str = Field(
        "",
        description="URLs below which webhooks may be, separated by blanks, such as https://hooks.example/epsilond "
        "(`docs/operating/webhooks.md`). Host and port must be the same, and the path below. Only an http:// URL in it "
        "allows one without TLS. Empty: there are no webhooks.",
    )
    webhook_networks: str = Field(
        "",
        description="Networks of private or otherwise special addresses to which webhooks may lead nevertheless, "
        "separated by blanks, such as 10.20.0.0/16. A name that leads to any other such address is not asked.",
    )
    requests_per_second: float = Field(
        5000.0,
        ge=0,
        le=1e6,
        description="The average number of requests per second that each server process answers for one API key, with "
        "twice as many at once; 0 for no limit. A key may have a limit of its own.",
    )
    concurrent_requests: int = Field(
        200,
        ge=0,
        le=100_000,
        description="The number of requests of one API key that each server process handles at the same time; 0 for "
        "no limit. Streams of progress have limits of their own. A key may have a limit of its own.",
    )
    entries_per_day: int = Field(
        50_000,
        ge=0,
        le=10**9,
        description="Entries of the ledger that one API key may write on one day (UTC) before its requests for "
        "anything new are refused; 0 for no quota (`docs/operating/limits.md`).",
    )
    entry_bytes_per_day: int = Field(
        64 * 2**20,
        ge=0,
        le=10**15,
        description="Bytes of entries that one API key may write to the ledger on one day (UTC) before its requests "
        "for anything new are refused; 0 for no quota.",
    )
    open_reservations_per_key: int = Field(
        5000,
        ge=0,
        le=10**6,
        description="Reservations of one API key that may be pending or started at one time, those of its runs "
        "included; 0 for no quota.",
    )
    extensions_per_reservation: int = Field(
        100, ge=0, le=10**6, description="How often one reservation may be extended; 0 for no quota."
    )
    failed_authentications_per_minute: int = Field(
        300,
        ge=0,
        le=100_000,
        description="Requests without a valid key from one address (IPv6: one /64 network) that are answered 401; "
        "further ones are answered 429. Requests with a valid key are answered nevertheless. 0 for no limit.",
    )
    checkpoint_interval_s: float = Field(
        30.0,
        gt=0,
        le=3600,
        description="Seconds between two checkpoints of a run: at most this much work is lost with its worker. They "
        "stay in the data folder until the run has ended.",
    )
    release_interval_s: float = Field(
        1.0,
        gt=0,
        le=60,
        description="Everything that is shown of a run on private data (progress, cancellation, its end) is shown at "
        "a multiple of this many seconds after its start. A shorter interval reveals more if the machine is late.",
    )
    max_upload_bytes: int = Field(512 * 2**20, ge=1024, le=2**34, description="Largest upload of a data set, in bytes.")
    cache_entries: int = Field(
        4096,
        ge=0,
        le=1_000_000,
        description="The number of answers of calibrations, accounts and conversions that each server process "
        "remembers; 0 for none.",
    )
    cache_bytes: int = Field(
        64 * 2**20,
        ge=2**20,
        le=2**36,
        description="The most memory, in bytes, that these answers may take in each server process.",
    )
    warm_up: bool = Field(
        True,
        description="Whether a server loads the numerical code when it starts, while it already answers requests, so "
        "that the first calibration does not wait for it. It takes two seconds of a core.",
    )
    traces_url: str = Field(
        "",
        description="Address that traces are sent to by OTLP over HTTP, such as http://127.0.0.1:4318/v1/traces "
        "(`docs/operating/tracing.md`). It needs the packages of `make tracing`. Empty: nothing is traced.",
    )
    traces_ratio: float = Field(
        1.0, ge=0, le=1, description="The share of the traces that begin here which is recorded."
    )
    traces_parents: str = Field(
        "",
        description="Networks of proxies and clients, separated by blanks, whose header `traceparent` says which trace "
        "a request belongs to and whether it is recorded. Empty: each request begins a trace of its own.",
    )
    drain_s: float = Field(
        0.0,
        ge=0,
        le=300,
        description="Seconds after SIGTERM in which requests are still answered while `/health/ready` is 503, so that "
        "a load balancer notices first. Let the orchestrator wait longer by the same time.",
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        "info", description="The lowest level of log lines that are printed."
    )
    log_format: Literal["auto", "json", "console"] = Field(
        "auto",
        description="Shape of the log: JSON lines, or text for people. auto: text on a terminal, JSON elsewhere.",
    )

    @property
    def sqlalchemy_url(self) -> str:
        """The database URL with its driver: psycopg 3 for PostgreSQL."""
        if not self.database_url:
            return _sqlite_url(self.data_dir / "epsilond.sqlite3")
        return _with_driver(self.database_url)

    @property
    def fence_place(self) -> str | Path:
        """The URL of the fence's database, or the path of its file."""
        place = "" if self.fence is None else self.fence.get_secret_value()
        if "://" in place:
            return _with_driver(place)
        return Path(place) if place else self.data_dir / "fence"

    @property
    def fence_in_words(self) -> str:
        """The place of the fence without what may be secret, and who names it."""
        place, says = self.fence_place, "the default" if self.fence is None else "named by EPSILOND_FENCE"
        if isinstance(place, Path):
            return f"{place.absolute()} ({says})"
        host, _, name = _location(place)
        return f"the database {name}{f' on {host}' if host else ''} ({says})"

    @cached_property
    def public_address(self) -> Address | None:
        """The address that the service is known by, where one is set."""
        return parse_address(self.public_url) if self.public_url else None

    @property
    def public_path(self) -> str:
        """Return the path that stands before every path of the service in its public address; empty at the root."""
        return "" if self.public_address is None else self.public_address.path

    @cached_property
    def trusted_networks(self) -> tuple[Network, ...]:
        """The networks of proxies that are believed."""
        return tuple(ip_network(network) for network in self.trusted_proxies.split())

    @cached_property
    def tracing_networks(self) -> tuple[Network, ...]:
        """The networks whose traces requests are a part of."""
        return tuple(ip_network(network) for network in self.traces_parents.split())

    @property
    def secret_file(self) -> Path:
        """The file of the first secret, unless ``secret_key`` is set."""
        return self.data_dir / "secret.key"

    @property
    def local_token_file(self) -> Path:
        """The file of the token that a server without keys has (`app.auth.local_token`)."""
        return self.data_dir / "local-token"

    @property
    def unfinished_restore_file(self) -> Path:
        """The file that is there while a backup is restored, and after a restore that was killed (`app.backups`)."""
        return self.data_dir / "unfinished-restore"

    @property
    def checkpoint_file(self) -> Path:
        """The file of the first key that signs."""
        return self.checkpoint_key_file or self.data_dir / "checkpoint.key"

    @cached_property
    def secret(self) -> bytes:
        """The first secret: of contents for ever, and of keys until it is rotated (`app.secrets.material`).

        Made once, readable by the service's user alone.
        """
        if self.secret_key is not None:
            return self.secret_key.get_secret_value().encode()
        if not self.secret_file.exists():
            write_private_once(self.secret_file, secrets.token_hex(32).encode())
        return self.secret_file.read_bytes().strip()

    @cached_property
    def checkpoint_key(self) -> Ed25519PrivateKey:
        """The first key that signs checkpoints of the ledger. Made once, readable by the service's user alone.

        Raises:
            ValueError: the file holds something else.
        """
        if self.checkpoint_key_file is None and not self.checkpoint_file.exists():
            write_private_once(self.checkpoint_file, new_signing_key())
        return read_signing_key(self.checkpoint_file)

    @cached_property
    def encryption(self) -> FileEncryption:
        """Return how the private files of the data folder are written and read."""
        if self.data_key is not None:
            return FileEncryption(DataKeys(*parse_keys(self.data_key.get_secret_value())))
        return FileEncryption(DataKeys() if self.data_key_file is None else KeyFile(self.data_key_file))

    @field_validator("data_key")
    @classmethod
    def _is_a_key(cls, given: SecretStr | None) -> SecretStr | None:
        if given is not None:
            _check_keys(given.get_secret_value())
        return given

    @field_validator("data_key_file")
    @classmethod
    def _holds_a_key(cls, path: Path | None, info: ValidationInfo) -> Path | None:
        if path is None:
            return None
        if info.data.get("data_key") is not None:
            detail = "set this or EPSILOND_DATA_KEY, not both"
            raise PydanticCustomError("data_key_file", detail)
        try:
            _check_keys(path.read_text(encoding="ascii"))
        except (OSError, UnicodeDecodeError):
            detail = "the file cannot be read, or is not a text; it holds 64 hexadecimal digits or base64"
            raise PydanticCustomError("data_key_file", detail) from None
        return path.absolute()

    @field_validator("checkpoint_key_file")
    @classmethod
    def _holds_a_signing_key(cls, path: Path | None) -> Path | None:
        if path is None:
            return None
        try:
            read_signing_key(path)
        except (OSError, ValueError):
            detail = "the file cannot be read, or holds no Ed25519 key in PEM without a password"
            raise PydanticCustomError("checkpoint_key_file", detail) from None
        return path.absolute()

    @field_validator("device")
    @classmethod
    def _can_compute(cls, device: str) -> str:
        if device == "cuda" and find_spec("cupy") is None:
            detail = "runs are to be carried out by CuPy, which is not installed; `make cuda12` or `make cuda13` does"
            raise PydanticCustomError("device", detail)
        return device

    @field_validator("dask_scheduler")
    @classmethod
    def _can_be_spoken_to(cls, address: str | None, info: ValidationInfo) -> str | None:
        if address is None:
            return None
        if _DASK_ADDRESS.fullmatch(address) is None:
            detail = "it is not the address of a Dask scheduler, such as tls://scheduler.example:8786"
            raise PydanticCustomError("dask_scheduler", detail)
        if info.data.get("device") == "cuda":
            detail = "a cluster takes the steps on its own processors; leave out this or EPSILOND_DEVICE=cuda"
            raise PydanticCustomError("dask_scheduler", detail)
        if find_spec("distributed") is None:
            detail = "runs are to be carried out by Dask, which is not installed; `make dask` installs it"
            raise PydanticCustomError("dask_scheduler", detail)
        if is_in_the_clear(address) and not info.data.get("dask_without_tls"):
            detail = (
                "rows would cross the network in the clear; give the cluster certificates and a tls:// address, or set "
                "EPSILOND_DASK_WITHOUT_TLS=true where the network itself is private"
            )
            raise PydanticCustomError("dask_scheduler", detail)
        return address

    @field_validator("webhook_addresses")
    @classmethod
    def _are_addresses(cls, given: str) -> str:
        for address in given.split():
            try:
                parse_address(address)
            except ValueError as error:
                raise PydanticCustomError("webhook_addresses", str(error)) from None
        return given

    @field_validator("witnesses")
    @classmethod
    def _are_keys_and_addresses(cls, given: str) -> str:
        words = given.split()
        if len(words) % 2:
            raise PydanticCustomError("witnesses", "it is not a list of public keys and addresses, in turn")
        for address in words[1::2]:
            try:
                parsed = parse_address(address)
            except ValueError as error:
                raise PydanticCustomError("witnesses", f"an address is refused: {error}") from None
            if parsed.query:
                raise PydanticCustomError("witnesses", "an address has a ?; scheme, host and path are enough")
        return given

    @field_validator("public_url")
    @classmethod
    def _is_an_address(cls, given: str) -> str:
        if not given:
            return given
        try:
            address = parse_address(given.rstrip("/"))
        except ValueError as error:
            raise PydanticCustomError("public_url", str(error)) from None
        if address.query or "//" in address.path:
            detail = "it has a ? or an empty step; scheme, host and path are enough"
            raise PydanticCustomError("public_url", detail)
        return given.rstrip("/")

    @field_validator("traces_url")
    @classmethod
    def _can_be_sent_to(cls, given: str) -> str:
        if not given:
            return given
        try:
            parse_address(given)
        except ValueError as error:
            raise PydanticCustomError("traces_url", str(error)) from None
        if not all(map(_is_installed, _TRACING)):
            detail = "traces are sent with OpenTelemetry, which is not installed; `make tracing` installs it"
            raise PydanticCustomError("traces_url", detail)
        return given

    @field_validator("webhook_networks", "trusted_proxies", "traces_parents")
    @classmethod
    def _are_networks(cls, given: str) -> str:
        for network in given.split():
            try:
                ip_network(network)
            except ValueError:
                detail = "it is not a list of networks, such as 10.20.0.0/16 fd00:1::/32"
                raise PydanticCustomError("networks", detail) from None
        return given

    @field_validator("data_dir", "oidc_file")
    @classmethod
    def _absolute(cls, path: Path | None) -> Path | None:
        # Once and here: a worker's process is started in another folder.
        return None if path is None else path.absolute()

    @field_validator("database_url")
    @classmethod
    def _of_a_known_driver(cls, given: str) -> str:
        return _checked_url(given) if given else given

    @field_validator("fence")
    @classmethod
    def _is_a_place(cls, given: SecretStr | None, info: ValidationInfo) -> SecretStr | None:
        if given is None:
            return None
        place = given.get_secret_value()
        is_address = "://" in place
        checked = _checked_url(place) if is_address else str(Path(place).absolute())
        if "database_url" in info.data and "data_dir" in info.data:
            ledger = info.data["database_url"] or _sqlite_url(info.data["data_dir"] / "epsilond.sqlite3")
            if _location(checked if is_address else _sqlite_url(Path(checked))) == _location(ledger):
                detail = "it is the ledger's own database; a fence that is restored with the database notices nothing"
                raise PydanticCustomError("fence", detail)
        return SecretStr(checked)


def _is_installed(package: str) -> bool:
    try:
        return find_spec(package) is not None
    except ModuleNotFoundError:
        return False


def _checked_url(given: str) -> str:
    """The URL of a database, a relative SQLite file made absolute. No refusal quotes it: it may hold a password."""
    try:
        url = make_url(given)
    except (ArgumentError, ValueError):
        detail = "it is not a database URL, such as postgresql://user:password@host/name or sqlite:////folder/file"
        raise PydanticCustomError("database_url", detail) from None
    if url.drivername in _POSTGRESQL:
        return given
    if url.drivername not in _SQLITE:
        detail = "the database is SQLite, or PostgreSQL through psycopg 3"
        raise PydanticCustomError("database_url", detail)
    name = url.database or ":memory:"
    if url.host or name == ":memory:" or name.startswith("file:"):
        detail = "SQLite needs a plain file, as in sqlite:////folder/file: every process must find the same one"
        raise PydanticCustomError("database_url", detail)
    return url.set(database=str(Path(name).absolute())).render_as_string(hide_password=False)


def _with_driver(url: str) -> str:
    """The URL with its driver: psycopg 3 for PostgreSQL."""
    for prefix in ("postgresql://", "postgres://"):
        if url.startswith(prefix):
            return "postgresql+psycopg://" + url.removeprefix(prefix)
    return url


def _location(url: str) -> tuple[str | None, int | None, str | None]:
    """Return where a database is: its host, its port and its name; for SQLite, its file as the name."""
    parts = make_url(_with_driver(url))
    if parts.get_backend_name() == "sqlite":
        return None, None, parts.database
    return parts.host, parts.port or 5432, parts.database


def environment_of(settings: Settings) -> dict[str, str]:
    """The environment in which another process reads the same settings."""
    values = {name: getattr(settings, name) for name in type(settings).model_fields}
    values |= {name: value.get_secret_value() for name, value in values.items() if isinstance(value, SecretStr)}
    # Empty is unset, which also hides what this process's own environment says.
    return {f"EPSILOND_{name.upper()}": "" if value is None else str(value) for name, value in values.items()}


def is_in_the_clear(address: str) -> bool:
    """Return whether what is sent to this address of a Dask cluster leaves the machine, and is not encrypted."""
    scheme, _, place = address.partition("://")
    host = place.rpartition(":")[0].strip("[]")
    try:
        is_loopback = ip_address(host).is_loopback
    except ValueError:
        is_loopback = host == "localhost"
    return scheme != "tls" and not is_loopback


def settings_faults(error: ValidationError) -> str:
    """One line per setting that is wrong, by the name of its variable and without its value, which may be secret."""
    faults = error.errors(include_url=False, include_input=False, include_context=False)
    return "\n".join(f"EPSILOND_{str(fault['loc'][0]).upper()}: {fault['msg']}." for fault in faults)


def _check_keys(text: str) -> None:
    try:
        parse_keys(text)
    except ValueError as error:
        raise PydanticCustomError("data_key", str(error)) from None


def new_signing_key() -> bytes:
    """A fresh Ed25519 key, as `read_signing_key` takes it."""
    return Ed25519PrivateKey.generate().private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def read_signing_key(path: Path) -> Ed25519PrivateKey:
    """The Ed25519 key in a PEM file without a password.

    Raises:
        OSError: the file cannot be read.
        ValueError: it holds something else.
    """
    try:
        key = load_pem_private_key(path.read_bytes(), password=None)
    except (TypeError, UnsupportedAlgorithm) as error:
        raise ValueError("the key has a password, or is of an unknown kind") from error
    if not isinstance(key, Ed25519PrivateKey):
        raise ValueError("the key is not an Ed25519 key")
    return key


def _sqlite_url(path: Path) -> str:
    return URL.create("sqlite", database=str(path)).render_as_string()
