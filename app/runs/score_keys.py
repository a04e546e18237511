"""The key of the noise on a trial's score or on an evaluation. It comes from the operating system, and is written to
the disk before it is used.

The key is in the folder of checkpoints, and is protected like a checkpoint. It is removed with them when the run has
ended and the score is stored. It belongs to one random stream, like the noise of the training, so a run that begins
again has another key. A run that is restored from a backup begins again, so no two scores have the same noise.
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
    """Return the key of the evaluation's noise, derived from the key that the score uses itself.

    >>> evaluation_key(1) == evaluation_key(1), evaluation_key(1) == 1
    (True, False)
    """
    return int.from_bytes(hashlib.sha256(b"evaluation\n" + key.to_bytes(_BYTES)).digest()[:_BYTES])


def kept_score_key(files: CheckpointFiles, run_id: str, stream_id: str) -> int | None:
    """Return the key with which the stream was started; None if it is missing or damaged."""
    content = files.read_score_key(run_id, stream_id)
    return None if content is None or len(content) != _BYTES else int.from_bytes(content)
