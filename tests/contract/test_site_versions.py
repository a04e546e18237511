"""Sites of several versions: each page leads to itself in the others, and an older one says so."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path
from urllib.parse import urljoin

import pytest

from app import VERSION
from docs.site.versions import LATEST, START, add_version, versions_in
from tests.contract.documents import DOCS, ROOT

LINK = re.compile(r'<a href="([^"]+)">([^<]+)</a>')


def built(folder: Path, *pages: str) -> Path:
    """A site with these pages beside its start page."""
    for name in (START, *pages):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f'<!DOCTYPE html><html><body class="a">\n<p>{folder.name} {name}</p></body></html>')
    return folder


def links(page: Path) -> dict[str, Path]:
    """Where the links of a page lead, by their text."""
    return {text: Path(urljoin(str(page), address)) for address, text in LINK.findall(page.read_text())}


def test_each_page_leads_to_itself_in_every_version(tmp_path: Path) -> None:
    folder = tmp_path / "versions"
    add_version(built(tmp_path / "one", "docs/a/old.html", "docs/a/page.html"), folder, "0.9.0")
    add_version(built(tmp_path / "two", "docs/a/page.html", "new.html"), folder, "0.10.0")
    add_version(built(tmp_path / "three", "docs/a/page.html"), folder, "0.11.0rc1")
    assert versions_in(folder) == ["0.10.0", "0.9.0", "0.11.0rc1"]
    for version in versions_in(folder):
        page = folder / version / "docs/a/page.html"
        assert links(page).items() >= {name: folder / name / "docs/a/page.html" for name in versions_in(folder)}.items()
        assert page.read_text().count("<nav") == 1
        assert (f"This page is of version {version}." in page.read_text()) == (version != "0.10.0")
    # A page that another version lacks leads to its start page.
    assert links(folder / "0.9.0/docs/a/old.html")["0.10.0"] == folder / "0.10.0" / START
    assert links(folder / "0.10.0/new.html")["0.9.0"] == folder / "0.9.0" / START
    # The newest release once more, at an address that stays; links work from there, too.
    latest = folder / LATEST / "docs/a/page.html"
    assert "two docs/a/page.html" in latest.read_text()
    assert links(latest)["0.9.0"] == folder / "0.9.0/docs/a/page.html"
    assert f"url={LATEST}/{START}" in (folder / "index.html").read_text()
    for page in folder.rglob("*.html"):
        assert all(target.is_file() for target in links(page).values() if page.name != "index.html"), page
        assert "//" not in "".join(address for address, _ in LINK.findall(page.read_text()))


def test_a_version_that_is_built_again_takes_its_place(tmp_path: Path) -> None:
    folder = tmp_path / "versions"
    add_version(built(tmp_path / "one", "gone.html"), folder, "1.0")
    add_version(built(tmp_path / "two"), folder, "2.0")
    add_version(built(tmp_path / "again"), folder, "1.0")
    assert versions_in(folder) == ["2.0", "1.0"]
    assert not (folder / "1.0/gone.html").exists()
    assert "two" in (folder / LATEST / START).read_text()
    assert (folder / "2.0" / START).read_text().count("<nav") == 1


def test_the_page_that_leads_to_the_first_one_stays_as_it_is(tmp_path: Path) -> None:
    """It is at the root of each site, and has no body."""
    site, redirect = built(tmp_path / "one"), ROOT / "docs" / "site" / "extra" / "index.html"
    shutil.copy(redirect, site)
    add_version(site, tmp_path / "versions", "1.0")
    assert (tmp_path / "versions" / "1.0" / "index.html").read_bytes() == redirect.read_bytes()


def test_what_is_no_site_or_no_version_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="not a site"):
        add_version(tmp_path, tmp_path / "versions", "1.0")
    with pytest.raises(ValueError, match="newest"):
        add_version(built(tmp_path / "one"), tmp_path / "versions", "newest")


def test_the_target_of_the_page_adds_the_version_of_this_checkout(tmp_path: Path) -> None:
    """Its command, with a site and a folder of the test."""
    assert "make site-version" in (DOCS / "releasing.md").read_text()
    lines = (ROOT / "Makefile").read_text().partition("\nsite-version: ")[2].splitlines()
    command = lines[1].strip().removeprefix("@")
    site = built(tmp_path / "html")
    typed = command.replace("$(BIN)/python", sys.executable).replace("$$", "$")
    typed = typed.replace(".site/html", str(site)).replace(".site/versions", str(tmp_path / "versions"))
    subprocess.run(["sh", "-euc", typed], cwd=ROOT, check=True)
    assert versions_in(tmp_path / "versions") == [VERSION]
