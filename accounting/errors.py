"""Errors of the engine when there is no sound answer: what was wrong, where, and what would be right."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

Pointer = tuple[str | int, ...]


class AccountingError(ValueError):
    """A request that has no sound answer.

    Attributes:
        code: Stable machine-readable name, such as ``"unsupported_sampling"``.
        detail: One or two sentences for a person: what was wrong and what would be right.
        pointer: The place in the input, as path segments relative to the object that was being read.
    """

    code: str = "invalid_input"

    def __init__(self, detail: str, *, code: str | None = None, pointer: Pointer = ()) -> None:
        super().__init__(detail)
        self.detail = detail
        self.pointer = pointer
        if code is not None:
            self.code = code

    def inside(self, *prefix: str | int) -> AccountingError:
        """Return the same error with a prefix to its pointer, so that it is relative to the enclosing object."""
        self.pointer = (*prefix, *self.pointer)
        return self


@contextmanager
def inside(*prefix: str | int) -> Iterator[None]:
    """Prefix the pointers of errors in the block, so that they are relative to the enclosing object."""
    try:
        yield
    except AccountingError as error:
        raise error.inside(*prefix) from None


class InvalidValue(AccountingError):
    """A value is outside its range, or is not a number."""

    code = "invalid_value"


class Unsupported(AccountingError):
    """No theorem covers this combination. The detail says why and names the combinations that work."""

    code = "unsupported"


class NoCostInFilter(AccountingError):
    """A privacy filter has no proved additive cost for an event; the detail names the filters that have one."""

    code = "no_cost_in_filter"


class Unreachable(AccountingError):
    """The target is met by no value of the unknown."""

    code = "unreachable_target"


def one_of(names: Sequence[str]) -> str:
    """Return ``a, b or c``, for the sentence that says what would have worked.

    >>> one_of(["poisson", "full_batch"])
    'poisson or full_batch'
    """
    if len(names) < 2:
        return "".join(names)
    return f"{', '.join(names[:-1])} or {names[-1]}"
