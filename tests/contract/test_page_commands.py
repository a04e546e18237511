"""What the tutorial and the how-to guides tell to type is typed, and what they show is what comes."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.contract.documents import DOCS, FENCE, PAGES, name_of
from tests.contract.page_commands import Block, Outcome, blocks, fault, run_page, shows
from tests.e2e.server import serving

TUTORIAL = DOCS / "tutorial.md"
#: A guide that makes a key comes last: from then on a server answers nobody who has none.
GUIDES = sorted(
    (page for page in (DOCS / "how-to").glob("*.md") if blocks(page)),
    key=lambda page: ("epsilond keys create" in page.read_text(), page),
)

#: Kinds of blocks that a test beside what they are about runs.
ELSEWHERE = {
    "docs/how-to/client.md": {"py"},
    "docs/operating/monitoring.md": {"yaml"},
    "docs/operating/sign_in.md": {"toml"},
}


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    return {"EPSILOND_DATA_DIR": str(tmp_path / "data"), "EPSILOND_WORKERS": "1"}


@pytest.mark.thorough
def test_the_tutorial_does_what_it_says(environment: dict[str, str], tmp_path: Path) -> None:
    with serving(environment) as api:
        faults = run_page(TUTORIAL, str(api.client.base_url), environment, tmp_path)
    assert not faults, "\n".join(faults)


@pytest.mark.thorough
def test_the_how_to_guides_do_what_they_say(environment: dict[str, str], tmp_path: Path) -> None:
    """One server for all of them: each opens what it needs."""
    faults = []
    with serving(environment) as api:
        for page in GUIDES:
            folder = tmp_path / page.stem
            folder.mkdir()
            faults += run_page(page, str(api.client.base_url), environment, folder)
    assert not faults, "\n".join(faults)


def test_every_page_with_commands_is_run() -> None:
    """A block of commands on another page would be run by nobody."""
    with_commands = {page for page in DOCS.rglob("*.md") if blocks(page)}
    assert with_commands <= {TUTORIAL, *GUIDES}


def test_every_block_is_of_a_kind_that_somebody_runs_or_that_is_only_read() -> None:
    """A block of `bash`, say, would be run by nobody."""
    for page in PAGES:
        kinds = {kind for kind, _ in FENCE.findall(page.read_text())}
        assert kinds <= {"", "math", "text", "sh", "python", "json"} | ELSEWHERE.get(name_of(page), set()), page


def test_what_is_not_as_shown_is_found() -> None:
    assert fault(Block("", '{"a": 1, ...}'), Outcome('{"a":1,"b":2}', (200,))) is None
    assert fault(Block("", '{"a": 2, ...}'), Outcome('{"a":1,"b":2}', (200,))) == "the page shows something else"
    assert (
        fault(Block("", None), Outcome('{"code":"not_found"}', (404,)))
        == "answered [404], which the page does not show"
    )
    assert fault(Block("", '{"code": "not_found"}'), Outcome('{"code":"not_found"}', (404,))) is None
    assert not shows("1.2", "1x2")
