"""Copies of the repository in which a test adds files, and what is run there."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from accounting.canonical import sha256_hex

#: What a copy leaves out: nothing of it is code or a document.
LEFT_OUT = shutil.ignore_patterns(".*", "__pycache__", "var", "*.pyc", "results", "reports", "images", "node_modules")


def hashes(folder: Path) -> dict[str, str]:
    """Of every file of a copy but what running it leaves behind."""
    files = (path for path in folder.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    return {str(path.relative_to(folder)): sha256_hex(path.read_bytes()) for path in files}


def run(copy: Path, *arguments: str) -> str:
    """What a module prints that is run in the copy."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    found = subprocess.run(
        [sys.executable, "-m", *arguments], cwd=copy, env=environment, capture_output=True, text=True, check=False
    )
    assert found.returncode == 0, found.stdout[-8000:] + found.stderr[-4000:]
    return found.stdout
