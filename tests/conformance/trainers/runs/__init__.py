"""One small run for each algorithm, by the papers."""

from tests.conformance.trainers.runs import bassily_guzman, lowy_razaviyayn, wang_erm, wang_nonsmooth, yang_nsgd
from tests.conformance.trainers.runs.a_run import FEATURES, ROWS, Run

__all__ = ["FEATURES", "ROWS", "RUNS", "Run"]

RUNS: dict[str, Run] = {
    **yang_nsgd.RUNS,
    **wang_nonsmooth.RUNS,
    **wang_erm.RUNS,
    **lowy_razaviyayn.RUNS,
    **bassily_guzman.RUNS,
}
