"""The documents, and what they are made of."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = [ROOT / f"{name}.md" for name in ("README", "ARCHITECTURE", "CHANGELOG", "CONTRIBUTING", "SECURITY")]
PAGES += sorted(DOCS.rglob("*.md"))
BASE_URL = "http://127.0.0.1:8000"

FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)

_LINK = re.compile(r"\]\(([^()\s]+)\)")
_HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


def links(page: Path) -> list[str]:
    return _LINK.findall(FENCE.sub("", page.read_text()))


def internal_links(page: Path) -> list[str]:
    return [link for link in links(page) if not link.startswith(("http:", "https:", "mailto:"))]


def headings(page: Path) -> list[str]:
    return _HEADING.findall(FENCE.sub("", page.read_text()))


def anchors(page: Path) -> set[str]:
    """The fragments of a page's headings, as GitHub makes them."""
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings(page)}
