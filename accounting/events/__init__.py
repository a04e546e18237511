"""The vocabulary of privacy: descriptions of a private computation, as far as its privacy depends on them.

An `Event` is a mechanism, the sampling of its input and a count. `noise_multiplier` is always the scale of the noise
on the SUM of contributions over one record's contribution bound, under every neighbouring relation: the standard
deviation in l2 for Gaussian kinds, the scale b in l1 for Laplace kinds.

Each mechanism has a file. grid.py has the code that two of them share, and samplings.py has all samplings. The
annotation of a field says what the field means and its range. Nothing here knows what an event costs: that is in
`accounting.losses`, in files of the same names. Every file of this folder is imported, so that a mechanism is found
where it is registered.
"""

from importlib import import_module
from pkgutil import iter_modules

from accounting.events.correlated_gaussian import (
    BufferedGaussian,
    CorrelatedGaussian,
    InverseSquareRootGaussian,
    SquareRootGaussian,
)
from accounting.events.discrete_gaussian import DiscreteGaussian
from accounting.events.discrete_laplace import DiscreteLaplace
from accounting.events.event import Event, check_events, event_from_json, group_events, prefix_of_events
from accounting.events.exponential import Exponential
from accounting.events.gaussian import Gaussian
from accounting.events.gaussian_mixture import GaussianMixture
from accounting.events.generalized_gaussian import GeneralizedGaussian
from accounting.events.laplace import Laplace
from accounting.events.mechanism import MECHANISMS, Mechanism
from accounting.events.randomized_response import RandomizedResponse
from accounting.events.report_noisy_max import ReportNoisyMax
from accounting.events.samplings import (
    FULL_BATCH,
    SAMPLINGS,
    Blocks,
    CyclicPoisson,
    DisjointBatches,
    FixedOrderEpochs,
    FullBatch,
    Poisson,
    RandomAllocation,
    Sampling,
    ShuffledEpochs,
    ShuffleModel,
    TruncatedPoisson,
    WithoutReplacement,
    WithReplacement,
)
from accounting.events.stated import ApproximateDp, PureDp, RenyiDp, ZcDp
from accounting.events.tree_aggregation import TreeAggregation

__all__ = [
    "FULL_BATCH",
    "MECHANISMS",
    "SAMPLINGS",
    "ApproximateDp",
    "Blocks",
    "BufferedGaussian",
    "CorrelatedGaussian",
    "CyclicPoisson",
    "DiscreteGaussian",
    "DiscreteLaplace",
    "DisjointBatches",
    "Event",
    "Exponential",
    "FixedOrderEpochs",
    "FullBatch",
    "Gaussian",
    "GaussianMixture",
    "GeneralizedGaussian",
    "InverseSquareRootGaussian",
    "Laplace",
    "Mechanism",
    "Poisson",
    "PureDp",
    "RandomAllocation",
    "RandomizedResponse",
    "RenyiDp",
    "ReportNoisyMax",
    "Sampling",
    "ShuffleModel",
    "ShuffledEpochs",
    "SquareRootGaussian",
    "TreeAggregation",
    "TruncatedPoisson",
    "WithReplacement",
    "WithoutReplacement",
    "ZcDp",
    "check_events",
    "event_from_json",
    "group_events",
    "prefix_of_events",
]

for _module in iter_modules(__path__):
    import_module(f"{__name__}.{_module.name}")
