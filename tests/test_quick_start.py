"""A test that needs no framework loads none, so that one file of them starts at once."""

from __future__ import annotations

import re
import subprocess
import sys
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FRAMEWORKS = {"alembic", "fastapi", "pydantic", "schemathesis", "sqlalchemy", "starlette", "structlog", "uvicorn"}


def loaded_by_collecting(*paths: str) -> set[str]:
    """Return the frameworks that are loaded once pytest has collected the paths."""
    code = f"""
import sys
import pytest

status = pytest.main(["-n", "0", "--collect-only", "-qq", *{paths}])
print()
print(int(status), *sorted({FRAMEWORKS} & set(sys.modules)))
"""
    result = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    status, *loaded = result.stdout.splitlines()[-1].split()
    assert status == "0", result.stdout
    return set(loaded)


@pytest.mark.parametrize("floor", ["trainer", "calibrators", "accounting"])
@pytest.mark.one_in(1000)
def test_tests_of_numerics_load_no_framework(floor: str) -> None:
    assert loaded_by_collecting(floor, f"tests/{floor}") == set()


def test_a_framework_that_is_loaded_is_found() -> None:
    assert {"fastapi", "sqlalchemy"} <= loaded_by_collecting("tests/concurrency/test_tree_race.py")


def test_what_the_loops_are_compiled_with_is_installed_before_the_rest() -> None:
    """Compiling begins before all packages are there, so the Makefile names every one that it imports."""
    code = (
        "import sys; before = set(sys.modules); import trainer.warm_up; "
        "print(*{name.partition('.')[0] for name in set(sys.modules) - before})"
    )
    loaded = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True, cwd=ROOT).stdout
    [named] = re.findall(r"for each in ([a-z ]+); do sed", (ROOT / "Makefile").read_text())
    packages = packages_distributions()
    needed = {each for name in loaded.split() for each in packages.get(name, ())}
    assert {each.lower() for each in needed} <= set(named.split()) | {"epsilond"}
