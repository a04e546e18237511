"""The file that names the provider and gives rights to its people and machines."""

from __future__ import annotations

import tomllib
from collections.abc import Collection
from functools import lru_cache
from ipaddress import ip_address
from pathlib import Path
from typing import Annotated, Literal, Self
from urllib.parse import urlsplit

from pydantic import BeforeValidator, Field, ValidationError, field_validator, model_validator
from pydantic_core import PydanticCustomError

from app.auth.principal import Scope
from app.auth.service import MAX_BUDGETS
from app.kit.fields import Identifier, Name, Schema
from app.settings import Settings

#: The largest size of the configuration file.
_MOST_BYTES = 256 * 1024
_LONGEST_SESSION_MINUTES = 12 * 60
_Text = Annotated[str, Field(min_length=1, max_length=500, pattern=r"^[\x21-\x7e]+$")]


class Wrong(ValueError):
    """The file cannot be used; the message says where it is wrong, and what would be right."""


class Right(Schema):
    """The rights of a group's members, or of one person or machine.

    Attributes:
        group: The name of the group in the provider's tokens.
        subject: The claim ``sub`` of one person or machine, in place of a group.
        scopes: The scopes, as for a key.
        budgets: Ids of the budgets that are reached, with all below them; ``"all"`` for every budget.
    """

    group: Name | None = None
    subject: Name | None = None
    scopes: list[Annotated[Scope, Field(strict=False)]] = Field(min_length=1, max_length=len(Scope))
    budgets: Literal["all"] | Annotated[list[Identifier], Field(min_length=1, max_length=MAX_BUDGETS)]

    @model_validator(mode="after")
    def _is_possible(self) -> Self:
        if (self.group is None) == (self.subject is None):
            raise PydanticCustomError("right", "give either a group or a subject")
        if Scope.ADMIN in self.scopes and self.budgets != "all":
            raise PydanticCustomError("right", 'the scope admin reaches everything: give budgets = "all" with it')
        return self


class Configuration(Schema):
    """The provider, this service's registration there, and the rights that its people and machines have here.

    Attributes:
        issuer: Identifies the provider; its discovery document is below this address.
        client_id: The name of this service at the provider.
        client_secret_file: The file with the secret of a confidential client; None for a public one.
        audience: The audience that bearer tokens must have; None if none are accepted.
        name: What the sign-in page calls the provider.
        request_scopes: The scopes to request besides ``openid``, because some providers put groups into tokens only on
            request.
        groups_claim: The claim that lists the groups; several names lead into nested claims.
        session_minutes: How long a browser stays signed in. A change of groups takes effect at the next sign-in.
        rights: The rights in order. The first that matches decides, and rights of several groups are not combined.
    """

    issuer: _Text
    client_id: _Text
    client_secret_file: Annotated[Path, Field(strict=False)] | None = None
    audience: _Text | None = None
    name: Name = "your organisation's account"
    request_scopes: list[_Text] = Field(["profile"], max_length=20)
    groups_claim: Annotated[
        list[Name],
        Field(min_length=1, max_length=5),
        BeforeValidator(lambda given: [given] if isinstance(given, str) else given),
    ] = Field(["groups"])
    session_minutes: int = Field(8 * 60, ge=5, le=_LONGEST_SESSION_MINUTES)
    rights: list[Right] = Field(min_length=1, max_length=500)

    @field_validator("issuer")
    @classmethod
    def _is_trusted(cls, issuer: str) -> str:
        if not is_trusted_address(issuer) or "?" in issuer or "#" in issuer:
            detail = "it must be an https:// address without ? and #; http:// is accepted only for this machine itself"
            raise PydanticCustomError("issuer", detail)
        return issuer

    @field_validator("client_secret_file")
    @classmethod
    def _holds_a_secret(cls, path: Path | None) -> Path | None:
        if path is not None and not _secret_in(path):
            raise PydanticCustomError("client_secret_file", "the file cannot be read, or is empty")
        return path

    @model_validator(mode="after")
    def _keeps_tokens_apart(self) -> Self:
        if self.audience == self.client_id:
            detail = (
                "audience and client_id are the same, so a token that signs somebody in could be sent as a bearer "
                "token; register the service's interface at the provider under a name of its own"
            )
            raise PydanticCustomError("audience", detail)
        return self

    @property
    def client_secret(self) -> str | None:
        """Return the secret of a confidential client. It is read each time, so that it can be replaced while the server
        runs."""
        return None if self.client_secret_file is None else _secret_in(self.client_secret_file)

    def right_of(self, subject: str, groups: Collection[str]) -> Right | None:
        """Return the first right that matches; None if nothing is allowed."""
        return next((right for right in self.rights if right.subject == subject or right.group in groups), None)


def configuration_of(settings: Settings) -> Configuration | None:
    """Return the configuration in the file that the settings name; None if nobody signs in by a provider.

    It is read once. A changed configuration needs a restart of the server.

    Raises:
        Wrong: the file cannot be read, or its content is not valid.
    """
    if settings.oidc_file is None:
        return None
    if settings.public_address is None:
        raise Wrong(
            "EPSILOND_OIDC_FILE needs EPSILOND_PUBLIC_URL, the address that the provider sends browsers back to."
        )
    return _read(settings.oidc_file)


@lru_cache(maxsize=8)
def _read(path: Path) -> Configuration:
    try:
        with path.open("rb") as file:
            text = file.read(_MOST_BYTES + 1)
        if len(text) > _MOST_BYTES:
            raise Wrong(f"EPSILOND_OIDC_FILE: {path} is longer than {_MOST_BYTES} bytes.")
        return Configuration.model_validate(tomllib.loads(text.decode()))
    except OSError as error:
        raise Wrong(f"EPSILOND_OIDC_FILE: {path} cannot be read: {error.strerror}.") from error
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise Wrong(f"EPSILOND_OIDC_FILE: {path} is not TOML: {error}.") from error
    except ValidationError as error:
        faults = error.errors(include_url=False, include_input=False, include_context=False)
        lines = [f"{'.'.join(map(str, fault['loc'])) or 'the file'}: {fault['msg']}" for fault in faults]
        raise Wrong(f"EPSILOND_OIDC_FILE: {path}: {'; '.join(lines)}.") from error


def is_trusted_address(text: str) -> bool:
    """Return whether data sent to an address stay secret, because TLS protects them or they never leave this machine.

    >>> is_trusted_address("https://login.example"), is_trusted_address("http://login.example")
    (True, False)
    """
    try:
        parts = urlsplit(text)
        host = parts.hostname
    except ValueError:
        return False
    if not host or parts.username is not None:
        return False
    return parts.scheme == "https" or (parts.scheme == "http" and _is_loopback(host))


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _secret_in(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError):
        return ""
