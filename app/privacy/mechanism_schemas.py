"""Mechanisms as the HTTP contract writes them, and the way to the engine's own."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from accounting.events import (
    ApproximateDp,
    DiscreteGaussian,
    DiscreteLaplace,
    Exponential,
    Gaussian,
    GaussianMixture,
    GeneralizedGaussian,
    Laplace,
    Mechanism,
    PureDp,
    RandomizedResponse,
    RenyiDp,
    ReportNoisyMax,
    TreeAggregation,
    ZcDp,
)
from accounting.mechanisms.discrete_laplace import MIN_GRID
from accounting.mechanisms.exponential import MAX_EPSILON
from accounting.mechanisms.gaussian_mixture import MAX_BRANCHES
from accounting.mechanisms.randomized_response import MAX_CATEGORIES, MIN_FLIP_PROBABILITY
from accounting.numbers import (
    MAX_COUNT,
    MAX_DIMENSION,
    MAX_NOISE_MULTIPLIER,
    MAX_ORDER,
    MAX_ORDERS,
    MIN_NOISE_MULTIPLIER,
)
from app.kit.fields import Integer, Schema

NoiseMultiplier = Annotated[
    float,
    Field(
        ge=MIN_NOISE_MULTIPLIER,
        le=MAX_NOISE_MULTIPLIER,
        description="Scale of the noise on the SUM of contributions over one record's contribution bound: standard "
        "deviation for Gaussian kinds, scale b for Laplace kinds; the same under every neighbouring relation.",
    ),
]


class GaussianSchema(Schema):
    """Gaussian noise on a sum of contributions of bounded l2 norm."""

    kind: Literal["gaussian"]
    noise_multiplier: NoiseMultiplier

    def to_mechanism(self) -> Mechanism:
        return Gaussian(self.noise_multiplier)


class GaussianMixtureSchema(Schema):
    """Gaussian noise whose scale is drawn at every step, independently of the data, and published."""

    kind: Literal["gaussian_mixture"]
    weights: list[Annotated[float, Field(gt=0, le=1)]] = Field(
        min_length=1, max_length=MAX_BRANCHES, description="Probabilities of the branches; they add up to 1."
    )
    noise_multipliers: list[NoiseMultiplier] = Field(
        min_length=1, max_length=MAX_BRANCHES, description="One for each weight."
    )

    def to_mechanism(self) -> Mechanism:
        return GaussianMixture(tuple(self.weights), tuple(self.noise_multipliers))


class LaplaceSchema(Schema):
    """Laplace noise on a sum of contributions of bounded l1 norm."""

    kind: Literal["laplace"]
    noise_multiplier: NoiseMultiplier

    def to_mechanism(self) -> Mechanism:
        return Laplace(self.noise_multiplier)


class GeneralizedGaussianSchema(Schema):
    """Noise of density exp(-|z|_r^2 / (2 sigma^2)) on a sum of contributions that are bounded in the dual norm l_q."""

    kind: Literal["generalized_gaussian"]
    norm_order: float = Field(ge=1, le=2, description="p of the norm of the parameters; 1/p + 1/q = 1.")
    dimension: Integer = Field(ge=1, le=MAX_DIMENSION, description="Of the vector that is released.")
    kappa: float = Field(
        gt=0, le=1e12, description="Regularity constant of the noise's norm; one that is not proved is refused."
    )
    noise_multiplier: NoiseMultiplier

    def to_mechanism(self) -> Mechanism:
        return GeneralizedGaussian(self.norm_order, self.dimension, self.kappa, self.noise_multiplier)


class TreeAggregationSchema(Schema):
    """Prefix sums by binary trees with Gaussian noise on every node, as a whole; a record is in a leaf of each tree."""

    kind: Literal["tree_aggregation"]
    noise_multiplier: NoiseMultiplier
    num_leaves: Integer = Field(ge=1, le=MAX_COUNT, description="Steps that one tree sums up.")
    restarts: Integer = Field(
        ge=0, le=MAX_COUNT - 1, description="How often a new tree was begun, in which a record may take part again."
    )

    def to_mechanism(self) -> Mechanism:
        return TreeAggregation(self.noise_multiplier, self.num_leaves, self.restarts)


Grid = Annotated[
    float,
    Field(
        ge=MIN_GRID,
        le=1,
        description="Spacing of the grid of contributions and noise, over the contribution bound: 1 over an integer.",
    ),
]


class RandomizedResponseSchema(Schema):
    """Every record answers with its category, or with one drawn uniformly; accounted under the replace relations."""

    kind: Literal["randomized_response"]
    num_categories: Integer = Field(ge=2, le=MAX_CATEGORIES)
    flip_probability: float = Field(
        ge=MIN_FLIP_PROBABILITY,
        le=1,
        description="That the answer is drawn uniformly from all categories, the true one among them.",
    )

    def to_mechanism(self) -> Mechanism:
        return RandomizedResponse(self.num_categories, self.flip_probability)


class DiscreteLaplaceSchema(Schema):
    """Discrete Laplace noise on a scalar sum of contributions on a grid."""

    kind: Literal["discrete_laplace"]
    noise_multiplier: NoiseMultiplier
    grid: Grid

    def to_mechanism(self) -> Mechanism:
        return DiscreteLaplace(self.noise_multiplier, self.grid)


class DiscreteGaussianSchema(Schema):
    """Discrete Gaussian noise on a scalar sum of contributions on a grid."""

    kind: Literal["discrete_gaussian"]
    noise_multiplier: NoiseMultiplier
    grid: Grid

    def to_mechanism(self) -> Mechanism:
        return DiscreteGaussian(self.noise_multiplier, self.grid)


class ExponentialSchema(Schema):
    """The exponential mechanism with weights e^(epsilon score / (2 Delta)), Delta the largest change of any score."""

    kind: Literal["exponential"]
    epsilon: float = Field(ge=0, le=MAX_EPSILON)

    def to_mechanism(self) -> Mechanism:
        return Exponential(self.epsilon)


class ReportNoisyMaxSchema(Schema):
    """The name of the largest of noisy scores, with noise of scale 2 Delta / epsilon; nothing else is released."""

    kind: Literal["report_noisy_max"]
    epsilon: float = Field(ge=0, le=MAX_EPSILON)
    noise: Literal["laplace", "gumbel", "exponential"] = Field(
        description="`laplace`: Two-sided exponential noise. `gumbel`: Noise that makes the exponential mechanism of "
        "it. `exponential`: One-sided exponential noise, which makes the permute-and-flip mechanism of it."
    )

    def to_mechanism(self) -> Mechanism:
        return ReportNoisyMax(self.epsilon, self.noise)


class PureDpSchema(Schema):
    """Any mechanism with a proof of epsilon-DP under the relation of the request."""

    kind: Literal["pure_dp"]
    epsilon: float = Field(ge=0, le=1e6)

    def to_mechanism(self) -> Mechanism:
        return PureDp(self.epsilon)


class ApproximateDpSchema(Schema):
    """Any mechanism with a proof of (epsilon, delta)-DP under the relation of the request."""

    kind: Literal["approximate_dp"]
    epsilon: float = Field(ge=0, le=1e6)
    delta: float = Field(ge=0, le=1, description="Probability that the guarantee of epsilon fails.")

    def to_mechanism(self) -> Mechanism:
        return ApproximateDp(self.epsilon, self.delta)


class ZcDpSchema(Schema):
    """Any mechanism with a proof of rho-zCDP under the relation of the request."""

    kind: Literal["zcdp"]
    rho: float = Field(ge=0, le=1e6)

    def to_mechanism(self) -> Mechanism:
        return ZcDp(self.rho)


class RenyiDpSchema(Schema):
    """Any mechanism with a proof of Renyi DP at some orders under the relation of the request."""

    kind: Literal["renyi_dp"]
    orders: list[Annotated[float, Field(gt=1, le=MAX_ORDER)]] = Field(
        min_length=1, max_length=MAX_ORDERS, description="Numbers above 1, increasing."
    )
    epsilons: list[Annotated[float, Field(ge=0, le=1e6)]] = Field(
        min_length=1, max_length=MAX_ORDERS, description="The Renyi divergence at each order; it never decreases."
    )

    def to_mechanism(self) -> Mechanism:
        return RenyiDp(tuple(self.orders), tuple(self.epsilons))


MechanismSchema = Annotated[
    GaussianSchema
    | GaussianMixtureSchema
    | LaplaceSchema
    | GeneralizedGaussianSchema
    | TreeAggregationSchema
    | RandomizedResponseSchema
    | DiscreteLaplaceSchema
    | DiscreteGaussianSchema
    | ExponentialSchema
    | ReportNoisyMaxSchema
    | PureDpSchema
    | ApproximateDpSchema
    | ZcDpSchema
    | RenyiDpSchema,
    Field(discriminator="kind", title="Mechanism"),
]
