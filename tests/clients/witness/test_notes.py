"""Keys, notes and cosignatures: what others wrote is read, and nothing that is only similar."""

from __future__ import annotations

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from epsilond_witness.notes import Key, Kind, Malformed, Note, cosign, read_signatures, read_size
from epsilond_witness.trees import begins_with

from app.ledger import merkle
from app.ledger.checkpoints import VerifierKey
from app.ledger.cosignatures import WitnessKey
from tests.app.ledger.rfc9162 import tree_hash
from tests.clients.witness.cases import Log, leaves, proof

#: The key and the note that the documentation of Go's module golang.org/x/mod/sumdb/note shows.
GO_KEY = "PeterNeumann+c74f20a3+ARpc2QcUPDhMQegwxbzhKqiBfsVkmqq/LDE4izWy10TW"


def test_a_key_of_another_implementation_is_read() -> None:
    key = Key.parse(GO_KEY, Kind.LOG)
    assert (key.name, key.id.hex(), str(key)) == ("PeterNeumann", "c74f20a3", GO_KEY)
    assert str(VerifierKey.parse(GO_KEY)) == GO_KEY
    with pytest.raises(Malformed, match="must be a key of a witness"):
        Key.parse(GO_KEY, Kind.COSIGNER)


def test_the_service_reads_the_keys_as_the_witness_does() -> None:
    private = Ed25519PrivateKey.generate()
    own, theirs = Key.of(private, "w.example/a", Kind.COSIGNER), WitnessKey.of(private, "w.example/a")
    assert (str(own), own.id) == (str(theirs), theirs.key_id)
    of_log = Key.of(private, "w.example/a", Kind.LOG)
    assert of_log.id != own.id, "a key that signs for a log is not taken for that of a witness"


@pytest.mark.parametrize(
    "text",
    ["", "a", "a+b", GO_KEY[1:], GO_KEY[:-1], GO_KEY.replace("c74f20a3", "c74f20a4"), f"a b{GO_KEY}", GO_KEY + "AAAA"],
)
def test_what_is_no_key_is_refused(text: str) -> None:
    with pytest.raises(Malformed):
        Key.parse(text, Kind.LOG)


def test_a_cosignature_is_of_one_text_time_and_key() -> None:
    log, private = Log(leaves(9)), Ed25519PrivateKey.generate()
    key = Key.of(private, "w.example", Kind.COSIGNER)
    text = log.note(9)
    body = text.partition("\n\n")[0] + "\n"
    signature = cosign(body, private, key, 1_800_000_000)
    assert list(read_signatures(signature.line)) == [signature]
    assert Note.parse(text + signature.line).cosigned_at(key) == 1_800_000_000
    assert Note.parse(text).cosigned_at(key) is None
    later = type(signature)(key.name, key.id, (1_800_000_001).to_bytes(8, "big") + signature.data[8:])
    for note in (log.note(8) + signature.line, text + later.line):
        with pytest.raises(Malformed, match="does not verify"):
            Note.parse(note).cosigned_at(key)
    # The signature of a log over the same text is no cosignature.
    plain = type(signature)(key.name, key.id, signature.data[:8] + private.sign(body.encode()))
    with pytest.raises(Malformed, match="does not verify"):
        Note.parse(text + plain.line).cosigned_at(key)
    # The newest counts.
    newer = cosign(body, private, key, 1_800_000_500)
    assert Note.parse(text + newer.line + signature.line).cosigned_at(key) == 1_800_000_500


@pytest.mark.parametrize("text", ["", "-1", "+1", "01", "1_0", " 1", "1 ", "1e3", "\u0661", str(2**63), "1" * 5000])
def test_what_is_no_size_is_refused(text: str) -> None:
    with pytest.raises(Malformed):
        read_size(text)


def test_trees_are_compared_as_the_rfc_says() -> None:
    """Every pair of sizes up to 20, with the path of a second implementation; and no other path or root."""
    every = leaves(20)
    nodes = [merkle.leaf_hash(leaf) for leaf in every]
    for second in range(21):
        for first in range(second + 1):
            path = proof(first, every[:second])
            small, large = (first, tree_hash(every[:first])), (second, tree_hash(every[:second]))
            assert begins_with(small, large, path)
            read = merkle.Tiles(lambda level, index: nodes if level == 0 else [])
            assert path == merkle.consistency_path(read, first, second)
            assert not begins_with((first, bytes(32)), large, path)
            if first > 0:
                assert not begins_with(small, (second, bytes(32)), path)
            assert not begins_with(small, large, [*path, bytes(32)])
            if path:
                assert not begins_with(small, large, path[:-1])
    assert not begins_with((3, tree_hash(every[:3])), (2, tree_hash(every[:2])), [])
