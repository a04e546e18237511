"""The upper bounds of what a request may hold. Bounds of single fields are given at the fields."""

from __future__ import annotations

#: The most bytes of a JSON body. Uploads have the setting `max_upload_bytes`.
JSON_BODY_BYTES = 2**20

#: The deepest nesting of objects and arrays. The deepest request of the contract needs eight.
JSON_DEPTH = 32

#: The most digits of an integer. No field takes one that long, and longer ones would not fit into a float.
JSON_INTEGER_DIGITS = 300

#: The most faults that one answer lists.
LISTED_FAULTS = 50

#: The most characters of a pointer, which is cut beyond them, since the client chooses the names in it.
POINTER_LENGTH = 300
