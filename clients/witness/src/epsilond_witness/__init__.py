"""A witness of transparency logs (C2SP, tlog-witness), and a monitor of the ledger of an epsilond service.

It imports only the standard library and ``cryptography``, and nothing of the service.
"""

from epsilond_witness.cosigning import Answer, Witness
from epsilond_witness.monitor import Alert, Look, Monitor
from epsilond_witness.notes import Key, Kind, Malformed, Note

__all__ = ["Alert", "Answer", "Key", "Kind", "Look", "Malformed", "Monitor", "Note", "Witness"]
