"""Settings: from the environment, checked, and never quoted back."""

from __future__ import annotations

import os
import re
import stat
from pathlib import Path

import pytest
from pydantic import ValidationError
from sqlalchemy import make_url

from app.settings import Settings, environment_of, settings_faults, unknown_variables


@pytest.fixture(autouse=True)
def _nothing_is_set(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever runs the tests may have a service of their own."""
    for name in [name for name in os.environ if name.startswith("EPSILOND_")]:
        monkeypatch.delenv(name)


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


@pytest.mark.parametrize(
    "url",
    [
        "password1",
        "mysql://user:password1@host/name",
        "postgresql+psycopg2://user:password1@host/name",
        "postgresql+nothing://user:password1@host/name",
        "postgresql://user:secret@host:password1/name",
        "sqlite://password1/name",
        "sqlite://",
        "sqlite:///:memory:",
        "sqlite:///file:password1?uri=true",
        "sqlite+aiosqlite:///password1",
    ],
)
def test_a_database_that_is_not_to_be_had_is_refused_without_its_password(
    monkeypatch: pytest.MonkeyPatch, url: str
) -> None:
    monkeypatch.setenv("EPSILOND_DATABASE_URL", url)
    with pytest.raises(ValidationError) as caught:
        Settings()
    text = settings_faults(caught.value)
    assert text.startswith("EPSILOND_DATABASE_URL: ")
    assert len(text.splitlines()) == 1
    assert "password1" not in text


@pytest.mark.parametrize(
    ("database", "fence"),
    [
        ("postgresql://ledger:password1@host/name", "postgresql://fence:password1@host:5432/name?sslmode=require"),
        ("sqlite:////folder/ledger", "sqlite:////folder/ledger"),
        ("sqlite:////folder/ledger", "/folder/ledger"),
        ("", "sqlite:///var/epsilond.sqlite3"),
        ("", "var/epsilond.sqlite3"),
    ],
)
def test_a_fence_inside_the_ledgers_database_is_refused_without_its_password(
    monkeypatch: pytest.MonkeyPatch, database: str, fence: str
) -> None:
    monkeypatch.setenv("EPSILOND_DATABASE_URL", database)
    monkeypatch.setenv("EPSILOND_FENCE", fence)
    with pytest.raises(ValidationError) as caught:
        Settings()
    assert re.fullmatch("EPSILOND_FENCE: this is the ledger's own database, .*", settings_faults(caught.value))


def test_a_fence_is_a_file_or_a_database(monkeypatch: pytest.MonkeyPatch) -> None:
    assert Settings().fence_place == Path("var/fence").absolute()
    monkeypatch.setenv("EPSILOND_FENCE", "elsewhere/fence")
    assert Settings().fence_place == Path("elsewhere/fence").absolute()
    monkeypatch.setenv("EPSILOND_DATABASE_URL", "postgresql://user@host/name")
    monkeypatch.setenv("EPSILOND_FENCE", "postgresql://user@host/another")
    assert Settings().fence_place == "postgresql+psycopg://user@host/another"
    monkeypatch.setenv("EPSILOND_FENCE", "mysql://user:password1@host/name")
    with pytest.raises(ValidationError) as caught:
        Settings()
    assert (
        settings_faults(caught.value) == "EPSILOND_FENCE: the database must be SQLite, or PostgreSQL through psycopg 3."
    )


def test_an_empty_variable_is_not_set(monkeypatch: pytest.MonkeyPatch) -> None:
    expected = Settings()
    for name in Settings.model_fields:
        monkeypatch.setenv(f"EPSILOND_{name.upper()}", "")
    assert Settings() == expected


def test_relative_paths_are_those_of_the_folder_that_the_first_process_is_started_in(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    odd = tmp_path / "a folder, 100%25 odd?"
    odd.mkdir()
    monkeypatch.chdir(odd)
    monkeypatch.setenv("EPSILOND_DATA_DIR", "var")
    first = Settings()
    assert first.data_dir == odd / "var"
    assert make_url(first.sqlalchemy_url).database == str(odd / "var" / "epsilond.sqlite3")
    monkeypatch.setenv("EPSILOND_DATABASE_URL", "sqlite:///ledger.db?timeout=3")
    second = Settings()
    for settings, database in ((first, odd / "var" / "epsilond.sqlite3"), (second, odd / "ledger.db")):
        with monkeypatch.context() as elsewhere:
            elsewhere.chdir("/")
            for name, value in environment_of(settings).items():
                elsewhere.setenv(name, value)
            assert Settings() == settings
            assert Settings().data_dir == odd / "var"
            assert make_url(Settings().sqlalchemy_url).database == str(database)
    assert make_url(second.sqlalchemy_url).query == {"timeout": "3"}


def test_what_another_process_is_told_hides_what_this_environment_says(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = Settings()
    monkeypatch.setenv("EPSILOND_SECRET_KEY", "k" * 32)
    monkeypatch.setenv("EPSILOND_DATABASE_URL", "sqlite:////elsewhere.db")
    for name, value in environment_of(settings).items():
        monkeypatch.setenv(name, value)
    assert Settings() == settings


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
    previous = os.umask(0)
    first, second = Settings(data_dir=folder), Settings(data_dir=folder)
    assert len(first.secret) == 64
    assert first.secret == second.secret
    os.umask(previous)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert stat.S_IMODE((folder / "secret.key").stat().st_mode) == 0o600
    assert [path.name for path in folder.iterdir()] == ["secret.key"]
    assert Settings(data_dir=tmp_path / "other").secret != first.secret


def test_a_data_key_is_taken_from_its_variable_or_its_file_and_never_repeated(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = tmp_path / "key"
    file.write_text("ab" * 32 + "\n")
    written, read = Settings(data_key="ab" * 32), Settings(data_key_file=file)
    path = tmp_path / "datasets" / "ds_a"
    written.encryption.write(path, lambda target: target.write(b"rows") and None)
    with read.encryption.open(path) as stored:
        assert stored.read() == b"rows"
    assert not Settings().encryption.is_on
    for settings in (written, read):
        assert "abab" not in repr(settings) + repr(settings.encryption)
        with monkeypatch.context() as environment:
            for name, value in environment_of(settings).items():
                environment.setenv(name, value)
            assert Settings() == settings
            assert Settings().encryption.is_on


@pytest.mark.parametrize("key", ["8675309", "8675309" * 8, "ab" * 33])
def test_a_data_key_that_is_none_is_refused_without_a_word_of_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, key: str
) -> None:
    file = tmp_path / "8675309"
    file.write_text(key)
    for name, value in (
        ("DATA_KEY", key),
        ("DATA_KEY_FILE", str(file)),
        ("DATA_KEY_FILE", str(file / "absent")),
        ("DATA_KEY_FILE", str(tmp_path)),
    ):
        with monkeypatch.context() as environment:
            environment.setenv(f"EPSILOND_{name}", value)
            with pytest.raises(ValidationError) as caught:
                Settings()
        text = settings_faults(caught.value)
        assert text.startswith(f"EPSILOND_{name}: ")
        assert "8675309" not in text
        assert "abab" not in text
    file.write_text("ab" * 32)
    with pytest.raises(ValidationError, match="not both"):
        Settings(data_key="ab" * 32, data_key_file=file)


def test_a_device_needs_its_library_and_has_no_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    assert Settings().device == "cpu"
    monkeypatch.setenv("EPSILOND_DEVICE", "cuda")
    monkeypatch.setattr("app.setting_types.find_spec", lambda _name: None)
    with pytest.raises(ValidationError, match="CuPy for this setting, and it is not installed"):
        Settings()
    monkeypatch.setattr("app.setting_types.find_spec", lambda name: name)
    assert Settings().device == "cuda"
    monkeypatch.setenv("EPSILOND_DASK_SCHEDULER", "tls://scheduler.example:8786")
    with pytest.raises(ValidationError, match="EPSILOND_DEVICE=cuda"):
        Settings()


def test_a_misspelt_setting_is_named_with_the_one_that_was_meant() -> None:
    links = ("EPSILOND_SERVICE_HOST", "EPSILOND_PORT_8000_TCP_ADDR", "EPSILOND_WORKER_SERVICE_PORT_HTTP")
    assert unknown_variables(["EPSILOND_DATA_KEY", "EPSILOND_URL", "EPSILON_PORT", *links]) == []
    [near] = unknown_variables(["EPSILOND_TRUSTED_PROXY"])
    assert near == "EPSILOND_TRUSTED_PROXY is not a setting, and has no effect. Did you mean EPSILOND_TRUSTED_PROXIES?"
    assert unknown_variables(["EPSILOND_XYZZY"]) == ["EPSILOND_XYZZY is not a setting, and has no effect."]
