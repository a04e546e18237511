"""The choice among several media types by a client's preference (RFC 9110, section 12.5.1)."""

from __future__ import annotations

from collections.abc import Sequence


def preferred(accept: str | None, offered: Sequence[str]) -> str:
    """Return the offered media type that ``Accept`` ranks highest; the first offered one if it ranks none.

    A header that cannot be read, or that accepts none of the types, is ignored. The answer states its own type.

    >>> preferred("text/html, application/json;q=0.9", ["application/json", "text/html"])
    'text/html'
    >>> preferred("*/*", ["application/json", "text/html"]), preferred("image/png", ["application/json"])
    ('application/json', 'application/json')
    """
    ranges = [_read(part) for part in (accept or "").split(",")]
    ranked = [(_quality(media_type, ranges), -place) for place, media_type in enumerate(offered)]
    return offered[-max(ranked)[1]]


def _read(part: str) -> tuple[str, float]:
    media_range, *parameters = (piece.strip().lower() for piece in part.split(";"))
    quality = 1.0
    for parameter in parameters:
        name, _, value = parameter.partition("=")
        if name.strip() == "q":
            try:
                quality = min(1.0, max(0.0, float(value)))
            except ValueError:
                quality = 0.0
    return media_range, quality


def _quality(media_type: str, ranges: Sequence[tuple[str, float]]) -> float:
    """Return the quality of a type, by the most specific range that covers it; 0 if none does."""
    for covering in (media_type, media_type.split("/", maxsplit=1)[0] + "/*", "*/*"):
        for media_range, quality in ranges:
            if media_range == covering:
                return quality
    return 0.0
