"""Facts about a pasted call: those that it states, those that were filled in or are assumed, and those still
missing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from accounting.errors import AccountingError, InvalidValue
from accounting.interoperability.batches import Batches
from accounting.interoperability.calls.snippet import Call, Unread, Value, is_number
from accounting.near_names import hint, suggestion
from accounting.numbers import MAX_COUNT, MAX_DATASET_SIZE, MAX_NOISE_MULTIPLIER, read_integer, read_real
from accounting.relations import NeighboringRelation

#: The facts that may have to be filled in, as the end of "the call does not say ...".
QUESTIONS: Mapping[str, str] = {
    "dataset_size": "how many records there are",
    "batch_size": "how many records a batch has",
    "epochs": "how many passes over the data are made",
    "steps": "how many steps are taken",
    "noise_multiplier": "the noise multiplier",
    "delta": "delta",
    "batches": "how batches are drawn",
}
_INTEGERS = {"dataset_size": MAX_DATASET_SIZE, "batch_size": MAX_DATASET_SIZE, "steps": MAX_COUNT}


class Incomplete(AccountingError):
    """A call that lacks numbers; `missing` has a sentence for each field that would supply one."""

    code = "missing"

    def __init__(self, missing: Mapping[str, str]) -> None:
        super().__init__(" ".join(missing.values()))
        self.missing = dict(missing)

    def __reduce__(self) -> tuple[type[Incomplete], tuple[dict[str, str]]]:
        return Incomplete, (self.missing,)


@dataclass(frozen=True, slots=True)
class Known:
    """The facts that were filled in beside a call; None for a fact that was not."""

    dataset_size: int | None = None
    batch_size: int | None = None
    epochs: float | None = None
    steps: int | None = None
    noise_multiplier: float | None = None
    delta: float | None = None
    batches: Batches | None = None
    relation: NeighboringRelation | None = None


@dataclass(frozen=True, slots=True)
class Assumed:
    """An assumption that the call does not state, and on which its numbers rely.

    Attributes:
        name: The name of the assumption.
        value: The assumed value, in words.
        reason: The reason for the assumption, and the text that would show otherwise.
    """

    name: str
    value: str
    reason: str


class Signature:
    """The arguments that a function takes.

    Args:
        names: The names in their order, separated by blanks. Names after ``*`` are given by name only; ``...`` at the
            end stands for others that do not matter.
    """

    def __init__(self, names: str) -> None:
        listed = names.split()
        self.takes_others = listed[-1:] == ["..."]
        listed = listed[: len(listed) - self.takes_others]
        star = listed.index("*") if "*" in listed else len(listed)
        self.by_place = tuple(listed[:star])
        self.names = (*self.by_place, *listed[star + 1 :])

    def bind(self, call: Call) -> dict[str, Value]:
        """Return the arguments of a call by their names.

        Raises:
            InvalidValue: If there are too many arguments, an argument is given twice, or the function does not take it.

        >>> call = Call("f", None, "f", (1,), {"c": 3}, 1, 1)
        >>> Signature("a * b c").bind(call)
        {'a': 1, 'c': 3}
        """
        if len(call.arguments) > len(self.by_place):
            most = f"takes {len(self.by_place)} arguments by place" if self.by_place else "takes its arguments by name"
            raise InvalidValue(f"{call.name} {most}, and {len(call.arguments)} are given in this way ({call.place})")
        bound = dict(zip(self.by_place, call.arguments, strict=False))
        for name, value in call.keywords.items():
            if name in bound:
                raise InvalidValue(f"{call.name} is given {name} twice ({call.place})")
            meant = suggestion(name, self.names) if self.takes_others else hint(name, self.names)
            if name not in self.names and (meant or not self.takes_others):
                raise InvalidValue(f"{call.name} takes no argument {name} ({call.place}).{meant}".removesuffix("."))
            bound[name] = value
        return bound


class Facts:
    """Gathers the numbers of a call.

    Attributes:
        said: The values in the call, by the names of its arguments.
        assumed: The assumptions beside them.
    """

    def __init__(self, call: Call, known: Known) -> None:
        self.said: dict[str, str] = {}
        self.assumed: list[Assumed] = []
        self._call = call
        self._known = known
        self._missing: dict[str, str] = {}

    def suppose(self, name: str, value: object, reason: str) -> None:
        """Note an assumption on which the numbers rely."""
        self.assumed.append(Assumed(name, f"{value}", reason))

    def number(
        self, argument: str, given: Mapping[str, Value], lower: float = 0.0, upper: float = 1e6, *, default: float = 0.0
    ) -> float:
        """Read a number that only the call can give; return the default if it is left out.

        Raises:
            InvalidValue: If the value is not a number, or is out of range.
        """
        value = self.read(argument, given)
        if value is None:
            return default
        if isinstance(value, Unread):
            raise InvalidValue(f"{argument} must be written as a number, not as {value.text} ({self._call.place})")
        return self._real(argument, value, lower, upper)

    def count(self, field: str, argument: str, given: Mapping[str, Value]) -> int:
        """Return a whole number from the call or from what was filled in, else 0, which `settle` refuses."""
        found = self.amount(field, argument, given, 1, _INTEGERS.get(field, MAX_COUNT))
        return self._integer(argument, found) if found else 0

    def amount(
        self, field: str, argument: str, given: Mapping[str, Value], lower: float = 0.0, upper: float = 1e6
    ) -> float:
        """Return a number from the call or from what was filled in; 0 if neither has it, which `settle` refuses.

        Args:
            field: The member of `QUESTIONS` that would supply the number.
            argument: The argument of the call.
            given: The arguments of the call.
            lower, upper: The range of the number.

        Raises:
            InvalidValue: If the value is not a number or is out of range, or a different number is filled in.
        """
        value = self.read(argument, given)
        known: float | None = getattr(self._known, field)
        if value is None or isinstance(value, Unread | Call):
            if known is None:
                self.miss(field, f"{argument}={value.text}" if isinstance(value, Unread) else "")
            return known or 0.0
        found = self._real(argument, value, lower, upper)
        if known is not None and known != found:
            raise InvalidValue(f"the call says {argument}={found:g}; leave this field empty", pointer=(field,))
        return found

    def noise(self, argument: str, given: Mapping[str, Value]) -> float:
        """Return the noise multiplier that the call says or that is filled in, as `amount` does."""
        return self.amount("noise_multiplier", argument, given, 1e-3, MAX_NOISE_MULTIPLIER)

    def delta(self, argument: str, given: Mapping[str, Value]) -> float:
        """Return the delta that the call says or that is filled in, as `amount` does."""
        return self.amount("delta", argument, given, 1e-30, 0.5)

    def flag(self, argument: str, given: Mapping[str, Value], default: bool) -> bool | None:
        """Return True or False; the default if the argument is left out; None if the text does not show its value."""
        value = self.read(argument, given)
        if value is None:
            return default
        if isinstance(value, bool):
            return value
        if isinstance(value, Unread):
            return None
        raise InvalidValue(f"{argument} must be True or False ({self._call.place})")

    def word(self, argument: str, given: Mapping[str, Value], known: Mapping[str, str], default: str) -> str:
        """Return the meaning of an argument that is one of a few words, or a name of an enumeration.

        Raises:
            InvalidValue: If the word is none of them.
        """
        value = self.read(argument, given)
        if value is None:
            return known[default]
        word = value.last if isinstance(value, Unread) else value.name if isinstance(value, Call) else value
        if not isinstance(word, str) or word not in known:
            raise InvalidValue(f"{argument} is none of {', '.join(known)} ({self._call.place})")
        return known[word]

    def refuse(self, argument: str, given: Mapping[str, Value], reason: str, allowed: Value = None) -> None:
        """Refuse an argument that changes the release in a way that is not accounted here."""
        if given.get(argument) not in (None, allowed):
            raise InvalidValue(f"{argument}: {reason} ({self._call.place})")

    def read(self, argument: str, given: Mapping[str, Value]) -> Value:
        """Return the argument, and note it as stated if it is a value."""
        value = given.get(argument)
        if isinstance(value, bool | int | float | str):
            self.said[argument] = f"{value}"[:60]
        return value

    def miss(self, field: str, said: str = "") -> None:
        """Note that a fact has to be filled in."""
        sentence = f"The call does not say {QUESTIONS[field]}: fill it in."
        if said:
            sentence = f"The call says {said}, whose value is not in the pasted text: fill it in."
        self._missing.setdefault(field, sentence)

    def settle(self) -> None:
        """Go on only if nothing is missing.

        Raises:
            Incomplete: If something is missing.
        """
        if self._missing:
            raise Incomplete(self._missing)

    def _real(self, argument: str, value: Value, lower: float, upper: float) -> float:
        if not is_number(value):
            raise InvalidValue(f"{argument} must be a number ({self._call.place})")
        try:
            read_real(argument, value, lower, upper)
        except InvalidValue as error:
            raise InvalidValue(f"{error.detail} ({self._call.place})") from None
        assert isinstance(value, int | float)
        return value

    def _integer(self, argument: str, value: float) -> int:
        try:
            return read_integer(argument, value, 1, MAX_DATASET_SIZE)
        except InvalidValue as error:
            raise InvalidValue(f"{error.detail} ({self._call.place})") from None
