"""The wheel: what is in it, and the page's commands with it, where no checkout is in sight."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import zipfile
from email.message import Message
from email.parser import Parser
from pathlib import Path

import pytest

from app import VERSION
from tests.contract.documents import DOCS
from tests.contract.test_operating_pages import commands
from tests.e2e.server import ROOT, serving

PACKAGES = ("accounting", "calibrators", "trainer", "app", "migrations")
PAGE = (DOCS / "operating" / "installation.md").read_text()
ENVIRONMENT = {
    name: value for name, value in os.environ.items() if not name.startswith(("EPSILOND_", "PYTHON", "VIRTUAL_ENV"))
}


def built(folder: Path) -> Path:
    """What `python -m build` builds with, without an environment that it would fetch first."""
    command = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", folder]
    subprocess.run(command, cwd=ROOT, env=ENVIRONMENT, check=True, capture_output=True, text=True)
    (wheel,) = folder.glob("*.whl")
    return wheel


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return built(tmp_path_factory.mktemp("wheel"))


def described(wheel: Path) -> Message:
    with zipfile.ZipFile(wheel) as files:
        return Parser().parsestr(files.read(f"epsilond-{VERSION}.dist-info/METADATA").decode())


def test_the_wheel_holds_all_that_is_committed_of_the_service_and_nothing_else(wheel: Path) -> None:
    listed = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z", *PACKAGES, "openapi.json"]
    verifier = "clients/verifier/src/epsilond_verifier"
    tracked = subprocess.run([*listed, verifier], cwd=ROOT, check=True, capture_output=True, text=True).stdout
    expected = {name for name in tracked.split("\0") if name and (ROOT / name).exists()}
    with zipfile.ZipFile(wheel) as files:
        held = {name for name in files.namelist() if ".dist-info/" not in name}
        assert held == expected
        assert all(files.read(name) == (ROOT / name).read_bytes() for name in held)


def test_the_wheel_says_what_it_is(wheel: Path) -> None:
    about = described(wheel)
    assert about["Version"] == VERSION
    assert wheel.name in PAGE
    needed = [re.split(r"[^a-z0-9-]", each)[0] for each in about.get_all("Requires-Dist", []) if "extra ==" not in each]
    assert "scikit-learn" not in needed
    assert "environment of its own" in about["Summary"] + str(about.get_payload())
    locked = (ROOT / "requirements" / "runtime.lock").read_text()
    assert [name for name in needed if f"\n{name}==" not in locked] == []
    assert "\nscikit-learn==" not in locked
    with zipfile.ZipFile(wheel) as files:
        programs = files.read(f"epsilond-{VERSION}.dist-info/entry_points.txt").decode()
    assert programs.split() == ["[console_scripts]", "epsilond", "=", "app.cli.main:main"]


def test_two_builds_are_the_same_bytes(wheel: Path, tmp_path: Path) -> None:
    assert built(tmp_path).read_bytes() == wheel.read_bytes()


@pytest.mark.thorough
def test_uvx_runs_the_program(wheel: Path, tmp_path: Path) -> None:
    """The newest versions of everything: pip's settings say where from, as uv has other names for them."""
    (line,) = re.findall(r"^ +(uvx .*) serve --migrate$", PAGE, re.MULTILINE)
    line = line.replace("./dist/", f"{wheel.parent}/")
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    environment = ENVIRONMENT | {"PATH": path, "UV_PYTHON": sys.executable}
    shown = subprocess.run(
        ["sh", "-c", f"{line} --version"], cwd=tmp_path, env=environment, check=False, capture_output=True, text=True
    )
    assert (shown.returncode, shown.stdout) == (0, f"epsilond {VERSION}\n"), shown.stderr


@pytest.mark.thorough
def test_the_pages_commands_install_a_service_that_calibrates_and_trains(wheel: Path, tmp_path: Path) -> None:
    folder = tmp_path / "a machine"
    folder.mkdir()
    shutil.copy(wheel, folder)
    shutil.copy(ROOT / "requirements" / "runtime.lock", folder)
    install = commands("installation.md")[2]
    assert install.startswith("python3 -m venv epsilond\n")
    assert commands("installation.md")[3].endswith("\nepsilond/bin/epsilond serve --migrate\n")
    done = subprocess.run(
        ["sh", "-eu", "-c", install.replace("python3 ", f"{sys._base_executable} ", 1)],
        cwd=folder,
        env=ENVIRONMENT,
        check=False,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    # No file of the checkout is named anywhere in what was installed.
    program = folder / "epsilond" / "bin" / "epsilond"
    assert str(ROOT) not in program.read_text()
    with serving({"EPSILOND_DATA_DIR": str(folder / "data")}, [str(program)], folder) as api:
        assert api.get("/openapi.json").content == (ROOT / "openapi.json").read_bytes()
        for page in ("/docs", "/docs/assets/docs.js", "/dashboard/assets/dashboard.css", "/dashboard/sign-in"):
            assert api.get(page).status_code == 200, page
        request = {
            "algorithm": "dp_sgd",
            "dataset_id": "ds_digits",
            "model": {"kind": "softmax_regression"},
            "iterations": 10,
            "sampling": "full_batch",
            "gradient_bound": {"kind": "clip", "max_grad_norm": 1.0},
            "target": {"kind": "approximate_dp", "epsilon": 1, "delta": 1e-5},
            "hyperparameters": {"step_size": 0.5},
        }
        created = api.post("/v1/runs", request)
        assert created.status_code == 202, created.text
        assert api.wait_for_run(created.json()["id"])["state"] == "succeeded"
        calibration = {
            name: request[name] for name in ("algorithm", "iterations", "sampling", "gradient_bound", "target")
        }
        answered = api.post("/v1/calibrate", calibration | {"dataset_size": 1000})
        assert answered.status_code == 200, answered.text
        event = {
            "mechanism": {"kind": "gaussian", "noise_multiplier": 1.0},
            "sampling": {"kind": "full_batch"},
            "count": 1,
        }
        asked = {"events": [event], "neighboring_relation": "add_or_remove_one", "delta": 1e-5, "certify": True}
        second = api.post("/v1/account", asked)
        assert second.status_code == 200, second.text
