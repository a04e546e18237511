"""Samplers of the records that take part in a step: the sampling that was charged is the sampling that runs.

Every scheme draws slots, of which there are as many as public numbers say, and never looks at what they hold. The
number of slots that a Poisson step draws must stay as secret as the choice of slots, so the spare slot pads a batch to
a public size (`padding.py`).
"""

from trainer.samplers.epochs import AllocationSampler, ShuffledSampler
from trainer.samplers.for_sampling import check_sampling, sampler_for
from trainer.samplers.independent import (
    FullBatchSampler,
    PoissonSampler,
    TruncatedPoissonSampler,
    WithoutReplacementSampler,
)
from trainer.samplers.sampler import Sampler
from trainer.samplers.turns import CyclicPoissonSampler, FixedOrderSampler, TurnsSampler

__all__ = [
    "AllocationSampler",
    "CyclicPoissonSampler",
    "FixedOrderSampler",
    "FullBatchSampler",
    "PoissonSampler",
    "Sampler",
    "ShuffledSampler",
    "TruncatedPoissonSampler",
    "TurnsSampler",
    "WithoutReplacementSampler",
    "check_sampling",
    "sampler_for",
]
