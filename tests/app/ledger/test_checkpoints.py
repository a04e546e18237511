"""Signed notes and verifier keys: the formats as other programs know them, and no note that was changed."""

from __future__ import annotations

import base64
import hashlib

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from app.ledger.checkpoints import (
    MAX_NOTE_LENGTH,
    Checkpoint,
    InvalidNote,
    VerifierKey,
    open_note,
    read_note,
    sign,
)

#: The first test key of RFC 8032, section 7.1.
PRIVATE = Ed25519PrivateKey.from_private_bytes(
    bytes.fromhex("9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60")
)
PUBLIC = bytes.fromhex("d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a")
#: The public key of a log that has been public for years: its id is made by another program than ours.
KNOWN_KEY = "sum.golang.org+033de0ae+Ac4zctda0e5eza+HJyk9SxEdh+s3Ux18htTTAD8OuAn8"

ORIGIN = "epsilond/led_a"
STATE = Checkpoint(ORIGIN, 7, hashlib.sha256(b"root").digest())
NOTE = sign(STATE, PRIVATE)
KEY = VerifierKey.of(PRIVATE, ORIGIN)


def test_a_note_is_put_together_as_the_format_says() -> None:
    text = f"{ORIGIN}\n7\n{base64.b64encode(STATE.root).decode()}\n"
    key_id = hashlib.sha256(ORIGIN.encode() + b"\n\x01" + PUBLIC).digest()[:4]
    signature = base64.b64encode(key_id + PRIVATE.sign(text.encode())).decode()
    assert f"{text}\n\N{EM DASH} {ORIGIN} {signature}\n" == NOTE
    assert open_note(NOTE, KEY) == STATE


def test_keys_are_those_of_other_programs() -> None:
    assert str(VerifierKey.parse(KNOWN_KEY)) == KNOWN_KEY
    assert KEY.key == PUBLIC
    assert VerifierKey.parse(f"{KEY}\n") == KEY


@pytest.mark.parametrize(
    "text",
    [
        "",
        "name",
        "name+033de0ae",
        KNOWN_KEY.replace("033de0ae", "033de0af"),
        KNOWN_KEY.replace("sum.", "sun."),
        KNOWN_KEY[:-4],
        KNOWN_KEY.replace("+Ac4z", "+Bc4z"),
        f"+{KNOWN_KEY.partition('+')[2]}",
        f"a b{KNOWN_KEY[KNOWN_KEY.index('+') :]}",
    ],
)
def test_what_is_no_key_is_refused(text: str) -> None:
    with pytest.raises(InvalidNote, match="this is not a public key of a ledger"):
        VerifierKey.parse(text)


def test_bytes_have_one_text() -> None:
    """Else a note that two parties keep could differ, and say the same."""
    root = base64.b64encode(STATE.root).decode()
    other = root[:-2] + chr(ord(root[-2]) + 1) + "="
    assert base64.b64decode(other) == STATE.root
    with pytest.raises(InvalidNote, match="this is not a checkpoint"):
        read_note(NOTE.replace(root, other))


def test_a_changed_byte_anywhere_is_seen() -> None:
    data = NOTE.encode()
    for place in range(len(data)):
        changed = data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :]
        try:
            text = changed.decode()
        except UnicodeDecodeError:
            continue
        with pytest.raises(InvalidNote):
            open_note(text, KEY)


def test_another_key_or_ledger_is_seen() -> None:
    other = Ed25519PrivateKey.generate()
    with pytest.raises(InvalidNote, match="has no signature of the public key"):
        open_note(NOTE, VerifierKey.of(other, ORIGIN))
    with pytest.raises(InvalidNote, match="and the public key to epsilond/led_b"):
        open_note(NOTE, VerifierKey.of(PRIVATE, "epsilond/led_b"))


def test_signatures_of_others_are_passed_over_and_a_wrong_one_of_the_key_is_not() -> None:
    other = sign(STATE, Ed25519PrivateKey.generate()).rpartition("\n\n")[2]
    assert open_note(NOTE + other, KEY) == STATE
    assert len(read_note(NOTE + other)[1]) == 2
    own = NOTE.rpartition("\n\n")[2]
    wrong = sign(Checkpoint(ORIGIN, 8, STATE.root), PRIVATE).rpartition("\n\n")[2]
    with pytest.raises(InvalidNote, match="changed after it was signed"):
        open_note(NOTE + wrong, KEY)
    with pytest.raises(InvalidNote, match="changed after it was signed"):
        open_note(NOTE.replace(own, wrong + own), KEY)


def test_a_note_has_as_many_signatures_as_fit() -> None:
    other = sign(STATE, Ed25519PrivateKey.generate()).rpartition("\n\n")[2]
    fitting = (MAX_NOTE_LENGTH - len(NOTE)) // len(other)
    assert open_note(NOTE + fitting * other, KEY) == STATE
    with pytest.raises(InvalidNote, match="this is not a signed note"):
        open_note(NOTE + (fitting + 1) * other, KEY)


def signed_text(text: str) -> str:
    return f"{text}\n{NOTE.rpartition(chr(10) * 2)[2]}"


ROOT = base64.b64encode(STATE.root).decode()


@pytest.mark.parametrize(
    "note",
    [
        "",
        "\n\n",
        ORIGIN,
        NOTE.rstrip("\n"),
        NOTE.replace("\N{EM DASH}", "-"),
        NOTE.partition("\n\n")[0] + "\n\n",
        signed_text(f"{ORIGIN}\n7\n"),
        signed_text(f"{ORIGIN}\n07\n{ROOT}\n"),
        signed_text(f"{ORIGIN}\n-7\n{ROOT}\n"),
        signed_text(f"{ORIGIN}\n\N{SUPERSCRIPT TWO}\n{ROOT}\n"),
        signed_text(f"{ORIGIN}\n{'9' * 5000}\n{ROOT}\n"),
        signed_text(f"{ORIGIN}\n7\n{ROOT[:-4]}\n"),
        signed_text(f"{ORIGIN}\n7\n{ROOT}\nmore\n"),
        signed_text(f"\n7\n{ROOT}\n"),
        signed_text(f"a b\n7\n{ROOT}\n"),
        NOTE + " " * MAX_NOTE_LENGTH + "\n",
    ],
)
def test_what_is_no_checkpoint_is_refused(note: str) -> None:
    with pytest.raises(InvalidNote, match="this is not a"):
        read_note(note)
