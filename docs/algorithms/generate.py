"""`python -m docs.algorithms.generate` writes the generated pages of this folder.

README.md is committed, and a test compares it with what this module writes. The pages of the algorithms repeat the
docstrings of the calibrators and are not committed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

from calibrators.registry import ALGORITHMS
from docs.algorithms.pages import algorithm_page, index_page

HERE = Path(__file__).parent

PAGES: Mapping[str, Callable[[], str]] = {
    "README.md": index_page,
    **{f"{name}.md": partial(algorithm_page, name) for name in ALGORITHMS},
}


if __name__ == "__main__":
    for page, make in PAGES.items():
        (HERE / page).write_text(make())
