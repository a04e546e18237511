"""Types of settings, each of which checks its value. No refusal quotes a value, which may be secret."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import wraps
from importlib.util import find_spec
from ipaddress import ip_address, ip_network
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, SecretStr, ValidationInfo
from pydantic_core import PydanticCustomError

from app.kit.data_keys import parse_keys
from app.kit.database_urls import checked_url, location, sqlite_url
from app.kit.signing_keys import read_signing_key
from app.kit.web_addresses import parse_address

#: The modules that `make tracing` installs.
_TRACING = ("opentelemetry.sdk.trace", "opentelemetry.exporter.otlp.proto.http")

_DASK_ADDRESS = re.compile(r"(tls|tcp)://([A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\]):[0-9]{1,5}")


def _checked_by(check: Callable[..., Any]) -> AfterValidator:
    """Return the validator that refuses in the words of the check: pydantic would put "Value error" before them."""

    @wraps(check)
    def checked(*args: Any) -> Any:
        try:
            return check(*args)
        except ValueError as error:
            raise PydanticCustomError("setting", str(error)) from None

    return AfterValidator(checked)


def _absolute(path: Path | None) -> Path | None:
    return None if path is None else path.absolute()


def ledger_url(data_dir: Path, database_url: str) -> str:
    """Return the URL of the ledger's database; without a given URL, it is a file in the data folder."""
    return database_url or sqlite_url(data_dir / "epsilond.sqlite3")


def _database_url(given: str) -> str:
    return checked_url(given) if given else given


def _fence(given: SecretStr | None, info: ValidationInfo) -> SecretStr | None:
    if given is None:
        return None
    place = given.get_secret_value()
    is_address = "://" in place
    checked = checked_url(place) if is_address else str(Path(place).absolute())
    if "database_url" in info.data and "data_dir" in info.data:
        ledger = ledger_url(info.data["data_dir"], info.data["database_url"])
        if location(checked if is_address else sqlite_url(Path(checked))) == location(ledger):
            raise ValueError(
                "this is the ledger's own database, and a fence that is restored together with the database would "
                "notice nothing"
            )
    return SecretStr(checked)


def _data_key(given: SecretStr | None) -> SecretStr | None:
    if given is not None:
        parse_keys(given.get_secret_value())
    return given


def _data_key_file(path: Path | None, info: ValidationInfo) -> Path | None:
    if path is None:
        return None
    if info.data.get("data_key") is not None:
        raise ValueError("set either this or EPSILOND_DATA_KEY, not both")
    try:
        text = path.read_text(encoding="ascii")
    except (OSError, UnicodeDecodeError):
        raise ValueError(
            "the file cannot be read, or is not text; it must have 32 bytes, as 64 hexadecimal digits or in base64"
        ) from None
    parse_keys(text)
    return path.absolute()


def _signing_key_file(path: Path | None) -> Path | None:
    if path is None:
        return None
    try:
        read_signing_key(path)
    except (OSError, ValueError):
        raise ValueError("the file cannot be read, or holds no Ed25519 key in PEM without a password") from None
    return path.absolute()


def _device(device: str) -> str:
    if device == "cuda" and find_spec("cupy") is None:
        raise ValueError("runs need CuPy for this setting, and it is not installed: run `make cuda12` or `make cuda13`")
    return device


def _dask_scheduler(address: str | None, info: ValidationInfo) -> str | None:
    if address is None:
        return None
    if _DASK_ADDRESS.fullmatch(address) is None:
        raise ValueError("this is not the address of a Dask scheduler such as tls://scheduler.example:8786")
    if info.data.get("device") == "cuda":
        raise ValueError("a cluster computes on its own processors: leave out either this or EPSILOND_DEVICE=cuda")
    if find_spec("distributed") is None:
        raise ValueError("runs need Dask for this setting, and it is not installed: run `make dask`")
    if is_in_the_clear(address) and not info.data.get("dask_without_tls"):
        raise ValueError(
            "rows would cross the network in the clear; give the cluster certificates and a tls:// address, or set "
            "EPSILOND_DASK_WITHOUT_TLS=true where the network itself is private"
        )
    return address


def is_in_the_clear(address: str) -> bool:
    """Return whether data sent to this address of a Dask cluster leave the machine unencrypted.

    >>> is_in_the_clear("tcp://scheduler.example:8786"), is_in_the_clear("tcp://127.0.0.1:8786")
    (True, False)
    """
    scheme, _, place = address.partition("://")
    host = place.rpartition(":")[0].strip("[]")
    try:
        is_loopback = ip_address(host).is_loopback
    except ValueError:
        is_loopback = host == "localhost"
    return scheme != "tls" and not is_loopback


def _addresses(given: str) -> str:
    for address in given.split():
        parse_address(address)
    return given


def _witnesses(given: str) -> str:
    words = given.split()
    if len(words) % 2:
        raise ValueError("this is not a list of public keys, each followed by an address")
    for address in words[1::2]:
        try:
            parsed = parse_address(address)
        except ValueError as error:
            raise ValueError(f"an address is refused: {error}") from None
        if parsed.query:
            raise ValueError("an address must have only a scheme, a host and a path, without ?")
    return given


def _public_url(given: str) -> str:
    if not given:
        return given
    address = parse_address(given.rstrip("/"))
    if address.query or "//" in address.path:
        raise ValueError("the address must have only a scheme, a host and a path, without ? and without empty steps")
    return given.rstrip("/")


def _traces_url(given: str) -> str:
    if not given:
        return given
    parse_address(given)
    if not all(map(_is_installed, _TRACING)):
        raise ValueError("traces need OpenTelemetry, which is not installed: run `make tracing`")
    return given


def _is_installed(package: str) -> bool:
    try:
        return find_spec(package) is not None
    except ModuleNotFoundError:
        return False


def _networks(given: str) -> str:
    try:
        for network in given.split():
            ip_network(network)
    except ValueError:
        raise ValueError("this is not a list of networks such as 10.20.0.0/16 fd00:1::/32") from None
    return given


#: A path is made absolute once, when it is read, since workers are started in another folder.
DataFolder = Annotated[Path, _checked_by(_absolute)]
OptionalFile = Annotated[Path | None, _checked_by(_absolute)]
DatabaseUrl = Annotated[str, _checked_by(_database_url)]
FencePlace = Annotated[SecretStr | None, _checked_by(_fence)]
DataKey = Annotated[SecretStr | None, _checked_by(_data_key)]
DataKeyFile = Annotated[Path | None, _checked_by(_data_key_file)]
SigningKeyFile = Annotated[Path | None, _checked_by(_signing_key_file)]
Device = Annotated[Literal["cpu", "cuda"], _checked_by(_device)]
DaskScheduler = Annotated[str | None, _checked_by(_dask_scheduler)]
WebAddresses = Annotated[str, _checked_by(_addresses)]
Witnesses = Annotated[str, _checked_by(_witnesses)]
PublicUrl = Annotated[str, _checked_by(_public_url)]
TracesUrl = Annotated[str, _checked_by(_traces_url)]
Networks = Annotated[str, _checked_by(_networks)]
