"""Settings, read once from the environment when the process starts."""

from __future__ import annotations

import secrets
from functools import cached_property
from pathlib import Path
from typing import Literal

from pydantic import Field, SecretStr, ValidationError
from pydantic_settings import BaseSettings, SettingsConfigDict


class Settings(BaseSettings):
    """Every setting, its default and its meaning; `docs/reference/settings.md` is generated from this class."""

    model_config = SettingsConfigDict(env_prefix="EPSILOND_", frozen=True, extra="ignore")

    host: str = Field("127.0.0.1", description="Address to listen on.")
    port: int = Field(8000, ge=0, le=65535, description="Port to listen on; 0 takes a free one and prints it.")
    data_dir: Path = Field(Path("var"), description="Folder of the service's own files: data sets, models, secret.")
    database_url: str = Field(
        "",
        description="SQLAlchemy URL of the database, SQLite or PostgreSQL. Empty: the file epsilond.sqlite3 in the "
        "data folder.",
    )
    secret_key: SecretStr | None = Field(
        None,
        min_length=32,
        description="Key of the hashes that are stored in place of API keys, request bodies and data contents, 32 "
        "characters at least. Empty: made once and kept in the data folder.",
    )
    workers: int = Field(
        1,
        ge=0,
        le=64,
        description="Worker processes that the server starts for queued runs; 0 leaves them to `worker`.",
    )
    max_upload_bytes: int = Field(512 * 2**20, ge=1024, le=2**34, description="Largest upload of a data set, in bytes.")
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        "info", description="Least severe log line printed."
    )
    log_format: Literal["auto", "json", "console"] = Field(
        "auto",
        description="Shape of the log: JSON lines, or text for people. auto: text on a terminal, JSON elsewhere.",
    )

    @property
    def sqlalchemy_url(self) -> str:
        """The database URL with its driver: psycopg 3 for PostgreSQL."""
        if not self.database_url:
            return f"sqlite:///{(self.data_dir / 'epsilond.sqlite3').absolute()}"
        for prefix in ("postgresql://", "postgres://"):
            if self.database_url.startswith(prefix):
                return "postgresql+psycopg://" + self.database_url.removeprefix(prefix)
        return self.database_url

    @cached_property
    def secret(self) -> bytes:
        """The key of all keyed hashes. Made once, readable by the service's user alone."""
        if self.secret_key is not None:
            return self.secret_key.get_secret_value().encode()
        path = self.data_dir / "secret.key"
        make_private_folder(self.data_dir)
        if not path.exists():
            # Written aside and linked, so that of two processes that start together one wins and both read its key.
            draft = path.with_name(f"{path.name}.{secrets.token_hex(8)}")
            draft.touch(mode=0o600, exist_ok=False)
            draft.write_text(secrets.token_hex(32))
            try:
                path.hardlink_to(draft)
            except FileExistsError:
                pass
            finally:
                draft.unlink()
        return path.read_text().strip().encode()


def environment_of(settings: Settings) -> dict[str, str]:
    """The environment in which another process reads the same settings."""
    values = {name: getattr(settings, name) for name in type(settings).model_fields}
    if settings.secret_key is not None:
        values["secret_key"] = settings.secret_key.get_secret_value()
    return {f"EPSILOND_{name.upper()}": str(value) for name, value in values.items() if value is not None}


def settings_faults(error: ValidationError) -> str:
    """One line per setting that is wrong, by the name of its variable and without its value, which may be secret."""
    faults = error.errors(include_url=False, include_input=False, include_context=False)
    return "\n".join(f"EPSILOND_{str(fault['loc'][0]).upper()}: {fault['msg']}." for fault in faults)


def make_private_folder(path: Path) -> Path:
    """Create the folder (and its parents) readable by this user alone; leave an existing one as it is."""
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    return path
