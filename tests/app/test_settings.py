"""Settings: from the environment, checked, and never quoted back."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest
from pydantic import ValidationError

from app.settings import Settings, environment_of, settings_faults


def test_defaults() -> None:
    settings = Settings()
    assert (settings.host, settings.port) == ("127.0.0.1", 8000)
    assert settings.sqlalchemy_url == f"sqlite:///{Path('var/epsilond.sqlite3').absolute()}"


@pytest.mark.parametrize("scheme", ["postgresql", "postgres", "postgresql+psycopg"])
def test_postgresql_is_spoken_to_by_psycopg(monkeypatch: pytest.MonkeyPatch, scheme: str) -> None:
    monkeypatch.setenv("EPSILOND_DATABASE_URL", f"{scheme}://user@host/name")
    assert Settings().sqlalchemy_url == "postgresql+psycopg://user@host/name"


def test_faults_name_the_variable_and_not_its_value(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EPSILOND_PORT", "70000")
    monkeypatch.setenv("EPSILOND_SECRET_KEY", "short-secret")
    monkeypatch.setenv("EPSILOND_LOG_LEVEL", "loud-value")
    with pytest.raises(ValidationError) as caught:
        Settings()
    text = settings_faults(caught.value)
    assert {line.partition(":")[0] for line in text.splitlines()} == {
        "EPSILOND_PORT",
        "EPSILOND_SECRET_KEY",
        "EPSILOND_LOG_LEVEL",
    }
    for value in ("70000", "short-secret", "loud-value"):
        assert value not in text


def test_another_process_reads_the_same_settings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for settings in (
        Settings(data_dir=tmp_path, port=0, workers=3, log_level="error"),
        Settings(data_dir=tmp_path, secret_key="k" * 32, database_url="postgresql://user:pass@host/name"),
    ):
        with monkeypatch.context() as environment:
            for name, value in environment_of(settings).items():
                environment.setenv(name, value)
            assert Settings() == settings


def test_the_secret_is_made_once_for_its_owner_alone(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    first, second = Settings(data_dir=folder), Settings(data_dir=folder)
    assert len(first.secret) == 64
    assert first.secret == second.secret
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert stat.S_IMODE((folder / "secret.key").stat().st_mode) == 0o600
    assert [path.name for path in folder.iterdir()] == ["secret.key"]
    assert Settings(data_dir=tmp_path / "other").secret != first.secret
