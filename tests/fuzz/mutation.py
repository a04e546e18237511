"""Changes of JSON texts that leave them JSON, which changes of single bytes seldom do."""

from __future__ import annotations

import copy
import json
from random import Random
from typing import Any

#: Ends of ranges, other types, and what languages other than JSON take for a number.
VALUES: list[Any] = [
    *(None, True, False, "", "0", "-0", "NaN", "kind", "\u202e", [], {}, [[]], {"kind": None}),
    *(0, -1, 1, 2, 1e-300, -0.0, 0.5, 1.0, 1e22, 1e308, 2**31, 2**53, 2**63, 2**64, -(2**63), 10**40),
]


def mutate(data: bytes, seed: int) -> bytes | None:
    """The text with one to three changes of values, names or places; None where it is no JSON."""
    try:
        root = json.loads(data)
    except (ValueError, RecursionError):
        return None
    random = Random(seed)  # not a secret
    for _ in range(random.randint(1, 3)):
        root = _changed(root, random)
    try:
        return json.dumps(root, separators=(",", ":"), ensure_ascii=False).encode("utf-8", "surrogatepass")
    except RecursionError:
        return None


def _changed(root: Any, random: Random) -> Any:
    places = list(_places(root))
    if not places:
        return random.choice(VALUES)
    holder, key = random.choice(places)
    _, other = random.choice(places)
    match random.randrange(6):
        case 0:
            del holder[key]
        case 1:
            holder[key] = copy.deepcopy(random.choice(VALUES))
        case 2:
            # A value of elsewhere in the same text: names of kinds come to where numbers were.
            there, name = random.choice(places)
            holder[key] = copy.deepcopy(there[name])
        case 3 if isinstance(holder, dict):
            holder[str(other)] = holder.pop(key)
        case 4 if isinstance(holder, list):
            holder.extend(copy.deepcopy(holder[key]) for _ in range(random.choice((1, 2, 40))))
        case _:
            value = holder[key]
            if isinstance(value, int | float) and not isinstance(value, bool):
                holder[key] = random.choice((-value, value * 10, value / 7, value + 1, str(value), [value]))
            else:
                holder[key] = {"value": value}
    return root


def _places(root: Any) -> Any:
    """Where values are: what holds each, and its key there."""
    waiting = [root]
    while waiting:
        holder = waiting.pop()
        keys = list(holder) if isinstance(holder, dict) else range(len(holder)) if isinstance(holder, list) else ()
        for key in keys:
            yield holder, key
            if isinstance(holder[key], dict | list):
                waiting.append(holder[key])
