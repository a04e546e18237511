"""This module computes the answers of the other libraries, each by its own public interface with its own defaults.

The libraries are imported by name, and only when their answers are computed: most of them have no type hints, and the
tests of the table run without them. If a library returns an interval, the upper end is taken, since a user must charge
this end.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType
from typing import Any

from accounting.relations import NeighboringRelation
from benchmarks.accounting.cases import FixedSize, Target, Training
from benchmarks.timing import perturbed

#: The allowed error in epsilon of Microsoft's accountant and of Opacus' copy of it. The value is Opacus' default.
PRV_EPSILON_ERROR = 0.01


@dataclass(frozen=True, slots=True)
class Peer:
    """One accountant of one library.

    Attributes:
        name: The name in the table.
        distribution: The package that contains the accountant.
        epsilon: A function that returns the accountant's epsilon of a training run.
        noise: A function that returns the library's noise multiplier for a target; None if this is not measured.
    """

    name: str
    distribution: str
    epsilon: Callable[[Training, int], float]
    noise: Callable[[Target, int], float] | None = None


def _dp_accounting(accountant: str) -> tuple[Any, Callable[..., Any]]:
    library: Any = import_module("dp_accounting")
    modules = {"PLDAccountant": "dp_accounting.pld", "RdpAccountant": "dp_accounting.rdp"}
    make: Callable[..., Any] = getattr(import_module(modules[accountant]), accountant)
    return library, make


def dp_accounting_epsilon(accountant: str) -> Callable[[Training, int], float]:
    """Return dp-accounting's epsilon by one of its accountants, with its default grid of 1e-4."""

    def epsilon(training: Training, index: int) -> float:
        library, make = _dp_accounting(accountant)
        mechanism = library.GaussianDpEvent(perturbed(training.noise_multiplier, index))
        step = library.PoissonSampledDpEvent(training.sampling_probability, mechanism)
        event = library.SelfComposedDpEvent(step, training.steps)
        return float(make().compose(event).get_epsilon(training.delta))

    return epsilon


def dp_accounting_noise(accountant: str) -> Callable[[Target, int], float]:
    """Return the noise of dp-accounting's `calibrate_dp_mechanism`, with its default bracket and tolerance."""

    def noise(target: Target, index: int) -> float:
        library, make = _dp_accounting(accountant)

        def event(noise_multiplier: float) -> Any:
            mechanism = library.GaussianDpEvent(noise_multiplier)
            step = library.PoissonSampledDpEvent(target.sampling_probability, mechanism)
            return library.SelfComposedDpEvent(step, target.steps)

        return float(library.calibrate_dp_mechanism(make, event, perturbed(target.epsilon, index), target.delta))

    return noise


def dp_accounting_fixed_size(case: FixedSize, index: int) -> float:
    """Return dp-accounting's epsilon by its own event for fixed-size batches. The event's noise is a multiple of the
    sensitivity, which is twice the contribution bound here."""
    library, make = _dp_accounting("RdpAccountant")
    mechanism = library.GaussianDpEvent(perturbed(case.noise_multiplier, index) / 2.0)
    step = library.SampledWithoutReplacementDpEvent(case.dataset_size, case.batch_size, mechanism)
    accountant = make(neighboring_relation=library.NeighboringRelation.REPLACE_ONE)
    return float(accountant.compose(library.SelfComposedDpEvent(step, case.steps)).get_epsilon(case.delta))


def dp_accounting_full_batch(accountant: str, noise_multiplier: float, relation: str, delta: float) -> float:
    """Return dp-accounting's epsilon of one Gaussian mechanism under one of its own relations."""
    library, make = _dp_accounting(accountant)
    relations = {
        NeighboringRelation.ADD_OR_REMOVE_ONE: library.NeighboringRelation.ADD_OR_REMOVE_ONE,
        NeighboringRelation.REPLACE_ONE: library.NeighboringRelation.REPLACE_ONE,
    }
    accountant_ = make(neighboring_relation=relations[NeighboringRelation(relation)])
    return float(accountant_.compose(library.GaussianDpEvent(noise_multiplier)).get_epsilon(delta))


def prv_epsilon(training: Training, index: int) -> float:
    """Return epsilon by Microsoft's prv_accountant, with the delta error that its documentation recommends: delta /
    1000."""
    library: Any = import_module("prv_accountant")
    mechanism = library.PoissonSubsampledGaussianMechanism(
        noise_multiplier=perturbed(training.noise_multiplier, index),
        sampling_probability=training.sampling_probability,
    )
    accountant = library.PRVAccountant(
        prvs=mechanism,
        max_self_compositions=training.steps,
        eps_error=PRV_EPSILON_ERROR,
        delta_error=training.delta / 1000,
    )
    return float(accountant.compute_epsilon(training.delta, training.steps)[2])


