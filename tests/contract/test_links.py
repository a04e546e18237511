"""Links lead somewhere, files that are mentioned exist, and every page is reached from the index."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.contract.documents import DOCS, DOCS_PAGES, PAGES, ROOT, anchors, internal_links, links, name_of

MENTIONED_FILE = re.compile(r"`((?:accounting|app|benchmarks|calibrators|docs|tests|trainer)/[\w./]*\w/?|\w+\.py)`")

every_page = pytest.mark.parametrize("page", PAGES, ids=name_of)


@every_page
def test_internal_links_resolve(page: Path) -> None:
    for link in internal_links(page):
        path, _, fragment = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), link
        assert ROOT in target.parents, link
        assert not fragment or fragment in anchors(target), link


@every_page
def test_external_links_are_well_formed(page: Path) -> None:
    """Whether somebody answers there is not asked: tests have no network."""
    for link in set(links(page)) - set(internal_links(page)):
        address = urlsplit(link)
        assert address.scheme == "https", link
        assert re.fullmatch(r"([\w-]+\.)+[a-z]{2,}", address.netloc), link


@cache
def names_of_modules() -> set[str]:
    packages = ("accounting", "app", "calibrators", "docs", "tests", "trainer")
    return {path.name for package in packages for path in (ROOT / package).rglob("*.py")}


@every_page
def test_mentioned_files_exist(page: Path) -> None:
    for name in MENTIONED_FILE.findall(page.read_text()):
        assert (ROOT / name).exists() if "/" in name else name in names_of_modules(), name


def test_every_page_is_reached_from_the_index() -> None:
    reached, queue = set(), [DOCS / "README.md"]
    while queue:
        page = queue.pop()
        if page in reached:
            continue
        reached.add(page)
        queue += [(page.parent / link.partition("#")[0]).resolve() for link in internal_links(page) if ".md" in link]
    assert set(DOCS_PAGES) - reached == set()
