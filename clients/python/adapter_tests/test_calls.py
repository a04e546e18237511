"""Pasted calls compared with the real libraries: arguments, events, noise and claims must be the same."""

from __future__ import annotations

import ast
import dataclasses
import inspect
from pathlib import Path
from typing import Any

import dp_accounting
import jax_privacy
import pytest
import torch
from dp_accounting import dp_event
from jax_privacy import accounting as jax_accounting
from jax_privacy.experimental import accounting as jax_events
from jax_privacy.experimental import execution_plan
from opacus import PrivacyEngine
from opacus.accountants import RDPAccountant
from opacus.accountants.utils import get_noise_multiplier
from torch.utils.data import DataLoader, TensorDataset

from accounting.dp_accounting_adapter import library_epsilon
from accounting.dp_event_reader import FIELDS
from accounting.dp_events import from_dp_event
from accounting.interoperability.calls import (
    Known,
    PastedCall,
    dp_event_calls,
    jax_privacy_calls,
    opacus_calls,
    read_call,
)
from accounting.interoperability.calls.facts import Signature
from accounting.interoperability.opacus import OpacusHistory
from accounting.relations import NeighboringRelation


def _parameters(function: Any) -> list[inspect.Parameter]:
    found = list(inspect.signature(function).parameters.values())
    return [each for each in found if each.name not in ("self", "cls") and each.kind is not each.VAR_KEYWORD]


@pytest.mark.parametrize(
    ("function", "signature", "beyond"),
    [
        (PrivacyEngine.__init__, opacus_calls._ENGINE, ""),
        (PrivacyEngine.make_private, opacus_calls._MAKE_PRIVATE, ""),
        # The arguments that are passed on to `get_noise_multiplier`.
        (PrivacyEngine.make_private_with_epsilon, opacus_calls._MAKE_PRIVATE_WITH_EPSILON, "epsilon_tolerance"),
        (get_noise_multiplier, opacus_calls._GET_NOISE_MULTIPLIER, ""),
        (RDPAccountant.step, opacus_calls._STEP, ""),
        (jax_accounting.DpParams, jax_privacy_calls._DP_PARAMS, ""),
        (jax_accounting.calibrate_noise_multiplier, jax_privacy_calls._CALIBRATE, ""),
        (jax_accounting.DpsgdTrainingAccountant.compute_epsilon, jax_privacy_calls._COMPUTE_EPSILON, ""),
        (execution_plan.BandMFExecutionPlanConfig, jax_privacy_calls._PLAN_CONFIG, ""),
        (dp_accounting.PrivacyAccountant.compose, dp_event_calls._COMPOSE, ""),
        (dp_accounting.rdp.RdpAccountant, dp_event_calls._ACCOUNTANTS["RdpAccountant"][1], ""),
        (dp_accounting.pld.PLDAccountant, dp_event_calls._ACCOUNTANTS["PLDAccountant"][1], ""),
        *((getattr(jax_events, name), taken, "") for name, taken in dp_event_calls.EVENT_FUNCTIONS.items()),
    ],
    ids=lambda value: getattr(value, "__qualname__", ""),
)
def test_a_function_takes_the_arguments_that_are_read(function: Any, signature: Signature, beyond: str) -> None:
    theirs = _parameters(function)
    assert set(signature.names) - set(beyond.split()) == {each.name for each in theirs}
    by_place = [each.name for each in theirs if each.kind is not each.KEYWORD_ONLY]
    assert list(signature.by_place) == by_place


def test_the_configuration_for_keras_has_the_fields_that_are_read() -> None:
    """This test reads the library's source, because Keras is not installed."""
    [package] = jax_privacy.__path__
    tree = ast.parse((Path(package) / "keras_api.py").read_text())
    [config] = [each for each in tree.body if isinstance(each, ast.ClassDef) and each.name == "DPKerasConfig"]
    fields = [each.target for each in config.body if isinstance(each, ast.AnnAssign)]
    assert [each.id for each in fields if isinstance(each, ast.Name)] == list(jax_privacy_calls._KERAS.names)


def test_events_have_the_fields_that_are_read() -> None:
    for name, fields in FIELDS.items():
        if (cls := getattr(dp_event, name, None)) is not None:
            assert [each.name for each in _parameters(cls)] == list(fields), name


@pytest.mark.parametrize("text", [
    "dpsgd_event(1.1, 1000, sampling_prob=0.01)",
    "fixed_dpsgd_event(noise_multiplier=1.1, iterations=20, dataset_size=600, batch_size=60)",
    "amplified_bandmf_event(1.1, 1001, num_bands=4, sampling_prob=0.04)",
    "truncated_dpsgd_event(1.1, 9, sampling_prob=0.1, num_examples=300, truncated_batch_size=90)",
    "truncated_amplified_bandmf_event(1.1, 9, num_bands=2, sampling_prob=0.1, largest_group_size=300,"
    " truncated_batch_size=90)",
    "ComposedDpEvent([SelfComposedDpEvent(PoissonSampledDpEvent(0.5, GaussianDpEvent(2.0)), 3), LaplaceDpEvent(4.0)])",
    "SelfComposedDpEvent(event=SingleEpochTreeAggregationDpEvent(2.0, [4, 8]), count=3)",
])  # fmt: skip
def test_an_event_is_the_one_that_the_library_makes(text: str) -> None:
    relation = NeighboringRelation.REPLACE_ONE if text.startswith("fixed") else NeighboringRelation.REPLACE_SPECIAL
    theirs = eval(text, {**vars(dp_event), **vars(jax_events)})
    ours = read_call(text, Known(delta=1e-5, relation=relation))
    assert ours.imported().events == from_dp_event(theirs, relation)


