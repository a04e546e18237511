"""The body of an upload: a file and what is declared about it, as multipart/form-data."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from pathlib import Path

_CHUNK_BYTES = 2**20


class Form:
    """A body that is read while it is sent. Each attempt reads it from the beginning.

    Attributes:
        content_type: The body's media type.
        length: The number of bytes of the body.
    """

    def __init__(self, file: Path, metadata: bytes) -> None:
        boundary = secrets.token_hex(16)
        self.content_type = f"multipart/form-data; boundary={boundary}"
        name = file.name.replace('"', "_").encode("ascii", "replace").decode()
        self._file = file
        self._before = (
            f'--{boundary}\r\nContent-Disposition: form-data; name="metadata"\r\nContent-Type: application/json\r\n\r\n'
        ).encode() + metadata
        self._before += (
            f'\r\n--{boundary}\r\nContent-Disposition: form-data; name="file"; filename="{name}"\r\n\r\n'
        ).encode()
        self._after = f"\r\n--{boundary}--\r\n".encode()
        self.length = len(self._before) + file.stat().st_size + len(self._after)

    def __iter__(self) -> Iterator[bytes]:
        yield self._before
        with self._file.open("rb") as opened:
            while chunk := opened.read(_CHUNK_BYTES):
                yield chunk
        yield self._after