@cache
def opacus_accountants() -> Any:
    """Return Opacus' accountants. They can be used without torch, which takes gigabytes.

    The accountants need only NumPy and SciPy. But their package imports torch for the rest of the library, and an
    annotation in their code names one class of torch. If torch is missing, an empty package and an empty class take the
    place of the package `opacus` and of that class. Every line of the accountants is still Opacus' own, and the answers
    are equal, bit for bit, to those with torch 2.13.
    """
    if find_spec("torch") is None and "opacus" not in sys.modules:
        found = find_spec("opacus")
        if found is None or found.submodule_search_locations is None:
            raise ModuleNotFoundError("opacus is not installed; run `make bench-accounting`")
        package, optimizers = ModuleType("opacus"), ModuleType("opacus.optimizers")
        package.__path__ = list(found.submodule_search_locations)
        vars(optimizers)["DPOptimizer"] = type("DPOptimizer", (), {})
        sys.modules |= {"opacus": package, "opacus.optimizers": optimizers}
    import_module("opacus.accountants.utils")
    return import_module("opacus.accountants")


def opacus_epsilon(accountant: str) -> Callable[[Training, int], float]:
    """Return Opacus' epsilon by its accountant "prv" or "rdp"."""

    def epsilon(training: Training, index: int) -> float:
        tracker = opacus_accountants().create_accountant(accountant)
        noise = perturbed(training.noise_multiplier, index)
        tracker.history = [(noise, training.sampling_probability, training.steps)]
        return float(tracker.get_epsilon(training.delta))

    return epsilon


def opacus_noise(accountant: str) -> Callable[[Target, int], float]:
    """Return the noise of Opacus' `get_noise_multiplier`, with its default tolerance of 0.01 in epsilon."""

    def noise(target: Target, index: int) -> float:
        found = opacus_accountants().utils.get_noise_multiplier(
            target_epsilon=perturbed(target.epsilon, index),
            target_delta=target.delta,
            sample_rate=target.sampling_probability,
            steps=target.steps,
            accountant=accountant,
        )
        return float(found)

    return noise


def autodp_epsilon(training: Training, index: int) -> float:
    """Return autodp's epsilon of noisy SGD, by its Rényi accountant."""
    zoo: Any = import_module("autodp.mechanism_zoo")
    noise = perturbed(training.noise_multiplier, index)
    mechanism = zoo.NoisySGD_Mechanism(training.sampling_probability, noise, training.steps)
    return float(mechanism.get_approxDP(training.delta))


def autodp_fourier_epsilon(training: Training, index: int) -> float:
    """Return autodp's epsilon by its analytical Fourier accountant, the larger one of both directions."""
    zoo: Any = import_module("autodp.mechanism_zoo")
    transformers: Any = import_module("autodp.transformer_zoo")
    noise = perturbed(training.noise_multiplier, index)
    answers = []
    for direction in ("add_only", "remove_only"):
        mechanism = zoo.GaussianMechanism(sigma=noise, phi_off=False, RDP_off=True)
        mechanism.neighboring = direction
        sampled = transformers.AmplificationBySampling_pld(PoissonSampling=True, neighboring=direction)
        step = sampled(mechanism, training.sampling_probability)
        answers.append(float(transformers.ComposeAFA()([step], [training.steps]).get_approxDP(training.delta)))
    return max(answers)


PLD = Peer(
    "dp-accounting PLD", "dp-accounting", dp_accounting_epsilon("PLDAccountant"), dp_accounting_noise("PLDAccountant")
)
DP_ACCOUNTING_RDP = Peer(
    "dp-accounting RDP", "dp-accounting", dp_accounting_epsilon("RdpAccountant"), dp_accounting_noise("RdpAccountant")
)
PEERS = (
    PLD,
    Peer("prv_accountant", "prv-accountant", prv_epsilon),
    Peer("Opacus PRV", "opacus", opacus_epsilon("prv"), opacus_noise("prv")),
    DP_ACCOUNTING_RDP,
    Peer("Opacus RDP", "opacus", opacus_epsilon("rdp"), opacus_noise("rdp")),
    Peer("autodp RDP", "autodp", autodp_epsilon),
)
DISTRIBUTIONS = ("numpy", "scipy", "dp-accounting", "opacus", "prv-accountant", "autodp")
