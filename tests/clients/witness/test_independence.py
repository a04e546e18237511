"""The witness is a program of its own: short, on one dependency, with nothing of the service."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import epsilond_witness

from tests.clients.verifier.test_independence import _imports, _lines_of_code

SOURCE = Path(epsilond_witness.__file__).parent
ALLOWED = sys.stdlib_module_names | {"cryptography", "epsilond_witness"}


def test_it_imports_the_standard_library_and_cryptography_alone() -> None:
    files = list(SOURCE.glob("*.py"))
    assert len(files) >= 8
    for path in files:
        assert _imports(path.read_text()) <= ALLOWED, path.name
        assert "import_module" not in path.read_text()


def test_it_is_read_in_an_afternoon() -> None:
    assert sum(_lines_of_code(path.read_text()) for path in SOURCE.glob("*.py")) <= 900


def test_it_loads_nothing_of_the_service() -> None:
    code = (
        "import sys, epsilond_witness.__main__\n"
        "ours = {'accounting', 'calibrators', 'trainer', 'app', 'numpy', 'sqlalchemy', 'pydantic'} & set(sys.modules)\n"
        "sys.exit(f'loaded {ours}' if ours else 0)"
    )
    run = subprocess.run([sys.executable, "-c", code], cwd=SOURCE.parent, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
