"""Pages and pictures that the service makes. Each contains everything that it needs, and is only there to be shown."""

from __future__ import annotations

import base64
import hashlib
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

TEMPLATES = Path(__file__).with_name("templates")


def render(template: str, styles: tuple[str, ...], **values: Any) -> str:
    """Return a template filled with escaped values and the style sheets."""
    return _environment().get_template(template).render(style=_style(styles), **values)


def policy(styles: tuple[str, ...]) -> str:
    """Return a page's Content-Security-Policy: it allows its own style, and no script, frame or other address."""
    digest = base64.b64encode(hashlib.sha256(_style(styles).encode()).digest()).decode()
    return (
        f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )


@cache
def _environment() -> Environment:
    # All templates escape values, whatever their file names are.
    return Environment(loader=FileSystemLoader(TEMPLATES), autoescape=True, undefined=StrictUndefined)


@cache
def _style(names: tuple[str, ...]) -> Markup:
    return Markup("".join((TEMPLATES / name).read_text() for name in names))  # noqa: S704  # our own files
