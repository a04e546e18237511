"""Column types of the ledger, which convert texts to objects of the accounting engine. Equal texts are converted once,
and share the object."""

from __future__ import annotations

import json
from functools import lru_cache
from typing import Any

from sqlalchemy import Dialect, Text, TypeDecorator

from accounting.events import Event, event_from_json
from accounting.filters import PrivacyFilter, filter_from_json
from app.tables.states import Amounts

Events = tuple[Event, ...]


class AmountsText(TypeDecorator[Amounts]):
    """Integer units as a JSON list."""

    impl = Text
    cache_ok = True

    def process_bind_param(self, value: Amounts | None, dialect: Dialect) -> str | None:
        return None if value is None else amounts_to_text(value)

    def process_result_value(self, value: str | None, dialect: Dialect) -> Amounts | None:
        return None if value is None else amounts_from_text(value)


class EventsText(TypeDecorator[Events]):
    """A list of events as JSON."""

    impl = Text
    cache_ok = True

    def process_bind_param(self, value: Events | None, dialect: Dialect) -> str | None:
        return None if value is None else events_to_text(value)

    def process_result_value(self, value: str | None, dialect: Dialect) -> Events | None:
        return None if value is None else events_from_text(value)


class FilterText(TypeDecorator[PrivacyFilter]):
    """A privacy filter as JSON."""

    impl = Text
    cache_ok = True

    def process_bind_param(self, value: PrivacyFilter | None, dialect: Dialect) -> str | None:
        return None if value is None else _compact(value.to_json())

    def process_result_value(self, value: str | None, dialect: Dialect) -> PrivacyFilter | None:
        return None if value is None else _filter_from_text(value)


def amounts_to_text(amounts: Amounts) -> str:
    """Return amounts as the column's text.

    >>> amounts_to_text((1, 20)), amounts_from_text("[1,20]")
    ('[1,20]', (1, 20))
    """
    return f"[{','.join(map(str, amounts))}]"


def amounts_from_text(text: str) -> Amounts:
    """Return the amounts in a text that `amounts_to_text` wrote."""
    return tuple(json.loads(text))


@lru_cache(maxsize=4096)
def events_to_text(events: Events) -> str:
    """Return events as the column's text."""
    return _compact([event.to_json() for event in events])


@lru_cache(maxsize=4096)
def events_from_text(text: str) -> Events:
    """Return the events in a text that `events_to_text` wrote."""
    return tuple(event_from_json(event) for event in json.loads(text))


@lru_cache(maxsize=4096)
def _filter_from_text(text: str) -> PrivacyFilter:
    return filter_from_json(json.loads(text))


def _compact(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"))
