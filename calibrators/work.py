"""The work of default choices: about a minute of one core. A request that wants more says so."""

from __future__ import annotations

#: Numbers that all steps together may multiply. It decides steps and batch sizes that nobody gives.
WORK = 5e10
#: No default has fewer steps than this for the sake of its work.
FEWEST_STEPS = 100


def affordable_steps(dataset_size: int, dimension: int) -> int:
    """Return how many steps over all records fit the work, and `FEWEST_STEPS` at least.

    >>> affordable_steps(50_000, 1_000), affordable_steps(10**7, 10**3)
    (1000, 100)
    """
    return max(int(WORK / (dataset_size * dimension)), FEWEST_STEPS)
