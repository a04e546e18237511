"""The upper bounds of what a request may hold. Bounds of single fields stand at the fields."""

from __future__ import annotations

#: A JSON body. Uploads have the setting `max_upload_bytes`.
JSON_BODY_BYTES = 2**20

#: Objects and arrays inside one another. The deepest request of the contract needs eight.
JSON_DEPTH = 32

#: Digits of an integer; no field takes one near it, and longer ones would not fit a float.
JSON_INTEGER_DIGITS = 300

#: Faults listed in one answer.
LISTED_FAULTS = 50

#: A pointer names fields that the client chose: longer ones are cut.
POINTER_LENGTH = 300
