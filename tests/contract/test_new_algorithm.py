"""A new algorithm is the files that docs/how-to/add_an_algorithm.md shows, and no edit of what is there."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from calibrators.registry import ALGORITHMS
from tests.contract.copies import LEFT_OUT, hashes, run
from tests.contract.documents import DOCS, FENCE, ROOT

NAME = "dp_momentum"
PAGE = DOCS / "how-to" / "add_an_algorithm.md"
#: Suites that are made for every registered algorithm; each is to have tests of the new one, and to pass.
SUITES = (
    "tests/conformance/calibrators/test_examples.py",
    "tests/conformance/trainers/test_examples.py",
    "tests/conformance/trainers/test_execution.py",
    "tests/conformance/trainers/test_sensitivity.py",
    "tests/trainer/audit/test_audit.py",
    "tests/app/algorithms/test_calibrate.py",
    "tests/app/dashboard/test_calibrate.py",
    "tests/app/runs/promises/test_promises.py",
    "tests/contract/test_algorithm_pages.py",
)


def blocks() -> dict[str, str]:
    """The files of the page, by their paths: the first line of a block is its file's."""
    sources = [block[2] for block in FENCE.finditer(PAGE.read_text()) if block[1] == "python"]
    found = {}
    for source in sources:
        head, _, text = source.partition("\n")
        path = re.fullmatch(r"# (\S+\.py)", head)
        assert path is not None, f"a block of {PAGE.name} begins with its file's path, not with {head!r}"
        found[path[1]] = text
    return found


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The repository with the page's files in it."""
    folder = tmp_path_factory.mktemp("copy") / "repository"
    shutil.copytree(ROOT, folder, ignore=LEFT_OUT)
    for path, text in blocks().items():
        assert not (folder / path).exists(), "a file of the page is a new one"
        (folder / path).write_text(text)
    yield folder
    shutil.rmtree(folder)


def test_an_algorithm_is_at_most_four_files_of_its_own_name() -> None:
    assert 1 < len(blocks()) <= 4
    assert all(Path(path).stem in (NAME, "__init__") for path in blocks())


def test_the_files_are_well_formed(copy: Path) -> None:
    run(copy, "ruff", "check", "--no-cache", *blocks())
    run(copy, "ruff", "format", "--no-cache", "--check", *blocks())


@pytest.mark.thorough  # tests/conformance/test_records.py has the shorter ones
def test_it_is_calibrated_trained_audited_and_shown_and_nothing_else_is_edited(copy: Path) -> None:
    before = hashes(copy)
    run(copy, "docs.algorithms.generate")
    printed = run(copy, "pytest", "-n", "0", "-rA", "-m", "", "-k", NAME, *SUITES)  # every case, soak or not
    passed = re.findall(r"^PASSED (\S+?)::", printed, re.MULTILINE)
    assert set(passed) == set(SUITES)
    page = (copy / "docs" / "algorithms" / f"{NAME}.md").read_text()
    assert "with the momentum of Polyak 1964" in page
    changed = {path for path, said in hashes(copy).items() if before.get(path) != said}
    # The pages of the other algorithms are committed no more than this one: they may be new, too.
    pages = {f"docs/algorithms/{name}.md" for name in (*ALGORITHMS, NAME)}
    assert changed - pages == {"docs/algorithms/README.md"}, "the generated pages alone"
