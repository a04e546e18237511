"""The key of the noise of a trial's score, or of an evaluation: from the operating system, kept before it is used.

It lies in the folder of checkpoints, is sealed and encrypted as they are, and goes with them when the run has ended:
the score is stored then. It belongs to one stream of randomness, as the noise of the training does, so that a run which
begins anew has another one. What is restored from a backup begins anew: no two scores have one noise.
"""

from __future__ import annotations

import hashlib
import secrets

from app.runs.checkpoint_files import CheckpointFiles

_BYTES = 16


def new_score_key(files: CheckpointFiles, run_id: str, stream_id: str) -> int:
    """Draw a key, and return it once it is on the disk.

    Raises:
        OSError: it cannot be kept.
    """
    content = secrets.token_bytes(_BYTES)
    files.write_score_key(run_id, stream_id, content)
    return int.from_bytes(content)


def evaluation_key(key: int) -> int:
    """Return the key of the evaluation's noise, where the score has noise of the key itself.

    >>> evaluation_key(1) == evaluation_key(1), evaluation_key(1) == 1
    (True, False)
    """
    return int.from_bytes(hashlib.sha256(b"evaluation\n" + key.to_bytes(_BYTES)).digest()[:_BYTES])


def kept_score_key(files: CheckpointFiles, run_id: str, stream_id: str) -> int | None:
    """Return the key that the stream was started with; None where it is gone or damaged."""
    content = files.read_score_key(run_id, stream_id)
    return None if content is None or len(content) != _BYTES else int.from_bytes(content)
