"""Calls of other libraries that somebody pasted. They are read as text and never run."""

from __future__ import annotations

from accounting.interoperability.calls.facts import Assumed, Incomplete, Known
from accounting.interoperability.calls.pasted import PastedCall
from accounting.interoperability.calls.reading import read_call
from accounting.interoperability.calls.snippet import MAX_LENGTH

__all__ = ["MAX_LENGTH", "Assumed", "Incomplete", "Known", "PastedCall", "read_call"]
