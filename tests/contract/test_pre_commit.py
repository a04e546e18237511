"""The hooks of pre-commit are programs of the environment, and each does what it is called for."""

from __future__ import annotations

import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]
REPOSITORIES: list[dict[str, Any]] = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"]
HOOKS: dict[str, dict[str, Any]] = {hook["id"]: hook for each in REPOSITORIES for hook in each["hooks"]}


def test_nothing_is_downloaded() -> None:
    assert [each["repo"] for each in REPOSITORIES] == ["local"]
    assert all(hook["language"] == "system" for hook in HOOKS.values())
    assert set(HOOKS) == {"ruff-check", "ruff-format", "mypy"}


@pytest.mark.parametrize("hook", HOOKS)
def test_a_hook_is_a_program_of_the_environment(hook: str) -> None:
    command = [*shlex.split(HOOKS[hook]["entry"]), "--help"]
    subprocess.run(command, cwd=ROOT, capture_output=True, check=True)


def test_lint_finds_faults_and_format_mends_what_is_not_formatted(tmp_path: Path) -> None:
    written = tmp_path / "written.py"
    written.write_text("import os\nx = ( 1 )\n")
    found = subprocess.run(
        [*shlex.split(HOOKS["ruff-check"]["entry"]), written], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert found.returncode == 1
    assert "F401" in found.stdout
    subprocess.run([*shlex.split(HOOKS["ruff-format"]["entry"]), written], cwd=ROOT, capture_output=True, check=True)
    assert written.read_text() == "import os\n\nx = 1\n"
