"""This module contains Table 1 of Yang, Zhang, Chen & Liu 2022 on stationary points of non-convex empirical risk."""

from __future__ import annotations

import math

from calibrators.comparison import Expression, Row, Table

_PAPER = "Yang, Zhang, Chen & Liu 2022"
_PRIVATE = Expression(r"(d \ln(1/\delta) / (n \varepsilon)^2)^{1/4}", lambda at: math.sqrt(at.privacy))

NONCONVEX = Table(
    "nonconvex_erm",
    "Non-convex empirical risk: clipping and normalisation",
    f"{_PAPER}, Table 1",
    "gradient norm",
    rows=(
        Row("SGD (Ghadimi & Lan 2013)", "smooth, bounded variance; not private", Expression("T^{-1/4}")),
        Row(
            "clipped SGD (Zhang et al. 2020)",
            "(L0, L1)-smooth, bounded deviation; clips batches, not records; not private",
            Expression("T^{-1/4}"),
        ),
        Row(
            "federated DP-NSGD (Das et al. 2021)",
            "smooth, quasar-convex",
            Expression(r"\text{not legible in the source; it has a term of heterogeneity}"),
        ),
        Row("DP-GD (Wang, Chen & Xu 2019)", "smooth, bounded gradients, so no gradient is clipped", _PRIVATE),
        Row("DP-SGD", "(L0, L1)-smooth, bounded deviation; per-record bias counted", _PRIVATE, algorithm="dp_sgd"),
        Row(
            "DP-NSGD",
            "(L0, L1)-smooth, bounded deviation; per-record bias counted",
            _PRIVATE,
            algorithm="dp_nsgd",
            remark="In addition, there is a floor that depends on the regulariser.",
        ),
    ),
)

TABLES = (NONCONVEX,)
