"""Read from a connection up to a deadline."""

from __future__ import annotations

import io
import socket
import time
from typing import Any


class Timed(io.RawIOBase):
    """Reads from a connection up to a deadline: a socket's own timeout starts again with every byte.

    Args:
        received: The stream that reads from the connection.
        connection: The connection's socket.
        until: The deadline, by the monotonic clock. It may be changed.
    """

    def __init__(self, received: io.RawIOBase, connection: socket.socket, until: float) -> None:
        self._received, self._connection = received, connection
        self.until = until

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        left = self.until - time.monotonic()
        if left <= 0:
            raise TimeoutError
        self._connection.settimeout(left)
        return self._received.readinto(buffer)

    def close(self) -> None:
        self._received.close()
        super().close()
