"""The site is built without a warning, and loads nothing from elsewhere."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from calibrators.registry import ALGORITHMS
from docs.site.pages import as_myst
from tests.contract.documents import DOCS, ROOT

#: What a browser fetches by itself; links are followed by readers alone.
LOADED = re.compile(r'<(?:script|img|iframe|source)[^>]*\ssrc="([^"]+)"|<link[^>]*\shref="([^"]+)"')
LOADED_BY_STYLE = re.compile(r"@import[^;]+;|url\(([^)]+)\)")


@pytest.mark.thorough
def test_every_page_is_built_and_nothing_is_loaded_from_elsewhere(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-m", "docs.algorithms.generate"], cwd=ROOT, check=True)
    site = tmp_path / "html"
    command = [
        sys.executable,
        "-m",
        "sphinx",
        "--quiet",
        "--fail-on-warning",
        "--keep-going",
        "--conf-dir",
        "docs/site",
    ]
    command += ["--doctree-dir", str(tmp_path / "doctrees"), ".", str(site)]
    built = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stderr

    pages = list(site.rglob("*.html"))
    there = {str(page.relative_to(site)) for page in pages}
    assert {str(page.relative_to(ROOT).with_suffix(".html")) for page in DOCS.rglob("*.md")} <= there
    for page in pages:
        for found in LOADED.findall(page.read_text()):
            address = found[0] or found[1]
            assert not re.match(r"([a-z]+:)?//", address), (page, address)
    for style in site.rglob("*.css"):
        for address in LOADED_BY_STYLE.findall(style.read_text()):
            assert "//" not in address, (style, address)

    index = (site / "docs" / "algorithms" / "README.html").read_text()
    assert all(f'href="{name}.html"' in index for name in ALGORITHMS), "a module's link leads to its page"
    with_formulas = (site / "docs" / "algorithms" / "dp_nsgd.html").read_text()
    assert with_formulas.count("<math ") == with_formulas.count("</math>") > 10
    assert "mathjax" not in with_formulas.lower()


def test_a_page_of_a_forge_is_read_as_one() -> None:
    text = "See $`x^2`$ in [the code](../app/main.py), [errors](reference/errors.md).\n\n```python\na[0](b)\n```\n"
    read = as_myst(Path("docs/none.md"), text)
    assert read == text.replace("$`x^2`$", "{math}`x^2`").replace("[the code](../app/main.py)", "the code")


def test_no_option_hides_warnings() -> None:
    assert "suppress_warnings" not in (DOCS / "site" / "conf.py").read_text()
