"""One example for each algorithm, by the papers."""

from tests.conformance.examples import bassily_guzman, lowy_razaviyayn, wang_erm, wang_nonsmooth, yang_nsgd
from tests.conformance.examples.example import Example

__all__ = ["EXAMPLES", "Example"]

EXAMPLES: dict[str, Example] = {
    **yang_nsgd.EXAMPLES,
    **wang_nonsmooth.EXAMPLES,
    **wang_erm.EXAMPLES,
    **lowy_razaviyayn.EXAMPLES,
    **bassily_guzman.EXAMPLES,
}
