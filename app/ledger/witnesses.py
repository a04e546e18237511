"""The witnesses that the settings name, and how many of them must have cosigned."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from app.ledger.checkpoints import InvalidNote
from app.ledger.cosignatures import WitnessKey
from app.settings import Settings

#: A cosignature is too old after this many intervals.
_FRESH_INTERVALS = 3


class WrongWitnesses(ValueError):
    """The settings name invalid witnesses or an invalid quorum; the message says why."""


@dataclass(frozen=True)
class Witness:
    """A witness: its key, and the address below which it is asked."""

    key: WitnessKey
    address: str


@dataclass(frozen=True)
class Witnesses:
    """All witnesses and their quorum.

    Attributes:
        members: The witnesses, in the order of the settings; empty if nobody cosigns.
        quorum: How many of them must cosign a checkpoint; 0 if there are no witnesses.
        fresh_s: The age in seconds above which cosignatures count as missing.
    """

    members: tuple[Witness, ...]
    quorum: int
    fresh_s: float

    @property
    def keys(self) -> tuple[WitnessKey, ...]:
        """Return the keys of the witnesses."""
        return tuple(witness.key for witness in self.members)


def witnesses_of(settings: Settings) -> Witnesses:
    """Return the witnesses that the settings name.

    Raises:
        WrongWitnesses: a key is malformed, two are the same, or the quorum exceeds the number of witnesses.
    """
    return _read(settings.witnesses, settings.witness_quorum, settings.witness_interval_s * _FRESH_INTERVALS)


def check_different(keys: Sequence[WitnessKey]) -> None:
    """Check that no key or name occurs twice.

    One witness under two names would count as two, and nobody could tell apart two witnesses with the same name.

    Raises:
        WrongWitnesses: a key or a name occurs twice.
    """
    if len({key.key for key in keys}) < len(keys) or len({key.name for key in keys}) < len(keys):
        raise WrongWitnesses("two witnesses have the same key or the same name")


@lru_cache(maxsize=8)
def _read(given: str, quorum: int | None, fresh_s: float) -> Witnesses:
    words = given.split()
    try:
        keys = [WitnessKey.parse(text) for text in words[::2]]
        check_different(keys)
    except (InvalidNote, WrongWitnesses) as error:
        raise WrongWitnesses(f"EPSILOND_WITNESSES: {error}.") from None
    if quorum is not None and quorum > len(keys):
        raise WrongWitnesses(
            f"EPSILOND_WITNESS_QUORUM: {quorum} must cosign, but there are only {len(keys)} witnesses."
        )
    members = tuple(Witness(key, address.rstrip("/")) for key, address in zip(keys, words[1::2], strict=True))
    return Witnesses(members, len(members) if quorum is None else quorum, fresh_s)
