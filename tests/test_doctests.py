"""Files that have no doctest are not imported to find that out; each of the others is searched."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.e2e.server import ROOT


def test_doctests_are_looked_for_in_the_files_that_have_one(tmp_path: Path) -> None:
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    (tmp_path / "with_one.py").write_text('def one():\n    """\n    >>> 1\n    1\n    """\n')
    (tmp_path / "without.py").write_text("raise RuntimeError\n")
    (tmp_path / "test_more.py").write_text("def test_more(): pass\n")
    options = ["-c", str(tmp_path / "pytest.ini"), "-p", "tests.doctests", "-p", "no:cacheprovider"]
    found = subprocess.run(
        [sys.executable, "-m", "pytest", *options, "--doctest-modules", "--collect-only", "-q", str(tmp_path)],
        cwd=ROOT,
        env=os.environ | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},  # The installed ones have no part in it.
        capture_output=True,
        text=True,
        check=True,
    )
    collected = [line.rpartition("::")[2] for line in found.stdout.splitlines() if "::" in line]
    assert collected == ["test_more", "with_one.one"]
