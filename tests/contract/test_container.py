"""The container image without a container engine: its linter, and its commands in a clean environment made as it is."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import metadata
from importlib.util import cache_from_source
from pathlib import Path
from typing import Any

import httpx2
import pytest
import yaml
from packaging.markers import Marker
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from app import VERSION
from tests.databases import DatabaseFactory

ROOT = Path(__file__).resolve().parents[2]
DOCKERFILE = (ROOT / "Dockerfile").read_text()
COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
DATA = "/var/lib/epsilond"


def instructions(name: str) -> list[str]:
    """Arguments of every instruction of that name, continued lines joined."""
    joined = re.sub(r"\\\n\s*", "", DOCKERFILE)
    return re.findall(rf"^{name} (.+)$", joined, re.MULTILINE)


def test_hadolint_finds_nothing():
    hadolint = Path(sys.executable).with_name("hadolint")
    found = subprocess.run([hadolint, ROOT / "Dockerfile"], capture_output=True, text=True, check=False)
    assert (found.returncode, found.stdout) == (0, "")


def test_the_last_stage_is_slim_unprivileged_and_without_a_compiler():
    stages = re.split(r"^FROM ", DOCKERFILE, flags=re.MULTILINE)[1:]
    assert len(stages) == 2
    last = stages[-1]
    assert last.startswith("python:3.13-slim")
    assert "apt-get" not in last
    assert "pip install" not in last
    assert instructions("USER") == ["10001:10001"]
    assert len(instructions("HEALTHCHECK")) == 1


def test_the_locked_packages_are_the_services_own_or_those_with_dasks():
    assert instructions("ARG") == ["LOCK=runtime", "TRACING=", "CUDA="]
    for lock in ("runtime", "dask"):
        assert ("\ndistributed==" in (ROOT / "requirements" / f"{lock}.lock").read_text()) == (lock == "dask")


def test_what_traces_are_sent_with_is_whole_beside_the_locked_packages() -> None:
    """pip refuses a package without a hash: each that one of them needs is in one of the two files."""
    pins = {
        name: dict(re.findall(r"^([a-z0-9.-]+)==([^ ]+)", (ROOT / "requirements" / name).read_text(), re.MULTILINE))
        for name in ("tracing.txt", "runtime.lock", "dev.lock")
    }
    assert "opentelemetry-exporter-otlp-proto-http" in pins["tracing.txt"]
    assert not set(pins["tracing.txt"]) & set(pins["runtime.lock"])
    for name, version in pins["tracing.txt"].items():
        assert pins["dev.lock"][name] == version, f"{name}: write the pins of dev.lock into tracing.txt"
        assert set(needed_by(name)) <= set(pins["tracing.txt"]) | set(pins["runtime.lock"]), name


def needed_by(name: str) -> Iterator[str]:
    """What a package asks for, here and without its extras but those that another one of them asks for."""
    for text in metadata.requires(name) or []:
        needed = Requirement(text)
        if needed.marker is None or needed.marker.evaluate({"extra": ""}) or needed.marker.evaluate({"extra": "http"}):
            yield canonicalize_name(needed.name)


def test_compose_has_service_worker_and_a_database_with_a_volume():
    services = COMPOSE["services"]
    assert set(services) == {"database", "migrate", "first-key", "service", "worker"}
    assert any(mount.startswith("database:") for mount in services["database"]["volumes"])
    assert all(f"data:{DATA}" in services[name]["volumes"] for name in ("first-key", "service", "worker"))
    assert services["service"]["ports"] == ["127.0.0.1:8000:8000"], "published on this machine alone"
    assert "ports" not in services["database"]
    assert COMPOSE["networks"]["inside"]["internal"] is True


def test_no_password_is_written_down():
    password = COMPOSE["services"]["database"]["environment"]["POSTGRES_PASSWORD"]
    assert re.fullmatch(r"\$\{EPSILOND_POSTGRES_PASSWORD:\?.+\}", password)


@dataclass
class Image:
    """What the image holds: the copied folders and an environment from the runtime lock alone."""

    python: Path
    folder: Path
    environment: dict[str, str]

    def start(self, command: list[str]) -> subprocess.Popen[str]:
        assert command[0] == "python"
        localized = [str(self.python), *(argument.replace(DATA, str(self.folder / "data")) for argument in command[1:])]
        return subprocess.Popen(
            localized,
            cwd=self.folder,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def run(self, command: list[str]) -> str:
        with self.start(command) as process:
            output, _ = process.communicate(timeout=600)
        assert process.returncode == 0, output
        return output

    @contextmanager
    def running(self, command: list[str]) -> Iterator[subprocess.Popen[str]]:
        process = self.start(command)
        try:
            yield process
        finally:
            process.terminate()
            output, _ = process.communicate(timeout=30)
        assert process.returncode == 0, output


def link_locked(packages: Path) -> None:
    """Give an environment what the runtime lock names and nothing else, from the environment of the tests.

    pip would need twenty seconds for the same files; `make serve` in a fresh clone (tests/e2e) has it install the lock.
    """
    locked = re.findall(
        r"^([^ ;\\]+)(?: ; (.+))? \\$", (ROOT / "requirements" / "runtime.lock").read_text(), re.MULTILINE
    )
    assert len(locked) > 20
    for requirement, marker in locked:
        name, version = requirement.split("==")
        if marker and not Marker(marker).evaluate():
            continue
        distribution = metadata.distribution(name)
        assert distribution.version == version, f"the environment has another {name}: make lock, then make test"
        # Programs lie above the packages; nothing in the image calls one.
        for top in {file.parts[0] for file in distribution.files or []} - {"..", "__pycache__"}:
            (packages / top).symlink_to(distribution.locate_file(top))


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory, postgresql_databases: DatabaseFactory) -> Image:
    folder = tmp_path_factory.mktemp("image")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder / "venv"], check=True)
    python = folder / "venv" / "bin" / "python"
    (packages,) = (folder / "venv" / "lib").glob("python*/site-packages")
    link_locked(packages)
    copied = [line.split() for line in instructions("COPY") if not line.startswith(("--", "requirements"))]
    for source, target in copied:
        # With what is compiled already, so that the first command need not compile it all again.
        (shutil.copytree if (ROOT / source).is_dir() else shutil.copy2)(ROOT / source, folder / target)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("EPSILOND_", "PYTHON"))}
    url = postgresql_databases.empty().replace("postgresql+psycopg://", "postgresql://")
    settings = {
        "EPSILOND_HOST": "127.0.0.1",
        "EPSILOND_PORT": str(port),
        "EPSILOND_DATA_DIR": str(folder / "data"),
        "EPSILOND_DATABASE_URL": url,
        "EPSILOND_WORKERS": COMPOSE["services"]["service"]["environment"]["EPSILOND_WORKERS"],
    }
    (folder / "data").mkdir(mode=0o700)
    return Image(python, folder, inherited | settings)


def made_last(image: Image) -> None:
    """Run what the last stage runs in the copied folders."""
    for command in instructions("RUN")[-1].split(" && "):
        python, *arguments = shlex.split(command)
        assert python == "/opt/epsilond/venv/bin/python"
        image.run(["python", *arguments])


@pytest.mark.thorough
def test_the_image_has_its_modules_compiled_and_the_program(image: Image) -> None:
    """Modules that the tests have compiled already are copied as such, but for one of each folder."""
    copied = [line.split()[1] for line in instructions("COPY") if not line.startswith(("--", "requirements"))]
    copied = [folder for folder in copied if (image.folder / folder).is_dir()]
    modules = [path for folder in copied for path in (image.folder / folder).rglob("*.py")]
    for folder in copied:
        one = next(path for path in modules if path.is_relative_to(image.folder / folder))
        Path(cache_from_source(str(one))).unlink(missing_ok=True)
    made_last(image)
    assert len(modules) > 300
    assert [path for path in modules if not Path(cache_from_source(str(path))).exists()] == []

    command = [image.python.with_name("epsilond"), "--version"]
    printed = subprocess.run(command, cwd="/", env=image.environment, capture_output=True, text=True, check=True)
    assert printed.stdout == f"epsilond {VERSION}\n"


def test_the_image_has_the_document(image: Image) -> None:
    assert image.run(["python", "-m", "app", "openapi"]) == (ROOT / "openapi.json").read_text()


def is_healthy(image: Image) -> bool:
    command = json.loads(instructions("HEALTHCHECK")[0].split("CMD ", 1)[1])
    with image.start(command) as process:
        process.communicate(timeout=30)
    return process.returncode == 0


@pytest.mark.thorough
def test_the_images_commands_make_a_working_service(image: Image) -> None:
    services = COMPOSE["services"]
    image.run(services["migrate"]["command"])
    image.run(services["first-key"]["command"])
    key_file = image.folder / "data" / "first-key"
    key = key_file.read_text().strip()
    assert key_file.stat().st_mode & 0o777 == 0o600
    image.run(services["first-key"]["command"])
    assert key_file.read_text().strip() == key, "a later start leaves the key as it is"

    assert not is_healthy(image)
    with image.running(services["service"]["command"]), image.running(services["worker"]["command"]):
        deadline = time.monotonic() + 60
        while not is_healthy(image):
            assert time.monotonic() < deadline, "the service does not become healthy"
        base_url = f"http://127.0.0.1:{image.environment['EPSILOND_PORT']}"
        with httpx2.Client(base_url=base_url, timeout=60) as client:
            assert client.get("/v1/algorithms").status_code == 401
            client.headers["Authorization"] = f"Bearer {key}"
            assert client.get("/v1/algorithms").status_code == 200
            assert client.get("/docs").status_code == 200
            assert client.get("/openapi.json").content == (ROOT / "openapi.json").read_bytes()
            request = {
                "algorithm": "dp_sgd",
                "dataset_id": "ds_breast_cancer",
                "model": {"kind": "logistic_regression"},
                "iterations": 10,
                "sampling": "full_batch",
                "gradient_bound": {"kind": "clip", "max_grad_norm": 1.0},
                "target": {"kind": "approximate_dp", "epsilon": 1, "delta": 1e-5},
                "hyperparameters": {"step_size": 0.5},
            }
            created = client.post("/v1/runs", json=request, headers={"Idempotency-Key": "one"})
            assert created.status_code == 202, created.text
            run = created.json()
            while run["state"] in ("queued", "running"):
                assert time.monotonic() < deadline, "the worker does not take the run"
                time.sleep(0.2)
                run = client.get(f"/v1/runs/{run['id']}").json()
            assert run["state"] == "succeeded", run
