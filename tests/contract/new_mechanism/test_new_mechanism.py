"""A mechanism is added to a copy of the project with three new files, and no edit of another one."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from tests.contract.copies import LEFT_OUT, hashes, run
from tests.contract.documents import ROOT

HERE = Path(__file__).parent
#: The new files, and where they go.
NEW = {
    "events_logistic.py": "accounting/events/logistic.py",
    "losses_logistic.py": "accounting/losses/logistic.py",
    "tests_logistic.py": "tests/accounting/losses/test_logistic.py",
}
#: Questions of this test alone, which a contributor need not write.
OVER_HTTP = "tests/app/wire/test_logistic_over_http.py"
#: What the project asks of every mechanism.
SUITES = (
    "tests/accounting/losses/test_rules.py",
    "tests/accounting/filters/costs/test_cells.py::test_no_row_and_no_column_is_missing",
    "tests/accounting/filters/costs/test_table.py",
)


@pytest.mark.thorough  # tests/accounting/losses/test_rules.py has the shorter ones
def test_three_files_are_enough(tmp_path: Path) -> None:
    """Its tests cover JSON, an epsilon, groups, costs in every kind of budget, and refusals; then HTTP is asked."""
    copy = tmp_path / "repository"
    shutil.copytree(ROOT, copy, ignore=LEFT_OUT)
    for name, place in {**NEW, "http_logistic.py": OVER_HTTP}.items():
        assert not (copy / place).exists()
        shutil.copyfile(HERE / name, copy / place)
    before = hashes(copy)
    printed = run(copy, "pytest", "-n", "0", "-rA", NEW["tests_logistic.py"], OVER_HTTP, *SUITES)
    passed = re.findall(r"^PASSED (\S+?)::", printed, re.MULTILINE)
    assert set(passed) == {NEW["tests_logistic.py"], OVER_HTTP, *(suite.partition("::")[0] for suite in SUITES)}
    assert (passed.count(NEW["tests_logistic.py"]), passed.count(OVER_HTTP)) == (7, 5)
    assert hashes(copy) == before
