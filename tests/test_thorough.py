"""Of a test with many cases, `make test` runs some, `make test-all` others, and `make soak` the rest."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from tests.e2e.server import ROOT

MODULE = """
import pytest

@pytest.mark.one_in(3)
@pytest.mark.parametrize("number", range(60))
def test_many(number): pass

@pytest.mark.one_in(1000)
@pytest.mark.parametrize("number", range(5))
def test_few(number): pass

@pytest.mark.parametrize("number", range(4))
def test_all(number): pass

@pytest.fixture(params=("sqlite", "postgresql"))
def databases(request): return request.param

@pytest.mark.parametrize("number", range(20))
def test_on_both(databases, number): pass

@pytest.mark.parametrize("databases", ["sqlite"], indirect=True)
def test_on_one(databases): pass

@pytest.mark.one_in(1000)
@pytest.mark.parametrize("number", range(3))
def test_few_on_both(databases, number): pass

@pytest.mark.thorough
@pytest.mark.parametrize("number", range(20))
def test_long_on_both(databases, number): pass
"""


def collected(folder: Path, expression: str) -> set[str]:
    """The tests that pytest selects by their markers."""
    options = ["-c", str(folder / "pytest.ini"), "-p", "tests.thorough", "-p", "no:cacheprovider", "-m", expression]
    found = subprocess.run(
        [sys.executable, "-m", "pytest", *options, "--collect-only", "-q", str(folder / "test_cases.py")],
        cwd=ROOT,
        env=os.environ | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},  # The installed ones have no part in it.
        capture_output=True,
        text=True,
        check=True,
    )
    return {line.rpartition("::")[2] for line in found.stdout.splitlines() if "::" in line}


def test_each_case_runs_in_one_of_the_three_and_every_quick_test_in_the_first(tmp_path: Path) -> None:
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers =\n    one_in\n    thorough\n    soak\n")
    module = tmp_path / "test_cases.py"
    module.write_text(MODULE)
    often, rest = collected(tmp_path, "not thorough and not soak"), collected(tmp_path, "thorough and not soak")
    late = collected(tmp_path, "soak")
    assert len(often) + len(rest) + len(late) == len(often | rest | late) == 69 + 40 + 1 + 6 + 40
    assert {
        "test_many[0]",
        "test_few[0]",
        "test_on_one[sqlite]",
        *(f"test_all[{number}]" for number in range(4)),
    } <= often
    assert 10 <= sum(case.startswith("test_many") for case in often) <= 30
    assert sum(case.startswith("test_few_on_both") for case in often) == 1
    assert 5 <= sum(case.startswith("test_many") for case in rest) < sum(case.startswith("test_many") for case in late)
    for of_long in (rest, late):
        numbers = [number for case in of_long if "long" in case for number in re.findall(r"\d+", case)]
        assert sorted(numbers, key=int) == [str(number) for number in range(20)], "each on one of them"
    assert {case for case in rest if case.startswith("test_on_both")}, "the other database is not left to soak"
    on_both = [case for case in often if case.startswith("test_on_both")]
    numbers = [number for case in on_both for number in re.findall(r"\d+", case)]
    assert sorted(numbers, key=int) == [str(number) for number in range(20)], "each on one of them"
    assert {"sqlite" in case for case in on_both} == {True, False}
    # A case stays where it is when others come before it.
    module.write_text(MODULE.replace("range(60)", "range(-7, 60)"))
    assert {case for case in rest if "many" in case} <= collected(tmp_path, "thorough and not soak")
