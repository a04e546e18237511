"""Suggestions for unknown names of fields, options, algorithms and mechanisms."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from difflib import get_close_matches

#: The most names that are listed if none is near; more would hide the fault.
_MOST_LISTED = 8
#: The longest name that is compared. Longer names are not typing errors, and comparing them takes time.
_LONGEST = 64


def suggestion(name: str, known: Iterable[str]) -> str:
    """Return a sentence to append to a list of the known names; it is empty if none is near.

    >>> suggestion("dp_sdg", ["dp_gd", "dp_sgd"])
    ' Did you mean dp_sgd?'
    >>> suggestion("colour", ["kind", "rho"])
    ''
    """
    found = nearest(name, sorted(set(known) - {name}))
    return "" if found is None else f" Did you mean {found}?"


def hint(name: str, known: Iterable[str]) -> str:
    """Return a sentence to append to "there is none of this name"; it is empty if nothing helps.

    >>> hint("batchsize", ["batch_size", "iterations"])
    ' Did you mean batch_size?'
    >>> hint("noise", ["noise_multiplier", "steps"])
    ' Did you mean noise_multiplier?'
    >>> hint("colour", ["kind", "rho"])
    ' There are kind and rho.'
    """
    names = sorted(set(known) - {name})
    if meant := suggestion(name, names):
        return meant
    if not 0 < len(names) <= _MOST_LISTED:
        return ""
    *most, last = names
    return f" There are {', '.join(most)} and {last}." if most else f" There is {last}."


def nearest(name: str, known: Sequence[str]) -> str | None:
    """Return the name with the most similar spelling, or one that begins with the given text."""
    if len(name) > _LONGEST:
        return None
    close = get_close_matches(name.lower(), known, n=1, cutoff=0.7)
    beginning = [each for each in known if len(name) > 1 and each.startswith(name.lower())]
    return next(iter([*close, *sorted(beginning, key=len)]), None)
