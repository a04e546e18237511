"""What fuzzing begins with: good inputs of each target, and those that were found to crash it once."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

from app.algorithms.examples import CALIBRATE_EXAMPLES
from app.kit.pagination import encode_cursor
from app.privacy.convert import CONVERT_EXAMPLES
from app.privacy.examples import ACCOUNT_EXAMPLES
from app.privacy.imports import IMPORT_EXAMPLES
from tests.fuzz.targets import BINDING
from trainer.checkpoint import pack

#: One folder for each target: inputs that crashed it once, and what takes the service to make.
FOLDER = Path(__file__).with_name("inputs")

_UPLOAD = (
    b'--boundary\r\nContent-Disposition: form-data; name="file"; filename="a.csv"\r\nContent-Type: text/csv\r\n\r\n'
    b"age,region,label\n1,north,no\n\r\n--boundary\r\nContent-Disposition: form-data; name=metadata\r\n"
    b"Content-Type: application/json\r\n\r\n{}\r\n--boundary--\r\n"
)
_NOTE = "epsilond/l1\n4\n" + "A" * 43 + "=\n\n— epsilond/l1 " + "B" * 90 + "==\n"
_GOOD: dict[str, list[bytes]] = {
    "events": [json.dumps(example["value"]).encode() for example in ACCOUNT_EXAMPLES.values()],
    "calibrations": [json.dumps(example["value"]).encode() for example in CALIBRATE_EXAMPLES.values()],
    "conversions": [json.dumps(example["value"]).encode() for example in CONVERT_EXAMPLES.values()],
    "imports": [json.dumps(example["value"]).encode() for example in IMPORT_EXAMPLES.values()],
    "notes": [_NOTE.encode()],
    "checkpoints": [pack(BINDING, {"steps": 3, "point": {"weights": np.arange(3.0)}, "last": None})],
    "cursors": [encode_cursor(*keys).encode() for keys in (("a",), (3,), (datetime(2026, 5, 1, tzinfo=UTC), "a"))],
    "headers": [b"text/html, application/json;q=0.9, */*;q=0.1"],
    "csv_files": [
        b'age,region,label\n1,north,no\n99.5,"south",yes\r\n',
        b"\xef\xbb\xbfage,region,label\n1e300,north,no\n",
    ],
    "uploads": [_UPLOAD],
}


def inputs_of(name: str) -> list[bytes]:
    """Where a target begins."""
    return [*_GOOD.get(name, ()), *(path.read_bytes() for path in sorted((FOLDER / name).glob("*")))]
