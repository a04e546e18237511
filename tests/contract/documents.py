"""The documents, and what they are made of."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = [ROOT / f"{name}.md" for name in ("README", "ARCHITECTURE", "CHANGELOG", "CONTRIBUTING", "SECURITY")]
#: Without those of algorithms: they are made of the modules, and are there after `make docs` alone.
DOCS_PAGES = sorted(
    page
    for page in DOCS.rglob("*.md")
    if page.parent != DOCS / "algorithms" or not list((ROOT / "calibrators").glob(f"*/{page.stem}.py"))
)
PAGES += DOCS_PAGES
BASE_URL = "http://127.0.0.1:8000"

FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)

_LINK = re.compile(r"\]\(([^()\s]+)\)")
_HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


def links(page: Path) -> list[str]:
    return links_in(page.read_text())


def links_in(text: str) -> list[str]:
    return _LINK.findall(FENCE.sub("", text))


def internal_links(page: Path) -> list[str]:
    return [link for link in links(page) if not link.startswith(("http:", "https:", "mailto:"))]


def headings(page: Path) -> list[str]:
    return headings_in(page.read_text())


def headings_in(text: str) -> list[str]:
    return _HEADING.findall(FENCE.sub("", text))


def anchors(page: Path) -> set[str]:
    """The fragments of a page's headings, as GitHub makes them."""
    return anchors_in(page.read_text())


def anchors_in(text: str) -> set[str]:
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings_in(text)}