#: These are warnings of Opacus about its generator, and about where its accountants stop.
@pytest.mark.filterwarnings("ignore:Secure RNG turned off:UserWarning", "ignore:Optimal order is:UserWarning")
@pytest.mark.parametrize(("records", "size"), [(100, 20), (101, 20), (930, 10)])
@pytest.mark.parametrize("poisson", [True, False])
def test_a_private_engine_records_what_is_read(records: int, size: int, poisson: bool) -> None:
    data = TensorDataset(torch.zeros(records, 2), torch.zeros(records, dtype=torch.long))
    module = torch.nn.Linear(2, 2)
    engine = PrivacyEngine(accountant="rdp")
    module, optimizer, loader = engine.make_private(
        module=module,
        optimizer=torch.optim.SGD(module.parameters(), lr=0.1),
        data_loader=DataLoader(data, batch_size=size, shuffle=True),
        noise_multiplier=2.0,
        max_grad_norm=1.0,
        poisson_sampling=poisson,
    )
    for features, labels in loader:
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(module(features), labels).backward()
        optimizer.step()
    text = (
        "engine = PrivacyEngine(accountant='rdp')\n"
        f"engine.make_private(data_loader=DataLoader(data, batch_size={size}, shuffle=True), noise_multiplier=2.0,\n"
        f"    max_grad_norm=1.0, poisson_sampling={poisson})"
    )
    read = read_call(text, Known(dataset_size=records, epochs=1, delta=1e-5))
    assert isinstance(read.record, OpacusHistory)
    assert list(read.record.history) == engine.accountant.history
    assert read.imported().reported.epsilon == pytest.approx(engine.get_epsilon(1e-5), rel=2e-3)


@pytest.mark.filterwarnings("ignore:GDP accounting is experimental:UserWarning", "ignore:Optimal order is:UserWarning")
@pytest.mark.parametrize("accountant", ["rdp", "prv", "gdp"])
def test_the_noise_for_a_target_is_what_opacus_finds(accountant: str) -> None:
    for epsilon, delta, rate, steps in [(3.0, 1e-5, 0.01, 1000), (1.0, 1e-6, 0.02, 500)]:
        text = (
            f"get_noise_multiplier(target_epsilon={epsilon}, target_delta={delta}, sample_rate={rate}, steps={steps},\n"
            f"    accountant='{accountant}')"
        )
        read = read_call(text)
        assert isinstance(read.record, OpacusHistory)
        [(noise, _, _)] = read.record.history
        assert noise == eval(text, {"get_noise_multiplier": get_noise_multiplier})


def _claimed(read: PastedCall) -> float:
    assert read.charged is not None
    return library_epsilon(read.charged, read.charged_relation, read.delta, read.accountant)


@pytest.mark.parametrize("method", ["POISSON", "FIXED_BATCH_SIZE"])
def test_a_training_accountant_claims_what_is_compared(method: str) -> None:
    text = (
        "DpParams(noise_multipliers=1.5, num_samples=6000, delta=1e-5, batch_size=60,\n"
        f"    sampling_method=SamplingMethod.{method})"
    )
    params = eval(text, vars(jax_accounting))
    theirs = jax_accounting.DpsgdTrainingAccountant(jax_accounting.PldAccountantConfig()).compute_epsilon(200, params)
    assert _claimed(read_call(text, Known(steps=200))) == pytest.approx(theirs, rel=1e-9)


def test_the_noise_for_a_target_is_no_more_than_jax_privacy_finds() -> None:
    text = (
        "calibrate_noise_multiplier(target_epsilon=2.0, accountant=accountant, batch_sizes=60, num_updates=200,\n"
        "    num_samples=6000, target_delta=1e-5, tol=0.001)"
    )
    accountant = jax_accounting.DpsgdTrainingAccountant(jax_accounting.PldAccountantConfig())
    theirs = eval(text, vars(jax_accounting) | {"accountant": accountant})
    [event] = read_call(text).imported().events
    assert theirs * 0.99 < event.mechanism.noise_multiplier <= theirs


def test_an_execution_plan_charges_what_is_read() -> None:
    text = "BandMFExecutionPlanConfig.default(num_bands=3, iterations=100, epsilon=2.0, delta=1e-5, sampling_prob=0.1)"
    plan = eval(text, vars(execution_plan)).plan
    [theirs] = from_dp_event(plan.dp_event, NeighboringRelation.REPLACE_SPECIAL)
    [ours] = read_call(text).imported().events
    assert dataclasses.replace(theirs, mechanism=ours.mechanism) == ours
    assert (
        theirs.mechanism.noise_multiplier * 0.99 < ours.mechanism.noise_multiplier <= theirs.mechanism.noise_multiplier
    )
