"""`python -m docs.site.versions BUILT FOLDER VERSION` adds a built site to a folder with sites of several versions.

`make site-version` calls this module. The folder has a site for each version, a copy of the newest site as `latest`,
and a first page that leads to the copy. Each page lists the versions and links to the same page in each of them. A page
of an older version says that it is old. The lists are plain HTML. Whenever a version is added, they are written into
the pages of all versions again, so that nothing is fetched and no script is needed.
"""

from __future__ import annotations

import html
import os
import re
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from packaging.version import Version

#: The start page within a site.
START = "docs/README.html"
LATEST = "latest"

_BLOCK = re.compile(r"<!--versions-->.*?<!--/versions-->", re.DOTALL)
_BODY = re.compile(r"<body[^>]*>")
_REDIRECT = (
    '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>epsilond</title>'
    '<meta http-equiv="refresh" content="0; url={0}"></head><body><a href="{0}">epsilond</a></body></html>\n'
)


def add_version(built: Path, folder: Path, version: str) -> None:
    """Put a built site into the folder as the site of a version. An earlier site of the same version is replaced.

    Raises:
        ValueError: If the version is malformed, or the site has no start page.
    """
    name = str(Version(version))
    if not (built / START).is_file():
        raise ValueError(f"{built} is not a site that was built: it has no {START}")
    _replace(built, folder / name)
    versions = versions_in(folder)
    for each in versions:
        _mark(folder, each, versions)
    _replace(folder / versions[0], folder / LATEST)
    (folder / "index.html").write_text(_REDIRECT.format(f"{LATEST}/{START}"), encoding="utf-8")


def versions_in(folder: Path) -> list[str]:
    """Return the versions that have a site in the folder, the newest first and pre-releases last."""
    names = [path.name for path in folder.iterdir() if (path / START).is_file() and path.name != LATEST]
    return sorted(names, key=lambda name: (not Version(name).is_prerelease, Version(name)), reverse=True)


def _mark(folder: Path, version: str, versions: Sequence[str]) -> None:
    for page in (folder / version).rglob("*.html"):
        block = _block(folder, page, version, versions)
        text = _BLOCK.sub("", page.read_text(encoding="utf-8"))
        body = _BODY.search(text)
        if body is not None:  # a page that only redirects has no body
            page.write_text(text[: body.end()] + block + text[body.end() :], encoding="utf-8")


def _block(folder: Path, page: Path, version: str, versions: Sequence[str]) -> str:
    """Return the list of versions, with links to the same page in each of them, or else to its start page."""
    place = page.relative_to(folder / version)

    def link(name: str, text: str) -> str:
        target = folder / name / (place if (folder / name / place).is_file() else START)
        # The address is relative and names the version's folder, so that it also works in the copy `latest`.
        address = Path(os.path.relpath(target, page.parent)).as_posix()
        return f'<a href="{html.escape(address)}">{html.escape(text)}</a>'

    listed = "".join(f"<li>{link(name, name)}</li>" for name in versions)
    newest, notice = versions[0], ""
    if version != newest:
        notice = f'<p role="note">This page is of version {version}. The newest one is {link(newest, newest)}.</p>'
    menu = f"<details><summary>Version {version}</summary><ul>{listed}</ul></details>"
    return f'<!--versions--><nav aria-label="Versions">{menu}{notice}</nav><!--/versions-->'


def _replace(source: Path, target: Path) -> None:
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(source, target)


if __name__ == "__main__":
    add_version(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3])
