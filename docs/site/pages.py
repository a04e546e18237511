"""This module translates pages from GitHub's Markdown to MyST, and decides under which index each page stands."""

from __future__ import annotations

import os
import re
from collections import deque
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
INDEX = Path("docs/README.md")
#: The pages of the algorithms, which `python -m docs.algorithms.generate` makes before the site is built.
PAGES_OF_ALGORITHMS = Path("docs/algorithms")
#: Pages outside docs/ to which pages in docs/ link.
ROOT_PAGES = ("README.md", "ARCHITECTURE.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md")

_FENCE = re.compile(r"(^```.*?^```$)", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"(?<!!)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^()\s]+)\)")
_INLINE_FORMULA = re.compile(r"\$`([^`]+)`\$")
_SECTION = re.compile(r"^## (.+)$", re.MULTILINE)


def as_myst(page: Path, text: str) -> str:
    """Return a page for MyST. Formulas are translated, links to files that are not pages become plain words, and the
    list of the pages below is added."""
    # Parts with an odd index are blocks of code.
    parts = _FENCE.split(text)
    parts[::2] = [_without_links_to_files(page, _INLINE_FORMULA.sub(r"{math}`\1`", part)) for part in parts[::2]]
    parts[1::2] = [re.sub(r"^```math$", "```{math}", part, flags=re.MULTILINE) for part in parts[1::2]]
    return "".join(parts) + "".join(_table_of_contents(page, *part) for part in _children(page))


def is_page(path: Path) -> bool:
    """Return whether the file is a page of the site."""
    return str(path) in ROOT_PAGES or (path.parts[0] == "docs" and path.suffix == ".md" and (ROOT / path).exists())


def _target(page: Path, link: str) -> Path:
    """Return the target of a link, as a path from the root. If the target is the module of an algorithm, return the
    page that is made from the module."""
    path = Path(os.path.normpath(page.parent / link.partition("#")[0]))
    made = PAGES_OF_ALGORITHMS / f"{path.stem}.md"
    return made if path.parts[0] == "calibrators" and is_page(made) else path


def _without_links_to_files(page: Path, text: str) -> str:
    """Replace each link to a file that is not a page by the words of the link."""

    def words_or_link(link: re.Match[str]) -> str:
        leads = link[2]
        if leads.startswith(("http:", "https:", "#")):
            return link[0]
        target = _target(page, leads)
        if target.parent == PAGES_OF_ALGORITHMS and not leads.endswith(".md"):
            return f"[{link[1]}]({os.path.relpath(target, page.parent)})"
        return link[0] if is_page(target) else link[1]

    return _LINK.sub(words_or_link, text)


def _links(page: Path, text: str) -> list[Path]:
    """Return the pages to which a text links, in the order of the links."""
    found = [link for _, link in _LINK.findall(_FENCE.sub("", text))]
    return [_target(page, link) for link in found if not link.startswith(("http:", "https:", "#"))]


@cache
def _tree() -> dict[Path, list[tuple[str, list[Path]]]]:
    """Return the pages under each index page, by section. A page stands under the first index that links to it."""
    known, queue = {INDEX}, deque([INDEX])
    tree: dict[Path, list[tuple[str, list[Path]]]] = {}
    while queue:
        page = queue.popleft()
        if page.name != INDEX.name or page.parts[0] != INDEX.parts[0]:
            continue
        parts = _SECTION.split((ROOT / page).read_text())
        tree[page] = []
        for title, text in zip(["", *parts[1::2]], parts[::2], strict=True):
            new = [each for each in dict.fromkeys(_links(page, text)) if is_page(each) and each not in known]
            known.update(new)
            queue.extend(new)
            if new:
                tree[page].append((title, new))
    return tree


def _children(page: Path) -> list[tuple[str, list[Path]]]:
    return _tree().get(page, [])


def _table_of_contents(page: Path, title: str, children: list[Path]) -> str:
    caption = f":caption: {title}\n" if title and page == INDEX else ""
    names = "\n".join(f"/{child.with_suffix('')}" for child in children)
    return f"\n\n```{{toctree}}\n:hidden:\n{caption}\n{names}\n```\n"
